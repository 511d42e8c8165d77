"""The grouped product in NumPy: what the offsets mean, distributions of rows over groups, and the
float64 result.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp

Array = npt.NDArray[Any]
SPLITS = ("random", "even", "skewed", "one")


def bounds(offsets: Array, m: int) -> list[tuple[int, int]]:
    """(first row, row after the last) of each group: an offset counts as at most `m`, and at least
    the one before it.
    """
    ends = itertools.accumulate(offsets.tolist(), lambda end, x: max(min(x, m), end), initial=0)
    return list(itertools.pairwise(ends))


def split_rows(rng: np.random.Generator, m: int, groups: int, split: str) -> npt.NDArray[np.int32]:
    """Offsets of `groups` groups that share `m` rows.

    Args:
        split: "random": any rows for each, about as many. "even": as equal as it goes. "skewed":
            few groups have most of the rows, some none. "one": one group, in the middle, has all.
            "129,0,255": so many rows each; the rest is of no group.

    Raises:
        BindError: no such split, or not the rows of as many groups, or more than there are.
    """
    rows = split.split(",")
    if split not in SPLITS and not all(x.isdecimal() for x in rows):
        raise tp.BindError(
            f"split must be one of {', '.join(SPLITS)}, or the rows of each group as 129,0,255,"
            f" got {split!r}"
        )
    if split not in SPLITS:
        return _ends([int(x) for x in rows], m, groups)
    if split == "even":
        return (np.arange(1, groups + 1) * m // groups).astype(np.int32)
    if split == "one":
        return np.where(np.arange(groups) < groups // 2, 0, m).astype(np.int32)
    shares = rng.dirichlet(np.full(groups, 8.0 if split == "random" else 0.25))
    ends = np.rint(np.cumsum(shares) * m).astype(np.int32)
    ends[-1] = m
    return ends


def _ends(rows: list[int], m: int, groups: int) -> npt.NDArray[np.int32]:
    if len(rows) != groups:
        raise tp.BindError(f"split gives the rows of {len(rows)} groups; experts={groups}")
    if sum(rows) > m:
        raise tp.BindError(f"split gives {' + '.join(map(str, rows))} = {sum(rows)} rows; m={m}")
    return np.cumsum(rows).astype(np.int32)


def rows_of(c: Array, offsets: Array) -> Iterator[tuple[int, int, int]]:
    """(group, first row, row after the last) of each group with rows, of c (m, n), or (groups, m,
    n) whose groups have offsets[g] rows each.
    """
    m = c.shape[-2]
    found = (
        bounds(offsets, m)
        if c.ndim == 2
        else [(0, max(min(rows, m), 0)) for rows in offsets.tolist()]
    )
    return ((group, *rows) for group, rows in enumerate(found) if rows[0] < rows[1])


def compare(
    c: Array,
    before: Array,
    a: Array,
    b: Array,
    offsets: Array,
    a_scale: Array | None = None,
    b_scale: Array | None = None,
) -> tp.testing.Comparison:
    """C (m, n), padded (groups, m, n), beside the float64 products of the groups, each held to the
    bound of float32 sums; rows of no group must be what they were.

    Args:
        before: C before the kernel ran. b: (groups, n, k). a_scale: (m,). b_scale: (groups, n).
    """
    worst = tp.testing.Comparison(True, 0.0, 0.0, (0, 0))
    rest = np.ones(c.shape[:-1], bool)
    for group, start, end in rows_of(c, offsets):
        of = group if c.ndim == 3 else ...
        rest[of][start:end] = False
        left, right = a[of][start:end].astype(np.float64), b[group].astype(np.float64)
        if a_scale is not None and b_scale is not None:
            left, right = left * a_scale[start:end, None], right * b_scale[group][:, None]
        found = tp.testing.compare_matmul(c[of][start:end], left, right.T)
        row, col = found.worst_at
        at = (start + row, col) if found.worst > worst.worst else worst.worst_at
        worst = tp.testing.Comparison(
            worst.ok and found.ok,
            max(worst.rel_error, found.rel_error),
            max(worst.worst, found.worst),
            at,
        )
    touched = (c != before) & ~(np.isnan(c) & np.isnan(before)) & rest[..., None]
    if touched.any():
        row, col = np.argwhere(touched)[0][-2:].tolist()
        return tp.testing.Comparison(False, worst.rel_error, np.inf, (row, col))
    return worst
