"""The field's recurring bugs between the CTAs of a cluster, and in set-up and teardown."""

from __future__ import annotations

from typing import Any

import pytest

import tilepipe as tp
from tests.scenarios.support import at, clean, faults, matrix, refuses


def where(mark: str) -> str:
    return at(__file__, mark)


@tp.kernel(grid=2, cluster=2)
def pair_gemm(
    ctx: tp.Context,
    a: Any,
    b: Any,
    *,
    steps: int,
    stages: int,
    mask: int | None,
    early: bool,
    drain: bool,
    arm: bool,
) -> None:
    """Two CTAs: each loads its A tile, and one half of the B tile for both."""
    payload = tp.StandardTilePayload(
        a_type=a.dtype, b_type=b.dtype, a_shape=(64, 16), b_shape=(16, 16)
    )
    inputs = tp.InputTilePipeline.allocate(
        ctx,
        payload,
        num_group_stages=stages,
        consumer_arrivals=None if not early else 2,
        producer_arrivals=1 if not arm or early else None,
    )

    @ctx.role("load", warps=1)
    def load() -> None:
        with inputs.producer() as producer:
            for k in ctx.range(steps):
                with producer.acquire() as stage, ctx.elect_one():
                    if arm:
                        stage.expect_bytes(inputs.stage_bytes)
                    else:
                        with ctx.when(ctx.cta_rank == 0):
                            stage.expect_bytes(inputs.stage_bytes)  # <armed in CTA 0 only>
                    a_tile, b_tile = stage.tile()
                    ctx.tma_load(a, (64 * ctx.cta_rank, 16 * k), a_tile, stage.barrier())
                    row = 8 * ctx.cta_rank
                    half, full = b_tile.rows(row, 8), stage.barrier()
                    ctx.tma_load(b, (row, 16 * k), half, full, multicast=3)  # <multicast>
            if drain:
                producer.drain()

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        acc = ctx.accumulator((64, 16))
        acc.fill(0)
        with inputs.consumer(lag=1) as consumer:
            for _ in ctx.range(steps):
                with consumer.acquire() as stage:  # <consumer waits>
                    ctx.mma(acc, *stage.tile())  # <pair mma>
                    if early:
                        with ctx.elect_one("warpgroup"):
                            for cta in range(2):
                                stage.mbar().arrive_cluster(cta)
                        ctx.wgmma_commit()
                    else:
                        ctx.mma_commit(stage.mbar(), mask=mask)  # <pair commit>
        ctx.wgmma_wait(0)


def bind_pair(**settings: Any) -> tp.Program:
    values: dict[str, Any] = {
        "steps": 6,
        "stages": 2,
        "mask": 3,
        "early": False,
        "drain": True,
        "arm": True,
    } | settings
    return pair_gemm.bind(
        tp.tensor_map(matrix(128, 96), box=(64, 16)),
        tp.tensor_map(matrix(16, 96), box=(8, 16)),
        **values,
    )


def test_a_pair_of_ctas_with_multicast() -> None:
    for run in clean(bind_pair()):
        assert run.completions == {"inputs.full": [[3, 3]] * 2, "inputs.empty": [[3, 3]] * 2}


@pytest.mark.slow
def test_a_slot_released_while_the_mma_still_reads_it() -> None:
    words = ("race on inputs_", "role 'mma'", "role 'load'", where("pair mma"))
    faults(bind_pair(early=True), tp.RaceError, *words)


@pytest.mark.slow
def test_multicast_peers_left_out_of_the_commit() -> None:
    words = ("race on inputs_b", "role 'load'", "multicast", "mask", where("multicast"))
    faults(bind_pair(mask=None), tp.RaceError, *words, seeds=[0])
    faults(bind_pair(mask=None), tp.SimFault, "inputs", seeds=range(8))


def test_a_receiver_of_a_multicast_has_not_armed_its_barrier() -> None:
    program = bind_pair(arm=False)
    words = (
        "role 'mma' of CTA 1",
        "2,560 bytes signal inputs.full[0] of CTA 1",
        "no op calls expect_bytes",
        where("consumer waits"),
    )
    faults(program, tp.DeadlockError, *words)


def test_a_multicast_mask_that_names_a_cta_outside_the_cluster() -> None:
    words = ("mask 0b101", "outside the cluster of 2", "bits 0..1", where("pair commit"))
    refuses(lambda: bind_pair(mask=5), tp.TraceError, *words)


@pytest.mark.slow
def test_a_cta_exits_while_its_peer_can_still_signal_it() -> None:
    words = (
        "exits while role 'mma' of CTA",
        "can still arrive on inputs.empty[",
        "producer.drain()",
        where("pair commit"),
    )
    faults(bind_pair(drain=False), tp.ExitError, *words)


# -- barrier init ----------------------------------------------------------------------


@pytest.mark.parametrize("published", [False, True])
def test_a_remote_arrival_before_the_initialisation_is_visible(published: bool) -> None:
    @tp.kernel(grid=2, cluster=2)
    def remote(ctx: tp.Context) -> None:
        bar = tp.SMemArray(ctx, tp.SharedMemBarrier, 1, "bar")[0]
        if published:
            bar.init(1)

        @ctx.role("solo", warps=1)
        def solo() -> None:
            if not published:
                with ctx.elect_one():
                    bar.init(1)
                ctx.syncwarp()
            with ctx.elect_one():
                bar.arrive_cluster(1 - ctx.cta_rank)  # <remote arrival>
            bar.wait(0)

    if published:
        for run in clean(remote.bind()):
            assert run.completions == {"bar": [[1], [1]]}
        return
    faults(
        remote.bind(),
        tp.BarrierError,
        "role 'solo'",
        "bar of CTA",
        "initialis",
        where("remote arrival"),
    )
