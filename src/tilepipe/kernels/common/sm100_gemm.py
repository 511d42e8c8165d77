"""What the GEMMs for Blackwell have in common: set-up, and four roles.

    schedule   one warp: asks the hardware for tiles, where it deals them out
    load       one warp: TMA copies into a ring of K tiles
    mma        one warp: a lane issues tcgen05.mma, which adds up in tensor memory
    epilogue   four warps: tensor memory -> registers -> shared memory -> C

A kernel says what a K tile consists of (`load`'s `copy`) and how it is multiplied (`multiply`'s
`issue`); the rest is here. Sums are in tensor memory and not in registers, so the MMA warp begins
the next tile while the epilogue has the last one, without a second set of warpgroups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.common.epilogue import Epilogue, Terms
from tilepipe.kernels.common.multicast import ClusterShares
from tilepipe.kernels.common.split_k import TmemExchange, part_of_k
from tilepipe.kernels.common.tiling import Sm100Tiling


def grid(c: tp.TensorMap, cfg: Sm100Tiling, chip: tp.Chip) -> int:
    """A CTA a tile where work is fetched; otherwise as many clusters as the chip holds at once."""
    m, n = c.shape
    tiles = -(-m // (cfg.bm * cfg.cluster)) * -(-n // (cfg.bn * cfg.cluster_n))
    resident = tiles if cfg.scheduler == "clc" else max(chip.resident_clusters(cfg.cluster_size), 1)
    return min(tiles, resident) * cfg.cluster_size


@dataclass(frozen=True, eq=False)
class Sm100Gemm:
    """What the roles of a Blackwell GEMM share, made in set-up code.

    Attributes:
        inputs: the ring of K tiles. outputs: the accumulators in tensor memory.
        tmem: tensor memory with the scales of K tiles beside the accumulators, where they have any.
        work: the output tiles of this CTA. k_steps: stages of the ring that a tile takes.
        shares: the part of each tile that this CTA loads for its cluster.
        exchange: of sums, where CTAs split K.
    """

    ctx: tp.Context
    cfg: Sm100Tiling
    inputs: tp.InputTilePipeline
    outputs: tp.OutputTilePipeline
    tmem: tp.BlockScaledTmem | None
    work: tp.StaticScheduler | tp.ClcScheduler
    k_steps: tp.Value
    shares: ClusterShares
    epilogue: Epilogue
    exchange: TmemExchange | None

    @classmethod
    def allocate(
        cls,
        ctx: tp.Context,
        tiles: tp.TilePayload,
        a: tp.GlobalTensor,
        c: tp.GlobalTensor,
        cfg: Sm100Tiling,
        terms: Terms | None = None,
    ) -> Sm100Gemm:
        """In set-up code. `tiles`: what a K tile consists of."""
        inputs = tp.InputTilePipeline.allocate(
            ctx,
            tiles,
            num_group_stages=cfg.stages,
            k_group_size=cfg.k_group_size,
            cta_group=cfg.cta_group,
        )
        accumulators = tp.OutputPipelineConfig(
            num_stages=cfg.accumulators, stage_stride_cols=cfg.bn, cta_group=cfg.cta_group
        )
        tmem = None
        if isinstance(tiles, tp.BlockScaledTilePayload):
            tmem = tp.BlockScaledTmem(ctx, accumulators, tiles)
        outputs = tp.OutputTilePipeline.allocate(ctx, accumulators, tmem=tmem)
        return cls(
            ctx,
            cfg,
            inputs,
            outputs,
            tmem,
            work=scheduler(ctx, c, cfg),
            k_steps=ctx.ceil_div(a.shape[1], cfg.bk * cfg.k_group_size),
            shares=ClusterShares.of(ctx, cfg.cluster, cfg.cluster_n, cfg.cta_group),
            epilogue=Epilogue(ctx, c, cfg, terms),
            exchange=TmemExchange(ctx, cfg) if cfg.split_k > 1 else None,
        )

    def part_of_k(self) -> tuple[tp.Value | int, tp.Value]:
        """(first step, number of steps) of K that this CTA takes: at least one, since the first MMA
        of a tile is what overwrites the accumulator.
        """
        return part_of_k(self.ctx, self.cfg, self.k_steps, least=1)

    def declare_roles(
        self, load: Callable[[], None], multiply: Callable[[], None], store: Callable[[], None]
    ) -> None:
        """The roles, in the order of their warps."""
        if self.work.needs_role:
            self.ctx.role("schedule", warps=1)(self.work.schedule)
        self.ctx.role("load", warps=1)(load)
        self.ctx.role("mma", warps=1)(multiply)
        self.ctx.role("epilogue", warpgroups=1)(store)


def scheduler(
    ctx: tp.Context, c: tp.GlobalTensor, cfg: Sm100Tiling
) -> tp.StaticScheduler | tp.ClcScheduler:
    """Which CTA computes which tile of C."""
    make = tp.ClcScheduler if cfg.scheduler == "clc" else tp.StaticScheduler
    return make(
        ctx,
        tiles=(ctx.ceil_div(c.shape[0], cfg.bm), ctx.ceil_div(c.shape[1], cfg.bn)),
        cluster=(cfg.cluster, cfg.cluster_n),
        raster=cfg.raster,
        group=cfg.group,
    )


@dataclass(frozen=True, eq=False)
class KTile:
    """One K tile of an output tile, in a stage of the input ring.

    Attributes:
        output: the output tile. number: of the K tile, from 0. first_of_b: the first row of B that
            this CTA holds: a pair of CTAs has half of the tile's each.
    """

    stage: tp.InputProducerStage
    slot: int
    output: tp.WorkTile
    number: tp.Value
    first_of_b: tp.Value

    @property
    def tiles(self) -> tuple[tp.SmemTile, ...]:
        """Its tiles in shared memory."""
        return self.stage.tile(self.slot)


def load(gemm: Sm100Gemm, copy: Callable[[Sm100Gemm, KTile], None]) -> None:
    """The load role: one lane starts the copies of every K tile, as far ahead of the MMAs as the
    ring has stages, and on into the next output tile.

    `copy`: starts the copies of one K tile.
    """
    ctx, cfg, inputs, work = gemm.ctx, gemm.cfg, gemm.inputs, gemm.work
    half = ctx.cta_rank % cfg.cta_group * cfg.b_rows  # of B, in a pair
    first, k_steps = gemm.part_of_k()
    with inputs.producer() as producer:
        for tile in work:
            work.throttle_signal()  # the next tile may be asked for
            for step in ctx.range(k_steps):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    for j in range(cfg.k_group_size):
                        number = (first + step) * cfg.k_group_size + j
                        copy(gemm, KTile(stage, j, tile, number, tile.n * cfg.bn + half))
        # All inputs are on their way: the next kernel may begin while this one multiplies.
        ctx.launch_dependents()
        # Peers still arrive on this CTA's barriers for the last stages: leave only after they have.
        producer.drain()


Issue = Callable[
    [Sm100Gemm, tp.InputConsumerStage, int, tp.TmemTensor, tp.WorkTile, "bool | tp.Value"], None
]


def multiply(gemm: Sm100Gemm, issue: Issue) -> None:
    """The MMA role: one lane issues the MMAs of every stage, and the commit that frees its slot
    when they have read it. Of a pair of CTAs the even one issues for both.

    `issue`: multiplies K tile `slot` of a stage into the accumulator.
    """
    ctx, cfg = gemm.ctx, gemm.cfg
    _, k_steps = gemm.part_of_k()
    with gemm.outputs.mma_warp(), gemm.inputs.consumer() as consumer:
        for tile in gemm.work:
            with ctx.when(tp.elect_one_cta(ctx)), gemm.outputs.producer() as output:
                acc = output.tmem.tensor((cfg.bm, cfg.bn))
                for step in ctx.range(k_steps):
                    with consumer.acquire() as stage, ctx.elect_one():
                        for j in range(cfg.k_group_size):
                            # The first MMA of a tile overwrites what the accumulator held.
                            issue(gemm, stage, j, acc, tile, True if j else step > 0)
                        ctx.mma_commit(stage.mbar(), mask=gemm.shares.release)


def store(gemm: Sm100Gemm) -> None:
    """The epilogue role: a warpgroup, since each of its warps reaches a quarter of the lanes of
    tensor memory. With two accumulators it stores one tile while the next is multiplied; where CTAs
    split K, each stores some columns, once it has the sums of all.
    """
    exchange, epilogue = gemm.exchange, gemm.epilogue
    with gemm.outputs.epilogue_warp():
        for tile in gemm.work:
            with gemm.outputs.consumer() as output:
                sums = Accumulator(gemm.ctx, output, gemm.cfg)
                if exchange is None:
                    epilogue.store([[sums]], tile, 0)
                else:
                    exchange.send(sums)
            if exchange is not None:
                epilogue.store([[exchange.receive()]], tile, 0)
        if exchange is not None:
            exchange.drain()
        epilogue.drain()


class Accumulator:
    """A tile's sums in tensor memory as the epilogue takes them, slice after slice; after the last,
    the MMAs may overwrite them: they need not wait until the slices are stored.
    """

    def __init__(self, ctx: tp.Context, stage: tp.OutputStage, cfg: Sm100Tiling) -> None:
        self._ctx = ctx
        self._stage = stage
        self._tensor = stage.tmem.tensor((cfg.bm, cfg.bn))
        self._cfg = cfg

    def cols(self, start: int, count: int) -> tp.Fragment:
        """Columns [start, start + count) in registers."""
        part = self._tensor.cols(start, count).load()
        if start + count == self._cfg.bn:
            tp.AccumBarrier(self._cfg.cta_group).arrive(self._stage.pipeline, self._stage.index)
        else:
            self._ctx.tmem_wait_load()
        return part
