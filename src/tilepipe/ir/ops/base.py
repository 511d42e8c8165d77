"""What every op is, and a sequence of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import get_annotations
from typing import ClassVar, get_args

from tilepipe.ir.facts import BINDS, Facts, Sync, Use
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

    A class declares `facts`, and annotates the fields that are operands, in the words of
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

    def __init_subclass__(cls) -> None:
        letters = (f"_{c.lower()}" if c.isupper() else c for c in cls.__name__)
        cls.kind = "".join(letters).lstrip("_")
        facts = getattr(cls, "facts", Facts())
        hints = get_annotations(cls)
        marks = {n: h.__metadata__[0] for n, h in hints.items() if hasattr(h, "__metadata__")}
        cls.bound = tuple(name for name, mark in marks.items() if mark is BINDS)
        cls.blocks = tuple(name for name, hint in hints.items() if hint is Block)
        cls.given = tuple(n for n in hints if n not in (*cls.bound, *cls.blocks))
        cls.uses = {name: mark for name, mark in marks.items() if isinstance(mark, Use)}
        written = (name for name, use in cls.uses.items() if use.writes)
        cls.sets = tuple(n for n in written if not _SET.isdisjoint(_parts(hints[n])))
        cls.sync = facts.sync
        for mark in marks.values():
            if isinstance(mark, Sync):
                cls.sync |= mark
        named = (part for hint in hints.values() for part in _parts(hint))
        asynchronous = facts.unit, facts.commits, facts.awaits
        others = cls.sync, facts.orders, facts.takes, facts.gives
        cls.acts = any((*asynchronous, *others)) or not _MEMORY.isdisjoint(named)


def _parts(hint: object) -> tuple[object, ...]:
    """The types that an annotation names."""
    inner = get_args(hint)[: 1 if hasattr(hint, "__metadata__") else None]
    return (hint, *(part for one in inner for part in _parts(one)))
