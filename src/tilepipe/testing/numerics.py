"""How far a result may lie from the float64 one: one bound, one table of constants.

    |got - want| <= c · eps · sqrt(K) · (|A| |B|)   +   eps_out · |want|

elementwise: rounding of K products accumulated in float32 grows like sqrt(K) times the unit
roundoff, scaled by the magnitudes that were summed; the second term is the rounding of the result
to its own dtype, and for numbers below the smallest normal one half of their distance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError
from tilepipe.testing.arguments import Array, numbers, tolerance

# c of the bound, by accumulation. float32 accumulation of exact products stays below 1 on random
# data; 4 leaves room for other orders of summation.
ACCUMULATION = {"float32": (4.0, float(np.finfo(np.float32).eps))}
# Hopper's tensor cores align the products of an fp8 instruction and the running sum with the
# largest of them, and cut off what lies more than 13 bits below its leading one: about 14 bits are
# kept (DeepSeek-V3 Technical Report, arXiv:2412.19437, section 3.3.2, which reports single errors
# of nearly 2% for K = 4096).
FP8_CUT = 2.0**-13
# Of the unit roundoff: root mean square of rounding errors, over that of the numbers, is about 0.43
# of it.
ROUNDED = 0.6
# Unit roundoff of the output dtype.
OUTPUT_EPS = {
    "float32": float(np.finfo(np.float32).eps) / 2,
    "float16": float(np.finfo(np.float16).eps) / 2,
    "bfloat16": 2.0**-8,
}

# Half of the distance of numbers that are too small for the relative bound: subnormal ones.
SMALLEST = {"float32": 2.0**-150, "float16": 2.0**-25, "bfloat16": 2.0**-134}


def rounding(dtype: str, want: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How far `want` may move when it is rounded to a dtype; 0 for a dtype that has no bound."""
    found = np.maximum(OUTPUT_EPS.get(dtype, 0.0) * np.abs(want), SMALLEST.get(dtype, 0.0))
    return np.asarray(1.01 * found)


def fp8_sum_error(k: int) -> float:
    """What the error of sums of `k` products may be, root mean square over root mean square, where
    tensor cores of Hopper add them all up ("fast" accumulation, of fp8 alone): half a cut for each
    product, which add up like a random walk, 2**-14 · sqrt(k).

    Normal random operands give two fifths of it, by an emulation of those sums as on an H200
    (0.9e-3 at K = 2048, 2.0e-3 at 8192).
    """
    return FP8_CUT / 2 * float(np.sqrt(k))


@dataclass(frozen=True)
class Comparison:
    """`ok`: every element within the bound. `rel_error`: ‖got - want‖ / ‖want‖ (Frobenius).
    `worst`: largest error over its bound, and where. `wrong`: elements beyond it.
    """

    ok: bool
    rel_error: float
    worst: float
    worst_at: tuple[int, ...]
    wrong: int = 0

    def __str__(self) -> str:
        verdict = (
            "right"
            if self.ok
            else f"WRONG at {self.worst_at}: {self.worst:.3g} times the allowed error"
        )
        return f"relative error {self.rel_error:.2e}, {verdict}"


def compare_matmul(
    got: Array,
    a: Array,
    b: Array,
    accumulation: str = "float32",
    then: Callable[[npt.NDArray[np.float64]], Any] | None = None,
) -> Comparison:
    """Compares `got` (m, n) with a (m, k) @ b (k, n) computed in float64. NaN never passes. `then`:
    applied to the product; its slope is at most about 1, as that of activations is.

    Raises:
        BindError: no arrays of numbers; `got` has the wrong shape, or a dtype without an entry in
            the table.
    """
    got, a, b = numbers("got", got), numbers("a", a), numbers("b", b)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise BindError(f"compare_matmul takes a (m, k) and b (k, n); got {a.shape} and {b.shape}")
    if accumulation not in ACCUMULATION:
        raise BindError(
            f"no error bound for accumulation in {accumulation!r}; known: {', '.join(ACCUMULATION)}"
        )
    if got.shape != (a.shape[0], b.shape[1]):
        raise BindError(f"a result of shape {got.shape} for a product of {a.shape} and {b.shape}")
    name = got.dtype.name
    if name not in OUTPUT_EPS:
        raise BindError(f"no error bound for {name} results; known: {', '.join(OUTPUT_EPS)}")
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    want = a64 @ b64 if then is None else then(a64 @ b64)
    c, eps = ACCUMULATION[accumulation]
    bound = c * eps * np.sqrt(max(a.shape[1], 1)) * (np.abs(a64) @ np.abs(b64))
    bound = bound + rounding(name, want)
    return _judged(np.abs(got.astype(np.float64) - want), bound, want)


