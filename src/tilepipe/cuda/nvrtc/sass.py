"""The machine code (SASS) of a cubin: its instructions, its loops, and how often each opcode occurs
in them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tilepipe.errors import CompileError, UnavailableError

_LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:\{\s*)?(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);")
_TARGET = re.compile(r"(0x[0-9a-f]+)|`\((\.L_\w+)\)")
_LABEL = re.compile(r"^\s*(\.L_\w+):")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its byte address, predicate (`@!P0` or empty), opcode with modifiers, and
    operands as text.
    """

    address: int
    predicate: str
    opcode: str
    operands: str

    @property
    def base(self) -> str:
        """The opcode without modifiers: `HGMMA` of `HGMMA.64x256x16.F32.BF16`."""
        return self.opcode.split(".")[0]


@dataclass(frozen=True, slots=True)
class Loop:
    """The instructions from the target of a backward branch to the branch."""

    start: int
    end: int
    instructions: tuple[Instruction, ...]

    def count(self) -> Counter[str]:
        """The number of instructions by opcode without modifiers."""
        return count(self.instructions)


def nvdisasm() -> str:
    """The path of nvdisasm: from the wheel in this environment, else from PATH.

    Raises:
        UnavailableError: nvdisasm is not installed.
    """
    wheels = sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin/nvdisasm"))
    found = str(wheels[0]) if wheels else shutil.which("nvdisasm")
    if found is None:
        raise UnavailableError(
            "disassembling needs nvdisasm, which is not installed: pip install nvidia-cuda-nvdisasm"
        )
    return found


def disassemble(cubin: bytes) -> list[Instruction]:
    """All instructions of a cubin with one kernel, in address order."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [nvdisasm(), "-c", file.name], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise CompileError(f"nvdisasm: {done.stderr.strip()}")
    return parse(done.stdout)


def parse(text: str) -> list[Instruction]:
    """The instructions in the output of `nvdisasm -c`, with labels in operands replaced by
    addresses.
    """
    labels: dict[str, int] = {}
    pending: list[str] = []
    found: list[Instruction] = []
    for line in text.splitlines():
        if label := _LABEL.match(line):
            pending.append(label[1])
        elif m := _LINE.match(line):
            address = int(m[1], 16)
            labels.update(dict.fromkeys(pending, address))
            pending.clear()
            found.append(Instruction(address, (m[2] or "").strip(), m[3], m[4].strip()))
    return [_resolved(i, labels) for i in found]


def _resolved(i: Instruction, labels: dict[str, int]) -> Instruction:
    def address(m: re.Match[str]) -> str:
        return m[0] if m[2] is None or m[2] not in labels else hex(labels[m[2]])

    return (
        Instruction(i.address, i.predicate, i.opcode, _TARGET.sub(address, i.operands))
        if "`(" in i.operands
        else i
    )


def loops(code: list[Instruction]) -> list[Loop]:
    """The loops, found by their backward branches, the one with the fewest instructions first. A
    branch to itself, which ends a kernel, is not a loop.
    """
    found: dict[int, Loop] = {}
    for i in code:
        target = re.search(r"0x[0-9a-f]+", i.operands) if i.base == "BRA" else None
        if target is None or not int(target[0], 16) < i.address:
            continue
        start = int(target[0], 16)
        if start not in found or found[start].end < i.address:
            found[start] = Loop(
                start, i.address, tuple(x for x in code if start <= x.address <= i.address)
            )
    return sorted(found.values(), key=lambda x: len(x.instructions))


def loop_with(code: list[Instruction], opcode: str) -> Loop:
    """The innermost loop that contains an opcode.

    Raises:
        LookupError: no loop contains it.
    """
    for loop in loops(code):
        if loop.count()[opcode]:
            return loop
    raise LookupError(f"no loop has {opcode}")


def count(code: list[Instruction] | tuple[Instruction, ...]) -> Counter[str]:
    """The number of instructions by opcode without modifiers."""
    return Counter(i.base for i in code)
