"""A file with a kernel, what makes programs of it, and what they are compared with."""

OWN = '''import numpy as np

import tilepipe as tp


@tp.kernel(grid=2)
def scaled(ctx, a, out, factor):
    """out = factor · a, for a (rows, 32)"""

    @ctx.role("all", warps=1)
    def work():
        for i in ctx.range(ctx.block_id, a.shape[0], 2):
            ctx.store(out[i, ctx.lane], factor * ctx.load(a[i, ctx.lane]))


@tp.kernel(grid=1)
def summed(ctx, a, out):
    """out += a, for a (rows, 32)"""

    @ctx.role("all", warps=1)
    def work():
        for i in ctx.range(a.shape[0]):
            ctx.store(out[i, ctx.lane], ctx.load(out[i, ctx.lane]) + ctx.load(a[i, ctx.lane]))


@tp.kernel(grid=1)
def advised(ctx, a, out):
    """Prints a line; gives TMA a barrier that it initialised in a role, without a fence."""
    tile = ctx.smem((8, 32), a.dtype, name="tile")[0]
    bar = tp.SMemArray(ctx, tp.SharedMemBarrier, 1, "bar")[0]

    @ctx.role("load", warps=1)
    def load():
        with ctx.elect_one():
            ctx.print("row {}", ctx.block_id)
            bar.init(1)
            bar.expect_bytes(tile.nbytes)
            ctx.tma_load(a, (0, 0), tile, bar)
            bar.wait(0)


def program(rows: int = 5, factor: float = 2.0):
    a = np.arange(rows * 32, dtype=np.float32).reshape(rows, 32)
    return scaled.bind(a, np.zeros_like(a), factor)


def several():
    return [program(2), program(3, factor=0.5)]


def of_ptx():
    return program().ptx()


def tripled():
    return program(factor=3.0)


def others():
    return [program(2), program(3)]


def longer():
    return program(7)


def adds(rows: int = 3):
    a = np.ones((rows, 32), np.float32)
    return summed.bind(a, np.full_like(a, 5))


def to_advise():
    a = np.ones((8, 32), np.float32)
    return advised.bind(tp.tensor_map(a, box=(8, 32)), np.zeros_like(a))


def right(a, factor):
    return factor * a


def by_name(a, out):
    return {"out": 2 * a}


def in_place(a, out):
    out[...] = 2 * a


def wrong(a):
    b = 2 * a
    b[3, 7] += 1000
    return b


def added(a, out):
    return out + a


def narrow(a):
    return a[:, :4]


def misnamed(a):
    return {"result": a}


def fails(a):
    raise ValueError("planted")


def nothing_new(factor):
    return None
'''
