"""Checks that every kernel makes of its arguments; messages name the kernel and the argument."""

from __future__ import annotations

from typing import Any

import tilepipe as tp


def mapped(
    kernel: str, name: str, x: Any, box: tuple[int, ...] | None = None, **rest: Any
) -> tp.TensorMap:
    """`tp.tensor_map(x, box, **rest)` of the argument `name` of `kernel`.

    Raises:
        BindError: it cannot be; the message names both.
    """
    try:
        return tp.tensor_map(x, box=box, **rest)
    except tp.BindError as error:
        raise tp.BindError(f"{kernel}: {name}: {error}") from None


def check_array(
    kernel: str, name: str, x: Any, rank: int = 0, dtypes: tuple[tp.DType, ...] = ()
) -> None:
    """Raises BindError for what is not an array, or, where they are given, of another rank or
    dtype.
    """
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise tp.BindError(f"{kernel}: {name} must be an array, got {x!r:.40}")
    if rank and len(x.shape) != rank:
        said = {1: "have 1 dimension", 2: "be a matrix"}.get(rank, f"have {rank} dimensions")
        raise tp.BindError(f"{kernel}: {name} must {said}, it has shape {tuple(x.shape)}")
    if dtypes and tuple(x.shape):
        found = mapped(kernel, name, x).dtype
        if found not in dtypes:
            takes = ", ".join(t.name for t in dtypes)
            raise tp.BindError(f"{kernel}: {name} is {found}; it may be {takes}")


def check_product(kernel: str, a: Any, b: Any, c: Any, times: str = "") -> None:
    """Raises BindError unless A (m, k), B (n, k) and C (m, n) fit together. `times`: of B, in
    words.
    """
    (m, k), (n, kb), out = a.shape[-2:], b.shape[-2:], tuple(c.shape[-2:])
    if kb != k or out != (m, n):
        raise tp.BindError(
            f"{kernel}: A is {m}×{k} and B {times}{n}×{kb} (n, k); C must be {m}×{n} and both k"
            f" equal, C is {'×'.join(map(str, out))}"
        )
