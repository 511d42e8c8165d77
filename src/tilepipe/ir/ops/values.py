"""The ops on scalar values: names, variables and cursors, single elements of memory, and reports to
whoever debugs a kernel.
"""

from typing import Annotated

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.facts import BINDS, READS, UPDATES, WRITES, Facts
from tilepipe.ir.memory import (
    Cursor,
    Element,
    Variable,
)
from tilepipe.ir.ops.base import Op, declares


@declares(Facts())
class Let(Op):
    """Binds `local` to the value of `expr` now."""

    local: Annotated[Local, BINDS]
    expr: Annotated[Expr, READS]


@declares(Facts())
class Define(Op):
    """Creates a variable with an initial value."""

    var: Annotated[Variable, WRITES]
    init: Annotated[Expr, READS]


@declares(Facts())
class Assign(Op):
    """Sets a variable."""

    var: Annotated[Variable, WRITES]
    value: Annotated[Expr, READS]


@declares(Facts())
class Read(Op):
    """Binds `local` to the present value of a variable."""

    local: Annotated[Local, BINDS]
    var: Annotated[Variable, READS]


@declares(Facts())
class CursorDefine(Op):
    """Creates a cursor at stage 0."""

    cursor: Annotated[Cursor, WRITES]


@declares(Facts())
class CursorRead(Op):
    """Binds `stage` (int32) and `phase` (dtype `phase`) to where the cursor stands."""

    cursor: Annotated[Cursor, READS]
    stage: Annotated[Local, BINDS]
    phase: Annotated[Local, BINDS]


@declares(Facts())
class CursorStep(Op):
    """Advances a cursor by `n` >= 0 (any size; the phase number grows by one at each wrap)."""

    cursor: Annotated[Cursor, UPDATES]
    n: Annotated[Expr, READS]


@declares(Facts(ptx="ld"))
class Load(Op):
    """Ordinary load of one element by every active lane."""

    result: Annotated[Local, BINDS]
    src: Annotated[Element, READS]


@declares(Facts(ptx="st"))
class Store(Op):
    """Ordinary store of one element by every active lane."""

    dst: Annotated[Element, WRITES]
    value: Annotated[Expr, READS]


@declares(Facts())
class Print(Op):
    """Prints a line: `format` with one `{}` for each argument."""

    format: str
    args: Annotated[tuple[Expr, ...], READS]


@declares(Facts())
class Assert(Op):
    """Stops the kernel with `message` where `cond` does not hold."""

    cond: Expr
    message: str
