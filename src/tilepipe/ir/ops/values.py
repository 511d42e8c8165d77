"""The ops that bind names, and those on variables and cursors."""

from dataclasses import dataclass
from typing import Annotated

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.facts import BINDS, READS, UPDATES, WRITES, Facts
from tilepipe.ir.memory import Cursor, Variable
from tilepipe.ir.ops.base import Op


@dataclass(eq=False, slots=True)
class Let(Op):
    """Binds `local` to the value of `expr` now."""

    local: Annotated[Local, BINDS]
    expr: Annotated[Expr, READS]

    facts = Facts()


@dataclass(eq=False, slots=True)
class Define(Op):
    """Creates a variable with an initial value."""

    var: Annotated[Variable, WRITES]
    init: Annotated[Expr, READS]

    facts = Facts()


@dataclass(eq=False, slots=True)
class Assign(Op):
    """Sets a variable."""

    var: Annotated[Variable, WRITES]
    value: Annotated[Expr, READS]

    facts = Facts()


@dataclass(eq=False, slots=True)
class Read(Op):
    """Binds `local` to the present value of a variable."""

    local: Annotated[Local, BINDS]
    var: Annotated[Variable, READS]

    facts = Facts()


@dataclass(eq=False, slots=True)
class CursorDefine(Op):
    """Creates a cursor at stage 0."""

    cursor: Annotated[Cursor, WRITES]

    facts = Facts()


@dataclass(eq=False, slots=True)
class CursorRead(Op):
    """Binds `stage` (int32) and `phase` (dtype `phase`) to where the cursor stands."""

    cursor: Annotated[Cursor, READS]
    stage: Annotated[Local, BINDS]
    phase: Annotated[Local, BINDS]

    facts = Facts()


@dataclass(eq=False, slots=True)
class CursorStep(Op):
    """Advances a cursor by `n` >= 0 (any size; the phase number grows by one at each wrap)."""

    cursor: Annotated[Cursor, UPDATES]
    n: Annotated[Expr, READS]

    facts = Facts()
