"""How an instruction is defined, and the registry of definitions.

A definition is a function from an `Instruction` to what the compiler does with it: `Compute`, a
value from values; `Perform`, a request to the machine; `Jump` or `Leave`. It is called once for
each instruction, before anything runs, and refuses what it does not know: no modifier is passed
over in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from tilepipe.errors import PtxError
from tilepipe.ir.facts import Facts, Sync
from tilepipe.ir.location import Loc
from tilepipe.ptx.lanes import Array
from tilepipe.ptx.numerics.types import Unsupported
from tilepipe.ptx.syntax.nodes import Address, Instruction, Integer, Operand, Pair, Register, Vector

# A destination or a source, and the type in which the instruction writes or reads it.
Typed = tuple[Operand, str]
# "same": equal in all lanes where all sources are (arithmetic). "lanes": may differ between lanes
# whatever the sources. "one": equal in all lanes whatever the sources (a vote). "memory": as
# "same", and what it gives may change from one execution to the next (a load).
Spread = Literal["same", "lanes", "one", "memory"]
# What an instruction computes, of arrays with a value for each lane.
OnLanes = Callable[..., Array]
_PLAIN = Facts()
# Stands for the condition code in instructions that no function has been made of yet.
CONDITION_CODE = Register("%cc", "pred", -1)


@dataclass(frozen=True, slots=True)
class Compute:
    """Values from values, with no effect on anything but registers.

    Attributes:
        results: destinations. sources: what it reads.
        lanes: the values of 32 lanes: an expression with `{0}`, `{1}` for the sources, which are
            arrays or numbers; or a function of arrays, which gives an array, or a tuple of them for
            several results.
        scalar: an expression on Python numbers for sources that are equal in all lanes: integers
            (signed where their type is), predicates. Its value is reduced to the type of the
            result; one for each result. None: there is none, and the lanes are computed.
        spread: which results are equal in all lanes.
        active: `lanes` is a function that takes the active lanes first (a bool array): it looks
            at other lanes. members: the lanes that must execute it together, where it waits for
            them (`.sync`).
    """

    results: tuple[Typed, ...]
    sources: tuple[Typed, ...]
    lanes: str | Callable[..., Any]
    scalar: str | tuple[str, ...] | None = None
    spread: Spread = "same"
    active: bool = False
    members: Operand | None = None


@dataclass(frozen=True, slots=True)
class Perform:
    """A request to the machine.

    Attributes:
        results, sources: as for `Compute`; a source that is equal in all lanes is handed over as a
            number, any other as an array.
        start: (warp, site, active lanes as a mask, sources...) -> the machine's request.
        finish: (warp, what the machine answered) -> the results, arrays or numbers; None where
            there are none.
        facts, sync: what the machine and its messages need to know of the instruction. relaxed: an
            arrive that publishes little. spread: which results are equal in all lanes.
        members: the lanes that must execute it together.
        waits: of a test of a barrier: what takes the place of `start` where a test that fails is
            followed by nothing but the next one.
        in_place: registers that the machine reads and writes later; the definition names them by
            number, and they are none of the sources.
        anywhere: the lanes may execute it together with others that execute the same opcode
            elsewhere: "warp", with all lanes of the warp (`barrier.sync` that is not `.aligned`);
            "mask", with those whose instruction names the same lanes (`bar.warp.sync`).
        strong: an access to memory whose result, or effect, depends on who comes first.
        watches: it is a strong load, which may see what other clusters write during the launch.
        acquires: it may order this cluster after another: a fence, or an atomic operation that
            acquires.
        carries: the first of its sources that may hold poison (`execution.poison`); None: none may.
        site: further fields of the instruction's site.
    """

    results: tuple[Typed, ...]
    sources: tuple[Typed, ...]
    start: Callable[..., Any]
    finish: Callable[..., Any] | None
    facts: Facts = _PLAIN
    sync: Sync = Sync.NOTHING
    relaxed: bool = False
    spread: Spread = "memory"
    members: Operand | None = None
    waits: Callable[..., Any] | None = None
    in_place: tuple[Typed, ...] = ()
    anywhere: Literal["", "warp", "mask"] = ""
    strong: bool = False
    watches: bool = False
    acquires: bool = False
    carries: int | None = None
    site: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Jump:
    """A branch: to its only target, or to the one that `index` chooses."""

    index: Operand | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """Lanes that execute it are done; with `fault`, the program has gone wrong (trap)."""

    fault: str = ""


@dataclass(frozen=True, slots=True)
class Nothing:
    """An instruction that changes nothing which can be observed (a hint, a prefetch)."""


Operation = Compute | Perform | Jump | Leave | Nothing
Definition = Callable[[Instruction], Operation]

_definitions: dict[str, Definition] = {}


def defines(*opcodes: str) -> Callable[[Definition], Definition]:
    """Registers the definition of opcodes."""

    def register(definition: Definition) -> Definition:
        for opcode in opcodes:
            assert opcode not in _definitions, opcode
            _definitions[opcode] = definition
        return definition

    return register


def opcodes() -> list[str]:
    """All opcodes that are defined."""
    return sorted(_definitions)


def operation(instruction: Instruction) -> Operation:
    """The effect of an instruction.

    Raises:
        PtxError: its opcode, a modifier or an operand is not modelled; it names the line.
    """
    definition = _definitions.get(instruction.opcode)
    if definition is None:
        not_modelled(instruction, f"the opcode '{instruction.opcode}'")
    try:
        return definition(instruction)
    except Unsupported as error:
        raise PtxError(f"{where(instruction)}: {instruction}: {error}") from None
    except (KeyError, ValueError, IndexError):  # a type or a number of operands that PTX lacks
        raise PtxError(f"{where(instruction)}: {instruction}: no form that is modelled") from None


def not_modelled(instruction: Instruction, what: str) -> NoReturn:
    """Raises PtxError: the reader does not model a part of an instruction."""
    raise PtxError(f"{where(instruction)}: {instruction.name}: {what} is not modelled")


def where(instruction: Instruction) -> str:
    """`PTX line 120 (gemm.cu:41)`, for messages."""
    loc = source_line(instruction)
    source = f" ({loc.short})" if loc is not None else ""
    return f"PTX line {instruction.line}{source}"


def source_line(instruction: Instruction) -> Loc | None:
    """The line of source that an instruction comes from: of the kernel itself, where functions
    were inlined, with the lines of those inside; None where the text does not say.
    """
    position, found = instruction.position, None
    while position is not None:
        found = Loc(position.file, position.line, inside=found)
        position = position.called_at
    return found


class Modifiers:
    """The modifiers of an instruction, taken one after another in the order that the ISA gives."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self._left = list(instruction.modifiers)

    def take(self, *choices: str) -> str:
        """The next modifier, if it is one of these; else ""."""
        if self._left and self._left[0] in choices:
            return self._left.pop(0)
        return ""

    def anywhere(self, *choices: str) -> str:
        """The first of these among all modifiers that are left; else ""."""
        for number, modifier in enumerate(self._left):
            if modifier in choices:
                return self._left.pop(number)
        return ""

    def flag(self, name: str) -> bool:
        """True if the next modifier is this one."""
        return bool(self.take(name))

    def need(self, *choices: str) -> str:
        """The next modifier, which must be one of these."""
        taken = self.take(*choices)
        if not taken:
            expected = f"expected .{', .'.join(choices)}"
            if not self._left:
                instruction = self.instruction
                raise PtxError(
                    f"{where(instruction)}: {instruction.name}: modifier missing: {expected}"
                )
            not_modelled(self.instruction, f"'.{self._left[0]}' ({expected})")
        return taken

    def in_any_order(self, *sets: tuple[str, ...]) -> tuple[str, ...]:
        """One modifier of each set at most, in whatever order they stand, as assemblers take
        them; "" where a set has none.
        """
        found = [""] * len(sets)
        while self._left:
            here = next((i for i, s in enumerate(sets) if self._left[0] in s and not found[i]), -1)
            if here < 0:
                break
            found[here] = self._left.pop(0)
        return tuple(found)

    def any(self) -> str:
        """The next modifier, whatever it is; "" at the end."""
        return self._left.pop(0) if self._left else ""

    def end(self) -> None:
        """Refuses what is left."""
        if self._left:
            not_modelled(self.instruction, f"the modifier '.{self._left[0]}'")


