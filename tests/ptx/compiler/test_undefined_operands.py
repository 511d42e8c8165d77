"""What a function uses that nothing defines is refused before anything runs, with its line."""

from __future__ import annotations

import pytest

import tilepipe as tp
from tilepipe import ptx
from tilepipe.ptx.listing import listing

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.extern .global .u32 elsewhere;
.global .u32 here;
.func f() { ret; }
.visible .entry k(.param .u64 p) {
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<10>;
mov.u32 %r1, %tid.x;
@%p9 bra END;
"""
LINE = HEAD.count("\n") + 1


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("mov.u64 %rd1, nosuch;", "'nosuch' is not declared"),
        ("ld.global.u32 %r2, [nosuch];", "'nosuch' is not declared"),
        ("ld.global.u32 %r2, [nosuch+8];", "'nosuch' is not declared"),
        ("sub.u32 %r2, %nosuch, %r1;", "'%nosuch' is not declared"),
        ("mov.u32 %nosuch, %r1;", "'%nosuch' is not declared"),
        ("mov.u64 %rd1, f;", "the address of the function 'f' is not modelled"),
        ("ld.global.u32 %r2, [elsewhere];", "'elsewhere' is defined in another module"),
        (".param .b32 q; ld.param.u32 %r2, [q];", "variable 'q' in .param memory of a function"),
        ("add.u32 5, %r1, %r1;", "5 is not a register, and the instruction writes it"),
        ("mov.u32 %tid.x, %r1;", "%tid.x is not a register, and the instruction writes it"),
        ("add.u32 %r2, %r1, _;", "_ is not a value"),
        ("add.u32 %r2, %r1, {%r1, %r1};", "{%r1, %r1} is not a value"),
        ("setp.eq.u32 %p1, %r1, 0; add.u32 %r2, %p1, 1;", "%p1 is a .pred register"),
        ("setp.eq.u32 %r2, %r1, 0;", "%r2 is a .b32 register, and the instruction writes a .pred"),
        ("add.u32 %r2, %r1, %pm0;", "the special register %pm0 is not modelled"),
    ],
)
def test_before_anything_runs(instruction: str, reason: str) -> None:
    text = f"{HEAD.replace('@%p9 bra END;', '')}{instruction}\nret; }}\n"
    (entry,) = listing(text).entries
    (missing,) = entry.missing
    assert reason in missing.reason
    assert missing.line == LINE
    with pytest.raises(tp.PtxError) as raised:
        ptx.load(text)["k"].bind([0], grid=1, block=32)
    assert str(raised.value).startswith(f"PTX line {LINE}: ")
    assert reason in str(raised.value)


def test_every_finding_is_listed_in_the_order_of_the_text() -> None:
    body = "tex.1d.v4.u32.s32 {%r2}, [%r3];\nadd.u32 %r4, %r2, nosuch;\nEND: ret; }\n"
    (entry,) = listing(HEAD + body).entries
    assert [m.line for m in entry.missing] == [LINE, LINE + 1]
    assert [m.reason.partition(": ")[2] for m in entry.missing] == [
        "the opcode 'tex' is not modelled",
        "'nosuch' is not declared",
    ]
