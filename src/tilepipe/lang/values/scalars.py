"""Traced scalars: the objects that `ctx.range`, shapes, loads and arithmetic return to a kernel."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, expressions as exprs, numbers, ops, printer, ranges
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Binary, Cast, Const, Expr, Select, Unary, Vary
from tilepipe.ir.hardware.operand_tiles import divisor
from tilepipe.ir.location import caller
from tilepipe.lang.tracing import other_names
from tilepipe.lang.tracing.missing_members import missing
from tilepipe.lang.tracing.scopes import Scope
from tilepipe.lang.tracing.tracer import Tracer, require_rule
from tilepipe.lang.values.operators import Operators, foreign
from tilepipe.lang.values.powers import raised

# nodes; a larger expression in a role is bound to a name, so that sharing it does not copy it
MAX_EXPRESSION = 24

_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": numbers.shl,
    "shr": numbers.shr,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "div": operator.truediv,
    "pow": operator.pow,
}
_NONNEG_IF_BOTH = {
    "add",
    "mul",
    "floordiv",
    "mod",
    "min",
    "max",
    "and",
    "or",
    "xor",
    "shl",
    "shr",
    "div",
}
_MAY_WRAP = {"add", "mul", "pow", "shl"}  # of narrow integers


class Value(Operators["Value"]):
    """A traced scalar: a number known only when the kernel runs. Immutable; belongs to the block
    that it was made in.

    Arithmetic, comparison and bitwise operators build expressions. Anything that needs the number
    now (`if`, `and`, `int()`, `range()`, an index of a Python list) raises `TraceError` and says
    what to write.
    """

    __slots__ = ("_expr", "_scope", "_tracer")

    def __init__(self, tracer: Tracer, expr: Expr, scope: Scope | None = None) -> None:
        self._tracer = tracer
        self._expr = expr
        self._scope = tracer.scope if scope is None else scope

    if not TYPE_CHECKING:  # a type checker knows the members
        __getattr__ = missing("a traced value", "x", other_names.VALUE)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._expr.dtype

    def __repr__(self) -> str:
        return f"<traced {self.dtype} {printer.expr(self._expr)}>"

    def to(self, dtype: object) -> Value:
        """The value converted to another dtype.

        To floating point: rounded to nearest even. From floating point to an integer: truncated
        towards zero, clamped to the integer's range, and 0 for NaN, as PTX's cvt. Between integers:
        the low bits.
        """
        t = dtypes.dtype(dtype)
        require_rule(dtypes.broken_register_rule(t))
        x = to_expr(self._tracer, self)
        return self if t is x.dtype else traced_value(self._tracer, cast(x, t))

    def bitcast(self, dtype: object) -> Value:
        """The bits of the value as another dtype of the same size, such as a float32 as uint32.

        Raises:
            TraceError: a dtype of another size, or a boolean.
        """
        t = dtypes.dtype(dtype)
        x = to_expr(self._tracer, self)
        return self if t is x.dtype else traced_value(self._tracer, bitcast(x, t))

    def _is_dead(self) -> bool:
        return self._scope.closed

    # -- operations that need the number -----------------------------------------------

    def __bool__(self) -> NoReturn:
        raise TraceError(
            f"{_first_remedy()}the truth of a traced value is not known while the kernel is traced:"
            " `if`, `while`,"
            " `and`, `or`, `not`, `in` and `a < b < c` cannot use it. Write `with ctx.when(cond):`"
            " / `with ctx.otherwise():`, `ctx.select(cond, x, y)`, and `&`, `|`, `~` for and, or,"
            " not.",
            caller(),
        )

    def _unknown(self, what: str) -> NoReturn:
        raise TraceError(
            f"{what} needs a number now, but this is {self!r}, known only when the kernel runs."
            " Loops over it are `ctx.range(n)`; a tile of a buffer is taken with `buffer[i]`.",
            caller(),
        )

    def __int__(self) -> NoReturn:
        self._unknown("int()")

    def __index__(self) -> NoReturn:
        self._unknown("an index or range()")

    def __len__(self) -> NoReturn:
        self._unknown("len()")

    def __iter__(self) -> NoReturn:
        self._unknown("iteration")

    def _binary(self, op: str, other: object, swap: bool = False) -> Value:
        if op == "**":
            return raised(self, other, swap)
        return (
            binary(self._tracer, op, other, self) if swap else binary(self._tracer, op, self, other)
        )

    def _unary(self, op: str) -> Value:
        return unary(self._tracer, op, self)


def _first_remedy() -> str:
    """What to write for the line that asks for the truth of a traced value, where it is a
    statement or a function of Python with a counterpart.
    """
    line = caller().source
    if line.startswith(("assert ", "assert(")):
        return "`assert` on a traced value is `ctx.assert_(cond, message)`: "
    called = next((f for f in ("max", "min") if re.search(rf"(?<![\w.]){f}\(", line)), "")
    if called:
        return f"`{called}(x, y)` of traced values is `ctx.{called}(x, y)`: "
    return ""


def traced_value(tracer: Tracer, expr: Expr) -> Value:
    """The value of an expression, which is bound to a name first where it has grown large."""
    if expr.size > MAX_EXPRESSION and not expr.shape and tracer.scope.role is not None:
        return let(tracer, "t", expr)
    return Value(tracer, expr)


def let(tracer: Tracer, base: str, expr: Expr) -> Value:
    """Binds an expression to a name at this point of the program."""
    if not isinstance(expr, Const | exprs.Local | exprs.Param):
        local = tracer.local(base, expr.dtype, expr.vary, expr.nonneg, divisor(expr))
        tracer.emit(ops.Let(caller(), local, expr))
        expr = local
    return Value(tracer, expr)


def to_expr(tracer: Tracer, x: object) -> Expr:
    """The expression of a traced value or of a Python number.

    Raises:
        TraceError: `x` is neither, is NaN, or is a traced value whose block has closed or that
            belongs to another kernel.
    """
    if isinstance(x, Value):
        if x._tracer is not tracer:
            x._tracer.require_running()
        tracer.check_alive(x._scope, "value", x)
        return x._expr
    if isinstance(x, bool | int | float):
        if isinstance(x, int) and not -(2**63) <= x < 2**64:
            raise TraceError(f"{x} does not fit in 64 bits", caller())
        if x != x:
            raise TraceError("a constant is NaN; write the computation that gives it", caller())
        return exprs.const(x)
    now = getattr(type(x), "_now", None)  # a variable stands for its present value
    if now is not None:
        return to_expr(tracer, now(x))
    item = getattr(x, "item", None)  # NumPy scalars
    if item is not None and getattr(x, "shape", None) == ():
        return to_expr(tracer, item())
    raise foreign(x)


def _broadcast(a: exprs.Shape, b: exprs.Shape) -> exprs.Shape:
    if a == b or not b:
        return a
    if not a:
        return b
    if all(x == y or 1 in (x, y) for x, y in zip(a, b, strict=True)):
        return tuple(map(max, a, b))
    raise TraceError(
        f"fragments of shapes {a} and {b} do not broadcast: each extent must be the same in both,"
        " or 1 in one of them",
        caller(),
    )


def _unify(a: Expr, b: Expr, op: str) -> tuple[Expr, Expr]:
    """Two operands of one dtype (`_alike`).

    Raises:
        TraceError: a literal overflows it.
    """
    a, b = _alike(a, b, op)
    return require_finite(a, a.dtype), require_finite(b, b.dtype)


def require_finite(x: Expr, dtype: DType) -> Expr:
    """`x`, checked to be no finite literal that a float of `dtype` has as infinity; floats of 8
    bits saturate.

    Raises:
        TraceError: it is.
    """
    if (
        isinstance(x, Const)
        and dtype.is_float
        and dtype.bits > 8
        and math.isfinite(x.value)
        and not math.isfinite(_rounded(x.value, dtype))
    ):
        raise TraceError(
            f"{x.value} does not fit in {dtype}, where it would be infinity. Write float('inf') if"
            " that is meant, or convert the other operand: `x.to('float64')`",
            caller(),
        )
    return x


def _alike(a: Expr, b: Expr, op: str) -> tuple[Expr, Expr]:
    """Converts two operands to one dtype: a literal takes the other side's, an integer becomes a
    float beside a float.
    """
    if op == "div" and not (a.dtype.is_float or b.dtype.is_float):
        a, b = _cast(a, dtypes.float32), _cast(b, dtypes.float32)
    if a.dtype is b.dtype:
        return a, b
    if isinstance(b, Const) and (a.dtype.is_float or not b.dtype.is_float):
        return a, _cast(b, a.dtype)
    if isinstance(a, Const) and (b.dtype.is_float or not a.dtype.is_float):
        return _cast(a, b.dtype), b
    wide = dtypes.promoted(a.dtype, b.dtype)
    return _cast(a, wide), _cast(b, wide)


def _cast(x: Expr, dtype: DType) -> Expr:
    if x.dtype is dtype:
        return x
    if isinstance(x, Const):
        require_finite(x, dtype)
        value = _rounded(x.value, dtype) if dtype.is_float else _fitting(x.value, dtype)
        return Const(dtype, nonneg=value >= 0, value=value)
    return cast(x, dtype)


def _rounded(value: int | float | bool, dtype: DType) -> float:
    """A constant as a float of a dtype; of 16 bits, rounded, so that it is the same number alone in
    a register and in one of a pair. One beyond the dtype is infinity.
    """
    number = float(value)
    if dtype.bits not in (16, 32):
        return number
    with np.errstate(over="ignore"):
        single = np.float32(number)
        if dtype.bits == 16:
            return float(single.astype(dtype.numpy))
    return number if math.isfinite(single) else float(single)


def cast(x: Expr, dtype: DType) -> Expr:
    """`x` converted to another dtype by the rules of `Value.to`."""
    if isinstance(x, Const) and not dtype.is_float:  # the device rounds what becomes a float
        value = numbers.converted(x.value, dtype)
        return Const(dtype, nonneg=value >= 0, value=value)
    return Cast(dtype, x.vary, _stays_nonneg(x, dtype), x.shape, x.size + 1, a=x)


def bitcast(x: Expr, dtype: DType) -> Expr:
    """The bits of `x` as another dtype of the same size.

    Raises:
        TraceError: of another size, or a boolean.
    """
    require_rule(dtypes.broken_register_rule(dtype))
    if "bool" in (x.dtype.kind, dtype.kind) or x.dtype.bits != dtype.bits:
        raise TraceError(
            f"bitcast keeps the bits, so both dtypes have as many; got {x.dtype} ({x.dtype.bits}"
            f" bits) to {dtype} ({dtype.bits} bits). To convert a number write"
            f' `x.to("{dtype}")`.',
            caller(),
        )
    nonneg = dtype.kind == "uint"
    return exprs.Bitcast(dtype, x.vary, nonneg, x.shape, x.size + 1, a=x)


def _stays_nonneg(x: Expr, dtype: DType) -> bool:
    """True if `x` is known to be >= 0 after its conversion: a large unsigned integer may become a
    negative one.
    """
    if dtype.kind in ("uint", "bool"):
        return True
    if dtype.is_float or x.dtype.is_float or ranges.narrows(Cast(dtype, shape=x.shape, a=x)):
        return x.nonneg  # a value that does not fit is clamped, or is a fault
    return x.nonneg and (bool(x.shape) or ranges.exact(x)[1] <= numbers.limits(dtype)[1])


def _fitting(value: int | float, dtype: DType) -> int | float:
    low = -(2 ** (dtype.bits - 1)) if dtype.kind == "int" else 0
    if dtype.is_integer and not low <= value < low + 2**dtype.bits:
        raise TraceError(
            f"{value} does not fit in {dtype}; convert the other operand: `x.to('int64')`", caller()
        )
    return value


def _fold(op: str, a: Const, b: Const) -> Expr | None:
    try:
        result = _FOLD[op](a.value, b.value)  # type: ignore[arg-type]
    except (ArithmeticError, ValueError) as error:
        raise TraceError(f"{a.value} {op} {b.value}: {error}", caller()) from None
    dtype = dtypes.boolean if op in _COMPARE else a.dtype
    if dtype.is_float and not math.isfinite(_rounded(result, dtype)):
        return None
    value = _rounded(result, dtype) if dtype.is_float else _fitting(result, dtype)
    return Const(dtype, nonneg=result >= 0, value=value)


def binary(tracer: Tracer, op: str, left: object, right: object) -> Value:
    """`left op right` as a traced value; folds constants and drops `+ 0` and `* 1`."""
    a, b = _unify(to_expr(tracer, left), to_expr(tracer, right), op)
    if op in ("floordiv", "mod", "and", "or", "xor", "shl", "shr") and a.dtype.is_float:
        raise TraceError(f"'{op}' needs integers, got {a.dtype}", caller())
    if isinstance(b, Const) and op in ("floordiv", "mod") and b.value == 0:
        raise TraceError("division by zero", caller())
    if isinstance(a, Const) and isinstance(b, Const):
        folded = _fold(op, a, b)
        if folded is not None:
            return traced_value(tracer, folded)
    if isinstance(b, Const) and (op, b.value) in (
        ("add", 0),
        ("sub", 0),
        ("mul", 1),
        ("floordiv", 1),
    ):
        return traced_value(tracer, a)
    if isinstance(a, Const) and (op, a.value) in (("add", 0), ("mul", 1)):
        return traced_value(tracer, b)
    if isinstance(b, Const) and (op, b.value) == ("pow", 0) and not a.shape:
        return traced_value(tracer, Const(a.dtype, nonneg=True, value=1))
    nonneg = (
        op in _COMPARE
        or (op in _NONNEG_IF_BOTH and a.nonneg and b.nonneg)
        or (op == "max" and (a.nonneg or b.nonneg))
    )
    nonneg = nonneg or (op == "mod" and b.nonneg)
    nonneg = nonneg or (op == "pow" and isinstance(b, Const) and b.value % 2 == 0)
    if a.dtype.kind == "int" and a.dtype.bits < 32 and op in _MAY_WRAP:  # then it may be negative
        nonneg = False
    dtype = dtypes.boolean if op in _COMPARE else a.dtype
    vary, shape, size = max(a.vary, b.vary), _broadcast(a.shape, b.shape), a.size + b.size + 1
    return traced_value(tracer, Binary(dtype, vary, nonneg, shape, size, op=op, a=a, b=b))


_FLOAT_ONLY = {
    *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "rcp", "tanh", "sin", "cos"),
    *("erf", "sigmoid", "floor", "ceil", "round"),
}


FUNCTIONS = _FLOAT_ONLY | {"neg", "abs"}


def unary(tracer: Tracer, op: str, x: object) -> Value:
    """`op x` as a traced value."""
    a = to_expr(tracer, x)
    if op in _FLOAT_ONLY and not a.dtype.is_float:
        a = _cast(a, dtypes.float32)
    if op == "not" and a.dtype.is_float:
        raise TraceError("'~' needs a boolean or an integer", caller())
    if isinstance(a, Const) and op in ("neg", "abs"):
        value = -a.value if op == "neg" else abs(a.value)
        value = (
            numbers.wrapped(int(value), a.dtype)
            if a.dtype.kind == "uint"
            else _fitting(value, a.dtype)
        )
        return traced_value(tracer, Const(a.dtype, nonneg=value >= 0, value=value))
    if isinstance(a, Const) and op == "not" and a.dtype is dtypes.boolean:
        return traced_value(tracer, exprs.const(not a.value))
    nonneg = op in ("abs", "exp", "exp2", "sqrt", "rsqrt", "sigmoid") or a.dtype is dtypes.boolean
    return traced_value(tracer, Unary(a.dtype, a.vary, nonneg, a.shape, a.size + 1, op=op, a=a))


def select(tracer: Tracer, cond: object, x: object, y: object) -> Value:
    """`x` where `cond`, else `y`."""
    c = to_expr(tracer, cond)
    if c.dtype is not dtypes.boolean:
        raise TraceError(
            f"the condition of select must be boolean, got {c.dtype}; compare with `!= 0`", caller()
        )
    a, b = _unify(to_expr(tracer, x), to_expr(tracer, y), "select")
    if isinstance(c, Const) and a.shape == b.shape:
        return traced_value(tracer, a if c.value else b)
    shape = _broadcast(c.shape, _broadcast(a.shape, b.shape))
    vary, nonneg = max(c.vary, a.vary, b.vary), a.nonneg and b.nonneg
    size = c.size + a.size + b.size + 1
    return traced_value(tracer, Select(a.dtype, vary, nonneg, shape, size, cond=c, a=a, b=b))


def combined(tracer: Tracer, op: str, a: Expr, b: Expr) -> Expr:
    """`a op b` as an operand: `binary` of two expressions."""
    return to_expr(tracer, binary(tracer, op, Value(tracer, a), Value(tracer, b)))


def converted(tracer: Tracer, x: object, dtype: DType) -> Expr:
    """A number or traced value as it is stored: converted to `dtype`.

    Raises:
        TraceError: a constant integer that does not fit.
    """
    value = traced_value(tracer, require_fits(to_expr(tracer, x), dtype))
    return to_expr(tracer, value.to(dtype))


def require_integer(x: Expr, what: str) -> Expr:
    """`x`, checked to be an integer.

    Raises:
        TraceError: it is a float or a boolean.
    """
    if not x.dtype.is_integer:
        raise TraceError(
            f"{what} must be an integer, got"
            f" {f'the {x.dtype} {x.value}' if isinstance(x, Const) else x.dtype}",
            caller(),
        )
    return x


def require_fits(x: Expr, dtype: DType) -> Expr:
    """`x`, checked to fit: a constant outside the range of `dtype`, signed or unsigned, would be
    stored as another number, and one beyond the floats of `dtype` as infinity.

    Raises:
        TraceError: it does not fit.
    """
    if (
        isinstance(x, Const)
        and x.dtype.is_integer
        and dtype.is_integer
        and not -(2 ** (dtype.bits - 1)) <= x.value < 2**dtype.bits
    ):
        raise TraceError(f"{x.value} does not fit in {dtype}", caller())
    return require_finite(x, dtype)


def require_uniform(x: Expr, what: str, at_most: Vary = Vary.UNIFORM) -> Expr:
    """`x`, checked to be the same in all threads that execute it together.

    Raises:
        TraceError: it varies by lane (or by warp).
    """
    if x.vary > at_most:
        raise TraceError(
            f"{what} must be the same in every thread of a {'warp' if at_most else 'role'}, but"
            f" varies by {x.vary.name.lower()}",
            caller(),
        )
    return x
