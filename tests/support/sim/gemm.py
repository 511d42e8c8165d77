"""A warp-specialised, persistent GEMM in hand-built IR: C[m, n] = A[m, k] · B[n, k]ᵀ."""

from __future__ import annotations

from tests.support.build import GROUP, Builder, binary, special
from tilepipe.ir import dtypes, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import const


def gemm(
    bm: int = 128,
    bn: int = 128,
    bk: int = 64,
    stages: int = 4,
    groups: int = 1,
    lag: int = 1,
    dtype: DType = dtypes.bfloat16,
    out: DType = dtypes.bfloat16,
    release_early: bool = False,
    fence: bool = True,
) -> Builder:
    b = Builder()
    rows = bm // groups
    at, bt = b.tensor("a", dtype, box=(bm, bk)), b.tensor("b", dtype, box=(bn, bk))
    ct = b.tensor("c", out, box=(16, bn))
    tiles, per_row, steps = b.scalar("tiles"), b.scalar("per_row"), b.scalar("steps")
    a_tiles, b_tiles = (
        b.smem("a_tiles", bm, bk, stages, dtype, 128),
        b.smem("b_tiles", bn, bk, stages, dtype, 128),
    )
    c_tile = b.smem("c_tile", bm, bn, 1, out)
    full, empty = b.barriers("inputs.full", stages, 1), b.barriers("inputs.empty", stages, groups)
    b.setup_done()
    start, stride = special("block_id"), special("num_clusters")

    with b.role("load", warps=1):
        cursor = b.cursor(stages, -1)
        with b.loop(tiles, start, stride) as tile:
            m0 = b.let(binary("mul", binary("floordiv", tile, per_row), bm))
            n0 = b.let(binary("mul", binary("mod", tile, per_row), bn))
            with b.loop(steps) as k:
                stage, phase = b.at(cursor)
                b.wait(b.bar(empty, stage), phase)
                with b.elect("warp"):
                    b.expect(b.bar(full, stage), (bm + bn) * bk * dtype.nbytes)
                    k0 = binary("mul", k, bk)
                    b.load_tile(at, (m0, k0), b.tile(a_tiles, stage), b.bar(full, stage))
                    b.load_tile(bt, (n0, k0), b.tile(b_tiles, stage), b.bar(full, stage))
                b.step(cursor)
        with b.loop(stages):
            stage, phase = b.at(cursor)
            b.wait(b.bar(empty, stage), phase)
            b.step(cursor)

    with b.role("mma", warpgroups=groups):
        cursor = b.cursor(stages, 0)
        acc = b.fragment("acc", rows, bn)
        row0 = binary("mul", GROUP, rows)
        with b.loop(tiles, start, stride) as tile:
            m0 = b.let(binary("mul", binary("floordiv", tile, per_row), bm))
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
                if release_early:
                    with b.elect("warpgroup"):
                        b.arrive(b.bar(empty, stage))
                else:
                    b.do(ops.WgmmaWait, lag)
                    if lag:
                        ready = b.read(has)
                        with b.when(binary("eq", ready, 1)):
                            before = b.read(held)
                            with b.elect("warpgroup"):
                                b.arrive(b.bar(empty, before))
                        b.do(ops.Assign, held, stage)
                        b.do(ops.Assign, has, const(1))
                    else:
                        with b.elect("warpgroup"):
                            b.arrive(b.bar(empty, stage))
                b.step(cursor)
            b.do(ops.WgmmaWait, 0)
            if lag and not release_early:
                before = b.read(held)
                with b.elect("warpgroup"):
                    b.arrive(b.bar(empty, before))
            with b.per_warp() as w:
                share = rows // 4  # each warp's rows of the accumulator, stored together
                r = binary("add", row0, binary("mul", w, share))
                with b.elect("warp"):
                    b.do(ops.TmaStoreWait, 0, True)
                b.do(ops.SyncWarp)
                b.do(ops.FragmentStore, b.tile(c_tile, 0, r, 0, share, bn), b.value(acc))
                if fence:
                    b.do(ops.FenceProxyAsync)
                b.do(ops.SyncWarp)
                with b.elect("warp"):
                    for i in range(rows // 64):
                        part = b.tile(c_tile, 0, binary("add", r, 16 * i), 0, 16, bn)
                        m = binary(
                            "add",
                            binary("add", m0, row0),
                            binary("add", binary("mul", w, 16), 64 * i),
                        )
                        b.store_tile(ct, (m, n0), part)
                    b.do(ops.TmaStoreCommit)
        with b.elect("warp"):
            b.do(ops.TmaStoreWait, 0, False)
    return b
