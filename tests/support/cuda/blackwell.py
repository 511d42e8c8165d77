"""Kernels for Blackwell, built by hand: a GEMM of one CTA or of a pair, and one that has every op
on tensor memory.
"""

from __future__ import annotations

from tests.support.build import RANK, Builder, binary
from tilepipe.ir import dtypes, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Cast, Expr, const
from tilepipe.ir.memory import Tmem
from tilepipe.ir.program import Kernel

# threads of the warpgroup that reads the accumulator, and of the warp that allocates
EPILOGUE = 160


def gemm(
    cta_group: int = 1,
    m: int = 128,
    n: int = 256,
    dtype: DType = dtypes.bfloat16,
    registers: int | None = None,
) -> Kernel:
    """C (m, n) = A · Bᵀ for each CTA, in stages of 128 bytes of K; a warp loads, one multiplies, a
    warpgroup stores.
    """
    k, width, stages = 128 // dtype.nbytes, 32, 4
    b = Builder(cluster=cta_group, name="gemm")
    b.kernel.cta_group = cta_group
    rows = n // cta_group  # of B in each CTA
    a_map, b_map = (
        b.tensor("a", dtype, box=(m, k), swizzle=128),
        b.tensor("b", dtype, box=(rows, k), swizzle=128),
    )
    c_map = b.tensor("c", dtypes.float32, box=(m, width), swizzle=128)
    a_tiles, b_tiles = (
        b.smem("a_tiles", m, k, stages, dtype, 128),
        b.smem("b_tiles", rows, k, stages, dtype, 128),
    )
    out, word = (
        b.smem("out", m, width, 1, dtypes.float32, 128),
        b.smem("word", 1, 1, 1, dtypes.uint32),
    )
    full, empty, done = b.barriers("full", stages), b.barriers("empty", stages), b.barriers("done")
    # the odd CTA of a pair has its columns: before that, the even one must not free its own
    allocated = b.barriers("allocated")
    ready, over = b.named("ready", EPILOGUE), b.named("over", EPILOGUE)
    steps = b.scalar("steps")
    b.setup_done()
    pair = cta_group == 2
    leader, both = (binary("and", RANK, -2), const(0b11)) if pair else (None, None)
    with b.role("load", warps=1, registers=registers):
        ring = b.cursor(stages, -1)
        with b.loop(steps) as i:
            stage, phase = b.at(ring)
            b.wait(b.bar(empty, stage), phase)
            with b.elect():
                if pair:
                    with b.when(binary("eq", binary("and", RANK, 1), 0)):
                        b.expect(b.bar(full, stage), 2 * (m + rows) * 128)
                else:
                    b.expect(b.bar(full, stage), (m + rows) * 128)
                at = b.bar(full, stage, leader)
                b.load_tile(
                    a_map, (binary("mul", RANK, m), binary("mul", i, k)), b.tile(a_tiles, stage), at
                )
                b.load_tile(
                    b_map,
                    (binary("mul", RANK, rows), binary("mul", i, k)),
                    b.tile(b_tiles, stage),
                    at,
                )
            b.step(ring)
        # until the last commit has arrived, which in a pair the other CTA's MMAs may make
        with b.loop(stages):
            stage, phase = b.at(ring)
            b.wait(b.bar(empty, stage), phase)
            b.step(ring)
    with b.role("mma", warps=1, registers=registers):
        b.do(ops.TmemAlloc, b.tile(word), 512, cta_group)
        b.do(ops.TmemRelinquish, cta_group)
        b.do(ops.SyncWarp)
        address = b.load(b.element(b.tile(word), 0, 0))
        b.do(ops.NamedArrive, ready)
        with b.when(binary("eq", binary("and", RANK, 1), 0)):
            ring = b.cursor(stages)
            with b.loop(steps) as i:
                stage, phase = b.at(ring)
                b.wait(b.bar(full, stage), phase)
                b.do(ops.Tcgen05FenceAfter)
                with b.elect():
                    acc = Tmem(address, m, n, dtypes.float32)
                    b.do(
                        ops.Tcgen05Mma,
                        acc,
                        b.tile(a_tiles, stage),
                        b.tile(b_tiles, stage),
                        binary("gt", i, 0),
                        cta_group,
                    )
                    b.do(ops.Tcgen05Commit, b.bar(empty, stage), cta_group, both)
                b.step(ring)
            with b.elect():
                b.do(ops.Tcgen05Commit, b.bar(done), cta_group, both)
        b.do(ops.NamedSync, over)
        if pair:
            with b.when(binary("eq", binary("and", RANK, 1), 1)) as odd, b.elect():
                b.arrive(b.bar(allocated, 0, leader))
            with b.into(odd.orelse):
                b.wait(b.bar(allocated), 0)
        b.do(ops.TmemDealloc, address, 512, cta_group)
    with b.role("epilogue", warpgroups=1, registers=registers):
        b.do(ops.NamedSync, ready)
        address = b.load(b.element(b.tile(word), 0, 0))
        b.wait(b.bar(done), 0)
        b.do(ops.Tcgen05FenceAfter)
        with b.loop(n // width) as j:
            part = b.fragment("part", m, width, layout="tmem" if m == 128 else "wgmma")
            b.do(
                ops.TmemLoad,
                part,
                Tmem(binary("add", address, binary("mul", j, width)), m, width, dtypes.float32),
            )
            b.do(ops.TmemWaitLoad)
            with b.elect("warpgroup"):
                b.do(ops.TmaStoreWait, 0, True)
            b.do(ops.NamedSync, group := b.named(f"group{len(b.kernel.named_barriers)}", 128))
            b.do(ops.FragmentStore, b.tile(out), b.value(part))
            b.do(ops.FenceProxyAsync)
            b.do(ops.NamedSync, group)
            with b.elect("warpgroup"):
                b.store_tile(c_map, (binary("mul", RANK, m), binary("mul", j, width)), b.tile(out))
                b.do(ops.TmaStoreCommit)
        b.do(ops.Tcgen05FenceBefore)
        b.do(ops.NamedArrive, over)
        with b.elect("warpgroup"):
            b.do(ops.TmaStoreWait, 0, False)
    return b.finished()


def tensor_memory(cta_group: int = 1) -> Kernel:
    """Every op on tensor memory, in several shapes and types."""
    b = Builder(cluster=2, name="tensor_memory")
    b.kernel.cta_group = cta_group
    bf16, f32 = dtypes.bfloat16, dtypes.float32
    tiles = {
        t: b.smem(f"tile_{t.name}", 128, 128 // t.nbytes, 1, t, 128)
        for t in (bf16, f32, dtypes.float8_e4m3)
    }
    tall = b.smem("tall", 128, 64, 1, bf16, 128, "col")
    scales, scales32 = (
        b.smem("scales", 128, 16, 1, dtypes.uint8),
        b.smem("scales32", 32, 16, 1, dtypes.uint8),
    )
    word, bar, flag = b.smem("word", 1, 1, 1, dtypes.uint32), b.barriers("bar"), b.scalar("flag")
    b.setup_done()
    with b.role("one", warps=1):
        b.do(ops.TmemAlloc, b.tile(word), 512, cta_group)
        b.do(ops.TmemRelinquish, cta_group)
        x = b.load(b.element(b.tile(word), 0, 0))
        with b.elect():
            acc = Tmem(x, 128, 128 * cta_group, f32)
            for tile in tiles.values():
                b.do(ops.Tcgen05Mma, acc, b.tile(tile), b.tile(tile), const(False), cta_group)
            b.do(ops.Tcgen05Mma, acc, b.tile(tall), b.tile(tall), binary("ne", flag, 0), cta_group)
            if cta_group == 1:
                b.do(
                    ops.Tcgen05Mma,
                    acc,
                    Tmem(binary("add", x, 256), 128, 64, bf16),
                    b.tile(tall),
                    const(True),
                    1,
                )
            b.do(
                ops.TmemCopy,
                Tmem(binary("add", x, 384), 128, 16, dtypes.uint8),
                b.tile(scales),
                cta_group,
            )
            b.do(
                ops.TmemCopy,
                Tmem(binary("add", x, 388), 128, 16, dtypes.uint8),
                b.tile(scales32),
                cta_group,
            )
            b.do(ops.Tcgen05Commit, b.bar(bar), cta_group, None)
            b.do(ops.Tcgen05Commit, b.bar(bar, 0, binary("xor", RANK, 1)), cta_group, None)
            b.do(ops.Tcgen05Commit, b.bar(bar), cta_group, binary("shl", const(3), RANK))
        b.do(ops.TmemDealloc, x, 512, cta_group)
    with b.role("group", warpgroups=1):
        x = b.load(b.element(b.tile(word), 0, 0))
        wide, half = (
            b.fragment("wide", 128, 24, layout="tmem"),
            b.fragment("half", 128, 48, bf16, layout="tmem"),
        )
        low = b.fragment("low", 64, 8)
        b.do(ops.Tcgen05FenceAfter)
        for f in (wide, half, low):
            b.do(ops.TmemLoad, f, Tmem(x, f.rows, f.cols, f.dtype))
        b.do(ops.TmemWaitLoad)
        values: list[tuple[Expr, DType]] = [
            (b.value(wide), f32),
            (binary("add", b.value(wide), b.value(wide)), f32),
        ]
        values += [
            (b.value(half), bf16),
            (Cast(bf16, shape=(128, 24), a=b.value(wide)), bf16),
            (b.value(half, 16, 16), bf16),
        ]
        values += [(b.value(low), f32)]
        for value, dtype in values:
            rows, cols = value.shape
            b.do(ops.TmemStore, Tmem(binary("add", x, 64), rows, cols, dtype), value)
        b.do(ops.TmemWaitStore)
        b.do(ops.Tcgen05FenceBefore)
    return b.finished()


def tensor_memory_of_a_pair() -> Kernel:
    """The same with cta_group 2."""
    return tensor_memory(2)
