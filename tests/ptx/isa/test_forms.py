"""Which forms of instructions are read, and which are refused: as an assembler does, but for what
is explained here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ptx.isa import forms
from tilepipe.ptx.compiler.undefined_operands import findings
from tilepipe.ptx.syntax.parser import parse

PTXAS = shutil.which("ptxas")
TARGETS = ("sm_90a", "sm_100a")
_AT_ONCE = 10_000  # ptxas does not say how many errors it counts
# What assemblers take and the reader refuses: pattern -> why.
REFUSED = {
    r"fma\.(rz|rm|rp)\.(relu\.|oob\.)*bf16": "the ISA has fma.rn of bf16 alone",
    r"(addc|subc|madc\.(lo|hi))\.[us]16 ": "the ISA has chains of 32 and 64 bits",
    r"rcp\.r.\.ftz\.f64 ": "the ISA has .ftz of f64 with .approx alone",
    r"testp\.f(32|64) ": "the ISA has no testp without a property",
    r"v(add|sub|absdiff|min|max|set|shl|shr|mad)\.": "video instructions on bytes",
    r"lop3\.b32 .*(256|-1);": "the ISA has tables from 0 to 255",
    r"setp\..*f16x2 [^|]*, .*, ": "the ISA has two destinations, for the two halves",
    r"cvt\..*(s2f6x2|scaled::)": "fixed point and scale factors are not modelled",
    r"cvt\.rs\.": "stochastic rounding is not modelled",
    r"cvta\..*u32 ": "addresses have 64 bits",
    r"isspacep\.const ": "constants are in global memory here, and no address says so",
    r"isspacep\.\S* %p1, %r2": "addresses have 64 bits",
    r"mapa\.u32 ": "addresses have 64 bits",
    r"mov\.\w+ %\w+, %\w+\.w;": "the fourth component is a remnant of PTX 1",
    r"mov\.u64 %d1, %current_graph_exec;": "graphs are not modelled",
    r"(alloca|stacksave|stackrestore)\.": "stacks of a size not known before are not modelled",
    r"istypep\.": "textures are not modelled",
    r"wmma\.(load|store)\.\S*\.(f16|f32|s32|f64) ": "the ISA has other sums for the shape",
    r"wmma\.mma\.\S*\.m\w+k(4|8|16)\.s32\.[su]4\.": "the ISA has m8n8k32 of 4 bits alone",
    r"mma\.\S*m16n8k16\.\S*tf32\.tf32": "the ISA has shapes along K of 4 and 8",
}
# What the reader takes and assemblers refuse.
READ = {
    r"cvt\.r..?\.(bf16\.[us]8|[us]8\.bf16) ": "they want registers that are declared with 8 bits",
}
# What assemblers of PTX 9.0 do not know yet.
NEWER = {r"cvt\.rn\S*\.(bf16x2\.e\dm\dx2|e\dm\dx2\.b?f16x2) ": "PTX 9.1"}


def _text(lines: list[str], target: str) -> str:
    # The last instruction is wrong: the assembler is not to assemble.
    return "\n".join(
        [
            f".version 9.0 .target {target} .address_size 64 .visible .entry k() {{"
            f" {forms.REGISTERS} {forms.WRITTEN}",
            *lines,
            "add.wrong.u32 %r1, %r2, %r3;",
            "ret; }",
        ]
    )


def legal(lines: list[str], folder: Path) -> set[int]:
    """The lines that the assembler takes for one of the targets."""
    return {
        begin + i
        for begin in range(0, len(lines), _AT_ONCE)
        for i in _legal(lines[begin : begin + _AT_ONCE], folder)
    }


def _legal(lines: list[str], folder: Path) -> set[int]:
    assert PTXAS is not None
    found: set[int] = set()
    for target in TARGETS:
        path = folder / f"{target}.ptx"
        path.write_text(_text(lines, target))
        command = [PTXAS, f"-arch={target}", str(path), "-o", str(folder / "out")]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
        wrong = {int(n) - 2 for n in re.findall(r"line (\d+); (?:error|fatal)", said)}
        assert len(lines) in wrong, said[:2000]
        assert "Parsing error" not in said, said[:2000]
        found |= set(range(len(lines))) - wrong
    return found


def read(lines: list[str]) -> set[int]:
    """The lines that the reader takes."""
    function = parse(_text(lines, "sm_100a")).functions["k"]
    return set(range(len(lines))) - {i.line - 2 for i, _ in findings(function, ())}


@pytest.mark.thorough
@pytest.mark.skipif(PTXAS is None, reason="there is no ptxas")
@pytest.mark.parametrize("group", forms.GROUPS, ids=lambda group: group.__name__)
def test_what_an_assembler_takes_is_read(
    group: Callable[[], Iterator[str]], tmp_path: Path
) -> None:
    lines = list(dict.fromkeys(group()))
    taken, known = legal(lines, tmp_path), read(lines)
    assert len(taken & known) > 20
    for missing, table in ((taken - known, REFUSED), (known - taken, READ | NEWER)):
        unexplained = [lines[i] for i in sorted(missing) if not explained(lines[i], table)]
        assert unexplained == []


def explained(line: str, table: dict[str, str]) -> bool:
    return any(re.match(pattern, line) for pattern in table)


@pytest.mark.thorough
def test_each_explanation_is_of_a_form() -> None:
    lines = [line for group in forms.GROUPS for line in group()]
    for pattern in REFUSED | READ | NEWER:
        assert any(re.match(pattern, line) for line in lines), pattern


@pytest.mark.parametrize(
    "text",
    [
        "fma.f32 %r1, %r2, %r3, %r4", "mad.rn.f16 %h1, %h2, %h3, %h4", "ex2.f32 %r1, %r2",
        "selp.f16 %h1, %h2, %h3, %p4", "slct.b8.s32 %h1, %h2, %h3, %r4",
        "setp.eq.f16 %p1|%p2, %h2, %h3", "cvt.f16x2.f32 %r1, %r2, %r3",
        "cvt.rn.ftz.f16x2.f32 %r1, %r2, %r3", "mov.f16 %h1, %h2", "mov.u32 %r8, {%h1, %h2}",
        "mov.b16 %h1, {%b1, %b2, %b3, %b4}", "mov.u32 %r1, %clock64", "mov.u32 %r1, %tid",
        "match.any.sync.b32 %r1|%p1, %r2, -1", "redux.sync.add.f32 %r1, %r2, -1",
        "redux.sync.add.abs.u32 %r1, %r2, -1", "redux.sync.and.u32 %r1, %r2, -1", "exit.uni",
        "pmevent 16", "pmevent.wrong 1", "pmevent %r1", "add.u32 %r1, %d2, %r3",
        "shl.b32 %r1, %r2, %h3", "clz.b64 %d1, %d2", "mul.wide.u32 %r1, %r2, %r3",
        "add.wrong.u32 %r1, %r2, %r3",
    ],
)  # fmt: skip
def test_what_is_no_form_is_refused(text: str) -> None:
    assert read([f"{text};"]) == set()
