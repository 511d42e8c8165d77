"""A short kernel of PTX: one warp hands 32 numbers to another through shared memory."""

from __future__ import annotations

import numpy as np

from tilepipe import ptx

PTX = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry handover(.param .u64 out)
.reqntid 64
{
    .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<4>;
    .shared .align 8 .b64 bar;
    .shared .align 16 .b8 box[128];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 31;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [bar], 32;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    mov.u32 %r3, box;
    setp.gt.u32 %p2, %r1, 31;
    @%p2 bra USE;
    shl.b32 %r4, %r2, 2;
    add.u32 %r4, %r4, %r3;
    st.shared.u32 [%r4], %r2;
    mbarrier.arrive.shared.b64 _, [bar];
    ret;
USE:
    mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0;
    @!%p3 bra USE;
    sub.u32 %r5, 31, %r2;
    shl.b32 %r5, %r5, 2;
    add.u32 %r5, %r5, %r3;
    ld.shared.u32 %r6, [%r5];
    ld.param.u64 %rd1, [out];
    mov.u32 %r7, %ctaid.x;
    shl.b32 %r7, %r7, 5;
    add.u32 %r7, %r7, %r2;
    mad.wide.u32 %rd2, %r7, 4, %rd1;
    st.global.u32 [%rd2], %r6;
    ret;
}
"""
ARRIVE = "    mbarrier.arrive.shared.b64 _, [bar];\n"
WAIT = "    @!%p3 bra USE;\n"


def launch(text: str = PTX, ctas: int = 2) -> ptx.Launch:
    """The kernel, or a changed one, on an array of its own."""
    return ptx.load(text)["handover"].bind([np.zeros(32 * ctas, np.int32)], grid=ctas)
