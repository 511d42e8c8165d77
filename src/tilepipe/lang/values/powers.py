"""`x ** e` of traced numbers and of fragments."""

from __future__ import annotations

import math
from typing import Protocol, Self, TypeVar

from tilepipe.errors import TraceError
from tilepipe.host_arguments import plain
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import caller

MAX_POWER = 64  # the largest exponent that becomes multiplications: at most 10 of them


class Powered(Protocol):
    """A traced number, or a fragment expression: whatever has these operators."""

    _elementwise: bool

    @property
    def dtype(self) -> DType: ...

    def to(self, dtype: object) -> Self: ...

    def _binary(self, op: str, other: object, swap: bool = False) -> Self: ...

    def _unary(self, op: str) -> Self: ...


N = TypeVar("N", bound=Powered)


def raised(x: N, other: object, swap: bool) -> N:
    """`x ** other`, or `other ** x`."""
    return power_of(other, x) if swap else power(x, other)


def power(x: N, exponent: object) -> N:
    """`x ** exponent`, by the instructions that suit the exponent.

    - A whole number from -64 to 64: repeated squaring, and `rcp` of that for a negative one.
      Integers stay exact; a float of 16 bits is rounded once, at the end.
    - 0.5 and -0.5: `sqrt` and `rsqrt`.
    - Any other number, or a traced value: `exp2(exponent * log2(x))`, NaN for negative `x`.

    Raises:
        TraceError: a whole number beyond 64; or the base and a traced exponent are integers.
    """
    _require_number(x.dtype)
    e = plain(exponent)
    if isinstance(e, float) and e.is_integer():
        x, e = _as_float(x), int(e)
    if isinstance(e, int):
        return _whole_power(x, e)
    if isinstance(e, float) and abs(e) == 0.5:
        return x._unary("sqrt" if e > 0 else "rsqrt")
    kind: DType | None = getattr(e, "dtype", None)
    if kind is not None and not kind.is_float and not x.dtype.is_float:
        raise TraceError(
            f"x ** e of two integers, where e ({kind}) is known only when the kernel runs, may be a"
            " fraction. Convert the base: `x.to('float32') ** e`. A power of two is `1 << e`.",
            caller(),
        )
    wide = x if x.dtype.bits == 64 and x.dtype.is_float else x.to("float32")
    result = wide._unary("log2")._binary("mul", e)._unary("exp2")
    return result.to(x.dtype) if x.dtype.is_float and x.dtype.bits < 32 else result


def power_of(base: object, exponent: N) -> N:
    """`base ** exponent` of a number, or of a traced scalar where the exponent is a fragment:
    `exp2(exponent * log2(base))`.

    Raises:
        TraceError: a number that is not positive, or two integers.
    """
    _require_number(exponent.dtype)
    b = plain(base)
    if isinstance(b, int) and not exponent.dtype.is_float:
        raise TraceError(
            f"{b} ** e of two integers, where e ({exponent.dtype}) is known only when the kernel"
            f" runs, may be a fraction. Write `{float(b)} ** e`. A power of two is `1 << e`.",
            caller(),
        )
    wide = exponent if exponent.dtype.bits == 64 else exponent.to("float32")
    if isinstance(b, int | float):
        if not 0 < b < math.inf:
            raise TraceError(
                f"{b} ** x is computed as exp2(x * log2({b})), which needs a finite base above 0",
                caller(),
            )
        result = wide._binary("mul", math.log2(b))._unary("exp2")
    else:
        result = wide._binary("mul", b._unary("log2"))._unary("exp2")
    small = exponent.dtype.is_float and exponent.dtype.bits < 32
    return result.to(exponent.dtype) if small else result


def _whole_power(x: N, n: int) -> N:
    if abs(n) > MAX_POWER:
        raise TraceError(
            f"x ** {n}: a whole exponent becomes multiplications, and is from -{MAX_POWER} to"
            f" {MAX_POWER}. Where x is never negative, 2.0 ** ({n} * y) is the same, y being log2"
            " of x.",
            caller(),
        )
    if n < 0:
        found = _whole_power(_wide(x), -n)._unary("rcp")
        return found.to(x.dtype) if x.dtype.is_float else found
    if n == 1:
        return x
    if x.dtype.is_float or x._elementwise or n == 0:
        return x._binary("pow", n)
    # scalars: each product is checked, and a large expression is bound to a name
    if n % 2:
        return _whole_power(x, n - 1)._binary("mul", x)
    half = _whole_power(x, n // 2)
    return half._binary("mul", half)


def _require_number(dtype: DType) -> None:
    if dtype is dtypes.boolean:
        raise TraceError("`**` is of numbers, and this is a condition", caller())


def _wide(x: N) -> N:
    """`x` in 32 bits at least: intermediate results of 16 bits would be rounded, or overflow."""
    return x if x.dtype.is_float and x.dtype.bits >= 32 else x.to(dtypes.float32)


def _as_float(x: N) -> N:
    """`x`, or the float32 of an integer, as for `/`."""
    return x if x.dtype.is_float else x.to(dtypes.float32)
