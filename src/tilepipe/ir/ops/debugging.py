"""The ops that report to whoever debugs a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.ir.expressions import Expr
from tilepipe.ir.ops.base import Op


@dataclass(eq=False, slots=True)
class Print(Op):
    """Prints a line: `format` with one `{}` for each argument."""

    format: str
    args: tuple[Expr, ...]


@dataclass(eq=False, slots=True)
class Assert(Op):
    """Stops the kernel with `message` where `cond` does not hold."""

    cond: Expr
    message: str
