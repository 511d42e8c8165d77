"""`ctx.var`: scalars that change in place."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Const, Expr, Vary
from tilepipe.ir.location import caller
from tilepipe.ir.memory import Variable
from tilepipe.lang.tracing.convergence import divergence
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.operators import Operators
from tilepipe.lang.values.scalars import Value, converted, to_expr, traced_value, unary


def _same_constant(number: str, init: Const) -> str:
    """An expression of the value and dtype of `init` that varies as `number`, an int32, does."""
    value, dtype = init.value, init.dtype
    if dtype is dtypes.boolean:
        return f"{number} {'>=' if value else '<'} 0"
    shown = repr(float(value)) if dtype.is_float else repr(int(value))
    if math.isinf(value):
        shown = f'float("{value}")'
    if dtype not in (dtypes.int32, dtypes.float32):
        zero = f'({number} * 0).to("{dtype}")'
    else:
        zero = f"{number} * 0.0" if dtype.is_float else f"{number} * 0"
    return zero if value == 0 else f"{zero} + {shown}"


def _update(op: str) -> Callable[[Var, object], Var]:
    """The method of an in-place operator."""

    def update(self: Var, other: object) -> Var:
        self.set(self._binary(op, other))
        return self

    return update


class Var(Operators[Value]):
    """A scalar of the kernel that changes in place: `v.set(x)`, `v[...] = x`, `v += x`. Reading
    `v.get()` or using it in arithmetic takes its value at that moment.
    """

    def __init__(self, tracer: Tracer, init: object, dtype: object, name: str) -> None:
        given = to_expr(tracer, init)
        if dtype is None:
            value = given
        else:
            value = converted(tracer, traced_value(tracer, given), dtypes.dtype(dtype))
        self._tracer = tracer
        self._home = tracer.scope
        # as messages show it: what a constant is converted to may be no constant
        self._init = Const(value.dtype, value=given.value) if isinstance(given, Const) else value
        tracer.role  # noqa: B018  # raises in set-up code: a variable belongs to a role
        self._var = Variable(tracer.name(name), value.dtype, value.vary)
        tracer.emit(ops.Define(caller(), self._var, value))

    @property
    def variable(self) -> Variable:
        """The operand."""
        self._tracer.check_alive(self._home, "variable", self)
        return self._var

    def get(self) -> Value:
        """The present value."""
        self._tracer.check_alive(self._home, "variable", self)
        local = self._tracer.local(self._var.name + "_now", self._var.dtype, self._var.vary)
        self._tracer.emit(ops.Read(caller(), local, self._var))
        return traced_value(self._tracer, local)

    _now = get  # `to_expr` reads a variable by this

    def set(self, value: object) -> None:
        """Replaces the value."""
        self._tracer.check_alive(self._home, "variable", self)
        given = to_expr(self._tracer, value)
        if given.dtype.is_float and not self._var.dtype.is_float:
            raise TraceError(self._narrowed(given), caller())
        x = converted(self._tracer, traced_value(self._tracer, given), self._var.dtype)
        if x.vary > self._var.vary:
            by = x.vary.name.lower()
            shared = "every thread shares" if self._var.vary is Vary.UNIFORM else "each warp shares"
            raise TraceError(
                f"variable '{self._var.name}' was created with a value that {shared},"
                f" and is set to one that varies by {by}; create it from a value that varies by"
                f" {by} as well: {self._varying(x.vary)}",
                caller(),
            )
        split, cause = divergence(self._tracer, self._home)
        if split > self._var.vary and cause is not None:
            by = split.name.lower()
            raise TraceError(
                f"variable '{self._var.name}' has one value for all threads, but the {cause.kind}"
                f" block at {cause.loc.short} lets only some of them set it. Create it from a value"
                f" that varies by {by}, {self._varying(split)}, or set it outside that block.",
                caller(),
            )
        self._tracer.emit(ops.Assign(caller(), self._var, x))

    def _varying(self, vary: Vary, init: Expr | None = None) -> str:
        """How the variable is created with the same value and dtype, varying by lane or warp."""
        init = init or self._init
        number = "ctx.warp" if vary is Vary.WARP else "ctx.lane"
        if isinstance(init, Const):
            return f"`ctx.var({_same_constant(number, init)})`"
        if init.dtype is dtypes.boolean:
            made = f"({number} >= 0) & x"
        else:
            made = f'({number} * 0).to("{init.dtype}") + x'
        return f"`ctx.var({made})`, where x is the value that it is created with now"

    def _narrowed(self, given: Expr) -> str:
        """Why a float is not assigned to a variable of integers or of booleans."""
        name, dtype = self._var.name, self._var.dtype
        what = f"{given.dtype} {given.value}" if isinstance(given, Const) else f"{given.dtype}"
        if dtype is dtypes.boolean:
            return (
                f"variable '{name}' is boolean and is set to a float ({what}): set it to a"
                " comparison (`x != 0`)"
            )
        wide = dtypes.float64 if given.dtype is dtypes.float64 else dtypes.float32
        if not isinstance(self._init, Const):
            made = f'`ctx.var(x, "{wide}")`, where x is the value that it is created with now'
        elif given.vary > self._var.vary:
            made = self._varying(given.vary, Const(wide, value=float(self._init.value)))
        else:
            of = "" if wide is dtypes.float32 else f', "{wide}"'
            made = f"`ctx.var({float(self._init.value)}{of})`"
        return (
            f"variable '{name}' is {dtype}, as the value that it was created with, and is set to a"
            f" float ({what}), which would lose its fraction. Create it as a float, {made}, or"
            f' convert the value: `.to("{dtype}")` of a traced one truncates towards zero, `//`'
            " divides integers"
        )

    def __setitem__(self, key: object, value: object) -> None:
        if key is not Ellipsis:
            raise TraceError("a variable is assigned as `v[...] = x` or `v.set(x)`", caller())
        self.set(value)

    def __getitem__(self, key: object) -> Value:
        if key is not Ellipsis:
            raise TraceError("a variable is read as `v[...]` or `v.get()`", caller())
        return self.get()

    def __bool__(self) -> bool:
        return bool(self.get())

    def _binary(self, op: str, other: object, swap: bool = False) -> Value:
        return self.get()._binary(op, other, swap)

    def _unary(self, op: str) -> Value:
        return unary(self._tracer, op, self.get())

    # In place: the name stays bound to the variable, where `v + x` gives a value.
    __iadd__ = _update("add")
    __isub__ = _update("sub")
    __imul__ = _update("mul")
    __itruediv__ = _update("div")
    __ifloordiv__ = _update("floordiv")
    __imod__ = _update("mod")
    __ipow__ = _update("**")
    __iand__ = _update("and")
    __ior__ = _update("or")
    __ixor__ = _update("xor")
    __ilshift__ = _update("shl")
    __irshift__ = _update("shr")

    def __repr__(self) -> str:
        return f"<variable {self._var.name}: {self._var.dtype}>"


# What a traced scalar may be given as.
Scalar = Value | Var | int | float
