"""The parser of PTX: forms of the language, source positions, and text that is not PTX."""

from __future__ import annotations

from typing import Any

import pytest

from tilepipe.errors import PtxError
from tilepipe.ptx.syntax.nodes import (
    Address,
    Float,
    Integer,
    Name,
    Not,
    Pair,
    Register,
    Sink,
    SpecialRegister,
    Sum,
    Variable,
    Vector,
)
from tilepipe.ptx.syntax.parser import parse

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def body(text: str, before: str = "") -> list[Any]:
    """The instructions of a kernel with this body."""
    module = parse(f"{HEAD}{before}\n.visible .entry k(.param .u64 p) {{\n{text}\n}}")
    return list(module.functions["k"].instructions)


def test_a_module_has_its_version_targets_variables_and_entries() -> None:
    module = parse(
        HEAD
        + """
        .global .align 4 .u32 table[3] = {1, 0x10, -1};
        .extern .shared .align 1024 .b8 smem[];
        .visible .entry k(.param .align 64 .b8 map[128], .param .u32 n)
        .maxntid 128, 1, 1
        .minnctapersm 2
        { ret; }
        """
    )
    assert (module.version, module.targets) == ((8, 7), ("sm_90a",))
    table, smem = module.variables["table"], module.variables["smem"]
    assert [str(v) for v in table.initial] == ["1", "16", "-1"]
    assert (table.space, table.nbytes) == ("global", 12)
    assert (smem.space, smem.external, smem.align, smem.nbytes) == ("shared", True, 1024, 0)
    (kernel,) = module.entries
    assert kernel.directives == {"maxntid": (128, 1, 1), "minnctapersm": (2,)}
    assert [(p.name, p.align, p.nbytes) for p in kernel.parameters] == [
        ("map", 64, 128),
        ("n", 4, 4),
    ]


def test_operands_are_resolved_to_registers_variables_and_constants() -> None:
    (move, special, load, store, multi, select) = body(
        """
        .reg .pred %p<3>; .reg .b32 %r<9>; .reg .f32 %f<3>;
        mov.f32 %f1, 0f3F800000;
        mov.u32 %r1, %tid.x;
        ld.shared.v2.b32 {%r2, _}, [smem+16];
        st.shared.b32 [%r1-4], 0x1F;
        shfl.sync.idx.b32 %r3|%p1, %r2, 0, 31, -1;
        selp.b32 %r4, %r1, %r2, !%p1;
        """,
        ".extern .shared .b8 smem[];",
    )
    assert isinstance(move.operands[0], Register)
    assert move.operands[1] == Float(0x3F800000, 32)
    assert special.operands[1] == SpecialRegister("%tid", "x")
    vector, address = load.operands
    assert isinstance(vector, Vector)
    assert vector.items[1] == Sink()
    assert isinstance(address, Address)
    (place,) = address.items
    assert isinstance(place, Sum)
    assert isinstance(place.base, Variable)
    assert place.offset == 16
    assert store.operands[1] == Integer(31)
    assert store.operands[0].items[0].offset == -4
    assert isinstance(multi.operands[0], Pair)
    assert isinstance(select.operands[3], Not)
    assert (load.opcode, load.modifiers) == ("ld", ("shared", "v2", "b32"))


def test_names_of_an_inner_block_hide_those_outside() -> None:
    instructions = body(
        """
        .reg .b32 %r<3>; .reg .pred p;
        { .reg .pred p; elect.sync _|p, 0xffffffff; }
        setp.eq.b32 p, %r1, 0;
        { .reg .pred p; elect.sync _|p, 0xffffffff; }
        """
    )
    inner, outer, other = (
        instructions[0].operands[0].second,
        instructions[1].operands[0],
        instructions[2].operands[0].second,
    )
    assert len({inner.number, outer.number, other.number}) == 3


def test_labels_of_copied_blocks_do_not_meet() -> None:
    """Two copies of one piece of inline assembly: each branch stays in its own."""
    loop = "{ .reg .pred q; AGAIN: setp.eq.b32 q, %r1, 0; @q bra AGAIN; }"
    instructions = body(f".reg .b32 %r<3>; {loop} {loop}")
    assert [i.targets for i in instructions] == [(), (0,), (), (2,)]


def test_brx_has_the_targets_of_its_list() -> None:
    instructions = body(
        """
        .reg .b32 %r<3>;
        list: .branchtargets A, B, A;
        brx.idx %r1, list;
        A: ret;
        B: ret;
        """
    )
    assert instructions[0].targets == (1, 2, 1)