def judged_by_the_whole(comparison: Comparison, k: int, out: str) -> Comparison:
    """A comparison of fp8 results of dtype `out`, whose sums of `k` products tensor cores made:
    right where the error of all elements together is. Single ones may be off by more than the bound
    of float32 sums allows.
    """
    return replace(
        comparison, ok=comparison.rel_error <= ROUNDED * OUTPUT_EPS[out] + fp8_sum_error(k)
    )


def compare(
    got: Array, want: npt.ArrayLike, *, rtol: npt.ArrayLike | None = None, atol: npt.ArrayLike = 0.0
) -> Comparison:
    """Compares an array with a reference of its shape: |got - want| <= atol + rtol · |want|,
    elementwise.

    Infinities and NaN are right where the reference has the same.

    Args:
        rtol, atol: numbers, or arrays that broadcast to `got`. rtol None: the rounding of the
            reference to the dtype of `got`; 0 where that is no floating-point dtype of 16 bits or
            more.

    Raises:
        BindError: another shape; no arrays of numbers; a tolerance that is negative or does not
            fit.
    """
    got, want = numbers("got", got), numbers("want", want)
    if got.shape != want.shape:
        raise BindError(f"a result of shape {got.shape} and a reference of {want.shape}")
    relative, absolute = (
        _fitting(name, given, got.shape)
        for name, given in (("rtol", 0.0 if rtol is None else rtol), ("atol", atol))
    )
    got64, want64 = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where(
            (got64 == want64) | (np.isnan(got64) & np.isnan(want64)), 0.0, np.abs(got64 - want64)
        )
        allowed = rounding(got.dtype.name, want64) if rtol is None else relative * np.abs(want64)
        bound = np.nan_to_num(absolute + allowed, posinf=0.0)
    return _judged(
        error, np.broadcast_to(bound, got.shape), np.where(np.isfinite(want64), want64, 0.0)
    )


def _fitting(name: str, given: npt.ArrayLike, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    found = tolerance(name, given)
    try:
        return np.broadcast_to(found, shape)
    except ValueError:
        raise BindError(
            f"{name}= is a number, or an array that broadcasts to the output's {shape}; got one of"
            f" {found.shape}"
        ) from None


def _judged(
    error: npt.NDArray[np.float64], bound: npt.NDArray[np.float64], want: npt.NDArray[np.float64]
) -> Comparison:
    """Errors over their bounds; one that is not finite is beyond any."""
    with np.errstate(over="ignore"):  # an error where nothing may be off
        ratio = np.where(
            np.isfinite(error), error / np.maximum(bound, np.finfo(np.float64).tiny), np.inf
        )
    at = np.unravel_index(int(ratio.argmax()), ratio.shape) if ratio.size else (0,) * ratio.ndim
    norm = float(np.linalg.norm(want))
    rel = (
        float(np.linalg.norm(np.where(np.isfinite(error), error, np.inf))) / norm
        if norm
        else float(error.max(initial=0))
    )
    worst = float(ratio.max(initial=0.0))
    return Comparison(worst <= 1.0, rel, worst, tuple(int(i) for i in at), int((ratio > 1.0).sum()))
