"""A PTX file from a stranger may be anything: one clear error, in bounded time and memory."""

from __future__ import annotations

import gzip
import random
import re
from itertools import pairwise
from pathlib import Path

import pytest

import tilepipe as tp
from tilepipe import ptx
from tilepipe.ptx.compiler.compiled_function import CompiledFunction
from tilepipe.ptx.listing import listing

DATA = Path(__file__).parent / "foreign" / "data"
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
PIECES = (
    *("{", "}", "[", "]", "(", ")", ";", ",", "@", "!", "|", "<", ">", "=", "+", "-", ":", "_"),
    *("0", "-1", "4294967296", "18446744073709551615", "1.5", "0f3F800000", "0x", "é", "\0", '"'),
    *("%r1", "%rd1", "%p1", "%tid.x", ".b32", ".f32", ".v4", ".reg", ".shared", "//", "/*"),
    *("add.s32", "bra", "ret", "call", "mov.b64", "ld.param.u64", "generic"),
)
PART = re.compile(r"([\s,;\[\]{}().]+)")


def entry(body: str, parameters: str = "", before: str = "") -> str:
    return f"{HEAD}{before}\n.visible .entry k({parameters}) {{\n{body}\nret; }}\n"


def functions(count: int, calls: int) -> str:
    """Functions that call each other, the next that many times."""
    texts = [".func f0() { ret; }"]
    for below, here in pairwise(range(count)):
        texts.append(f".func f{here}() {{ {f'call f{below}, (); ' * calls}ret; }}")
    return "\n".join(texts)


def everything(text: str | bytes) -> None:
    """All that a user may do with a text that he has not written."""
    kernels = ptx.load(text)
    listing(text if isinstance(text, str) else text.decode())
    for kernel in kernels.values():
        sizes = [p.nbytes for p in kernel.function.parameters]
        kept = kernel.function.directives
        block = kept.get("reqntid") or kept.get("maxntid") or 32
        args = [bytes(n) if n < 1 << 20 else b"" for n in sizes]
        launch = kernel.bind(args, grid=1, block=block)
        compile_all(kernel.code)
        launch.run(timeout=0.2)


def compile_all(code: CompiledFunction) -> None:
    for table in (code.whole, code.part):
        for segment in table:
            assert callable(segment)
    for number in range(len(code.spans)):
        for partial in (False, True):
            code._compile(number, partial=partial)


