"""Which registers may still be read, at each instruction."""

from __future__ import annotations

from tilepipe.ptx import load
from tilepipe.ptx.compiler.liveness import Liveness

KERNEL = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k()
{
    .reg .pred %p<3>;
    .reg .b32 %r<8>;
    mov.u32 %r1, 1;
    mov.u32 %r2, 2;
    mov.u32 %r3, 0;
LOOP:
    add.u32 %r3, %r3, %r1;
    setp.lt.u32 %p1, %r3, 9;
    @%p1 mov.u32 %r2, 5;
    @%p1 bra LOOP;
    add.u32 %r4, %r2, 1;
    nanosleep.u32 %r4;
    ret;
}
"""


def test_a_register_is_live_until_its_last_reading_on_any_way() -> None:
    (kernel,) = load(KERNEL).values()
    code = kernel.code
    liveness = Liveness(code.flow, code.operations)
    names = {
        r.number: str(r)
        for i in code.function.instructions
        for r in (*i.operands, *([i.guard.register] if i.guard else []))
        if hasattr(r, "number")
    }

    def live(text: str) -> set[str]:
        at = next(n for n, i in enumerate(code.function.instructions) if text in str(i))
        return {name for number, name in names.items() if liveness.before(at) >> number & 1}

    # constants are numbers where they are read; a write under a guard leaves what was there alive
    assert live("add.u32 %r3") == {"%r2", "%r3"}
    assert live("setp") == {"%r2", "%r3"}
    assert live("@%p1 mov") == {"%p1", "%r2", "%r3"}
    assert live("add.u32 %r4") == {"%r2"}
    assert live("ret") == set()
    assert liveness.before(len(code.function.instructions)) == 0


def test_a_mask_of_members_is_live_before_the_instruction_that_it_gathers() -> None:
    text = KERNEL.replace("nanosleep.u32 %r4;", "activemask.b32 %r5; bar.warp.sync %r5;")
    (kernel,) = load(text).values()
    code = kernel.code
    at = next(n for n, i in enumerate(code.function.instructions) if i.opcode == "bar")
    (mask,) = (r for r in code.function.registers if str(r) == "%r5")
    assert Liveness(code.flow, code.operations).before(at) == 1 << mask.number
