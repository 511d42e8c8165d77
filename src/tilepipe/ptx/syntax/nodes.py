"""The syntax tree of a PTX module: functions, variables, instructions, operands.

Names are resolved: an operand that names a register or a variable is that register or variable,
whatever block of the text declared it. Instructions of one function stand in one list, and labels
are positions in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

_SHOWN = 8  # elements of a vector that messages show in full


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """A line of the source that a compiler compiled, from `.loc`.

    Attributes:
        files: number of a file -> its path; the text may name it after its use.
        file_number, line, column: where. called_at: where the function that the line is in was
            inlined, or None.
    """

    files: Mapping[int, str]
    file_number: int
    line: int
    column: int
    called_at: Position | None = None

    @property
    def file(self) -> str:
        """The path as the compiler gave it; "?" where it gave none."""
        return self.files.get(self.file_number, "?")

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        return f"{where}, inlined at {self.called_at}" if self.called_at else where


@dataclass(frozen=True, slots=True, eq=False)
class Register:
    """A register of a function.

    Attributes:
        name: as written, `%r12`. type: without the dot, `b32`, `pred`.
        number: its place among the registers of its function that instructions name.
    """

    name: str
    type: str
    number: int

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class SpecialRegister:
    """A register that the hardware sets: `%tid.x` is ("%tid", "x"), `%laneid` ("%laneid", "")."""

    name: str
    component: str = ""

    def __str__(self) -> str:
        return f"{self.name}.{self.component}" if self.component else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """Declared memory, or a parameter.

    Attributes:
        space: "global", "shared", "const", "local" or "param". type: of its elements, "b8".
        align: in bytes. shape: extents of an array; () for a scalar, (0,) for one whose size the
            launch gives (`.extern .shared .b8 smem[]`).
        initial: values of its first elements: numbers, or addresses of other variables.
        external: declared here, defined elsewhere. line: of the PTX text.
    """

    name: str
    space: str
    type: str
    align: int
    shape: tuple[int, ...]
    initial: tuple[Operand, ...]
    external: bool
    line: int

    @property
    def nbytes(self) -> int:
        return TYPE_BYTES[self.type] * prod(self.shape)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Name:
    """A name that is neither a register nor a variable: a label, or a function."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer constant; may be negative."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Float:
    """A floating-point constant: its bits, of `width` 32 or 64. A decimal constant has 64."""

    bits: int
    width: int

    def __str__(self) -> str:
        return f"0{'f' if self.width == 32 else 'd'}{self.bits:0{self.width // 4}X}"


@dataclass(frozen=True, slots=True)
class Sum:
    """A name and a constant number of bytes after it: `smem+64`, `%r1+-16`."""

    base: Operand
    offset: int

    def __str__(self) -> str:
        return f"{self.base}+{self.offset}"


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, c}`: registers of a vector access, coordinates, lanes."""

    items: tuple[Operand, ...]

    def __str__(self) -> str:
        """As in the text; of a long one, such as an accumulator, the first and the last."""
        shown = [*map(str, self.items)]
        if len(shown) > _SHOWN:
            shown = [*shown[:2], f"... {len(shown) - 3} more", shown[-1]]
        return f"{{{', '.join(shown)}}}"


@dataclass(frozen=True, slots=True)
class Address:
    """`[a]`, or `[map, {x, y}]`: what stands in brackets."""

    items: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.items))}]"


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: two destinations of one instruction."""

    first: Operand
    second: Operand

    def __str__(self) -> str:
        return f"{self.first}|{self.second}"


@dataclass(frozen=True, slots=True)
class Not:
    """`!p`: a predicate, negated."""

    operand: Operand

    def __str__(self) -> str:
        return f"!{self.operand}"


@dataclass(frozen=True, slots=True)
class Arguments:
    """`(a, b)`: what a call passes, or receives."""

    items: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a result that is not used."""

    def __str__(self) -> str:
        return "_"


Operand = (
    Register | SpecialRegister | Variable | Name | Integer | Float | Sum | Vector | Address | Pair
    | Not | Arguments | Sink
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Guard:
    """`@p` or `@!p` before an instruction."""

    register: Register
    negated: bool

    def __str__(self) -> str:
        return f"@{'!' if self.negated else ''}{self.register}"


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One instruction.

    Attributes:
        opcode: `mad`. modifiers: what follows its dots, in order: `("lo", "s32")`.
        targets: numbers of the instructions that it may jump to, where it is a branch: one for
            `bra`, those of the list for `brx.idx`.
        line: of the PTX text. position: of the source, or None where the compiler gave none.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    targets: tuple[int, ...]
    line: int
    position: Position | None

    @property
    def name(self) -> str:
        """The opcode with its modifiers: `mad.lo.s32`."""
        return ".".join((self.opcode, *self.modifiers))

    def __str__(self) -> str:
        guard = f"{self.guard} " if self.guard else ""
        operands = ", ".join(map(str, self.operands))
        return f"{guard}{self.name}{' ' if operands else ''}{operands}"


@dataclass(eq=False)
class Function:
    """An entry point, or a function.

    Attributes:
        is_entry: whether a launch can begin here. parameters, results: in order.
        directives: name -> numbers of the performance directives, `{"maxntid": (256, 1, 1)}`.
        registers: those that its instructions name. variables: declared in its body.
        instructions: in the order of the text. labels: name -> number of an instruction, for
            messages; labels of inner blocks may repeat, and the last one stands here.
        declared_only: there is no body. line: of the PTX text.
    """

    name: str
    is_entry: bool
    line: int
    parameters: list[Variable] = field(default_factory=list)
    results: list[Variable] = field(default_factory=list)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    registers: list[Register] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    declared_only: bool = False


@dataclass(eq=False)
class Module:
    """A PTX file.

    Attributes:
        text: what was parsed.
        version: of the PTX ISA: (9, 5). targets: `("sm_100a",)` and options.
        variables: of the module, by name. functions: by name, entry points among them.
    """

    text: str = ""
    version: tuple[int, int] = (0, 0)
    targets: tuple[str, ...] = ()
    address_size: int = 64
    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)

    @cached_property
    def entries(self) -> list[Function]:
        """Where a launch can begin, in the order of the text."""
        return [f for f in self.functions.values() if f.is_entry]


TYPE_BYTES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16,
}  # fmt: skip


def leaves(operand: Operand) -> Iterator[Operand]:
    """The registers, variables and constants that an operand is made of."""
    match operand:
        case Vector(items) | Address(items) | Arguments(items):
            for item in items:
                yield from leaves(item)
        case Pair(first, second):
            yield from leaves(first)
            yield from leaves(second)
        case Sum(base) | Not(base):
            yield from leaves(base)
        case _:
            yield operand
