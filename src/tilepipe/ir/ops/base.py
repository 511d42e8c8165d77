"""What every op is, and a sequence of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilepipe.ir.location import Loc


@dataclass(eq=False, slots=True)
class Op:
    """Base of all ops."""

    loc: Loc


@dataclass(eq=False, slots=True)
class Block:
    """A sequence of ops."""

    ops: list[Op] = field(default_factory=list)