def operands(instruction: Instruction, *counts: int) -> tuple[Operand, ...]:
    """The operands, of which there must be exactly one of these numbers."""
    found = instruction.operands
    if len(found) not in counts:
        expected = " or ".join(map(str, counts))
        raise PtxError(
            f"{where(instruction)}: {instruction}: {len(found)} operands; expected {expected}"
        )
    return found


def inside(instruction: Instruction, operand: Operand) -> Operand:
    """The operand in the brackets of an address that has only one."""
    if not isinstance(operand, Address) or len(operand.items) != 1:
        not_modelled(instruction, f"the address {operand}")
    return operand.items[0]


def elements(instruction: Instruction, operand: Operand, count: int) -> tuple[Operand, ...]:
    """The registers of a vector, or the one register: exactly `count`."""
    found = operand.items if isinstance(operand, Vector) else (operand,)
    if len(found) != count:
        not_modelled(instruction, f"{len(found)} registers where there are {count}")
    return found


def pair(operand: Operand) -> tuple[Operand, ...]:
    """The destinations of `d|p`, or of `d` alone."""
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand,)


def constant(instruction: Instruction, operand: Operand) -> int:
    """The value of an operand that must be an integer constant."""
    if not isinstance(operand, Integer):
        raise PtxError(f"{where(instruction)}: {instruction}: {operand} is not a constant")
    return operand.value


def typed(operands: Iterable[Operand], *types: str) -> tuple[Typed, ...]:
    """Operands with their types, the last of which stands for those after it, too."""
    found = tuple(operands)
    padded = (*types, *types[-1:] * (len(found) - len(types)))
    return tuple(zip(found, padded, strict=False))


def compute(
    instruction: Instruction,
    kind: str,
    lanes: OnLanes,
    scalar: str | None,
    *kinds: str,
    to: str = "",
) -> Compute:
    """d = lanes(sources): sources of `kinds`, or all of `kind`; d of type `to`, or `kind`."""
    destination, *sources = instruction.operands
    return Compute(
        typed([destination], to or kind), typed(sources, *(kinds or (kind,))), lanes, scalar
    )
