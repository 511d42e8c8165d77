"""A small GEMM around an OutputTilePipeline, of which tests replace a role: TMA warp, MMA warp, one
warpgroup as epilogue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

import tilepipe as tp
from tests.scenarios.support import matrix, zeros
from tilepipe.machine.barriers import mbarrier as mbarriers
from tilepipe.machine.barriers.state import Mbarrier, MbarrierArrival
from tilepipe.machine.machine import Machine
from tilepipe.machine.units import tcgen05
from tilepipe.sim import Run

M, K = 128, 16  # rows of an accumulator in one CTA, and K of a step
SEEDS = (0, 1, 2)


@dataclass
class Parts:
    """What a role of `gemm` works with. `group`: CTAs that share an MMA; `n`: columns of an
    accumulator.
    """

    ctx: tp.Context
    a: Any
    b: Any
    out: Any
    inputs: tp.InputTilePipeline
    outputs: tp.OutputTilePipeline
    tiles: int
    steps: int
    group: int
    n: int
    extra: Any = None

    def row(self, tile: Any) -> Any:
        """The first row of this CTA's part of a tile."""
        return (tile * self.group + self.ctx.cta_rank) * M

    def copy(self, stage: Any, tile: Any, k: Any) -> None:
        """The copies of one step."""
        a_tile, b_tile = stage.tile()
        self.ctx.tma_load(self.a, (self.row(tile), k * K), a_tile, stage.barrier())
        self.ctx.tma_load(
            self.b, (self.ctx.cta_rank * (self.n // self.group), k * K), b_tile, stage.barrier()
        )

    def release_mask(self) -> Any:
        """Whom a commit of an input stage tells: both CTAs of a pair."""
        return self.outputs.mma_complete_mask

    def multiply(self, acc: Any) -> None:
        """All steps of one tile."""
        with self.inputs.consumer() as consumer:
            for k in self.ctx.range(self.steps):
                with consumer.acquire() as stage, self.ctx.elect_one():
                    self.ctx.mma(acc, *stage.tile(), accumulate=k > 0)
                    self.ctx.mma_commit(stage.mbar(), mask=self.release_mask())

    def accumulator(self, stage: Any) -> Any:
        """The accumulator of a stage that a view gave."""
        return stage.tmem.tensor((M, self.n))


Role = Callable[[Parts], object]


def load(p: Parts) -> None:
    """Every step of every tile; drains."""
    with p.inputs.producer() as producer:
        for tile in p.ctx.range(p.tiles):
            for k in p.ctx.range(p.steps):
                with producer.acquire() as stage, p.ctx.elect_one():
                    stage.expect_bytes(p.inputs.stage_bytes)
                    p.copy(stage, tile, k)
        producer.drain()


def mma(p: Parts) -> None:
    """Each tile into an accumulator, in the even CTA of a pair."""
    with p.outputs.mma_warp(), p.ctx.when(tp.elect_one_cta(p.ctx)):
        for _ in p.ctx.range(p.tiles):
            with p.outputs.producer() as stage:
                p.multiply(p.accumulator(stage))


def epilogue(p: Parts) -> None:
    """Each accumulator to global memory."""
    with p.outputs.epilogue_warp():
        for tile in p.ctx.range(p.tiles):
            with p.outputs.consumer() as stage:
                part = p.accumulator(stage).load()
            p.ctx.store_global(p.out, (p.row(tile), 0), part)


def gemm(
    *,
    load: Role = load,
    mma: Role = mma,
    epilogue: Role = epilogue,
    setup: Callable[[Parts], Any] | None = None,
    outputs: Callable[
        [tp.Context, tp.OutputPipelineConfig], tp.OutputTilePipeline
    ] = tp.OutputTilePipeline.allocate,
    tiles: int = 5,
    steps: int = 2,
    group: int = 1,
    stages: int = 2,
    ring: int = 3,
    n: int = 32,
    warps: int = 1,
    **inputs: Any,
) -> tuple[tp.Program, Any, Any]:
    """(program, what it writes, what it should write): C (tiles · group · M, n) = A · Bᵀ with
    `stages` accumulators.
    """
    a_host, b_host = matrix(tiles * group * M, steps * K), matrix(n, steps * K, seed=1)
    out_host = zeros(tiles * group * M, n)
    payload = tp.StandardTilePayload(
        a_type="bfloat16", b_type="bfloat16", a_shape=(M, K), b_shape=(n // group, K)
    )

    @tp.kernel(grid=group, cluster=group)
    def small_gemm(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
        fed = tp.InputTilePipeline.allocate(
            ctx, payload, num_group_stages=ring, cta_group=group, **inputs
        )
        made = outputs(
            ctx, tp.OutputPipelineConfig(num_stages=stages, stage_stride_cols=n, cta_group=group)
        )
        p = Parts(ctx, a, b, out, fed, made, tiles, steps, group, n)
        if setup is not None:
            p.extra = setup(p)

        ctx.role("load", warps=1)(lambda: load(p))
        ctx.role("mma", warps=warps)(lambda: mma(p))
        ctx.role("epilogue", warpgroups=1)(lambda: epilogue(p))

    program = small_gemm.bind(
        tp.tensor_map(a_host, box=(M, K)), tp.tensor_map(b_host, box=(n // group, K)), out_host
    )
    return program, out_host, a_host.astype(np.float32) @ b_host.astype(np.float32).T


def in_mma_warp(each: Callable[[Parts], object]) -> Role:
    """An MMA role that does `each` once a tile."""

    def role(p: Parts) -> None:
        with p.outputs.mma_warp(), p.ctx.when(tp.elect_one_cta(p.ctx)):
            for _ in p.ctx.range(p.tiles):
                each(p)

    return role


def in_epilogue(each: Callable[[Parts, Any], object]) -> Role:
    """An epilogue that does `each` for every tile."""

    def role(p: Parts) -> None:
        with p.outputs.epilogue_warp():
            for tile in p.ctx.range(p.tiles):
                each(p, tile)

    return role


def who_arrives(program: tp.Program, seed: int = 0) -> Counter[tuple[str, int, str, int]]:
    """Arrivals of a run: (barrier array, CTA rank of the barrier, role, CTA rank of whoever
    arrives) -> threads and commits.

    It counts in the simulated machine, not in the trace.
    """
    found: Counter[tuple[str, int, str, int]] = Counter()
    original = mbarriers.arrived

    def arrived(m: Machine, bar: Mbarrier, arrival: MbarrierArrival, time: float) -> None:
        agent = arrival.agent
        found[bar.array, bar.cta.rank, agent.role.name, agent.cta.rank] += arrival.number
        original(m, bar, arrival, time)

    with patch.object(mbarriers, "arrived", arrived), patch.object(tcgen05, "arrived", arrived):
        program.run(seed=seed)
    return found


def right(seeds: Any = SEEDS, **settings: Any) -> list[Run]:
    """Runs `gemm(**settings)` with each seed; every result must be exact."""
    runs = []
    for seed in seeds:
        program, out, want = gemm(**settings)
        run = program.run(seed=seed)
        assert not run.advice, run.advice
        assert np.array_equal(out, want), f"seed {seed}"
        runs.append(run)
    return runs
