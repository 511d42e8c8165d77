"""A wait that gave the parity of a phase that was over is blamed, with the parity to give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.ptx.isa.programs import kernel
from tests.scenarios.support import at, clean
from tilepipe.check import check
from tilepipe.errors import BarrierError, RaceError, SimFault
from tilepipe.ptx import Launch

# Two warps: the first fills `tile` four times, by copies or by stores, and the second reads it.
RING = """
    .shared .align 16 .b8 tile[16];
    .shared .align 8 .b64 full; .shared .align 8 .b64 empty;
    mov.u32 %r1, 0;
    setp.ne.u32 %p1, %l, 0;
    setp.ge.u32 %p2, %t, 32;
    setp.ne.u32 %p3, %t, 0;
    @%p3 bra READY;
    mbarrier.init.shared.b64 [full], 1;
    mbarrier.init.shared.b64 [empty], 1;
    fence.mbarrier_init.release.cluster;
    READY: bar.sync 0;
    @%p1 bra DONE;
    @%p2 bra READ;
    FILL: and.b32 %r2, %r1, 1;
    xor.b32 %r2, %r2, 1;
    FREE: {fills}
    @!%p4 bra FREE;
    {fill}
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p5, %r1, {rounds};
    @%p5 bra FILL;
    bra DONE;
    READ: and.b32 %r2, %r1, 1;
    THERE: {reads}
    @!%p4 bra THERE;
    {read}
    mbarrier.arrive.shared.b64 _, [empty];
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p5, %r1, {rounds};
    @%p5 bra READ;
    DONE:
"""
COPIED = """mbarrier.arrive.expect_tx.shared.b64 _, [full], 16;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%b0], 16, [full];"""
STORED = "st.shared.u32 [tile], %r1; mbarrier.arrive.shared.b64 _, [full];"
LOADED = "ld.shared.u32 %r4, [tile]; st.global.u32 [%b1], %r4;"


WAIT = "mbarrier.try_wait.parity.shared.b64 %p4, [{}], {};"
NO_WAIT = "setp.eq.u32 %p4, 0, 0;"


def launch(text: str) -> Launch:
    arrays = [np.zeros(4, np.int32), np.zeros(4, np.int32)]
    return kernel(text, 2).bind(arrays, grid=1, block=64)


def ring(
    fill: str = COPIED,
    fills: str | None = "%r2",
    reads: str | None = "%r2",
    rounds: int = 4,
    read: str = LOADED,
) -> Launch:
    """`fills`, `reads`: the parities that the two warps give; None: it does not wait."""
    waits = [
        NO_WAIT if parity is None else WAIT.format(name, parity)
        for name, parity in (("empty", fills), ("full", reads))
    ]
    text = RING.format(fill=fill, fills=waits[0], reads=waits[1], rounds=rounds, read=read)
    return launch(text)


def told(launch: Launch) -> str:
    (fault,) = check(launch).faults
    return fault.message


@pytest.mark.parametrize("fill", [COPIED, STORED], ids=["copied", "stored"])
def test_the_ring_itself_is_free_of_races(fill: str) -> None:
    assert check(ring(fill)).ok


FRESH = "that of the phase before the first of the mbarrier at 'full', which counts as complete on"


@pytest.mark.parametrize("read", [LOADED, "st.shared.u32 [tile], 9;"], ids=["read", "written"])
def test_parity_1_on_a_fresh_barrier_does_not_wait_for_a_copy(read: str) -> None:
    text = told(ring(fills=None, reads="1", rounds=1, read=read))
    assert text.startswith("race on 'tile'")
    assert f"  warp 1 did not wait at <ptx>:38: it gave parity 1, {FRESH} a fresh mbarrier." in text
    assert "with phase 0 of the mbarrier at 'full': wait with parity 0." in text


def test_parity_1_on_a_fresh_barrier_whose_arrival_is_still_to_come() -> None:
    """Which barrier the writer will arrive on is not known: the message says so."""
    text = told(ring(STORED, fills=None, reads="1", rounds=1))
    assert text.startswith("race on 'tile'")
    assert f"  warp 1 has waited for nothing: at <ptx>:37 it gave parity 1, {FRESH} a" in text
    assert "is to say that the data are there, wait with parity 0 for its phase 0." in text


def test_parity_1_before_a_read_of_what_nobody_has_written() -> None:
    text = told(ring(STORED, reads="1", rounds=1))
    assert "4 of 4 bytes were never written. warp 1 has waited for nothing: at <ptx>:37 it" in text
    assert "wait with parity 0 for its phase 0. Otherwise: wait for the copy or the store" in text


def test_two_that_both_begin_with_parity_1() -> None:
    text = told(ring(reads="1", rounds=1, read=""))
    assert "warp 0 waits for phase -1 (the one before the first, over from the start)" in text
    assert (
        "  Both warp 0 (<ptx>:29, the mbarrier at 'empty') and warp 1 (<ptx>:38, the mbarrier at"
        " 'full') begin with parity 1, that of the phase before the first, which counts as complete"
        " on a fresh mbarrier. Only the one that fills first may: the other must wait with parity 0"
        " for phase 0." in text
    )


def test_the_first_wait_for_a_free_stage_is_not_blamed() -> None:
    """The reader does not wait at all; the parity that the writer gives is right."""
    for fill in (STORED, COPIED):
        text = told(ring(fill, reads=None, rounds=1, read="st.shared.u32 [tile], 9;"))
        assert "did not wait" not in text
        assert "waited for nothing" not in text
        assert "Both" not in text


STUCK = (
    "warp 1 did not wait at <ptx>:37: in round 2 on the mbarrier at 'full' it gave parity 0 again,"
    " that of phase 0, which was already complete, so that it passed at once and ran ahead."
)
COMES = "with phase 1 of the mbarrier at 'full': wait with parity 1, and flip the parity in each"


def test_a_reader_that_does_not_flip_its_parity() -> None:
    """It frees the stage too often, and so the writer's wait is lapped."""
    text = told(ring(reads="0"))
    assert f"  {STUCK.replace('37', '38')} What it has to wait for comes {COMES} round." in text


