"""What attention asks of the bounds of packed sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.kernels.attention.validation import NAME
from tilepipe.kernels.common.validation import check_array


def check_bounds(q_bounds: Any, k_bounds: Any, q: Any, k: Any) -> int:
    """The number of sequences that cu_seqlens_q and cu_seqlens_k state; 0 where both are None.

    Raises:
        BindError: one alone, no int32 arrays of one length, or NumPy arrays whose numbers descend
            or are no rows of q and k.
    """
    given = {"cu_seqlens_q": (q_bounds, q, "q"), "cu_seqlens_k": (k_bounds, k, "k")}
    missing = [name for name, (x, _, _) in given.items() if x is None]
    if len(missing) == 2:
        return 0
    if missing:
        other = next(name for name in given if name not in missing)
        raise tp.BindError(
            f"{NAME}: {other} is given without {missing[0]}: sequences are packed in q and in k;"
            f" where their lengths are the same, pass it as both"
        )
    for name, (bounds, _, _) in given.items():
        check_array(NAME, name, bounds)
        dtype = str(bounds.dtype).removeprefix("torch.")
        if dtype != "int32" or len(bounds.shape) != 1 or bounds.shape[0] < 2:
            raise tp.BindError(
                f"{NAME}: {name} is int32 of shape (sequences + 1,): where each sequence begins,"
                f" and where the last ends; it is {dtype} of {tuple(bounds.shape)}"
            )
    if q_bounds.shape[0] != k_bounds.shape[0]:
        raise tp.BindError(
            f"{NAME}: cu_seqlens_q has {q_bounds.shape[0]} numbers and cu_seqlens_k"
            f" {k_bounds.shape[0]}; both have one more than there are sequences"
        )
    for name, (bounds, x, of) in given.items():
        if isinstance(bounds, np.ndarray):
            _check_numbers(name, bounds, x, of)
    return int(q_bounds.shape[0]) - 1


def _check_numbers(name: str, bounds: Any, x: Any, of: str) -> None:
    if bounds[0] < 0 or (np.diff(bounds) < 0).any():
        i = 0 if bounds[0] < 0 else int(np.diff(bounds).argmin())
        found = f"{name}[{i}] is {bounds[i]}"
        found += "" if bounds[0] < 0 else f" and {name}[{i + 1}] is {bounds[i + 1]}"
        raise tp.BindError(f"{NAME}: {name} begins at 0 or above and does not descend; {found}")
    # of another rank x is refused later, with what it must be
    if len(getattr(x, "shape", ())) == 3 and bounds[-1] > x.shape[0]:
        raise tp.BindError(f"{NAME}: {name} ends at {bounds[-1]}, and {of} has {x.shape[0]} rows")