def test_positions_follow_loc_and_name_files_that_come_later() -> None:
    module = parse(
        HEAD
        + """
        .visible .entry k() {
        .loc 1 10 3
        ret;
        .loc 2 5 1, function_name $L__s0, inlined_at 1 12 7
        exit;
        }
        .file 1 "kernel.cu"
        .file 2 "helper.cuh"
        """
    )
    first, second = module.functions["k"].instructions
    assert str(first.position) == "kernel.cu:10"
    assert str(second.position) == "helper.cuh:5, inlined at kernel.cu:12"
    assert second.line == 9


def test_comments_sections_and_pragmas_are_passed_over() -> None:
    instructions = body(
        """
        /* two
           lines */ .pragma "nounroll"; // and the rest
        ret;
        """,
        '.section .debug_str { $L: .b8 65,0 }\n.pragma "x";',
    )
    assert [i.line for i in instructions] == [10]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected '.version', found 'the end of the text'"),
        (f"{HEAD}.entry k() {{ mov.b32 a, b", "expected"),
        (f"{HEAD}.entry k() {{ bra nowhere; }}", "there is no label 'nowhere'"),
        (f"{HEAD}.entry k() {{ L: L: ret; }}", "a second label 'L'"),
        (f"{HEAD}.entry k() {{ .reg .b32 a; .reg .b32 a; }}", "declared twice"),
        (f"{HEAD}.entry k() {{ .reg .b32 a; @a ret; }}", "is not a predicate"),
        (f"{HEAD}.entry k() {{ ret; }} .entry k() {{ ret; }}", "a second function 'k'"),
        (f"{HEAD}.global .align 3 .b8 x;", "not a power of two"),
        (f"{HEAD}.global .v4 .f64 x;", "there is no .v4 of .f64"),
        (f"{HEAD}.global .texref x;", "type .texref is not read"),
        (f"{HEAD}.entry k() {{ \x01 }}", "begins nothing that PTX has"),
        (".version 8.0\n.target sm_90a\n.address_size 32\n", "only 64 is read"),
        (f"{HEAD}.shared .b8 x[{'9' * 5000}];", "PTX line 4: the constant 9{40}... is above"),
        # what ptxas 13.0 calls "Constant overflow", or takes modulo 2^64
        (f"{HEAD}.shared .b8 x[99999999999999999999];", "constants have 64 bits"),
        (f"{HEAD}.entry k() {{ mov.b64 a, 18446744073709551616; }}", "the constant 184467"),
        (f"{HEAD}.entry k() {{ mov.b64 a, -0x10000000000000000U; }}", "the constant 0x1000"),
        (f"{HEAD}.entry k() {{ mov.b64 a, 02000000000000000000000; }}", "the constant 0200"),
        (f"{HEAD}.entry k() {{ mov.b64 a, 0b1{'0' * 64}; }}", "the constant 0b1000"),
        (f"{HEAD}.entry k() {{ ld.global.b32 a, [b+99999999999999999999]; }}", "64 bits"),
        # what ptxas 13.0 calls "syntax error"
        (f"{HEAD}.entry k() {{ mov.b64 a, 018; }}", "'018' begins with 0, which makes it octal"),
        (f"{HEAD}.entry k() {{ {'{' * 5000}", "blocks in each other"),
        (f"{HEAD}.entry k() {{ mov.b32 {'[' * 5000}", "brackets"),
        (f"{HEAD}.entry k() {{ brx.idx 0, list; }}", "no such list of labels"),
    ],
)
def test_text_that_is_no_ptx_gives_one_error(text: str, message: str) -> None:
    with pytest.raises(PtxError, match=message.replace("[", r"\[")):
        parse(text)


def test_a_range_of_registers_costs_nothing_until_they_are_named() -> None:
    (instruction,) = body(".reg .b64 %rd<4000000000>; mov.b64 %rd3999999999, 1;")
    assert instruction.operands[0].number == 0
    (unknown,) = body(".reg .b64 %rd<4>; mov.b64 %rd4, 1;")
    assert unknown.operands[0] == Name("%rd4")


def test_an_oversized_text_is_refused_unread() -> None:
    with pytest.raises(PtxError, match="at most"):
        parse(" " * ((64 << 20) + 1))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18446744073709551615", (1 << 64) - 1),
        ("0xFFFFFFFFFFFFFFFFU", (1 << 64) - 1),
        ("01777777777777777777777", (1 << 64) - 1),
        (f"0b{'1' * 64}", (1 << 64) - 1),
        ("-18446744073709551615", 1 - (1 << 64)),
        ("0", 0),
        ("00", 0),
    ],
)
def test_constants_of_64_bits_are_read(text: str, value: int) -> None:
    (function,) = parse(
        f"{HEAD}.entry k() {{ .reg .b64 a; mov.b64 a, {text}; }}"
    ).functions.values()
    assert function.instructions[0].operands[1] == Integer(value)
