"""A wait that leaves too many groups pending, or is for reads alone, is named, with the number to
give.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.ptx.isa.programs import kernel
from tests.ptx.isa.wgmma_programs import FENCE, launch as wgmma_launch, mma
from tests.scenarios.support import at
from tilepipe.check import check
from tilepipe.errors import RaceError
from tilepipe.ptx import Launch


def line(launch: Launch, text: str) -> str:
    """`<ptx>:31`, the line of the kernel that has this text."""
    lines = launch.kernel.module.text.split("\n")
    (number,) = (i for i, one in enumerate(lines, 1) if text in one)
    return f"<ptx>:{number}"


def told(launch: Launch) -> str:
    (fault,) = check(launch).faults
    assert fault.kind == "RaceError"
    return fault.message


# -- bulk stores -------------------------------------------------------------------------

# One thread stores a tile and then `more`, waits, and writes to the tile again.
STORE = """
    .shared .align 16 .b32 tile[4]; .shared .align 16 .b32 other[4];
    setp.ne.u32 %p3, %l, 0;
    @%p3 bra END;
    st.shared.v4.u32 [tile], {{%l, %l, %l, %l}};
    st.shared.v4.u32 [other], {{%l, %l, %l, %l}};
    fence.proxy.async.shared::cta;
    cp.async.bulk.global.shared::cta.bulk_group [%b0], [tile], 16;
    cp.async.bulk.commit_group;
    {more}
    {wait}
    {after}
    {access}
    END:
"""
OTHER = """cp.async.bulk.global.shared::cta.bulk_group [%b1], [other], 16;
    cp.async.bulk.commit_group;"""
OVERWRITE = "st.shared.u32 [tile], %l;"
REREAD = "ld.global.u32 %r1, [%b0]; st.global.u32 [%b2], %r1;"


def store(wait: str, more: str = "", access: str = OVERWRITE, after: str = "") -> Launch:
    text = STORE.format(wait=wait, more=more, access=access, after=after)
    arrays = [np.zeros(4, np.int32) for _ in range(3)]
    return kernel(text, 3).bind(arrays, grid=1, block=32)


@pytest.mark.parametrize(
    ("more", "left", "leaves", "pending"),
    [
        ("", 1, "the last group pending, and that is the one of the first access", 0),
        (
            OTHER,
            2,
            "the last 2 groups pending, and the one of the first access is the last but 1 of them",
            1,
        ),
        (
            "cp.async.bulk.commit_group;" + OTHER,
            4,
            "the last 4 groups pending, and the one of the first access is the last but 2 of them",
            2,
        ),
    ],
)
def test_the_wait_that_left_a_store_pending(
    more: str, left: int, leaves: str, pending: int
) -> None:
    launch = store(wait := f"cp.async.bulk.wait_group.read {left};", more)
    assert (
        f"  cp.async.bulk.wait_group.read {left} at {line(launch, wait)} leaves {leaves}: write"
        f" cp.async.bulk.wait_group.read {pending} there, or wait again before the second access."
        " The store reads the tile until the thread that issued it has waited" in told(launch)
    )
    assert check(store(f"cp.async.bulk.wait_group.read {pending};", more)).ok


def test_a_wait_before_the_commit_is_not_blamed() -> None:
    later = OTHER.replace("other", "tile")
    assert "  The store reads the tile until the thread" in told(
        store("cp.async.bulk.wait_group.read 0;", after=later)
    )


@pytest.mark.parametrize(
    "wait", ["cp.async.bulk.wait_group.read 1;", "cp.async.bulk.wait_group 1;"]
)
def test_the_wait_that_left_the_write_of_a_store_pending(wait: str) -> None:
    launch = store(wait, access=REREAD)
    assert (
        f"  {wait.rstrip(';')} at {line(launch, wait)} leaves the last group pending, and that is"
        " the one of the first access: write cp.async.bulk.wait_group 0 there, or wait again before"
        " the second access. The store is over when" in told(launch)
    )


def test_a_wait_for_reads_does_not_say_that_the_store_has_written() -> None:
    launch = store(wait := "cp.async.bulk.wait_group.read 0;", access=REREAD)
    text = told(launch)
    assert (
        f"  cp.async.bulk.wait_group.read 0 at {line(launch, wait)} waits until the store has read"
        " shared memory, and not until it has written global memory: write"
        " cp.async.bulk.wait_group 0. The store is over when" in text
    )
    assert "A wait for its reads alone" not in text
    assert check(store("cp.async.bulk.wait_group 0;", access=REREAD)).ok


# -- cp.async ----------------------------------------------------------------------------

# Each lane copies a word twice; after the wait its neighbour reads the first.
COPY = """
    .shared .align 16 .b32 tile[64];
    mov.u32 %r1, tile;
    mad.lo.u32 %r2, %l, 4, %r1;
    mul.wide.u32 %rd1, %l, 4;
    add.u64 %rd2, %b0, %rd1;
    cp.async.ca.shared.global [%r2], [%rd2], 4;
    cp.async.commit_group;
    cp.async.ca.shared.global [%r2+128], [%rd2], 4;
    cp.async.commit_group;
    {wait}
    bar.warp.sync -1;
    xor.b32 %r3, %l, 1;
    mad.lo.u32 %r3, %r3, 4, %r1;
    ld.shared.u32 %r4, [%r3{offset}];
    add.u64 %rd2, %b1, %rd1;
    st.global.u32 [%rd2], %r4;
    cp.async.wait_all;
