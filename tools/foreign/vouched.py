"""Writes docs/generated/ptx-vouched.md: in which modes the printed kernels for sm_100a use the
instructions that act on memory, barriers and the tensor core, and which kernels of other compilers
used the reader's model of each mode and computed right results. Which kernel has which modes it
writes to tests/ptx/foreign/data, too.

Usage: python -m tools.foreign.vouched [--check]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.ptx.foreign import launching
from tests.ptx.foreign.problems import problem
from tests.ptx.test_print_families import FAMILY_LIST
from tilepipe.errors import PtxError
from tilepipe.machine.memory.matrix_operands import MatrixDescriptor
from tilepipe.machine.memory.tensor_map import MAP_BYTES, SPANS, TensorMapFields, decode
from tilepipe.ptx import definition
from tilepipe.ptx.address_spaces import PARAM_WINDOW
from tilepipe.ptx.compiler import undefined_operands
from tilepipe.ptx.definition import Operation, Perform
from tilepipe.ptx.syntax.nodes import Instruction
from tools.snapshot import doors

PAGE = Path(__file__).parents[2] / "docs" / "generated" / "ptx-vouched.md"
BY_KERNEL = launching.DATA / "modes.txt"
ARCH = "sm_100a"
ALONE = "by the ISA alone"
# Accesses of threads and votes are tested against a GPU, on which they are what they are on sm_90a.
_SHARED_WITH_HOPPER = ("ld", "st", "atom", "red", "shfl", "vote", "elect", "nanosleep", "prefetch")
# What changes no result, or is the same in every form.
_PLAIN = {
    "sync", "aligned", "tile", "weak", "release", "acquire", "cta", "L2::cache_hint", "b16", "b32",
    "b64", "b128", "mbarrier::complete_tx::bytes", "mbarrier::arrive::one", "bulk_group",
}  # fmt: skip
# What the details say, or where A is kept between MMAs.
_REPEATED = re.compile(r"x\d+|collector::.*|block16|block32|scale_vec::.*")


class Mode(NamedTuple):
    """How an instruction was used. `size`: N of an MMA, or how often a shape is repeated."""

    instruction: str
    details: str
    size: str


def _name(instruction: Instruction) -> str:
    """The instruction without what changes no result."""
    opcode, kept = instruction.opcode, [m for m in instruction.modifiers if m not in _PLAIN]
    if opcode == "barrier" and "cluster" not in kept:
        opcode = "bar"  # without .aligned, which is a promise
    if opcode == "bar" and "arrive" not in kept and "warp" not in kept:
        kept = ["sync", *kept]
    if "tensor" in kept and "multicast::cluster" not in kept:
        # The address is of the CTA that executes it, whatever the name of the space.
        kept = ["shared::cta" if m == "shared::cluster" else m for m in kept]
    kept = [m for m in kept if not _REPEATED.fullmatch(m)]
    kept = ["shared::cta" if m == "shared" else m for m in kept]
    kept.sort(key=_late)
    return ".".join([opcode, *kept])


def _late(modifier: str) -> int:
    """A place for modifiers that compilers print in different places."""
    last = ("warpx4", "cta_group", "multicast")
    return next((i for i, start in enumerate(last, 1) if modifier.startswith(start)), 0)


def _swizzle(swizzle: int) -> str:
    return f"swizzle {swizzle}" if swizzle else "no swizzle"


def _operand(descriptor: int, *, k_major: bool) -> str:
    swizzle = MatrixDescriptor.of_tcgen05(descriptor).swizzle
    return f"{'K' if k_major else 'M/N'}-major, {_swizzle(swizzle)}"


def _mma(instruction: Instruction, arguments: tuple[Any, ...]) -> Mode:
    site, _, mma = arguments
    shape, scaling = mma.shape(site), mma.scaling
    in_tensor_memory = mma.a_in_tensor_memory
    first = "tensor memory" if in_tensor_memory else _operand(mma.a, k_major=shape.a_k_major)
    details = [
        f"{shape.a.name} × {shape.b.name}", f"A {first}",
        f"B {_operand(mma.b, k_major=shape.b_k_major)}", f"M {shape.rows}",
    ]  # fmt: skip
    if shape.accumulator.name != "float32":
        details.append(f"D {shape.accumulator.name}")
    if scaling is not None:
        assert shape.scale is not None
        ids = f"ids {shape.a_scale}, {shape.b_scale}"
        details.append(f"{scaling.vector} scales {shape.scale.name}, {ids}")
    return Mode(_name(instruction), "; ".join(details), str(shape.cols))


def _map(launch: Any, address: int) -> TensorMapFields:
    """The tensor map at an address."""
    raw, _ = launch.map_bytes(address - PARAM_WINDOW)
    if not raw:
        found = launch.memory.at(address, address + MAP_BYTES)
        raw = found.data[address - found.start :][:MAP_BYTES].tobytes()
    return decode(raw)


def mode_of(instruction: Instruction, request: tuple[Any, tuple[Any, ...]]) -> Mode:
    """The mode of an instruction that has made a request of the machine."""
    name = _name(instruction)
    _, arguments = request
    if name.startswith("tcgen05.mma"):
        return _mma(instruction, arguments)
    if name.startswith("tcgen05.cp"):
        return Mode(name, _swizzle(MatrixDescriptor.of_tcgen05(arguments[4]).swizzle), "")
    if name.startswith(("tcgen05.ld", "tcgen05.st")):
        (times,) = (m for m in instruction.modifiers if re.fullmatch(r"x\d+", m))
        return Mode(name, "", times)
    if "tensor" in instruction.modifiers:
        found = _map(arguments[2].launch, arguments[3])
        return Mode(name, f"{_swizzle(SPANS[found.swizzle])}; {found.bits} bits", "")
    return Mode(name, "", "")


@contextmanager
def recorded(found: set[Mode]) -> Iterator[None]:
    """Functions compiled meanwhile add the modes of what they execute to `found`."""

    def watched(instruction: Instruction) -> Operation:
        operation = definition.operation(instruction)
        if not isinstance(operation, Perform) or instruction.opcode in _SHARED_WITH_HOPPER:
            return operation
        start, waits = operation.start, operation.waits

        def watched_start(*arguments: Any) -> Any:
            request = start(*arguments)
            found.add(mode_of(instruction, request))
            return request

        def watched_wait(*arguments: Any) -> Any:
            assert waits is not None
            found.add(Mode(_name(instruction), "", ""))
            return waits(*arguments)

        return replace(operation, start=watched_start, waits=watched_wait if waits else None)

    used = vars(undefined_operands)
    used["operation"] = watched
    try:
        yield
    finally:
        used["operation"] = definition.operation


# -- what is run -----------------------------------------------------------------------


def printed_modes() -> set[Mode]:
    """The modes that the printed families and cases for sm_100a use."""
    found: set[Mode] = set()
    with recorded(found):
        for family in FAMILY_LIST:
            if family.arch == ARCH:
                family.case().program.ptx(ARCH).run()
        for key, case in doors.cases():
            if key.split("/")[0] != "mma":  # of wgmma
                run_case(case)
    return found


def run_case(case: Any) -> None:
    """Runs what is printed of a case, unless the reader does not model a part of it."""
    program = case.make(np.random.default_rng(0))[0]
    try:
        program.ptx(ARCH).run()
    except PtxError as error:
        if "is not modelled" not in str(error):
            raise


def foreign_modes(names: Iterable[str] = ()) -> dict[Mode, list[str]]:
    """Mode -> the recorded kernels for sm_100a that use it and computed right results."""
    found: dict[Mode, list[str]] = {}
    for name in sorted(names) or sorted(launching.records()):
        if launching.records()[name]["arch"] != ARCH:
            continue
        modes: set[Mode] = set()
        with recorded(modes):
            launching.kernel.cache_clear()
            given = problem(name)
            launching.launch(name, given).run(given.seed)
            given.verify()
        launching.kernel.cache_clear()
        for mode in modes:
            found.setdefault(mode, []).append(name.removesuffix("_sm100"))
    return found


# -- the page --------------------------------------------------------------------------

_HEAD = """# What vouches for the reader of PTX on Blackwell

