"""Rung 2: a ring of stages.

    out[lane] = Σ_i a[i, lane]: one warp copies rows into a ring of 3 slots, another adds them up.

New: ProducerConsumerPipeline. Each stage has two barriers, full and empty, so the producer may run
up to 3 rows ahead and never overwrites a row that is still to be read. Stage and phase are kept by
the pipeline: 10 rows are 3 laps and a bit. The arrival counts (32 and 32) are derived from the
code.

Still slow: every row goes through the registers of the producer. The copy engine (TMA) is on the
next rung.
"""

from __future__ import annotations

import numpy as np

import tilepipe as tp

STAGES = 3


@tp.kernel(grid=1)
def column_sums(ctx: tp.Context, a: tp.GlobalTensor, out: tp.GlobalTensor) -> None:
    """out[j] = Σ_i a[i, j], 32 columns."""
    ring = tp.ProducerConsumerPipeline.allocate(ctx, STAGES, name="rows")
    slots = ctx.smem((1, 32), tp.float32, count=STAGES, swizzle=0, name="slots")

    @ctx.role("copy", warps=1)
    def copy() -> None:
        for i in ctx.range(a.shape[0]):
            with ring.produce() as stage:  # waits until the slot is empty
                ctx.store(slots[stage.index()][0, ctx.lane], ctx.load(a[i, ctx.lane]))
                stage.mbar().arrive()  # full[stage]: 32 lanes, 32 arrivals

    @ctx.role("add", warps=1)
    def add() -> None:
        total = ctx.var(ctx.lane * 0.0)  # one sum for each lane
        for _ in ctx.range(a.shape[0]):
            # waits until the slot is full; leaving it arrives on empty[stage]
            with ring.consume() as stage:
                total += ctx.load(slots[stage.index()][0, 31 - ctx.lane])
        ctx.store(out[31 - ctx.lane], total.get())


def main(seed: int = 0) -> tp.Program:
    """Runs the kernel on the simulated GPU, verifies it and returns the program."""
    a = np.random.default_rng(seed).integers(-9, 9, (10, 32)).astype(np.float32)
    out = np.zeros(32, np.float32)
    program = column_sums.bind(a, out)
    run = program.run(seed=seed)
    assert np.array_equal(out, a.astype(np.float64).sum(axis=0)), out
    print(
        f"10 rows through {STAGES} slots: right. Phases of rows.full, one number a stage:"
        f" {run.completions['rows.full'][0]}."
    )
    return program


if __name__ == "__main__":
    main()