@pytest.mark.parametrize(
    ("seed", "kind", "says"),
    [
        (0, BarrierError, f"{STUCK} What it has to wait for comes {COMES}"),
        (1, BarrierError, "(<ptx>:37), and gives parity 0 again in round 2: flip the parity"),
        (2, RaceError, f"{STUCK} The data come {COMES}"),
    ],
    ids=["the writer is lapped", "the reader is lapped", "a race"],
)
def test_what_a_reader_that_does_not_flip_its_parity_leads_to_first(
    seed: int, kind: type[SimFault], says: str
) -> None:
    with pytest.raises(kind) as caught:
        ring(STORED, reads="0").run(seed)
    assert says in str(caught.value)


def test_a_writer_that_does_not_flip_its_parity() -> None:
    text = told(ring(STORED, fills="1"))
    assert (
        "  warp 0 did not wait at <ptx>:29: in round 2 on the mbarrier at 'empty' it gave parity 1"
        " again, that of the phase before the first, which was already complete" in text
    )
    assert "with phase 0 of the mbarrier at 'empty': wait with parity 0, and flip" in text


# Warp 0 completes phase 0 of `full`, and, once warp 1 has seen that, phases 1 and 2.
LAPPED = """
    .shared .align 8 .b64 full; .shared .align 8 .b64 seen;
    setp.ne.u32 %p1, %l, 0;
    setp.ge.u32 %p2, %t, 32;
    setp.ne.u32 %p3, %t, 0;
    @%p3 bra READY;
    mbarrier.init.shared.b64 [full], 1;
    mbarrier.init.shared.b64 [seen], 1;
    fence.mbarrier_init.release.cluster;
    READY: bar.sync 0;
    @%p1 bra DONE;
    @%p2 bra SECOND;
    mbarrier.arrive.shared.b64 _, [full];
    SEEN: mbarrier.try_wait.parity.shared.b64 %p4, [seen], 0;
    @!%p4 bra SEEN;
    mbarrier.arrive.shared.b64 _, [full];
    mbarrier.arrive.shared.b64 _, [full];
    bra DONE;
    SECOND: mbarrier.try_wait.parity.shared.b64 %p4, [full], 0;
    @!%p4 bra SECOND;
    mbarrier.arrive.shared.b64 _, [seen];
    LATER: mbarrier.try_wait.parity.shared.b64 %p4, [full], {parity};
    @!%p4 bra LATER;
    DONE:
"""


