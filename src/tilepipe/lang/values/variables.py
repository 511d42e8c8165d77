"""`ctx.var`: scalars that change in place."""

from __future__ import annotations

from collections.abc import Callable

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.location import caller
from tilepipe.ir.memory import Variable
from tilepipe.lang.tracing.convergence import divergence
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.operators import Operators
from tilepipe.lang.values.scalars import Value, converted, to_expr, traced_value, unary


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
        if dtype is None:
            value = to_expr(tracer, init)
        else:
            value = converted(tracer, init, dtypes.dtype(dtype))
        self._tracer = tracer
        self._home = tracer.scope
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
        x = converted(self._tracer, value, self._var.dtype)
        if x.vary > self._var.vary:
            by = x.vary.name.lower()
            raise TraceError(
                f"variable '{self._var.name}' was created with a value that every thread shares,"
                f" and is set to one that varies by {by}; create it from a value that varies by"
                f" {by} as well (`ctx.var(ctx.lane * 0)`)",
                caller(),
            )
        split, cause = divergence(self._tracer, self._home)
        if split > self._var.vary and cause is not None:
            by = split.name.lower()
            raise TraceError(
                f"variable '{self._var.name}' has one value for all threads, but the {cause.kind}"
                f" block at {cause.loc.short} lets only some of them set it. Create it from a value"
                f" that varies by {by} (`ctx.var(ctx.lane * 0)`), or set it outside that block.",
                caller(),
            )
        self._tracer.emit(ops.Assign(caller(), self._var, x))

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
