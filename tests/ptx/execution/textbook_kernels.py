"""Textbook kernels in which CTAs wait for each other through memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.ptx.isa.programs import kernel
from tilepipe.ptx import Launch

CTAS = 5


class Kernel(NamedTuple):
    """A kernel on arrays of zeros, what its first array holds afterwards, and what to replace by
    what for a race at which instruction.
    """

    text: str
    sizes: tuple[int, ...]
    block: int
    expected: Any
    weak: dict[str, tuple[str, str, str]]


LEADER = "setp.ne.u32 %p1, %t, 0;"

# In each of three rounds a CTA writes a number, all meet, and each reads that of the next. Two
# buffers take turns.
GRID_BARRIER = Kernel(
    f"""
    {LEADER}
    setp.eq.u32 %p4, %t, 32;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %nctaid.x;
    mov.u32 %r20, 0;
    mov.u32 %r21, 0;
    mov.u32 %r7, 0;
    add.u32 %r6, %r1, 1;
    rem.u32 %r6, %r6, %r2;
    AGAIN:
    and.b32 %r10, %r20, 1;
    mul.lo.u32 %r10, %r10, %r2;
    add.u32 %r11, %r10, %r1;
    mad.wide.u32 %rd1, %r11, 4, %b1;
    mad.lo.u32 %r3, %r1, %r1, %r20;
    @%p4 st.global.u32 [%rd1], %r3;
    bar.sync 0;
    mad.lo.u32 %r4, %r20, %r2, %r2;
    @%p1 bra MET;
    red.release.gpu.global.add.u32 [%b2], 1;
    WAIT: ld.acquire.gpu.global.u32 %r5, [%b2];
    setp.lt.u32 %p2, %r5, %r4;
    @%p2 bra WAIT;
    MET: bar.sync 0;
    add.u32 %r11, %r10, %r6;
    mad.wide.u32 %rd2, %r11, 4, %b1;
    @%p4 ld.global.u32 %r7, [%rd2];
    @%p4 add.u32 %r21, %r21, %r7;
    add.u32 %r20, %r20, 1;
    setp.lt.u32 %p3, %r20, 3;
    @%p3 bra AGAIN;
    mad.wide.u32 %rd3, %r1, 4, %b0;
    @%p4 st.global.u32 [%rd3], %r21;
    """,
    (CTAS, 2 * CTAS, 1), 64, [3 * ((i + 1) % CTAS) ** 2 + 3 for i in range(CTAS)],
    {
        "the release": ("red.release.gpu", "red.relaxed.gpu", "ld.global.u32 %r7"),
        "the acquire": ("ld.acquire.gpu", "ld.relaxed.gpu", "ld.global.u32 %r7"),
        "the scope of the release": ("red.release.gpu", "red.release.cta", ""),
        "the scope of the acquire": ("ld.acquire.gpu", "ld.acquire.cta", ""),
        "the barrier before": ("bar.sync 0;\n    mad.lo", "mad.lo", ""),
        "the barrier after": ("MET: bar.sync 0;", "MET:", ""),
    },
)  # fmt: skip

# Each CTA adds its part to the sum in the order of their numbers: serial split-K.
TURNSTILE = Kernel(
    f"""
    {LEADER}
    mov.u32 %r1, %ctaid.x;
    @%p1 bra MINE;
    WAIT: ld.acquire.gpu.global.u32 %r2, [%b1];
    setp.ne.u32 %p2, %r2, %r1;
    @%p2 bra WAIT;
    MINE: bar.sync 0;
    ld.global.u32 %r3, [%a0];
    mad.lo.u32 %r3, %r3, 3, %r1;
    st.global.u32 [%a0], %r3;
    bar.sync 0;
    @%p1 bra END;
    add.u32 %r4, %r1, 1;
    st.release.gpu.global.u32 [%b1], %r4;
    END:
    """,
    (64, 1), 64, [58] * 64,  # ((((0 * 3 + 0) * 3 + 1) * 3 + 2) * 3 + 3) * 3 + 4
    {
        "the release": ("st.release.gpu", "st.relaxed.gpu", "ld.global.u32 %r3"),
        "the acquire": ("ld.acquire.gpu", "ld.relaxed.gpu", "ld.global.u32 %r3"),
        "the barrier before": ("MINE: bar.sync 0;", "MINE:", "ld.global.u32 %r3"),
        "the barrier after": ("[%a0], %r3;\n    bar.sync 0;", "[%a0], %r3;", "ld.global.u32 %r3"),
    },
)  # fmt: skip

# Each CTA writes its part, and the last to come adds all of them up: split-K with a semaphore.
LAST_REDUCES = Kernel(
    f"""
    .shared .b32 last;
    {LEADER}
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %nctaid.x;
    mad.lo.u32 %r3, %r1, 64, %t;
    mad.wide.u32 %rd1, %r3, 4, %b1;
    add.u32 %r4, %r3, 1;
    st.global.u32 [%rd1], %r4;
    bar.sync 0;
    @%p1 bra COUNTED;
    fence.acq_rel.gpu; // before
    atom.relaxed.gpu.global.add.u32 %r5, [%b2], 1;
    fence.acq_rel.gpu; // after
    st.shared.u32 [last], %r5;
    COUNTED: bar.sync 0;
    ld.shared.u32 %r5, [last];
    add.u32 %r5, %r5, 1;
    setp.ne.u32 %p2, %r5, %r2;
    @%p2 bra END;
    mov.u32 %r6, 0;
    mov.u32 %r7, 0;
    mad.wide.u32 %rd1, %t, 4, %b1;
    ADD: ld.global.u32 %r8, [%rd1];
    add.u32 %r6, %r6, %r8;
    add.u64 %rd1, %rd1, 256;
    add.u32 %r7, %r7, 1;
    setp.lt.u32 %p3, %r7, %r2;
    @%p3 bra ADD;
    st.global.u32 [%a0], %r6;
    END:
    """,
    (64, 64 * CTAS, 1), 64, [CTAS * (i + 1) + 64 * sum(range(CTAS)) for i in range(64)],
    {
        "the fence before": ("fence.acq_rel.gpu; // before", "", "ld.global.u32 %r8"),
        "the fence after": ("fence.acq_rel.gpu; // after", "", "ld.global.u32 %r8"),
        "its scope": ("fence.acq_rel.gpu; // before", "fence.acq_rel.cta;", "ld.global.u32 %r8"),
        "the scope of the other": (
            "fence.acq_rel.gpu; // after", "membar.cta;", "ld.global.u32 %r8"
        ),
        "the barrier before": ("%r4;\n    bar.sync 0;", "%r4;", "ld.global.u32 %r8"),
        "the barrier after": ("COUNTED: bar.sync 0;", "COUNTED:", ""),
    },
)  # fmt: skip

# The same by one atomic operation that releases and acquires.
SEMAPHORE = LAST_REDUCES._replace(
    text=LAST_REDUCES.text.replace("fence.acq_rel.gpu; // before", "")
    .replace("fence.acq_rel.gpu; // after", "")
    .replace("atom.relaxed", "atom.acq_rel"),
    weak={
        "the release": ("atom.acq_rel", "atom.acquire", "ld.global.u32 %r8"),
        "the acquire": ("atom.acq_rel", "atom.release", "ld.global.u32 %r8"),
        "both": ("atom.acq_rel", "atom.relaxed", "ld.global.u32 %r8"),
    },
)

# Decoupled look-back: each CTA publishes its sum, then adds up those before it, up to the first
# that has published a prefix: states 1 and 2.
LOOK_BACK = Kernel(
    """
    mov.u32 %r1, %ctaid.x;
    add.u32 %r2, %r1, 1;
    mul.wide.u32 %rd1, %r1, 4;
    add.u64 %rd2, %b1, %rd1;
    add.u64 %rd3, %b2, %rd1;
    add.u64 %rd4, %b3, %rd1;
    st.global.u32 [%rd3], %r2;
    st.release.gpu.global.u32 [%rd2], 1;
    mov.u32 %r3, %r2;
    mov.u32 %r4, %r1;
    BACK: setp.eq.u32 %p1, %r4, 0;
    @%p1 bra FOUND;
    sub.u32 %r4, %r4, 1;
    mul.wide.u32 %rd5, %r4, 4;
    add.u64 %rd6, %b1, %rd5;
    LOOK: ld.acquire.gpu.global.u32 %r5, [%rd6];
    setp.eq.u32 %p2, %r5, 0;
    @%p2 bra LOOK;
    add.u64 %rd7, %b2, %rd5;
    setp.eq.u32 %p3, %r5, 2;
    @%p3 add.u64 %rd7, %b3, %rd5;
    ld.global.u32 %r6, [%rd7];
    add.u32 %r3, %r3, %r6;
    @!%p3 bra BACK;
    FOUND: st.global.u32 [%rd4], %r3;
    st.release.gpu.global.u32 [%rd2], 2; // prefix
    add.u64 %rd8, %b0, %rd1;
    st.global.u32 [%rd8], %r3;
    """,
    (CTAS, CTAS, CTAS, CTAS), 1, [1, 3, 6, 10, 15],
    {
        "the releases": ("st.release.gpu", "st.relaxed.gpu", "ld.global.u32 %r6"),
        "the acquire": ("ld.acquire.gpu", "ld.relaxed.gpu", "ld.global.u32 %r6"),
    },
)  # fmt: skip

KERNELS = {
    "grid barrier": GRID_BARRIER, "turnstile": TURNSTILE, "last CTA reduces": LAST_REDUCES,
    "semaphore": SEMAPHORE, "look-back": LOOK_BACK,
}  # fmt: skip


def bound(made: Kernel, text: str, *, grid: int = CTAS) -> Launch:
    """A launch of a kernel, or of a variant of its text, on arrays of zeros."""
    arrays = [np.zeros(n, np.int32) for n in made.sizes]
    places = "\n".join(f"mad.wide.u32 %a{i}, %t, 4, %b{i};" for i in range(len(arrays)))
    return kernel(places + text, len(arrays)).bind(arrays, grid=grid, block=made.block)
