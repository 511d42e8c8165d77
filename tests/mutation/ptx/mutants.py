"""Mutants of a PTX text: one instruction deleted, or one bit of one constant flipped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

_SKIPPED = re.compile(r"\s+|//[^\n]*|/\*.*?\*/|[{}]|[$\w.%]+:(?!:)|\.(?:loc|file)\b[^\n]*", re.S)
_STATEMENT = re.compile(r"[^;]*;")
_OPCODE = re.compile(r"(@!?\S+\s+)?(\S+)")
_NUMBER = re.compile(r"(?<![\w.%$])(0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0x[0-9a-f]+|-?\d+)\b")
_NEAR = 8  # bits of a constant of which one is flipped, beside one of all others


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a text.

    Attributes:
        operator: "deletion" or "bit flip". line: of the text. instruction: as it was.
        what: for a bit flip, `4 -> 5`. begin, end: what is replaced. new: by what.
    """

    operator: str
    line: int
    instruction: str
    what: str
    begin: int
    end: int
    new: str

    def of(self, text: str) -> str:
        """The text with the change."""
        return text[: self.begin] + self.new + text[self.end :]

    @property
    def opcode(self) -> str:
        """With its modifiers, without a guard."""
        found = _OPCODE.match(self.instruction)
        assert found is not None
        return found[2].rstrip(";")


def statements(text: str) -> Iterator[tuple[int, int]]:
    """(begin, end) of each instruction in the bodies of the functions of a text."""
    at = text.index("{", text.index(".entry"))
    while at < len(text):
        if skipped := _SKIPPED.match(text, at):
            at = skipped.end()
            continue
        statement = _STATEMENT.match(text, at)
        if statement is None:
            return
        if not statement[0].startswith("."):
            yield statement.span()
        at = statement.end()


def mutants(text: str) -> Iterator[Mutant]:
    """Each instruction deleted; of each constant two bits flipped: one of the lowest eight, and one
    of the others. A hash of the place chooses the bits.
    """
    for begin, end in statements(text):
        line, instruction = text.count("\n", 0, begin) + 1, " ".join(text[begin:end].split())
        yield Mutant("deletion", line, instruction, "", begin, end, "")
        opcode = _OPCODE.match(text, begin)
        assert opcode is not None
        width = 64 if re.search(r"64\b", opcode[2]) else 32
        for number in _NUMBER.finditer(text, min(opcode.end(), end), end):
            place = crc32(f"{line} {number.start() - begin} {instruction}".encode())
            bits = [place % _NEAR, _NEAR + place // _NEAR % (_width(number[0], width) - _NEAR)]
            for bit in bits:
                new = _flipped(number[0], bit, width)
                what = f"{number[0]} -> {new}"
                yield Mutant("bit flip", line, instruction, what, *number.span(), new)


def _width(constant: str, width: int) -> int:
    return {"0f": 32, "0d": 64}.get(constant[:2].lower(), width)


def _flipped(constant: str, bit: int, width: int) -> str:
    prefix = constant[:2].lower()
    if prefix in ("0f", "0d"):
        digits = len(constant) - 2
        return f"{constant[:2]}{int(constant[2:], 16) ^ 1 << bit:0{digits}X}"
    value = int(constant, 0) ^ 1 << bit
    return hex(value) if prefix == "0x" else str(value if abs(value) < 1 << width else -value)
