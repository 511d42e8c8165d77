"""Names of a PTX function and the blocks in which they mean something.

A block `{ }` may declare registers, variables and labels of its own, which hide those outside; two
copies of one piece of inline assembly do so all the time. A label may be used before it is
defined, everything else only after.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tilepipe.errors import PtxError
from tilepipe.ptx.syntax.nodes import Register, Variable, Vector

_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]*)")
# the names of an element of a vector (PTX ISA, "Vectors")
_ELEMENTS = {name: at for names in ("xyzw", "rgba") for at, name in enumerate(names)}
Named = Register | Variable | Vector


@dataclass
class Registers:
    """The registers of a function: numbered as instructions name them."""

    named: list[Register] = field(default_factory=list)

    def new(self, name: str, kind: str) -> Register:
        register = Register(name, kind, len(self.named))
        self.named.append(register)
        return register

    def declared(self, name: str, kind: str, elements: int) -> Register | Vector:
        """A register, or the registers of a vector: `v.x`, `v.y`."""
        if elements == 1:
            return self.new(name, kind)
        return Vector(tuple(self.new(f"{name}.{part}", kind) for part in "xyzw"[:elements]))


class Scope:
    """A block, and those around it.

    Attributes:
        labels: of this block: name -> number of an instruction. jump_tables: name -> labels.
        registers: of the function.
    """

    def __init__(self, outer: Scope | None, registers: Registers) -> None:
        self.outer = outer
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.labels: dict[str, int] = {}
        self.jump_tables: dict[str, tuple[str, ...]] = {}
        self.registers = registers
        self._named: dict[str, Named] = {}
        # A declaration `%r<617>` stands for registers %r0 .. %r616, made when they are named.
        self._ranges: dict[str, tuple[int, str, int]] = {}

    def declare_registers(
        self, name: str, kind: str, elements: int, count: int | None, line: int
    ) -> None:
        """`.reg .kind name`, or `name<count>`; of a vector where there are several elements."""
        if count is not None:
            self._ranges[name] = count, kind, elements
        else:
            self.declare(name, self.registers.declared(name, kind, elements), line)

    def declare(self, name: str, what: Named, line: int) -> None:
        """A register or a variable of this block.

        Raises:
            PtxError: the block has one of this name.
        """
        if name in self._named:
            raise PtxError(f"PTX line {line}: '{name}' is declared twice in one block")
        self._named[name] = what

    def find(self, name: str) -> Named | None:
        """The meaning of a name here; None where it names neither a register nor a variable."""
        scope: Scope | None = self
        while scope is not None:
            found = scope._named.get(name) or scope._of_range(name)
            if found is not None:
                return found
            scope = scope.outer
        base, _, element = name.rpartition(".")
        if base and element in _ELEMENTS and isinstance(vector := self.find(base), Vector):
            items = vector.items[_ELEMENTS[element] :][:1]
            return next((item for item in items if isinstance(item, Register)), None)
        return None

    def _of_range(self, name: str) -> Register | Vector | None:
        if not self._ranges or (match := _NUMBERED.fullmatch(name)) is None:
            return None
        stem, number = match.groups()
        count, kind, elements = self._ranges.get(stem, (0, "", 1))
        if len(number) > 10 or int(number) >= count:
            return None
        made = self._named[name] = self.registers.declared(name, kind, elements)
        return made

    def label(self, name: str) -> int | None:
        """The instruction that a label names, once all of the function has been read."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.outer
        return None

    def jump_table(self, name: str) -> tuple[str, ...] | None:
        """The labels of a `.branchtargets` list."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.jump_tables:
                return scope.jump_tables[name]
            scope = scope.outer
        return None