No test of this project has run on a Blackwell GPU. The printed kernels for sm_100a are executed,
instruction by instruction, by the reader of PTX, which shares no code with the printer. What says
that the reader is right? Kernels that are written in Triton, Gluon and CuTe DSL
(`tools/foreign/`), whose compilers are used on Blackwell GPUs: their PTX computes right results in
the reader (`tests/ptx/foreign/`), and the addresses, descriptors and layouts in it are their
compilers', not ours.

Below is each mode in which a printed family or case uses an instruction that acts on memory,
barriers or the tensor core, and the kernels of others that used the same mode. N of an MMA, and how
often the shape of a load or store is repeated, stand in a column of their own: what the kernels of
others had, where it is not the same, is in brackets. '{alone}' means that no such kernel has used
the mode: only the text of the PTX ISA stands for the reader there.

It does not mean more than that. PTX is not SASS: what `ptxas` makes of it is not looked at; and a
mode is vouched for at the sizes and values that the kernels have.

{vouched} of {modes} modes are vouched for. `python -m tools.foreign.vouched` writes this page.

| instruction | mode | sizes | vouched for by |
|---|---|---|---|
"""


class Row(NamedTuple):
    """A line of the table."""

    instruction: str
    details: str
    sizes: tuple[str, ...]


def rows_of(modes: set[Mode]) -> list[Row]:
    """The modes by all but their sizes."""
    sizes: dict[tuple[str, str], set[str]] = {}
    for mode in modes:
        sizes.setdefault((mode.instruction, mode.details), set()).add(mode.size)
    return [Row(*key, tuple(_sorted(found))) for key, found in sorted(sizes.items())]


def _sorted(sizes: Iterable[str]) -> list[str]:
    return sorted(sizes, key=lambda size: int(size.removeprefix("x") or 0))


def page(rows: list[Row], foreign: dict[Mode, list[str]]) -> str:
    """The page's text."""
    lines = []
    vouched = 0
    for row in rows:
        alike = {m: names for m, names in foreign.items() if m[:2] == row[:2]}
        names = sorted({name for found in alike.values() for name in found})
        theirs = _sorted({mode.size for mode in alike})
        vouched += bool(names)
        sizes = ", ".join(row.sizes)
        if names and sizes and not set(row.sizes) <= set(theirs):
            sizes += f" ({', '.join(theirs)})"
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        cells = f"`{row.instruction}`", row.details, sizes, shown or f"**{ALONE}**"
        lines.append(f"| {' | '.join(cells)} |")
    head = _HEAD.format(alone=ALONE, vouched=vouched, modes=len(rows))
    return head + "\n".join(lines) + "\n"


