"""The ops that bind names, and those on variables and cursors."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.memory import Cursor, Variable
from tilepipe.ir.ops.base import Op


@dataclass(eq=False, slots=True)
class Let(Op):
    """Binds `local` to the value of `expr` now."""

    local: Local
    expr: Expr


@dataclass(eq=False, slots=True)
class Define(Op):
    """Creates a variable with an initial value."""

    var: Variable
    init: Expr


@dataclass(eq=False, slots=True)
class Assign(Op):
    """Sets a variable."""

    var: Variable
    value: Expr


@dataclass(eq=False, slots=True)
class Read(Op):
    """Binds `local` to the present value of a variable."""

    local: Local
    var: Variable


@dataclass(eq=False, slots=True)
class CursorDefine(Op):
    """Creates a cursor at stage 0."""

    cursor: Cursor


@dataclass(eq=False, slots=True)
class CursorRead(Op):
    """Binds `stage` (int32) and `phase` (dtype `phase`) to where the cursor stands."""

    cursor: Cursor
    stage: Local
    phase: Local


@dataclass(eq=False, slots=True)
class CursorStep(Op):
    """Advances a cursor by `n` >= 0 (any size; the phase number grows by one at each wrap)."""

    cursor: Cursor
    n: Expr
