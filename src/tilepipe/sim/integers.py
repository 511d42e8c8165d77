"""Integer operations that can fail, or that NumPy and Python define otherwise than the device;
generated code calls them.

`ir.numbers` has the rules. Arrays are over the threads from `base` of an agent, of which those of
`mask` are active; the value of a thread counts where `condition` holds as well. Fragments have
arrays of two dimensions, whose threads are all active.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.ir.dtypes import DType
from tilepipe.ir.numbers import MAX_SHIFT, limits
from tilepipe.machine.sites import Site
from tilepipe.sim.runtime import lanes

Array = npt.NDArray[Any]
Condition = Array | bool


def fits(site: Site, value: int, bits: int) -> int:
    """`value`, the exact result of signed arithmetic in `bits` bits.

    Raises:
        SimFault: it does not fit.
    """
    high = 1 << (bits - 1)
    if -high <= value < high:
        return value
    raise SimFault(
        f"{site.what}: int{bits} overflow: {value:,} is outside {-high:,} .. {high - 1:,}. On the"
        " GPU it would wrap around; use a wider dtype.",
        site.loc,
    )


def all_fit(
    site: Site, values: Array, bits: int, mask: int, base: int, condition: Condition = True
) -> Array:
    """`fits` for an array; one of Python's integers becomes int64 again."""
    high = 1 << (bits - 1)
    if int(values.min()) < -high or int(values.max()) >= high:
        used = values[_used(values.shape, mask, base, condition)]
        if used.size:
            for value in (int(used.min()), int(used.max())):
                fits(site, value, bits)
        if values.dtype == object:
            values = np.where(np.abs(values) < high, values, 0)  # of threads that do not use theirs
    return values if values.dtype != object else values.astype(np.int64)


def _used(shape: tuple[int, ...], mask: int, base: int, condition: Condition) -> Array:
    """Which elements of an array of results are used."""
    active = lanes(mask, base, shape[0]) if len(shape) == 1 else np.ones(shape, np.bool_)
    return np.logical_and(active, condition)


def quotient(site: Site, a: int, b: int, bits: int) -> int:
    """`a // b` of signed integers of `bits` bits, rounded down."""
    if b == 0 or (b == -1 and a == -(1 << (bits - 1))):
        raise _undefined(site, a, b, bits, "//", "")
    return a // b


def remainder(site: Site, a: int, b: int, bits: int) -> int:
    """`a % b` of signed integers of `bits` bits, of the sign of `b`."""
    if b == 0 or (b == -1 and a == -(1 << (bits - 1))):
        raise _undefined(site, a, b, bits, "%", "")
    return a % b


def divisions(
    site: Site,
    a: Array | int,
    b: Array | int,
    bits: int,
    sign: str,
    mask: int,
    base: int,
    condition: Condition = True,
) -> Array:
    """`quotient` ("//") or `remainder` ("%") by element, any number where the result is not used
    and is undefined. `bits`: 0 for unsigned integers.

    Raises:
        SimFault: a thread divides by 0, or the least integer by -1.
    """
    a, b = np.broadcast_arrays(a, b)
    undefined = b == 0
    if bits:
        undefined |= (b == -1) & (a == -(1 << (bits - 1)))
    if undefined.any():
        wrong = np.argwhere(undefined & _used(undefined.shape, mask, base, condition))
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            who = (
                f" in thread {at[0] + base}"
                if len(at) == 1
                else f" at row {at[0]}, column {at[1]} of the fragment"
            )
            raise _undefined(site, int(a[at]), int(b[at]), bits, sign, who)
        b = np.where(undefined, 1, b)
    out: Array = np.floor_divide(a, b) if sign == "//" else np.remainder(a, b)
    return out


def _undefined(site: Site, a: int, b: int, bits: int, sign: str, who: str) -> SimFault:
    kind = "division" if sign == "//" else "remainder"
    if b == 0:
        return SimFault(
            f"{site.what}: integer {kind} by zero{who}: {a} {sign} 0. On the GPU it gives some"
            " number and no error; guard it with ctx.when(...) or ctx.select(...).",
            site.loc,
        )
    return SimFault(
        f"{site.what}: int{bits} overflow{who}: {a} {sign} {b} divides the least integer by -1, and"
        f" {1 << (bits - 1)} is no such integer. On the GPU the result is undefined; use a wider"
        " dtype.",
        site.loc,
    )


def shl_all(a: Array | int, amount: Array | int, bits: int) -> Array:
    """`numbers.shl` by element, of signed integers of `bits` bits, or of unsigned ones (0), which
    are wrapped round next.

    Of 64 bits and signed, the operands are Python's integers. Arrays of up to 32 bits are kept in
    int64, where a shift by more than 32 could come back into range: such a result is replaced by
    another one that fits no int32.
    """
    a, amount = np.broadcast_arrays(a, amount)
    if a.dtype == object:
        exact: Array = np.left_shift(
            a, np.where((amount < 0) | (amount >= MAX_SHIFT), MAX_SHIFT, amount)
        )
        return exact
    out: Array = np.left_shift(a, _amounts(amount, a.dtype))
    if bits and bits <= 32:
        return np.where((amount < 0) | (amount >= 32), np.sign(a) * 2**62, out)
    return np.where((amount < 0) | (amount >= MAX_SHIFT), a.dtype.type(0), out)


def shr_all(a: Array | int, amount: Array | int) -> Array:
    """`numbers.shr` by element."""
    a, amount = np.broadcast_arrays(a, amount)
    out: Array = np.right_shift(a, _amounts(amount, a.dtype))
    return (
        np.where((amount < 0) | (amount >= MAX_SHIFT), 0, out).astype(a.dtype)
        if a.dtype == np.uint64
        else out
    )


def _amounts(amount: Array, dtype: np.dtype[Any]) -> Array:
    """Amounts that NumPy can shift by."""
    return np.where((amount < 0) | (amount >= MAX_SHIFT), MAX_SHIFT - 1, amount).astype(dtype)


def from_floats(values: Array, dtype: DType) -> Array:
    """`numbers.from_float` by element; int64, or uint64 where the dtype is that."""
    low, high = limits(dtype)
    whole = np.trunc(np.asarray(values, np.float64))
    whole = np.where(np.isnan(whole), 0.0, whole)
    # high + 1 is a power of two, so a float
    over, under = whole >= float(high + 1), whole < float(low)
    kind = np.uint64 if dtype.name == "uint64" else np.int64
    inside = np.where(over | under, 0.0, whole).astype(kind)
    return np.where(over, kind(high), np.where(under, kind(low), inside))
