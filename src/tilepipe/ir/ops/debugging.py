"""The ops that report to whoever debugs a kernel."""

from dataclasses import dataclass
from typing import Annotated

from tilepipe.ir.expressions import Expr
from tilepipe.ir.facts import READS, Facts
from tilepipe.ir.ops.base import Op


@dataclass(eq=False, slots=True)
class Print(Op):
    """Prints a line: `format` with one `{}` for each argument."""

    format: str
    args: Annotated[tuple[Expr, ...], READS]

    facts = Facts()


@dataclass(eq=False, slots=True)
class Assert(Op):
    """Stops the kernel with `message` where `cond` does not hold."""

    cond: Expr
    message: str

    facts = Facts()
