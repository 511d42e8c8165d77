"""A warp-specialised, persistent GEMM in hand-built IR: C[m, n] = A[m, k] · B[n, k]ᵀ, as the
library would trace it.
"""

from __future__ import annotations

from tests.support.build import GROUP, RANK, Builder, binary, special
from tilepipe.ir import dtypes, expressions as exprs, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import const
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.memory import SmemBuffer, TensorParam
from tilepipe.ir.program import Kernel

STAGES = 4


def gemm(
    bm: int = 128,
    bn: int = 256,
    bk: int = 64,
    groups: int = 2,
    cluster: int = 1,
    a_order: str = "row",
    b_order: str = "row",
    dtype: DType = dtypes.bfloat16,
    out: DType = dtypes.bfloat16,
    out_cols: int = 64,
    stages: int = STAGES,
) -> Kernel:
    """`out_cols`: columns of one store of the epilogue. With a cluster, its CTAs share B: each
    loads a part.
    """
    b = Builder(cluster, "gemm")
    rows, share = bm // groups, bn // cluster
    at = b.tensor("a", dtype, box=(bm, bk), order=a_order, swizzle=128)
    bt = b.tensor("b", dtype, box=(share, bk), order=b_order, swizzle=128)
    swizzle = 128 if out_cols * out.nbytes >= 128 else 0
    ct = b.tensor("c", out, box=(16, out_cols), swizzle=swizzle)
    a_tiles = b.smem("a_tiles", bm, bk, stages, dtype, 128, a_order)
    b_tiles = b.smem("b_tiles", bn, bk, stages, dtype, 128, b_order)
    c_tiles = b.smem("c_tiles", 16, out_cols, 4 * groups, out, swizzle)
    full, empty = (
        b.barriers("inputs.full", stages, 1),
        b.barriers("inputs.empty", stages, groups * cluster),
    )
    b.setup_done()
    start, stride = special("cluster_id"), special("num_clusters")
    per_row = binary("floordiv", binary("add", b.shape(ct, 1), bn - 1), bn)
    per_column = binary("floordiv", binary("add", b.shape(ct, 0), bm * cluster - 1), bm * cluster)
    tiles = binary("mul", per_row, per_column)
    steps = binary("floordiv", binary("add", b.shape(at, 1), bk - 1), bk)

    with b.role("load", warps=1, registers=40):
        cursor = b.cursor(stages, -1)
        with b.loop(tiles, start, stride) as tile:
            m0 = b.let(
                binary(
                    "mul",
                    binary("add", binary("mul", binary("floordiv", tile, per_row), cluster), RANK),
                    bm,
                )
            )
            n0 = b.let(binary("mul", binary("mod", tile, per_row), bn))
            with b.loop(steps) as k:
                stage, phase = b.at(cursor)
                b.wait(b.bar(empty, stage), phase)
                with b.elect("warp"):
                    b.expect(b.bar(full, stage), (bm + bn) * bk * dtype.nbytes)
                    k0 = binary("mul", k, bk)
                    b.load_tile(at, (m0, k0), b.tile(a_tiles, stage), b.bar(full, stage))
                    part = binary("mul", RANK, share) if cluster > 1 else const(0)
                    mask = (1 << cluster) - 1 if cluster > 1 else None
                    b_part = b.tile(b_tiles, stage, part, 0, share, bk)
                    b.load_tile(bt, (binary("add", n0, part), k0), b_part, b.bar(full, stage), mask)
                b.step(cursor)
        with b.loop(stages):
            stage, phase = b.at(cursor)
            b.wait(b.bar(empty, stage), phase)
            b.step(cursor)

    def release(stage: exprs.Expr) -> None:
        with b.elect("warpgroup"):
            if cluster == 1:
                b.arrive(b.bar(empty, stage))
            for cta in range(cluster if cluster > 1 else 0):
                b.arrive(b.bar(empty, stage, cta), sem="relaxed")

    with b.role("mma", warpgroups=groups, registers=232 if groups == 2 else 240):
        cursor = b.cursor(stages, 0)
        acc = b.fragment("acc", rows, bn)
        row0 = binary("mul", GROUP, rows)
        with b.loop(tiles, start, stride) as tile:
            m0 = b.let(
                binary(
                    "mul",
                    binary("add", binary("mul", binary("floordiv", tile, per_row), cluster), RANK),
                    bm,
                )
            )
            n0 = b.let(binary("mul", binary("mod", tile, per_row), bn))
            b.do(ops.FragmentSet, acc, const(0.0))
            held, has = b.var(0), b.var(0)
            with b.loop(steps):
                stage, phase = b.at(cursor)
                b.wait(b.bar(full, stage), phase)
                b.do(ops.WgmmaFence)
                b.do(
                    ops.Wgmma,
                    acc,
                    b.tile(a_tiles, stage, row0, 0, rows, bk),
                    b.tile(b_tiles, stage),
                )
                b.do(ops.WgmmaCommit)
                b.do(ops.WgmmaWait, 1)
                ready = b.read(has)
                with b.when(binary("eq", ready, 1)):
                    release(b.read(held))
                b.do(ops.Assign, held, stage)
                b.do(ops.Assign, has, const(1))
                b.step(cursor)
            b.do(ops.WgmmaWait, 0)
            release(b.read(held))
            _epilogue(b, acc, ct, c_tiles, out_cols, rows, m0, n0)
        with b.per_warp(), b.elect("warp"):
            b.do(ops.TmaStoreWait, 0, False)
    return b.finished()


def _epilogue(
    b: Builder,
    acc: Fragment,
    ct: TensorParam,
    c_tiles: SmemBuffer,
    out_cols: int,
    rows: int,
    m0: exprs.Expr,
    n0: exprs.Expr,
) -> None:
    """Each warp stores its rows, `out_cols` columns at a time, through a tile of its own."""
    with b.per_warp() as w:
        mine = b.tile(c_tiles, binary("add", binary("mul", GROUP, 4), w))
        for block in range(rows // 64):
            for col in range(0, acc.cols, out_cols):
                with b.elect("warp"):
                    b.do(ops.TmaStoreWait, 0, True)
                b.do(ops.SyncWarp)
                assert rows == 64, "a view of 64 rows of a larger fragment is not in the IR"
                b.do(ops.FragmentStore, mine, b.value(acc, col, out_cols))
                b.do(ops.FenceProxyAsync)
                b.do(ops.SyncWarp)
                with b.elect("warp"):
                    row = binary(
                        "add",
                        binary("mul", GROUP, rows),
                        binary("add", binary("mul", w, 16), 64 * block),
                    )
                    b.store_tile(ct, (binary("add", m0, row), binary("add", n0, col)), mine)
                    b.do(ops.TmaStoreCommit)