R = ".reg .b32 %r<9>; "
CASES: dict[str, tuple[str | bytes, str]] = {
    "garbage": (
        "".join(chr(32 + byte % 95) for byte in random.Random(1).randbytes(200_000)) + "\n",
        "expected '.version'",
    ),
    "bytes": (random.Random(1).randbytes(200_000), "PTX line"),
    "strings": (HEAD + '"' * 100_000 + "\n", "expected a function or a variable"),
    "digits": (entry(f"{R}mov.u32 %r1, {'9' * 100_000};"), "a token of 100,000 char"),
    "name": (HEAD + "a" * 100_000 + "\n", "PTX line 4: a token of 100,000 characters"),
    "modifiers": (entry("a" + ".b" * 5_000 + ";"), "an instruction with 5,000 modifiers"),
    "shared": (entry(".shared .b8 x[1152921504606846976];"), "bytes of static shared memory"),
    "dimensions": (entry(f".shared .b8 x{'[1]' * 999};"), "more than 16 dimensions, or 2\\^62"),
    "product": (entry(f".shared .b8 x{'[4294967296]' * 9};"), "more than 16 dimensions, or 2\\^62"),
    "alignment": (entry(".shared .align 1152921504606846976 .b8 x[4];"), "static shared memory"),
    "global": (entry("", before=".global .b8 x[4611686018427387904];"), "global memory have"),
    "parameters": (entry("", ".param .b8 p[99999999999]"), "99,999,999,999 bytes of parameters"),
    "registers": (entry(".reg .b32 %r<99999999999>; mov.u32 %r99999999998, 1;"), "not declared"),
    "vector": (entry(f"{R}ld.global.v4.u32 {{{'%r1,' * 5000}%r2}}, [%r3];"), "more than 1,024 op"),
    "operands": (entry(f"{R}add.u32 {'%r1,' * 5000}%r2;"), "more than 1,024 operands"),
    "blocks": (entry("{" * 5_000), "more than 64 blocks in each other"),
    "parentheses": (entry(f"{R}mov.u32 %r1, {'(' * 5000}1;"), "more than 64 brackets or signs"),
    "signs": (entry(f"{R}mov.u32 %r1, {'-' * 5000}1;"), "more than 64 brackets or signs"),
    "negations": (entry(f"{R}mov.u32 %r1, {'!' * 5000}1;"), "more than 64 brackets or signs"),
    "values": (entry("", before=".global .u32 x[3] = {1,2,3,4};"), "has 3 elements, and 4 values"),
    "no value": (entry("", before=".global .u64 x = nosuch;"), "line 4: .* begins with nosuch"),
    "a wide value": (entry("", before=".global .u16 x = 1.5;"), "begins with 0d3FF8000000000000"),
    "rows": (entry("", before=f".global .u32 x[3] = {'{' * 9999}1"), "expected an operand"),
    "recursion": (entry("call f, ();", before=".func f() { call f, (); }"), "'f' calls itself"),
    "a chain of calls": (
        entry("call f99, ();", before=functions(100, 1)),
        "more than 64 calls in each other",
    ),
    "endless": (entry("A: bra A;"), "PTX line 6: bra A"),
    "endless with barriers": (entry("A: bar.sync 0; bra A;"), "has not ended after 0.2 s"),
    "threads": (f"{HEAD}.visible .entry k() .reqntid 99999999999 {{ ret; }}\n", "a CTA has 1 to"),
    "no threads": (f"{HEAD}.visible .entry k() .reqntid 0 {{ ret; }}\n", "block is one to three"),
    "version": (HEAD.replace("8.7", "0f3F800000"), "line 1: expected a version such as 8.7"),
    "half a version": (HEAD.replace("8.7", "8."), "line 1: expected a version such as 8.7"),
    "file": (f"{HEAD}.file 9999999999999999999 x\n", "expected a path"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_absurd_texts_give_one_error(name: str) -> None:
    text, message = CASES[name]
    with pytest.raises(tp.TilepipeError, match=message) as raised:
        everything(text)
    assert len(str(raised.value)) < 600


@pytest.mark.thorough
def test_functions_that_call_each_other_in_a_tree() -> None:
    text = entry("call f59, ();", before=functions(60, 2))
    with pytest.raises(tp.PtxError, match="'f59' with all that it calls has more than 65,536 inst"):
        everything(text)


@pytest.mark.thorough
def test_texts_of_ten_megabytes() -> None:
    garbage = random.Random(1)
    for text in (
        "".join(map(chr, garbage.choices(range(32, 127), k=10_000_000))) + "\n",
        bytes(garbage.choices(range(256), k=10_000_000)),
        HEAD + "/*" * 5_000_000 + "\n",
        entry("A: " + "bra A; " * 300_000),
        entry("", before=f".global .u32 x[1000000] = {{{'1,' * 1_000_000}1}};"),
        "a" * (65 << 20) + "\n",
    ):
        with pytest.raises(tp.TilepipeError) as raised:
            everything(text)
        assert len(str(raised.value)) < 600


@pytest.mark.slow
def test_registers_in_a_loop_of_loops_are_analysed_in_bounded_time() -> None:
    """Branches that each decide about all blocks between, in an order that no compiler writes."""
    body = "".join(f"L{i}: add.u32 %r{i + 1},%r{i + 2},1;" for i in range(400, -1, -1))
    body += "".join(f"@%p bra L{i};" for i in range(400))
    registers = ".reg .pred %p; .reg .b32 %r<500>; mov.u32 %r402,%tid.x; setp.eq.u32 %p,%r402,99;"
    launch = ptx.load(entry(registers + body)).only().bind([], grid=1, block=32)
    launch.run(timeout=20)


def cut_texts() -> list[str]:
    """Recorded kernels of three compilers, short ones first."""
    paths = sorted(DATA.glob("*.ptx.gz"), key=lambda path: path.stat().st_size)
    return [gzip.decompress(path.read_bytes()).decode() for path in paths]


def handled(text: str) -> bool:
    """Whether it is taken; if not, there is one error."""
    try:
        everything(text)
    except tp.TilepipeError as error:
        said = str(error)
    else:
        return True
    assert len(said) < 4000
    return False


def test_a_text_that_is_cut_off() -> None:
    text = cut_texts()[0]
    ends = range(len(HEAD), len(text.rstrip()), 97)
    assert not any(handled(text[:end] + "\n") for end in ends)


@pytest.mark.thorough
def test_longer_texts_that_are_cut_off() -> None:
    for text in cut_texts()[10:60:10]:
        end = text.rindex("}")
        assert not any(handled(text[:at] + "\n") for at in range(200, end, 97))


def mutated(text: str, choice: random.Random) -> str:
    """Lines lost, doubled, or with parts put in, taken out or replaced."""
    lines = text.split("\n")
    for _ in range(choice.randrange(1, 4)):
        at = choice.randrange(len(lines))
        kind = choice.randrange(5)
        parts = PART.split(lines[at])
        place = choice.randrange(len(parts))
        if kind == 0:
            lines.insert(choice.randrange(len(lines)), lines[at])
            continue
        if kind == 1:
            lines[at] = ""
            continue
        if kind == 2:
            parts[place] = choice.choice(PIECES)
        elif kind == 3:
            parts.insert(place, f" {choice.choice(PIECES)} ")
        else:
            parts[place] = choice.choice(PART.split(choice.choice(lines)))
        lines[at] = "".join(parts)
    return "\n".join(lines) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_texts(seed: int) -> None:
    choice = random.Random(seed)
    text = cut_texts()[seed]
    taken = [handled(mutated(text, choice)) for _ in range(12)]
    assert not all(taken)


@pytest.mark.thorough
def test_many_mutated_texts() -> None:
    choice = random.Random(3)
    texts = cut_texts()[:100]
    taken = [handled(mutated(choice.choice(texts), choice)) for _ in range(1500)]
    assert any(taken)
    assert not all(taken)