def test_a_lapped_wait_names_the_phase_after_the_last_that_it_has_seen() -> None:
    text = told(launch(LAPPED.format(parity=1)))
    assert "warp 1 waits for phase 1 of the mbarrier at 'full', but phases up to 2" in text


def test_a_lapped_wait_that_gives_its_last_parity_again_is_blamed_itself() -> None:
    text = told(launch(LAPPED.format(parity=0)))
    assert "warp 1 waits for phase 0 of the mbarrier at 'full', but phases up to" in text
    assert (
        "  warp 1 has waited for phase 0 of it before (<ptx>:31), and gives parity 0 again in round"
        " 2: flip the parity in each round; phase 1 is that of parity 1." in text
    )


# -- barriers that a program names -------------------------------------------------------


@tp.kernel()
def stored(ctx: tp.Context, out: Any, *, parity: int) -> None:
    """One role stores a row, and the other reads it."""
    row = tp.SMemTileArray2D(ctx, "int32", 1, 32, 1, name="row")[0]
    there = tp.SharedMemBarrier.allocate(ctx, name="there")
    other = tp.SharedMemBarrier.allocate(ctx, name="other")

    @ctx.role("write", warps=1)
    def write() -> None:
        other.wait(1)  # as of a stage that nobody has used
        ctx.store(row[0, ctx.lane], ctx.lane)
        ctx.syncwarp()
        with ctx.elect_one():
            there.arrive()

    @ctx.role("read", warps=1)
    def read() -> None:
        there.wait(parity)  # <read waits>
        ctx.store(out[ctx.lane], ctx.load(row[0, ctx.lane]))
        ctx.syncwarp()
        with ctx.elect_one():
            other.arrive()


def bound(parity: int) -> tp.Program:
    return stored.bind(np.zeros(32, np.int32), parity=parity)


def test_a_role_that_waits_with_the_parity_before_the_first() -> None:
    clean(bound(0))
    verdict = bound(1).check()
    (fault,) = verdict.faults
    assert (
        f"role 'read' has waited for nothing: at {at(__file__, 'read waits')} it gave parity 1,"
        " that of the phase before the first of there, which counts as complete on a fresh"
        " mbarrier. If that barrier is to say that the data are there, wait with parity 0"
        in fault.message
    )


def test_a_race_of_a_role_that_waits_with_the_parity_before_the_first() -> None:
    """The barrier that the writer arrives on is known."""
    for seed in range(3, 9):
        with pytest.raises(tp.RaceError) as caught:
            bound(1).run(seed=seed)
        assert (
            f"  role 'read' did not wait at {at(__file__, 'read waits')}: it gave parity 1, that of"
            " the phase before the first of there, which counts as complete on a fresh mbarrier."
            " The data come with phase 0 of there: wait with parity 0." in str(caught.value)
        )


def test_two_roles_that_both_begin_with_parity_1() -> None:
    with pytest.raises(tp.BarrierError) as caught:
        bound(1).run(seed=1)
    assert "Both role 'read' (" in str(caught.value)
    assert ", there) and role 'write' (" in str(caught.value)
