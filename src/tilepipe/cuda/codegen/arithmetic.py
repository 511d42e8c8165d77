"""Small int32 expressions that the printer builds, with constants folded so that addresses are
printed in their simplest form.
"""

from __future__ import annotations

from tilepipe.ir import dtypes
from tilepipe.ir.expressions import Binary, Const, Expr, Local, Vary, const


def value(x: Expr) -> int | None:
    """The value of a constant; None for any other expression."""
    return int(x.value) if isinstance(x, Const) else None


def add(a: Expr, b: Expr | int) -> Expr:
    """a + b, with constants last."""
    b = const(b) if isinstance(b, int) else b
    va, vb = value(a), value(b)
    if va is not None and vb is not None:
        return const(va + vb)
    if va is not None:
        return add(b, a)
    if vb == 0:
        return a
    if vb is not None and isinstance(a, Binary) and a.op == "add" and value(a.b) is not None:
        return add(a.a, vb + (value(a.b) or 0))
    return _binary("add", a, b)


def mul(a: Expr, factor: int) -> Expr:
    """a · factor, distributed over a sum with a constant."""
    if (va := value(a)) is not None:
        return const(va * factor)
    if factor == 1:
        return a
    if factor == 0:
        return const(0)
    if isinstance(a, Binary) and a.op == "mul" and (inner := value(a.b)) is not None:
        return mul(a.a, inner * factor)
    if isinstance(a, Binary) and a.op == "add" and (inner := value(a.b)) is not None:
        return add(mul(a.a, factor), inner * factor)
    return _binary("mul", a, const(factor))


def div(a: Expr, divisor: int) -> Expr:
    """a // divisor, for a >= 0."""
    if (va := value(a)) is not None:
        return const(va // divisor)
    if divisor == 1:
        return a
    if (
        isinstance(a, Binary)
        and a.op == "mul"
        and (inner := value(a.b)) is not None
        and inner % divisor == 0
    ):
        return mul(a.a, inner // divisor)
    return _binary("floordiv", a, const(divisor))


def mod(a: Expr, divisor: int) -> Expr:
    """a % divisor, for a >= 0."""
    if (va := value(a)) is not None:
        return const(va % divisor)
    if divisor == 1:
        return const(0)
    if (
        isinstance(a, Binary)
        and a.op == "mul"
        and (inner := value(a.b)) is not None
        and inner % divisor == 0
    ):
        return const(0)
    return _binary("mod", a, const(divisor))


def index(name: str) -> Local:
    """The index of a loop that the printer adds."""
    return Local(dtypes.int32, Vary.UNIFORM, True, name=name)


def _binary(op: str, a: Expr, b: Expr) -> Expr:
    vary, nonneg, size = max(a.vary, b.vary), a.nonneg and b.nonneg, a.size + b.size + 1
    return Binary(dtypes.int32, vary, nonneg, size=size, op=op, a=a, b=b)
