"""Kernels of one warpgroup whose wgmma take A from registers, of zeros."""

from __future__ import annotations

import numpy as np

from tests.ptx.isa.programs import kernel
from tilepipe.ptx import Launch

_ZEROS = """
    mov.u32 %r40, 0;
    mad.wide.u32 %a0, %t, 4, %b0; mov.u32 %r2, memory; mad.lo.u32 %r3, %t, 16, %r2; mov.u32 %r4, 0;
    st.shared.v4.b32 [%r3], {%r4, %r4, %r4, %r4};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    shr.u32 %r5, %r2, 4; cvt.u64.u32 %rd1, %r5; or.b64 %rd1, %rd1, 0x1000080000;
    mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r12, 0; mov.u32 %r13, 0;
    mov.u32 %r20, 0; mov.u32 %r21, 0; mov.u32 %r22, 0; mov.u32 %r23, 0;
    mov.u32 %r24, 0; mov.u32 %r25, 0; mov.u32 %r26, 0; mov.u32 %r27, 0;
    setp.eq.u32 %p1, %r4, 0; setp.ne.u32 %p2, %r4, 0;
"""
FENCE = "wgmma.fence.sync.aligned;"
DONE = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
D = "{%r20, %r21, %r22, %r23}"


def mma(form: str = "m64n8k16.f32.bf16.bf16", more: str = ", 1, 1, 0", d: str = D) -> str:
    """One wgmma.mma_async; `more`: its last operands, `d`: the registers of its accumulator."""
    a = "{%r10, %r11, %r12, %r13}"
    return f"wgmma.mma_async.sync.aligned.{form} {d}, {a}, %rd1, %p1{more};\n"


def launch(*parts: str) -> Launch:
    """The parts after one another, after the registers and shared memory are zero."""
    made = kernel("\n".join([_ZEROS, *parts]), 1, before=".shared .align 1024 .b8 memory[2048];")
    return made.bind([np.zeros(128, np.uint32)], grid=1, block=128)
