"""Split K: the CTAs of a cluster that each take a part of K of the same tile, and how they send
each other their sums.

Each CTA owns some columns of the tile: its peers store theirs into its shared memory, and it adds
up all parts in one fixed order, so that the sum has the same bits in every launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from math import gcd
from typing import Literal

import tilepipe as tp
from tilepipe.kernels.common.tiling import OutputTiling, Sm90Tiling, Sm100Tiling, Sums

SLICE = 64  # columns of sums that are in registers at a time, on their way from tensor memory


def part_rank(ctx: tp.Context, cfg: OutputTiling) -> tp.Value:
    """Which part of K this CTA takes, of `cfg.split_k` above 1. CTAs of `cluster` × `cluster_n`
    tiles that take the same part are neighbours in the cluster.
    """
    tiles = cfg.cluster * cfg.cluster_n
    return ctx.cta_rank if tiles == 1 else ctx.cta_rank // tiles


def part_of_k(
    ctx: tp.Context, cfg: OutputTiling, steps: tp.Value, least: int = 0
) -> tuple[tp.Value | int, tp.Value]:
    """(first step, number of steps) of K that this CTA takes, of `steps` in all.

    Args:
        least: steps that every CTA takes. 1: where there are fewer steps than CTAs, one without any
            takes a step beyond the end of K, where loads give zeros.
    """
    if cfg.split_k == 1:
        return 0, steps
    return share_of_k(ctx, cfg.split_k, part_rank(ctx, cfg), steps, least)


def share_of_k(
    ctx: tp.Context, parts: int, part: tp.Value, steps: tp.Value, least: int = 0
) -> tuple[tp.Value, tp.Value]:
    """(first step, number of steps) of a part of K, of `steps` that are divided among `parts`.
    `least`: as of `part_of_k`.
    """
    share = ctx.ceil_div(steps, parts)
    first = ctx.let(ctx.min(part * share, steps), "first_step")
    own = ctx.min(steps - first, share)
    return first, ctx.let(ctx.max(own, least) if least else own, "steps")


class SplitKExchange:
    """What the exchanges of both architectures have in common: the tiles in which sums arrive, and
    the barriers that say that they are there, and that they have been read.

    Made in set-up code; the other members are called in the role that holds the sums, or loads
    them.
    """

    def __init__(
        self,
        ctx: tp.Context,
        cfg: OutputTiling,
        blocks: int,
        *,
        own: bool,
        swizzle: Literal[32] | None = None,
    ) -> None:
        """`blocks`: of one CTA's sums, each divided among all CTAs. `own`: what a CTA owns of its
        own sums goes through shared memory, too. `swizzle`: of the tiles in which sums arrive.
        """
        self._ctx, self._cfg, self._own = ctx, cfg, own
        self._share = cfg.block_cols // cfg.split_k  # columns of a block that one CTA owns
        self._parts = ctx.smem(
            (cfg.block_rows, self._share),
            tp.float32,
            count=cfg.split_k * blocks,
            swizzle=swizzle,
            name="parts",
        )
        senders = (cfg.split_k if own else cfg.split_k - 1) * cfg.consumers  # warpgroups
        self._sums = tp.ProducerConsumerPipeline.allocate(
            ctx, 1, producer_arrivals=senders, consumer_arrivals=senders, name="sums"
        )

    def drain(self) -> None:
        """After the last tile: waits until every owner has read what this CTA sent; none arrives on
        its barriers any more.
        """
        self._sums.drain_producer()

    def _cta(self, part: int) -> tp.Value | int:
        """The rank of the CTA that takes a part of the same tile."""
        tiles = self._cfg.cluster * self._cfg.cluster_n
        return part if tiles == 1 else self._ctx.cta_rank % tiles + part * tiles

    def _sent(self) -> None:
        """Tells every owner that this warpgroup has stored its sums."""
        self._arrive(self._sums.producer_mbar(0))
        self._sums.producer_step()

    def _read(self) -> None:
        """Tells every sender that this warpgroup has read its sums."""
        self._arrive(self._sums.consumer_mbar(0))
        self._sums.consumer_step()

    def _arrive(self, barrier: tp.MbarPtr) -> None:
        """One arrival in every CTA, of its own where it sends to itself, for what all threads of
        the warpgroup have done.
        """
        ctx = self._ctx
        ctx.sync_warpgroup()
        for part in range(self._cfg.split_k):
            other = nullcontext() if self._own else ctx.when(ctx.cta_rank != self._cta(part))
            with other, ctx.elect_one("warpgroup"):
                barrier.arrive_cluster(self._cta(part))


class RegisterExchange(SplitKExchange):
    """On Hopper, where sums are in the registers of the MMA warpgroups: what a CTA owns of its own
    stays there.
    """

    def __init__(self, ctx: tp.Context, cfg: Sm90Tiling) -> None:
        blocks = cfg.bm // cfg.block_rows * (cfg.bn // cfg.block_cols)  # of all warpgroups
        # Panels of 32 bytes, eight columns: a warp, whose lanes hold two columns of eight rows,
        # then stores 256 consecutive bytes to a peer at a time, not eight times 32.
        super().__init__(ctx, cfg, blocks, own=False, swizzle=32)

    def add_up(self, blocks: Sequence[Sequence[tp.Fragment]]) -> None:
        """Sends each peer its columns of this CTA's sums, and adds to this CTA's columns those of
        its peers, in the order of their ranks. The totals are the first columns of each block.
        """
        ctx, cfg, sums = self._ctx, self._cfg, self._sums
        flat = [acc for row in blocks for acc in row]
        sums.wait_consumer()
        for peer in range(cfg.split_k):
            with ctx.when(ctx.cta_rank != peer):
                for i, acc in enumerate(flat):
                    ctx.store(
                        self._part(ctx.cta_rank, i, len(flat)).on(peer),
                        acc.cols(peer * self._share, self._share),
                    )
        self._sent()
        sums.wait_producer()
        for owner in range(cfg.split_k):
            with ctx.when(ctx.cta_rank == owner):
                for i, acc in enumerate(flat):
                    total = ctx.fragment(shape=(cfg.block_rows, self._share))
                    for rank in range(cfg.split_k):
                        self._add(
                            total,
                            rank,
                            rank == owner,
                            acc.cols(owner * self._share, self._share),
                            self._part(rank, i, len(flat)),
                        )
                    acc.set(total, col=0)  # whichever CTA the owner is
        self._read()

    def _add(
        self, total: tp.Fragment, rank: int, own: bool, mine: tp.FragmentValue, part: tp.SmemTile
    ) -> None:
        if own:
            total.set(mine if rank == 0 else total + mine)
        elif rank == 0:
            total.load(part)
        else:
            theirs = self._ctx.fragment(shape=(self._cfg.block_rows, self._share))
            theirs.load(part)
            total += theirs

    def _part(self, rank: tp.Value | int, block: int, blocks: int) -> tp.SmemTile:
        """Where the sums of CTA `rank` for a block of this warpgroup arrive."""
        per_group = self._cfg.split_k * blocks
        return self._parts[self._ctx.warpgroup_rank * per_group + rank * blocks + block]


class TmemExchange(SplitKExchange):
    """On Blackwell, where sums are in tensor memory: the epilogue stores all of them to their
    owners, and the accumulator is free for the next tile before any peer has answered. It adds up
    the parts slice by slice, as it stores the tile.
    """

    def __init__(self, ctx: tp.Context, cfg: Sm100Tiling) -> None:
        super().__init__(ctx, cfg, 1, own=True)

    def send(self, sums: Sums) -> None:
        """Sends each owner its columns of this CTA's sums."""
        share, width = self._share, gcd(self._share, SLICE)
        part = self._parts[part_rank(self._ctx, self._cfg)]
        self._sums.wait_consumer()
        for owner in range(self._cfg.split_k):
            tile = part.on(self._cta(owner))
            for col in range(0, share, width):
                self._ctx.store(tile.cols(col, width), sums.cols(owner * share + col, width))
        self._sent()

    def receive(self) -> Sums:
        """Waits for the sums of all parts; their totals, of the columns that this CTA owns."""
        self._sums.wait_producer()
        return self

    def cols(self, start: int, count: int) -> tp.Fragment:
        """Columns [start, start + count) of all parts, added up in the order of the parts."""
        total = self._load(0, start, count)
        for part in range(1, self._cfg.split_k):
            total += self._load(part, start, count)
        if start + count == self._share:
            self._read()
        return total

    def _load(self, part: int, start: int, count: int) -> tp.Fragment:
        loaded = self._ctx.fragment(shape=(self._cfg.block_rows, count), layout="tmem")
        loaded.load(self._parts[part].cols(start, count))
        return loaded
