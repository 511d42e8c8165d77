"""Every op of the IR prints, and what is printed compiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from tests.cases.fragments import Case
from tests.cases.test_every_op import CASES
from tests.support.build import GROUP, LANE, RANK, Builder, binary, ex, special
from tests.support.cuda.blackwell import tensor_memory, tensor_memory_of_a_pair
from tests.support.cuda.grid_kernels import grid, launch_control
from tilepipe import cuda
from tilepipe.cuda.codegen.context import emit
from tilepipe.ir import dtypes, expressions as exprs, ops
from tilepipe.ir.expressions import Cast, Select, Unary, Vary, const
from tilepipe.ir.program import Kernel, all_ops


def values() -> Kernel:
    """Let, Define, Assign, Read, cursors, For, If, Elect, Print, Assert."""
    b = Builder()
    n = b.scalar("n")
    out = b.tensor("out", dtypes.int32)
    b.setup_done()
    with b.role("one", warps=2):
        ring, big = b.cursor(4, -1), b.cursor(3)
        v = b.var(0)
        with b.loop(n, 0, 2) as i:
            stage, phase = b.at(ring)
            b.step(ring)
            x = b.let(binary("add", binary("mul", stage, 3), Cast(dtypes.int32, a=phase)))
            b.do(
                ops.Assign,
                v,
                binary("add", b.read(v), binary("sub", x, binary("floordiv", i, const(-3)))),
            )
            b.step(big, n)
        s, _ = b.at(big)
        with b.when(binary("lt", LANE, 4)) as branch:
            b.store(b.element(out, s, LANE), b.read(v))
            b.do(ops.Print, "lane {} of 100%", (LANE,))
        with b.into(branch.orelse), b.elect():
            b.store(b.element(out, s, 7), ex(7))
        with b.elect("role"):
            b.do(
                ops.Print,
                "n is {}, half of it {}",
                (n, binary("div", Cast(dtypes.float32, a=n), const(2.0))),
            )
        b.do(ops.Print, "once a warp", ())
        b.do(ops.Assert, binary("ge", n, 1), 'n must be "positive" (100%)')
    return b.finished()


def barriers() -> Kernel:
    """mbarriers of this CTA and of a peer, named barriers, cluster barriers, fences."""
    b = Builder(cluster=2)
    bar, other = b.barriers("work.full", 2, 4), b.barriers("other", 1, None, init=False)
    group, pair = b.named("group", 128, per_warpgroup=2), b.named("pair", 256)
    with b.elect("role"):
        b.do(ops.MbarInit, b.bar(other), const(1))
        b.do(ops.FenceBarrierInit)
    b.setup_done()
    peer = binary("sub", 1, RANK)
    with b.role("groups", warpgroups=2):
        b.do(ops.NamedSync, group, GROUP)
        b.do(ops.NamedArrive, pair)
        b.do(ops.NamedSync, pair)
        b.do(ops.SyncWarp)
        with b.elect("warpgroup"):
            b.arrive(b.bar(bar, 1))
            b.arrive(b.bar(bar, 1), 2)
            b.arrive(b.bar(bar, 0, peer), sem="relaxed")
            b.arrive(b.bar(bar, 0, peer), 2, sem="relaxed")
            b.arrive(b.bar(other, 0, peer), sem="release")
            b.arrive(b.bar(other, 0, peer), 3, sem="release")
            b.expect(b.bar(bar), 128)
            b.expect(b.bar(bar, 0, peer), 128)
            b.expect(b.bar(bar), 64, arrive=False)
            b.expect(b.bar(bar, 0, peer), 64, arrive=False)
            b.do(ops.MbarCompleteTx, b.bar(bar), const(64))
            b.do(ops.MbarCompleteTx, b.bar(bar, 0, peer), const(64))
        b.wait(b.bar(bar), 0)
        b.wait(b.bar(other), binary("xor", const(1), GROUP))
        ready = b.local("ready", dtypes.boolean)
        b.do(ops.MbarTryWait, b.bar(bar, 1), b.phase(-1), ready)
        with b.when(Unary(dtypes.boolean, op="not", a=ready)):
            b.wait(b.bar(bar, 1), 1)
        b.do(ops.ClusterArrive)
        b.do(ops.ClusterWait)
        b.do(ops.FenceProxyAsync)
        b.do(ops.LaunchDependents)
        with b.elect("role"):
            b.do(ops.MbarInval, b.bar(other))
    return b.finished()


def transfers() -> Kernel:
    """Ordinary accesses of every dtype, swizzled and not, and TMA copies of several ranks and
    panels.
    """
    b = Builder(cluster=2)
    kinds = [t for t in dtypes.ALL if t.in_registers and t is not dtypes.phase]
    tensors = [b.tensor(f"t_{t.name}", t) for t in kinds]
    tiles = [
        b.smem(f"s_{t.name}", 8, 128 // t.nbytes, 2, t, 128 if t.bits < 64 else 0) for t in kinds
    ]
    tall = b.smem("tall", 128, 16, 2, dtypes.float16, 128, order="col")
    wide = b.smem("wide", 16, 256, 1, dtypes.bfloat16, 128)
    line = b.tensor("line", dtypes.float32, rank=1, box=(32,))
    cube = b.tensor("cube", dtypes.bfloat16, rank=3, box=(1, 16, 256), swizzle=128)
    columns = b.tensor("columns", dtypes.float16, box=(128, 16), order="col", swizzle=128)
    bar = b.barriers("bar")
    b.setup_done()
    with b.role("copy", warps=1):
        for tensor, buffer in zip(tensors, tiles, strict=True):
            x = b.load(b.element(tensor, 3, LANE))
            b.store(b.element(b.tile(buffer, RANK, 2, 0, 4, 8), 1, LANE), x)
            y = b.load(b.element(b.tile(buffer, 1, cta=0), 1, LANE))
            b.store(b.element(tensor, RANK, LANE), y)
            b.store(b.element(b.tile(buffer, 0, cta=1), 1, LANE), y)
        b.store(b.element(b.tile(tall), LANE, 3), b.load(b.element(columns, LANE, 4)))
        with b.elect():
            b.load_tile(
                line,
                (RANK,),
                b.tile(tiles[kinds.index(dtypes.float32)], 0, 0, 0, 1, 32),
                b.bar(bar),
            )
            b.load_tile(cube, (1, 2, 3), b.tile(wide), b.bar(bar), multicast=3)
            b.load_tile(columns, (RANK, 5), b.tile(tall, RANK), b.bar(bar))
            b.store_tile(columns, (RANK, 5), b.tile(tall, 1))
            b.store_tile(cube, (1, 2, 3), b.tile(wide))
            b.do(ops.TmaStoreCommit)
            b.do(ops.TmaStoreWait, 1, True)
            b.do(ops.TmaStoreWait, 0, False)
    return b.finished()


def fragments() -> Kernel:
    """Elementwise expressions, reductions, every store and load of a fragment, wgmma from shared
    memory and from registers.
    """
    b = Builder()
    orders = ("row", "col")
    half = {o: b.smem(f"half_{o}", 128, 128, 1, dtypes.bfloat16, 128, o) for o in orders}
    single = {o: b.smem(f"single_{o}", 64, 24, 1, dtypes.float32, 0, o) for o in orders}
    small = {o: b.smem(f"small_{o}", 16, 24, 4, dtypes.float16, 0, o) for o in orders}
    column, line = (
        b.smem("column", 64, 1, 1, dtypes.float32),
        b.smem("line", 1, 24, 1, dtypes.float16),
    )
    cube, mapped = (
        b.tensor("cube", dtypes.float16, 3, order="col"),
        b.tensor("mapped", dtypes.float32, box=(8, 8)),
    )
    b.setup_done()
    with b.role("math", warpgroups=1, registers=240):
        acc, other = b.fragment("acc", 64, 128), b.fragment("other", 64, 128)
        narrow, row = b.fragment("narrow", 64, 24), b.fragment("row", 64, 1)
        p = b.fragment("p", 64, 128, dtypes.bfloat16)
        b.do(ops.FragmentSet, acc, const(0.0))
        b.do(ops.FragmentSet, other, const(1.0))
        x = b.value(acc)
        b.do(ops.FragmentReduce, row, x, "max")
        shifted = Unary(
            dtypes.float32, shape=(64, 128), op="exp2", a=binary("sub", x, b.value(row))
        )
        b.do(ops.FragmentSet, p, Cast(dtypes.bfloat16, shape=(64, 128), a=shifted))
        b.do(ops.FragmentReduce, row, b.value(p), "add")
        b.do(ops.FragmentReduce, row, b.value(row), "add")
        mask = binary("gt", b.value(acc), const(0.5))
        b.do(
            ops.FragmentSet,
            acc,
            Select(dtypes.float32, shape=(64, 128), cond=mask, a=b.value(other), b=b.value(p)),
        )
        b.do(ops.FragmentSet, narrow, b.value(acc, 8, 24))
        b.do(ops.FragmentSet, acc, b.value(narrow), 32)
        b.do(ops.FragmentSet, p, Cast(dtypes.bfloat16, shape=(64, 24), a=b.value(narrow)), 16)
        b.do(ops.FragmentSet, other, b.let(binary("mul", b.value(acc), b.value(row))))
        for o in orders:
            b.do(ops.WgmmaFence)
            b.do(ops.Wgmma, acc, b.tile(half[o], 0, 64, 0, 64, 128), b.tile(half[o]))
            b.do(ops.Wgmma, other, p, b.tile(half[o]))
            b.do(ops.WgmmaCommit)
            b.do(ops.WgmmaWait, 0)
            b.do(ops.FragmentStore, b.tile(half[o], 0, 64, 0, 64, 128), b.value(acc))
            b.do(ops.FragmentStore, b.tile(half[o], 0, 0, 64, 64, 64), b.value(p, 64, 64))
            b.do(ops.FragmentLoad, p, b.tile(half[o], 0, 64, 0, 64, 128))
            b.do(ops.FragmentStore, b.tile(single[o]), b.value(narrow))
            b.do(ops.FragmentLoad, narrow, b.tile(single[o]))
            with b.per_warp() as w:
                b.do(
                    ops.FragmentStore,
                    b.tile(small[o], w),
                    Cast(dtypes.float16, shape=(64, 24), a=b.value(narrow)),
                )
                b.do(ops.FragmentLoad, narrow, b.tile(small[o], w))
                b.do(
                    ops.FragmentAny,
                    b.local("any", dtypes.boolean),
                    binary("gt", b.value(narrow), const(0.5)),
                )
        b.do(ops.FragmentStore, b.tile(column), b.value(row))
        b.do(ops.FragmentLoad, row, b.tile(column))
        col = b.fragment("col", 1, 24, dtypes.float16)
        b.do(ops.FragmentLoadGlobal, col, cube, (RANK, RANK, const(3)))
        b.do(ops.FragmentStore, b.tile(line), b.value(col))
        b.do(ops.FragmentLoad, col, b.tile(line))
        b.do(ops.FragmentLoadGlobal, narrow, mapped, (RANK, const(-8)))
        b.do(
            ops.FragmentStoreGlobal,
            cube,
            (RANK, const(0), const(0)),
            binary("mul", b.value(narrow), b.value(row)),
        )
        scaled = binary("mul", b.value(narrow), Cast(dtypes.float32, shape=(1, 24), a=b.value(col)))
        b.do(ops.FragmentStoreGlobal, mapped, (RANK, const(8)), scaled)
    return b.finished()


def functions() -> Kernel:
    """Every scalar operator and function, on every dtype it is for."""
    b = Builder()
    out = b.tensor("out", dtypes.float64)
    b.setup_done()
    with b.role("one", warps=1):
        for t in dtypes.ALL:
            if t is dtypes.phase or not t.in_registers:
                continue
            c = b.let(Cast(t, Vary.LANE, a=binary("sub", LANE, 5)))
            bits = [] if t.is_float else ["and", "or", "xor"]
            whole = [] if t.is_float or t is dtypes.boolean else ["floordiv", "mod", "shl", "shr"]
            arithmetic = [] if t is dtypes.boolean else ["add", "sub", "mul", "min", "max"]
            for op in (*arithmetic, *bits, *whole, "eq", "ne", "lt", "le", "gt", "ge"):
                r = binary(op, c, c)
                b.store(b.element(out, 0, LANE), Cast(dtypes.float64, Vary.LANE, a=r))
            for op in (
                "neg",
                "abs",
                "exp",
                "exp2",
                "log",
                "log2",
                "sqrt",
                "rsqrt",
                "tanh",
                "sin",
                "cos",
                "floor",
                "ceil",
                "round",
                "erf",
                "sigmoid",
                "rcp",
            ):
                if t.is_float:
                    b.store(
                        b.element(out, 1, LANE),
                        Cast(dtypes.float64, Vary.LANE, a=Unary(t, Vary.LANE, op=op, a=c)),
                    )
            if t.is_float:
                b.store(
                    b.element(out, 2, LANE), Cast(dtypes.float64, Vary.LANE, a=binary("div", c, c))
                )
            else:
                b.store(
                    b.element(out, 2, LANE),
                    Cast(dtypes.float64, Vary.LANE, a=Unary(t, Vary.LANE, op="not", a=c)),
                )
        for name in exprs.SPECIALS:
            b.store(b.element(out, 3, LANE), Cast(dtypes.float64, Vary.LANE, a=special(name)))
    return b.finished()


BLACKWELL: list[Callable[[], Kernel]] = [tensor_memory, tensor_memory_of_a_pair, launch_control]
KERNELS: list[Callable[[], Kernel]] = [
    values,
    barriers,
    transfers,
    fragments,
    functions,
    grid,
    *BLACKWELL,
]


@pytest.mark.sampled(suite=100, classes=lambda make, lineinfo: [make, lineinfo])
@pytest.mark.slow
@pytest.mark.parametrize("make", KERNELS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("lineinfo", [False, True], ids=["plain", "lineinfo"])
def test_compiles(make: Callable[[], Kernel], lineinfo: bool) -> None:
    compiled = cuda.compile(make(), "sm_100a" if make in BLACKWELL else "sm_90a", lineinfo=lineinfo)
    assert compiled.registers
    assert compiled.spill_bytes == 0
    assert "warning" not in compiled.log


@pytest.mark.parametrize(
    "make", [values, barriers, transfers, functions, grid], ids=lambda f: f.__name__
)
def test_what_has_no_wgmma_compiles_for_blackwell(make: Callable[[], Kernel]) -> None:
    assert cuda.compile(make(), arch="sm_100a", allow=["spills"]).data


@pytest.mark.slow
def test_every_op_is_printed_here_or_in_a_case() -> None:
    """tests/cases compiles its kernels, too."""
    missing = set(ops.EVERY)
    cases: list[Callable[[], Kernel]] = [partial(_kernel_of, case) for case in CASES]
    for make in [*KERNELS, *cases]:
        if missing:
            missing -= {type(op) for op in all_ops(make())}
    assert not missing
    assert set(ops.EVERY) <= set(emit.registry)


def _kernel_of(case: Case) -> Kernel:
    return case.make(np.random.default_rng(0))[0].kernel
