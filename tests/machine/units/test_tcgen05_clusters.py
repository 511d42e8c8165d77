"""MMAs, copies and commits that reach other CTAs: multicast commits, pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.tensor_memory import Handover
from tests.scenarios.support import SEEDS, at, clean, faults, matrix, zeros
from tests.support.build import RANK, Builder, binary
from tests.support.machine.tensor_builders import Core
from tilepipe.errors import BarrierError, ExitError, SimFault
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Const, const
from tilepipe.ir.memory import Tmem

Array = np.ndarray[Any, Any]


def where(mark: str) -> str:
    return at(__file__, mark)


# -- clusters --------------------------------------------------------------------------


def multicasts(waits: bool = True, mask: int = 3) -> Core:
    """Each of two CTAs commits on the barriers of both, which take two arrivals."""
    b = Core(count=2, cluster=2)
    with b.role("mma", warps=1):
        address = b.begin()
        with b.elect():
            b.mma(address)
            b.commit(mask=mask)
        if waits:
            b.wait(b.bar(b.done), 0)
        b.end(address)
    return b


def test_a_multicast_commit_arrives_in_every_cta_of_the_mask() -> None:
    for seed in range(8):
        run = multicasts().run(4, seed, a=matrix(64, 16), b=matrix(8, 16))
        assert run.completions["done"] == [[1]] * 4


def test_a_mask_beyond_the_cluster() -> None:
    multicasts(mask=5).try_(BarrierError, "mask 0b101 for a cluster of 2", grid=2)


LAST_PHASE = (
    "Let a role of this CTA wait for phase 0 of done, the last that completes, before it ends",
)


def test_a_cta_exits_while_a_peers_commit_can_arrive() -> None:
    b = Core(count=1, cluster=2)
    with b.role("mma", warps=1):
        address = b.begin()
        with b.elect():
            b.mma(address)
            b.commit(cta=binary("xor", RANK, 1))
            b.commit(b.full)
        b.wait(b.bar(b.full), 1)
        b.end(address)
    b.try_(
        ExitError,
        "exits while role 'mma' of CTA",
        "can still arrive on done",
        *LAST_PHASE,
        grid=2,
    )


def test_a_commit_before_the_peer_has_its_barrier() -> None:
    b = Core(cluster=2)
    late = b.barriers("late", init=False)
    with b.role("mma", warps=1):
        b.begin()
        with b.elect():
            b.do(ops.MbarInit, b.bar(late), const(1), 1)
            b.commit(late, cta=binary("xor", RANK, 1))
    b.try_(BarrierError, "signals late of CTA", "has reached the cluster", grid=2)


# -- pairs -----------------------------------------------------------------------------


@tp.kernel(grid=4, cluster=4)
def pairs(ctx: tp.Context, a: Any, b: Any, c: Any, *, n: int, fault: str) -> None:
    """C (256, 2 n): pair i computes columns [i n, (i + 1) n). A is multicast from the first pair to
    both: each copy credits the leader of the pair it lands in.
    """
    a_tile = ctx.smem((128, 64), a.dtype, swizzle=128, name="a_tile")[0]
    b_tile = ctx.smem((n // 2, 64), b.dtype, swizzle=128, name="b_tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, count=1, name="full")
    gone = tp.SharedMemBarrier.allocate(ctx, count=2, name="gone")
    h = Handover(ctx, 64, cta_group=2)
    half, pair = ctx.cta_rank % 2, ctx.cta_rank // 2
    leader = ctx.cta_rank & ~1

    @ctx.role("load", warps=1)
    def load() -> None:
        with ctx.elect_one():
            with ctx.when(half == 0):
                full.expect_bytes(2 * (a_tile.nbytes + b_tile.nbytes))
            to = full.on(leader ^ 2 if fault == "other pair" else leader)
            ctx.tma_load(b, (pair * n + half * (n // 2), 0), b_tile, to)  # <b>
            with ctx.when(pair == 0):
                ctx.tma_load(a, (half * 128, 0), a_tile, to, multicast=ctx.select(half == 0, 5, 10))
        gone.wait(0)

    @ctx.role("mma", warps=1)
    def mma() -> None:
        h.allocate()
        with ctx.when(half == 0):
            if fault != "not awaited":
                full.wait(0)
            with ctx.elect_one():
                ctx.mma(h.tmem.tensor((128, n)), a_tile, b_tile, accumulate=False)  # <pair mma>
                ctx.mma_commit(h.done, mask=None if fault == "commit stays" else 3 << leader)
                ctx.mma_commit(gone, mask=15)
        h.over.complete_dealloc(h.tmem)

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        h.find()
        h.wait()
        x = h.tmem.tensor((128, n)).load()
        ctx.tmem_wait_load()
        h.over.signal_complete()
        ctx.store_global(c, (half * 128, pair * n), x)


def bind_pairs(fault: str = "none") -> tuple[tp.Program, Array, Array]:
    a, b, c = matrix(256, 64, 1), matrix(128, 64, 2), zeros(256, 128)
    program = pairs.bind(
        tp.tensor_map(a, box=(128, 64)), tp.tensor_map(b, box=(32, 64)), c, n=64, fault=fault
    )
    return program, c, a.astype(np.float32) @ b.astype(np.float32).T


def test_two_pairs_share_a_multicast() -> None:
    program, c, reference = bind_pairs()
    for run in clean(program, range(6)):
        assert (c == reference).all()
        assert run.completions["full"] == [[1], [0], [1], [0]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (
            "other pair",
            tp.BarrierError,
            ("it signals a barrier of CTA rank", "is paired with rank", where("b")),
        ),
        (
            "commit stays",
            tp.DeadlockError,
            (
                "done of CTA",
                "1 of 1 arrivals",
                "is of the odd CTA of a pair",
                "arrives only in the even one",
                "mask=",
            ),
        ),
        (
            "not awaited",
            tp.RaceError,
            ("race on", "The copy is in flight until the phase", where("pair mma")),
        ),
    ],
)
def test_what_is_wrong_with_a_pair(
    fault: str, kind: type[tp.TilepipeError], words: tuple[str, ...]
) -> None:
    faults(bind_pairs(fault)[0], kind, *words)


def test_the_odd_cta_of_a_pair_issues() -> None:
    b = Core(cluster=2)
    b.kernel.cta_group = 2
    with b.role("mma", warps=1), b.when(binary("eq", RANK, 1)), b.elect():
        acc = Tmem(Const(dtypes.uint32, value=0), 128, 32, dtypes.float32)
        b.do(ops.Tcgen05Mma, acc, b.tile(b.a), b.tile(b.b), const(False), 2)
    words = (
        "role 'mma' of CTA 1 issues it in CTA rank 1",
        "the even CTA of a pair, rank 0, issues for both",
        "ctx.cta_rank % 2 == 0",
    )
    b.try_(SimFault, *words, grid=2)


def test_a_barrier_of_another_cta_takes_a_pair() -> None:
    b = Core(cluster=2)
    with b.role("mma", warps=1), b.elect():
        b.load_tile(b.operands[0], (0, 0), b.tile(b.a), b.bar(b.full, 0, 0))
    b.try_(SimFault, "only multicast= reaches other CTAs", grid=2)


def test_the_leader_exits_while_bytes_of_its_peer_come() -> None:
    b = Builder(cluster=2)
    b.kernel.cta_group = 2
    a = b.tensor("a", box=(64, 16))
    tile = b.smem("a_tile", 64, 16, swizzle=32)
    full, mine = b.barriers("full"), b.barriers("mine")
    b.setup_done()
    with b.role("load", warps=1), b.elect():
        with b.when(binary("eq", RANK, 0)) as branch:
            b.expect(b.bar(full), 64 * 32)
        with b.into(branch.orelse):
            b.load_tile(a, (0, 0), b.tile(tile), b.bar(full, 0, 0))
            b.arrive(b.bar(mine))
    for seed in SEEDS:
        with pytest.raises(ExitError, match="can still credit its bytes to its full"):
            b.run(2, seed, a=matrix(64, 16))
