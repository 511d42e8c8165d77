"""The flow of poison (data from memory that nothing has written) through an instruction.

- Where each bit of a result depends on single bits of the sources (moves, logic, shifts and fields
  by a known amount, selections, conversions of integers), so does its poison: `and` with 0 removes
  it, and `selp` takes that of the source it selects.
- Of packed types, each element is by itself. A product of matrices spoils rows and columns.
- All other arithmetic makes poison of every bit of a lane, and what combines lanes (votes,
  reductions) of every lane: `poison * 0` and `poison - poison` are poison.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tilepipe.ptx.definition import Compute, Jump, Operation, Perform, Typed
from tilepipe.ptx.numerics.types import TYPES, is_integer
from tilepipe.ptx.syntax.nodes import Instruction, Not, Operand, Register, leaves

# opcode -> the sources that say which bits go where: poison in those is poison in all bits
_BY_BITS: dict[str, tuple[int, ...]] = {
    "mov": (), "and": (), "or": (), "xor": (), "not": (), "lop3": (), "selp": (), "movmatrix": (),
    "shl": (1,), "shr": (1,), "shf": (2,), "prmt": (2,), "bfe": (1, 2), "bfi": (2, 3), "cvt": (),
}  # fmt: skip
Way = Literal["bits", "elements", "lanes", "shuffle", "product", "warp"]


@dataclass(frozen=True, slots=True)
class Source:
    """An operand that an instruction reads: the registers in it, and the type in which it reads
    them. `plain`: it is one register, or its complement.
    """

    numbers: tuple[int, ...]
    kind: str
    plain: bool


@dataclass(frozen=True, slots=True)
class Result:
    """A register that an instruction writes. `index`: among its results. `varying`: it is kept for
    each lane. `bits`: how wide it is.
    """

    number: int
    kind: str
    index: int
    varying: bool
    bits: int


@dataclass(frozen=True, eq=False, slots=True)
class Flow:
    """The flow of poison through one instruction.

    Attributes:
        reads: the registers of its sources. guard: that of its guard, or -1. decides: those that
            decide what it does, or where. results: those that it computes.
        way: how. by_bits: for "bits", the function of arrays that gives the results; else None.
    """

    instruction: Instruction
    op: Operation
    sources: tuple[Source, ...]
    reads: tuple[int, ...]
    guard: int
    decides: tuple[int, ...]
    results: tuple[Result, ...]
    way: Way
    by_bits: Callable[..., Any] | None

    @staticmethod
    def of(instruction: Instruction, op: Operation, varying: frozenset[int]) -> Flow:
        """That of an instruction. `varying`: the registers that are kept for each lane."""
        given: tuple[Typed, ...] = ()
        made: tuple[Typed, ...] = ()
        decides: list[int] = []
        way: Way = "lanes"
        if isinstance(op, Compute | Perform):
            given, made = op.sources, op.results
            decides += _numbers(op.members) if op.members is not None else ()
        if isinstance(op, Compute):
            way = _way(instruction, op)
        sources = tuple(_source(operand, kind) for operand, kind in given)
        if isinstance(op, Perform):
            fixed = sources if op.carries is None else sources[: op.carries]
            decides += (n for source in fixed for n in source.numbers)
        if isinstance(op, Jump) and op.index is not None:
            decides += _numbers(op.index)
        results = tuple(
            Result(d.number, kind, i, d.number in varying, TYPES[d.type].bits)
            for i, (d, kind) in enumerate(made)
            if isinstance(d, Register)
        )
        return Flow(
            instruction, op, sources, tuple(n for s in sources for n in s.numbers),
            -1 if instruction.guard is None else instruction.guard.register.number,
            tuple(decides), results, way, _function(op) if way == "bits" else None,
        )  # fmt: skip

    @property
    def controls(self) -> tuple[int, ...]:
        """For "bits", the sources that say which bits go where."""
        places = _BY_BITS[self.instruction.opcode]
        return tuple(i for i in places if i < len(self.sources))  # a constant may be none of them


def _way(instruction: Instruction, op: Compute) -> Way:
    opcode, kinds = instruction.opcode, [kind for _, kind in (*op.sources, *op.results)]
    narrow = all(kind not in TYPES or TYPES[kind].bits <= 64 for kind in kinds)
    if opcode in _BY_BITS and narrow and not _changes_numbers(instruction, kinds):
        return "bits"
    if opcode == "shfl":
        return "shuffle"
    if opcode == "mma" and instruction.modifiers[-1] in ("f16", "f32", "f64"):
        return "product"
    if op.active or op.spread in ("lanes", "one"):
        return "warp"
    if all(kind in TYPES and TYPES[kind].kind == "packed" for kind in kinds):
        return "elements"
    return "lanes"


def _changes_numbers(instruction: Instruction, kinds: list[str]) -> bool:
    """True if bits of a result depend on other bits than those they come from."""
    if instruction.opcode == "cvt":
        return not all(map(is_integer, kinds)) or instruction.modifiers[0] not in TYPES
    return instruction.opcode == "lop3" and instruction.modifiers[0] in ("and", "or")


def _function(op: Operation) -> Callable[..., Any] | None:
    """The results of an instruction as a function of arrays."""
    assert isinstance(op, Compute)
    if not isinstance(op.lanes, str):
        return op.lanes
    names = [f"s{i}" for i in range(len(op.sources))]
    text = f"lambda {', '.join(names)}: {op.lanes.format(*names)}"
    found: Callable[..., Any] = eval(text)
    return found


def _source(operand: Operand, kind: str) -> Source:
    plain = isinstance(operand, Register) or (
        isinstance(operand, Not) and isinstance(operand.operand, Register)
    )
    return Source(_numbers(operand), kind, plain)


def _numbers(operand: Operand) -> tuple[int, ...]:
    return tuple(leaf.number for leaf in leaves(operand) if isinstance(leaf, Register))
