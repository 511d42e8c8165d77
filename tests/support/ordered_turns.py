"""Kernels in which groups of threads take turns: for the simulator, and for a GPU."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp

Array = npt.NDArray[np.int32]
PRIME = 9973
KINDS = {"one role": 128, "several roles": 128, "warps": 32}  # threads of a group


@tp.kernel()
def turns(
    ctx: tp.Context,
    ticks: Any,
    log: Any,
    sums: Any,
    *,
    groups: int,
    depth: int,
    rounds: int,
    kind: str,
    keeps: int = -1,
    slow: int = -1,
) -> None:
    """C5: `groups` groups take `rounds` turns at each of `depth` things.

    In its turn a group notes its number in log[thing], at the place that ticks[thing] counts, and
    every thread of it folds it into a sum of its own: nothing of this is atomic, and all of it
    depends on the order. `keeps`: a group that does not pass its last turn on.
    `slow`: a group that takes longer.
    """
    threads = KINDS[kind]
    order = tp.OrderedBarrier(ctx, groups, depth=depth, threads=threads, name="order")
    scope = "warp" if kind == "warps" else "warpgroup"

    def at_work(thing: int, group: Any) -> None:
        with ctx.elect_one(scope):
            tick = ctx.load(ticks[thing])
            ctx.store(log[thing, tick], group)
            ctx.store(ticks[thing], tick + 1)
        mine = ctx.thread % threads
        ctx.store(sums[thing, mine], (ctx.load(sums[thing, mine]) * 5 + group + 1) % PRIME)

    def take(group: Any) -> None:
        me = ctx.let(group, "me")
        for i in ctx.range(rounds):
            for thing in range(depth):
                order.wait(group)  # <turn>
                if slow >= 0:
                    with ctx.when(me == slow):
                        for _ in ctx.range(50):
                            ctx.syncwarp()
                at_work(thing, group)
                if keeps < 0:
                    order.pass_on(group)
                else:
                    with ctx.when((me != keeps) | (i < rounds - 1)):
                        order.pass_on(group)

    if kind == "one role":
        ctx.role("group", warpgroups=groups)(lambda: take(ctx.warpgroup_rank))
    elif kind == "warps":
        ctx.role("group", warps=groups)(lambda: take(ctx.warp))
    else:
        for g in range(groups):
            ctx.role(f"group{g}", warpgroups=1)(partial(take, g))


def bind_turns(
    groups: int, depth: int, rounds: int, kind: str = "one role", **static: Any
) -> tuple[tp.Program, Array, Array]:
    """A program, its log and sums."""
    log, sums = (
        np.full((depth, groups * rounds), -1, np.int32),
        np.zeros((depth, KINDS[kind]), np.int32),
    )
    program = turns.bind(
        np.zeros(depth, np.int32),
        log,
        sums,
        groups=groups,
        depth=depth,
        rounds=rounds,
        kind=kind,
        **static,
    )
    return program, log, sums


def expected_turns(
    groups: int, depth: int, rounds: int, kind: str = "one role"
) -> tuple[Array, Array]:
    """What the log and the sums must be: 0 .. groups - 1, again and again, at each thing."""
    order = [group for _ in range(rounds) for group in range(groups)]
    total = 0
    for group in order:
        total = (total * 5 + group + 1) % PRIME
    return np.array([order] * depth, np.int32), np.full((depth, KINDS[kind]), total, np.int32)


@tp.kernel()
def alternating(
    ctx: tp.Context,
    out: Any,
    tiles: Any,
    length: Any,
    *,
    stages: int,
    consumers: int,
    ordered: bool = True,
) -> None:
    """Consumers take whole tiles of `length` items of one ring in turn, each skipping the others'
    (`consumer_advance`): out[i] is the item's value and who took it. `ordered`: in their turn; else
    one may wait for a phase whose predecessor is still to complete.
    """
    ring = tp.ProducerConsumerPipeline.allocate(
        ctx, stages, producer_arrivals=1, consumer_arrivals=1, name="ring"
    )
    slots = tp.SMemArray(ctx, "int32", stages, name="slots")
    order = tp.OrderedBarrier(ctx, consumers, threads=32)

    @ctx.role("produce", warps=1)
    def produce() -> None:
        for i in ctx.range(tiles * length):
            with ring.produce() as stage, ctx.elect_one():
                ctx.store(slots[stage.index()], i * 3 + 1)
                stage.mbar().arrive()

    def take(tile: Any) -> None:
        for i in ctx.range(length):
            ring.wait_producer()  # <item>
            stage = ring.consumer_stage()
            with ctx.elect_one():
                at = tile * length + i
                ctx.store(out[at, 0], ctx.load(slots[stage]))
                ctx.store(out[at, 1], ctx.warp)
                ring.consumer_mbar(stage).arrive()
            ring.consumer_step()

    @ctx.role("consume", warps=consumers)
    def consume() -> None:
        ring.consumer_advance(ctx.warp * length)
        for tile in ctx.range(ctx.warp, tiles, consumers):
            with order.turn(ctx.warp) if ordered else nullcontext():
                take(tile)
            ring.consumer_advance((consumers - 1) * length)


def bind_alternating(
    tiles: int, length: int, stages: int, consumers: int, ordered: bool = True
) -> tuple[tp.Program, Array, Array]:
    """A program, what it writes, and what that must be."""
    out = np.full((max(tiles * length, 1), 2), -1, np.int32)
    want = out.copy()
    for i in range(tiles * length):
        want[i] = 3 * i + 1, i // length % consumers
    return (
        alternating.bind(out, tiles, length, stages=stages, consumers=consumers, ordered=ordered),
        out,
        want,
    )
