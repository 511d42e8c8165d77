"""Rung 1: two warps and one barrier.

    out[i] = 2 · a[i], 32 numbers: one warp writes them to shared memory, another reads them and
    stores them.

New: roles, shared memory, an mbarrier. `ready` counts 32 arrivals, one by each lane of the writer;
the reader's wait(0) returns once phase 0 is complete, and orders the writer's stores before the
reader's loads.

Still missing: the barrier is used once. A second piece of data would overwrite the first, and
the writer cannot know when it may.
"""

from __future__ import annotations

import numpy as np

import tilepipe as tp


@tp.kernel(grid=1)
def two_warps(ctx: tp.Context, a: tp.GlobalTensor, out: tp.GlobalTensor) -> None:
    """out = 2 · a"""
    cells = ctx.smem((1, 32), tp.float32, swizzle=0, name="cells")[0]
    ready = tp.SharedMemBarrier.allocate(ctx, count=32, name="ready")

    @ctx.role("write", warps=1)
    def write() -> None:
        ctx.store(cells[0, ctx.lane], 2.0 * ctx.load(a[ctx.lane]))
        ready.arrive()

    @ctx.role("read", warps=1)
    def read() -> None:
        ready.wait(0)
        ctx.store(out[31 - ctx.lane], ctx.load(cells[0, 31 - ctx.lane]))  # what another lane wrote


def main(seed: int = 0) -> tp.Program:
    """Runs the kernel on the simulated GPU, verifies it and returns the program."""
    a = np.arange(32, dtype=np.float32)
    out = np.zeros_like(a)
    program = two_warps.bind(a, out)
    run = program.run(seed=seed)
    assert np.array_equal(out, 2 * a), out
    print(
        "32 numbers through shared memory: right. 'ready' completed"
        f" {run.completions['ready'][0][0]} phase."
    )
    return program


if __name__ == "__main__":
    main()