"""


def copy(wait: str, offset: str = "") -> Launch:
    text = COPY.format(wait=wait, offset=offset)
    return kernel(text, 2).bind([np.zeros(32, np.int32), np.zeros(32, np.int32)], grid=1, block=32)


@pytest.mark.parametrize(
    ("left", "offset", "leaves", "pending"),
    [
        (1, "+128", "last group pending, and that is the one of the first access", 0),
        (2, "", "last 2 groups pending, and the one of the first access is the last but 1 of", 1),
    ],
)
def test_the_wait_that_left_a_cp_async_pending(
    left: int, offset: str, leaves: str, pending: int
) -> None:
    launch = copy(wait := f"cp.async.wait_group {left};", offset)
    text = told(launch)
    assert f"  cp.async.wait_group {left} at {line(launch, wait)} leaves the {leaves}" in text
    assert f": write cp.async.wait_group {pending} there, or wait again before the" in text
    assert check(copy(f"cp.async.wait_group {pending};", offset)).ok


# -- wgmma -------------------------------------------------------------------------------

COMMIT = "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned {};"
ANOTHER = mma(d="{%r24, %r25, %r26, %r27}")


def test_the_wait_that_left_a_wgmma_pending_that_reads_shared_memory() -> None:
    write = "bar.sync 0; st.shared.b32 [%r3], %r4;"
    wait = WAIT.format(1)
    launch = wgmma_launch(FENCE, mma(), COMMIT, wait, write)
    assert (
        f"  wgmma.wait_group 1 at {line(launch, wait)} leaves the last group pending, and that is"
        " the one of the first access: write wgmma.wait_group 0 there, or wait again before the"
        " second access. A wgmma reads its tiles until" in told(launch)
    )


@pytest.mark.parametrize(
    ("use", "verb", "place", "then"),
    [
        (
            "add.u32 %r30, %r21, 1;",
            "used",
            "last but 1 of them",
            ": put wgmma.wait_group.sync.aligned 1 between the two (1 later groups may be",
        ),
        (
            f"mov.u32 %r10, 5; {WAIT.format(0)}",
            "written",
            "last of them",
            ". Put wgmma.wait_group between the two, or let the second write other registers.",
        ),
    ],
)
def test_the_wait_that_left_a_wgmma_pending_that_uses_registers(
    use: str, verb: str, place: str, then: str
) -> None:
    wait = WAIT.format(2)
    launch = wgmma_launch(FENCE, mma(), COMMIT, ANOTHER, COMMIT, wait, use)
    text = told(launch)
    assert f"is {verb} while a wgmma" in text
    assert (
        f"  wgmma.wait_group 2 at {line(launch, wait)} leaves the last 2 groups pending, and the"
        f" one of the wgmma is the {place}{then}" in text
    )


# -- traced kernels ----------------------------------------------------------------------


@tp.kernel()
def stored(ctx: tp.Context, out: Any, *, left: int) -> None:
    """A tile is stored by TMA, and written again."""
    tile = tp.SMemTileArray2D(ctx, "float32", 8, 16, 1, name="tile")[0]

    @ctx.role("store", warps=1)
    def store() -> None:
        with ctx.elect_one():
            for row in range(8):
                for column in range(16):
                    ctx.store(tile[row, column], 1)
            ctx.fence_proxy_async()
            ctx.tma_store(out, (0, 0), tile)
            ctx.tma_store_commit()
            ctx.tma_store_wait(left, read=True)  # <waits for the store>
            ctx.store(tile[0, 0], 2)
            ctx.tma_store_wait(0)


def test_a_store_that_a_traced_kernel_leaves_pending() -> None:
    out = np.zeros((8, 16), np.float32)
    with pytest.raises(RaceError) as caught:
        stored.bind(tp.tensor_map(out, box=(8, 16)), left=1).run()
    assert (
        f"  ctx.tma_store_wait(1, read=True) at {at(__file__, 'waits for the store')} leaves the"
        " last group pending, and that is the one of the first access: write"
        " ctx.tma_store_wait(0, read=True) there, or wait again before the second access."
        in str(caught.value)
    )
    stored.bind(tp.tensor_map(out, box=(8, 16)), left=0).run()


@tp.kernel()
def multiplied(ctx: tp.Context, *, left: int) -> None:
    """An accumulator is set while a wgmma may still write it."""
    b = tp.SMemTileArray2D(ctx, "bfloat16", 16, 16, 1, name="b")[0]

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        with ctx.when(ctx.thread < 16):
            for row in range(16):
                ctx.store(b[row, ctx.thread], 1)
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        a = ctx.fragment(shape=(64, 16), dtype="bfloat16")
        a.fill(1)
        acc = ctx.accumulator((64, 16))
        ctx.mma(acc, a, b, accumulate=False)
        ctx.wgmma_commit()
        ctx.wgmma_wait(left)  # <waits for the product>
        acc.fill(0)
        ctx.wgmma_wait(0)


def test_a_product_that_a_traced_kernel_leaves_pending() -> None:
    with pytest.raises(RaceError) as caught:
        multiplied.bind(left=1).run()
    assert (
        f"in flight. ctx.wgmma_wait(1) at {at(__file__, 'waits for the product')} leaves the last"
        " group pending, and that is the one of the wgmma. Wait for them first:"
        " ctx.wgmma_wait(0)." in str(caught.value)
    )
    multiplied.bind(left=0).run()
