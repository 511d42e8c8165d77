"""The base class of all ops, the declaration of an op's facts, and blocks of ops."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from inspect import get_annotations
from operator import or_
from typing import ClassVar, TypeVar, dataclass_transform, get_args

from tilepipe.ir.facts import BINDS, Facts, Scope, Sync, Use
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import Cursor, Element, TensorParam, Tile, Tmem, TmemScales, Variable

_MEMORY = {Element, TensorParam, Tile, Tmem, TmemScales}
_SET = {Variable, Cursor}


@dataclass(eq=False, slots=True)
class Block:
    """A sequence of ops."""

    ops: list[Op] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Op:
    """Base of all ops.

    A class `declares` its facts, and annotates the fields that are operands, in the words of
    `ir.facts`; the other attributes of the class follow from these.

    Attributes:
        kind: the op's name in lower case with underscores (`tma_load`).
        given: the fields that hold operands and settings: all but `loc`, `bound` and `blocks`.
        bound: the fields that hold names which the op defines.
        blocks: the fields that hold blocks.
        uses: the fields whose contents the op reads or writes, and how.
        sets: those of them that it writes and that hold variables or cursors.
        sync: what the op does to barriers.
        acts: it synchronises, or reaches memory or an asynchronous unit. The others compute on
            registers, or hold blocks.
    """

    facts: ClassVar[Facts]
    kind: ClassVar[str]
    given: ClassVar[tuple[str, ...]]
    bound: ClassVar[tuple[str, ...]]
    blocks: ClassVar[tuple[str, ...]]
    uses: ClassVar[dict[str, Use]]
    sets: ClassVar[tuple[str, ...]]
    sync: ClassVar[Sync]
    acts: ClassVar[bool]

    loc: Loc

    @property
    def name(self) -> str:
        """What messages and counts of ops call it: its kind, unless a class says more."""
        return self.kind


AnOp = TypeVar("AnOp", bound=Op)


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def declares(facts: Facts) -> Callable[[type[AnOp]], type[AnOp]]:
    """Makes a class a dataclass and an op of these facts."""

    def decorate(cls: type[AnOp]) -> type[AnOp]:
        op = dataclass(eq=False, slots=True)(cls)
        op.kind = re.sub("(?<!^)(?=[A-Z])", "_", op.__name__).lower()
        hints = get_annotations(op)
        marks = {n: h.__metadata__[0] for n, h in hints.items() if hasattr(h, "__metadata__")}
        op.bound = tuple(name for name, mark in marks.items() if mark is BINDS)
        op.blocks = tuple(name for name, hint in hints.items() if hint is Block)
        op.given = tuple(n for n in hints if n not in (*op.bound, *op.blocks))
        op.uses = {name: mark for name, mark in marks.items() if isinstance(mark, Use)}
        written = (name for name, use in op.uses.items() if use.writes)
        op.sets = tuple(n for n in written if not _SET.isdisjoint(_parts(hints[n])))
        done = (mark for mark in marks.values() if isinstance(mark, Sync))
        op.sync = reduce(or_, done, facts.sync)
        shared = op.sync & ~facts.sync or (facts.sync and facts.scope >= Scope.CTA)
        op.facts = replace(
            facts, noticed=bool(facts.noticed or shared or facts.takes or facts.gives)
        )
        named = (part for hint in hints.values() for part in _parts(hint))
        asynchronous = facts.unit, facts.commits, facts.awaits
        others = op.sync, facts.orders, facts.takes, facts.gives
        op.acts = any((*asynchronous, *others)) or not _MEMORY.isdisjoint(named)
        return op

    return decorate


def _parts(hint: object) -> tuple[object, ...]:
    """The types that an annotation names."""
    inner = get_args(hint)[: 1 if hasattr(hint, "__metadata__") else None]
    return (hint, *(part for one in inner for part in _parts(one)))
