"""`x ** e` of traced numbers and of fragments."""

from __future__ import annotations

import math
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from tilepipe.errors import TraceError
from tilepipe.host_arguments import plain
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import caller
from tilepipe.lang.values.operators import Operators, foreign

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
    - Any other number, or a traced value: `exp2(exponent * log2(x))`, NaN for negative `x`. Of two
      traced operands the dtype is that of their product, or float32 where both are integers.

    Raises:
        TraceError: a whole number beyond 64; or the base and a traced exponent are integers.
    """
    _require_number(x.dtype)
    e = _number(exponent)
    if isinstance(e, float) and e.is_integer():
        x, e = _as_float(x), int(e)
    if isinstance(e, int):
        return _whole_power(x, e)
    if isinstance(e, float) and abs(e) == 0.5:
        return x._unary("sqrt" if e > 0 else "rsqrt")
    kind = _kind(e)
    if kind is not None and not kind.is_float and not x.dtype.is_float:
        raise TraceError(
            f"x ** e of two integers, where e ({kind}) is known only when the kernel runs, may be a"
            " fraction. Convert the base: `x.to('float32') ** e`. A power of two is `1 << e`.",
            caller(),
        )
    dtype, wide = _dtypes(x.dtype, kind)
    return x.to(wide)._unary("log2")._binary("mul", e)._unary("exp2").to(dtype)


def power_of(base: object, exponent: N) -> N:
    """`base ** exponent` of a number, or of a traced scalar where the exponent is a fragment:
    `exp2(exponent * log2(base))`.

    Raises:
        TraceError: a number that is not positive, or two integers.
    """
    _require_number(exponent.dtype)
    b = _number(base)
    if isinstance(b, int) and not exponent.dtype.is_float:
        raise TraceError(
            f"{b} ** e of two integers, where e ({exponent.dtype}) is known only when the kernel"
            f" runs, may be a fraction. Write `{float(b)} ** e`. A power of two is `1 << e`.",
            caller(),
        )
    dtype, wide = _dtypes(exponent.dtype, _kind(b))
    if isinstance(b, int | float):
        if not 0 < b < math.inf:
            raise TraceError(
                f"{b} ** x is computed as exp2(x * log2({b})), which needs a finite base above 0",
                caller(),
            )
        log: object = math.log2(b)
    else:
        log = b.to(wide)._unary("log2")
    return exponent.to(wide)._binary("mul", log)._unary("exp2").to(dtype)


def _number(x: object) -> Any:
    """A number of NumPy as one of Python, anything else as it is."""
    return x.item() if isinstance(x, np.ndarray) and x.shape == () else plain(x)


def _kind(x: Any) -> DType | None:
    """The dtype of a traced operand; None of a number, which takes that of the other."""
    if isinstance(x, int | float):
        return None
    if not isinstance(x, Operators) or not x._is_value:
        raise foreign(x)
    kind: DType = x.dtype  # type: ignore[attr-defined]
    _require_number(kind)
    return kind


def _dtypes(one: DType, other: DType | None) -> tuple[DType, DType]:
    """(dtype of a power by exp2 and log2, dtype that it is computed in): that of other operators
    (`dtypes.promoted`), and float32 of integers.
    """
    dtype = one if other is None else dtypes.promoted(one, other)
    dtype = dtype if dtype.is_float else dtypes.float32
    return dtype, dtype if dtype.bits == 64 else dtypes.float32


def _whole_power(x: N, n: int) -> N:
    if abs(n) > MAX_POWER:
        raise TraceError(
            f"x ** {n}: a whole number as exponent becomes multiplications, at most to the power"
            f" {MAX_POWER}, or -{MAX_POWER}.{_product(n)} Where x is above 0 and an approximation"
            f" will do, write `2.0 ** ({n} * y)`, y being the logarithm of x:"
            ' `ctx.math("log2", x)` of a scalar, `x.apply("log2")` of a fragment.',
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


def _product(n: int) -> str:
    """A sentence with the product of powers that is x ** n, where there is a short one."""
    q, r = divmod(abs(n), MAX_POWER)
    if q > MAX_POWER:
        return ""
    high = f"x ** {MAX_POWER}" if q == 1 else f"(x ** {MAX_POWER}) ** {q}"
    low = "" if r == 0 else " * x" if r == 1 else f" * x ** {r}"
    return f" Write it as a product, `{high + low if n > 0 else f'1.0 / ({high}{low})'}`."


def _require_number(dtype: DType) -> None:
    if dtype is dtypes.boolean:
        raise TraceError("`**` is of numbers, and this is a condition", caller())


def _wide(x: N) -> N:
    """`x` in 32 bits at least: intermediate results of 16 bits would be rounded, or overflow."""
    return x if x.dtype.is_float and x.dtype.bits >= 32 else x.to(dtypes.float32)


def _as_float(x: N) -> N:
    """`x`, or the float32 of an integer, as for `/`."""
    return x if x.dtype.is_float else x.to(dtypes.float32)