def by_kernel(rows: list[Row], foreign: dict[Mode, list[str]]) -> str:
    """A line for each kernel: its name, and the numbers of the rows that it vouches for."""
    found: dict[str, set[int]] = {}
    for number, row in enumerate(rows):
        for mode, names in foreign.items():
            if mode[:2] == row[:2]:
                for name in names:
                    found.setdefault(name, set()).add(number)
    return "".join(
        f"{name} {' '.join(map(str, sorted(numbers)))}\n" for name, numbers in sorted(found.items())
    )


def rows_on(text: str) -> list[Row]:
    """The rows that a page has."""
    found = re.findall(r"^\| `([^`]+)` \| ([^|]*) \| ([^|]*) \| [^|]+ \|$", text, re.MULTILINE)
    return [
        Row(name, details.strip(), tuple(re.sub(r" \(.*", "", sizes.strip()).split(", ")))
        for name, details, sizes in found
    ]


def main() -> None:
    """Writes the page; with --check, says whether it is what would be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    rows, foreign = rows_of(printed_modes()), foreign_modes()
    text = page(rows, foreign)
    if not check:
        PAGE.write_text(text, encoding="utf-8")
        BY_KERNEL.write_text(by_kernel(rows, foreign), encoding="utf-8")
    elif text != PAGE.read_text(encoding="utf-8"):
        sys.exit(f"{PAGE} is not current: python -m tools.foreign.vouched")


if __name__ == "__main__":
    main()
