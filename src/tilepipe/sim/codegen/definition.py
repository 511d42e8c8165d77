"""What each op becomes in the generated code: one function for each class of op, registered beside
the functions that the code calls for it. The modules that hold them register here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tilepipe.ir import ops
from tilepipe.sim.codegen.operands import Called, Operands

AnOp = TypeVar("AnOp", bound=ops.Op)
Source = TypeVar("Source", bound=Operands)

DEFINITIONS: dict[type[ops.Op], Callable[[Any, Any], None]] = {}
CALLED: dict[str, Called] = {}  # by the generated code, by name


def defines(
    op: type[AnOp], *called: Called
) -> Callable[[Callable[[Source, AnOp], None]], Callable[[Source, AnOp], None]]:
    """Registers the function that writes the source of an op. `called`: what that source calls."""

    def register(definition: Callable[[Source, AnOp], None]) -> Callable[[Source, AnOp], None]:
        DEFINITIONS[op] = definition
        CALLED.update((f.__name__, f) for f in called)
        return definition

    return register


def plain(op: type[ops.Op], function: Called) -> None:
    """Registers an op that hands no operands to its function in the machine."""

    @defines(op, function)
    def _(f: Operands, op: ops.Op) -> None:
        f.request(op, function)
