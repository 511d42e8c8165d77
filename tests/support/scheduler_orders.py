"""One kernel for every scheduler, which counts who is given what: for the simulator, for NVRTC, and
for a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp

Array = npt.NDArray[np.int32]
Scheduler = tp.StaticScheduler | tp.ClcScheduler | tp.AtomicScheduler


def scheduler(
    kind: str, ctx: tp.Context, counter: Any, tiles: tuple[object, ...], **options: Any
) -> Scheduler:
    """The scheduler of a kind, behind one interface."""
    if kind == "static":
        return tp.StaticScheduler(
            ctx, tiles, **{name: x for name, x in options.items() if name != "stages"}
        )
    return (
        tp.ClcScheduler(ctx, tiles, **options)
        if kind == "clc"
        else tp.AtomicScheduler(ctx, counter, tiles, **options)
    )


@tp.kernel(grid=lambda clusters, size: clusters * size, cluster=lambda size: size)
def dealt(
    ctx: tp.Context,
    visits: Any,
    taken: Any,
    counter: Any,
    batches: Any,
    m: Any,
    n: Any,
    *,
    kind: str,
    clusters: int,
    size: int,
    shape: tuple[int, int] | None,
    raster: str,
    group: int,
    stages: int,
    warpgroups: int,
    room: int,
) -> None:
    """visits[batch, m, n, r] += 1 by each agent of role r; taken[cluster] += 1 for each step that a
    cluster is given.

    `room`: KB of shared memory that nobody uses, so that fewer CTAs are resident.
    """
    if room:
        ctx.smem((room, 256), "float32", name="room")
    work = scheduler(
        kind,
        ctx,
        counter,
        (batches, m, n),
        cluster=shape,
        raster=raster,
        group=group,
        stages=stages,
    )
    if work.needs_role:

        @ctx.role("schedule", warps=1)
        def schedule() -> None:
            work.schedule()

    @ctx.role("load", warps=1)
    def load() -> None:
        for tile in work:
            work.throttle_signal()
            with ctx.elect_one():
                ctx.atomic_add(visits[tile.batch, tile.m, tile.n, 0], 1)
                with ctx.when(ctx.cta_rank == 0):
                    ctx.atomic_add(taken[ctx.cluster_id], 1)

    @ctx.role("use", warpgroups=warpgroups)
    def use() -> None:
        for tile in work:
            with ctx.elect_one("warpgroup"):
                ctx.atomic_add(visits[tile.batch, tile.m, tile.n, 1], 1)


@dataclass
class Dealt:
    """The kernel for one problem, and what it must leave behind.

    Attributes:
        steps: of the order, each of `shape` tiles. clusters: of the grid; of cluster launch
            control, one for each step.
    """

    kind: str
    batches: int
    m: int
    n: int
    clusters: int
    size: int = 1
    shape: tuple[int, int] | None = None
    raster: str = "grouped"
    group: int = 2
    stages: int = 2
    warpgroups: int = 1
    room: int = 0
    chip: tp.Chip = tp.H200
    steps: int = field(init=False)

    def __post_init__(self) -> None:
        x, y = self.shape or (self.size, 1)
        rows, cols = -(-self.m // x), -(-self.n // y)
        self.steps = self.batches * rows * cols
        if self.kind == "clc":
            self.clusters = max(self.steps, 1)
        self.visits = np.zeros((self.batches, max(rows * x, 1), max(cols * y, 1), 2), np.int32)
        self.taken = np.zeros(self.clusters, np.int32)
        self.counter = np.zeros(1, np.int32)
        each = np.array([1, self.warpgroups], np.int32) * (
            self.size // (x * y) if self.steps else 0
        )
        self.want = np.broadcast_to(each, self.visits.shape)

    def bind(self) -> tp.Program:
        """The program on the arrays."""
        return dealt.bind(
            self.visits,
            self.taken,
            self.counter,
            self.batches,
            self.m,
            self.n,
            kind=self.kind,
            clusters=self.clusters,
            size=self.size,
            shape=self.shape,
            raster=self.raster,
            group=self.group,
            stages=self.stages,
            warpgroups=self.warpgroups,
            room=self.room,
            chip=self.chip,
        )

    def check(self) -> None:
        """Every tile exactly once in every role, edges included; all steps taken; the counter back
        at 0. Clears the arrays.
        """
        np.testing.assert_array_equal(self.visits, self.want)
        assert int(self.taken.sum()) == self.steps
        assert self.counter[0] == 0
        self.visits[...] = 0
        self.taken[...] = 0
