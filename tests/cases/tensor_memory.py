"""Small kernels in tensor memory with NumPy references: for the simulator, and for NVRTC.

Most operands are small integers, so that every sum is exact in float32 and the result must be
equal, not near.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tests.cases.mma import truncated

Array = npt.NDArray[Any]
Made = tuple[tp.Program, Array, Array, float]
K_TILES = 3


class Handover:
    """The barriers of a kernel with one MMA warp and one epilogue warpgroup: `placed`: tensor
    memory is allocated; `done`: the accumulator is; `over`: nothing reads it any more.
    """

    def __init__(self, ctx: tp.Context, columns: int, cta_group: int = 1) -> None:
        self._ctx = ctx
        self.tmem = tp.TmemAllocation(ctx, columns, cta_group=cta_group)
        self.placed = tp.SharedMemBarrier.allocate(ctx, count=32, name="placed")
        self.done = tp.SharedMemBarrier.allocate(ctx, count=1, name="done")
        self.over = tp.TmemDeallocBarrier(ctx, cta_group)

    def allocate(self) -> None:
        """In the MMA warp."""
        self.tmem.allocate()
        self.placed.arrive()

    def find(self) -> None:
        """In the epilogue."""
        self.placed.wait(0)
        self.tmem.from_shared()

    def wait(self) -> None:
        """In the epilogue: the accumulator may be read."""
        self.done.wait(0)
        self._ctx.tcgen05_fence_after()

    def store(self, c: Any, m: int, n: int, row: Any = 0, width: int = 0, col: int = 0) -> None:
        """In the epilogue: the accumulator at column `col` goes to rows `row`.. of C, `width`
        columns a load, and may be freed.

        One wait is for as many loads as fit into 128 registers of a thread.
        """
        ctx, acc = self._ctx, self.tmem.tensor((m, n), col=col)
        most = min(n, 128 * 128 // m)
        for first in range(0, n, most):
            end = min(first + most, n)
            parts = {
                at: acc.cols(at, min(width or most, end - at)).load()
                for at in range(first, end, width or most)
            }
            ctx.tmem_wait_load()
            if end == n:
                self.over.signal_complete()
            for at, part in parts.items():
                ctx.store_global(c, (row, at), part)


@tp.kernel(grid=1)
def product(
    ctx: tp.Context,
    a: Any,
    b: Any,
    flags: Any,
    c: Any,
    *,
    m: int,
    n: int,
    columns: int,
    mode: str = "first",
    skip: tuple[int, int] = (0, 0),
    width: int = 0,
    col: int = 0,
) -> None:
    """C (m, n) from A (rows, k) and B (rows, k), of which the rows from `skip` on are multiplied,
    one box after the other along k.

    `mode`: "first": the first box overwrites (`k > 0`); "last": each does; "flags": box k adds
    where flags[k] is not 0. `width`: columns of a load, `col`: where the accumulator starts.
    """
    a_tile = ctx.smem(a.box, a.dtype, order=a.order, swizzle=a.swizzle, name="a_tile")[0]
    b_tile = ctx.smem(b.box, b.dtype, order=b.order, swizzle=b.swizzle, name="b_tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, count=1, name="full")
    empty = tp.SharedMemBarrier.allocate(ctx, count=1, name="empty")
    h = Handover(ctx, columns)
    steps = ctx.ceil_div(a.shape[1], a.box[1])

    @ctx.role("mma", warps=1)
    def mma() -> None:
        h.allocate()
        acc = h.tmem.tensor((m, n), col=col)
        for k in ctx.range(steps):
            with ctx.elect_one():
                full.expect_bytes(a_tile.nbytes + b_tile.nbytes)
                ctx.tma_load(a, (0, k * a.box[1]), a_tile, full)
                ctx.tma_load(b, (0, k * a.box[1]), b_tile, full)
            full.wait(k % 2)
            ctx.tcgen05_fence_after()
            adds: Any = {"first": k > 0, "last": False}.get(mode)
            if adds is None:
                adds = ctx.load(flags[k]) != 0
            with ctx.elect_one():
                ctx.mma(acc, a_tile.rows(skip[0], m), b_tile.rows(skip[1], n), accumulate=adds)
                ctx.mma_commit(empty)
            empty.wait(k % 2)
        with ctx.elect_one():
            ctx.mma_commit(h.done)
        h.over.complete_dealloc(h.tmem)

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        h.find()
        h.wait()
        h.store(c, m, n, width=width, col=col)


@tp.kernel(grid=2, cluster=2)
def pair(ctx: tp.Context, a: Any, b: Any, c: Any, *, n: int, columns: int) -> None:
    """C (256, n) from A (256, k) and B (n, k) by a pair of CTAs, each of which loads its 128 rows
    of A and half of B.
    """
    a_tile = ctx.smem(a.box, a.dtype, swizzle=a.swizzle, name="a_tile")[0]
    b_tile = ctx.smem(b.box, b.dtype, swizzle=b.swizzle, name="b_tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, count=1, name="full")
    empty = tp.SharedMemBarrier.allocate(ctx, count=1, name="empty")
    h = Handover(ctx, columns, cta_group=2)
    steps = ctx.ceil_div(a.shape[1], a.box[1])
    leads = ctx.cta_rank == 0

    @ctx.role("load", warps=1)
    def load() -> None:
        for k in ctx.range(steps):
            empty.wait((k + 1) % 2)
            with ctx.elect_one():
                with ctx.when(leads):
                    full.expect_bytes(2 * (a_tile.nbytes + b_tile.nbytes))
                ctx.tma_load(a, (ctx.cta_rank * 128, k * a.box[1]), a_tile, full.on(0))
                ctx.tma_load(b, (ctx.cta_rank * (n // 2), k * a.box[1]), b_tile, full.on(0))
        empty.wait((steps + 1) % 2)

    @ctx.role("mma", warps=1)
    def mma() -> None:
        h.allocate()
        acc = h.tmem.tensor((128, n))
        with ctx.when(leads):
            for k in ctx.range(steps):
                full.wait(k % 2)
                ctx.tcgen05_fence_after()
                with ctx.elect_one():
                    ctx.mma(acc, a_tile, b_tile, accumulate=k > 0)
                    ctx.mma_commit(empty, mask=3)
            with ctx.elect_one():
                ctx.mma_commit(h.done, mask=3)
        h.over.complete_dealloc(h.tmem)

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        h.find()
        h.wait()
        h.store(c, 128, n, ctx.cta_rank * 128)


@tp.kernel(grid=1)
def through_memory(ctx: tp.Context, a: Any, c: Any, *, m: int, n: int, half: int = 0) -> None:
    """C = 2 A, by way of tensor memory in A's dtype; `half`: a matrix of 64 rows lies in the upper
    or the lower lanes.
    """
    tmem = tp.TmemAllocation(ctx, 128)
    at = tp.SharedMemBarrier.allocate(ctx, count=32, name="at")
    over = tp.TmemDeallocBarrier(ctx)

    @ctx.role("owner", warps=1)
    def owner() -> None:
        tmem.allocate()
        at.arrive()
        over.complete_dealloc(tmem)

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        at.wait(0)
        tmem.from_shared()
        there = tmem.tensor((m, n), a.dtype, col=half << 20)
        there.store(ctx.load_global(a, (0, 0), (m, n), layout="tmem" if m == 128 else "wgmma") * 2)
        ctx.tmem_wait_store()
        back = there.load()
        ctx.tmem_wait_load()
        over.signal_complete()
        ctx.store_global(c, (0, 0), back)


@tp.kernel(grid=1)
def scaled_by_warp(ctx: tp.Context, a: Any, c: Any, *, n: int) -> None:
    """C = A by way of tensor memory, where each warp of whose rows one begins with more than 3
    multiplies them by 2 in place.
    """
    tmem = tp.TmemAllocation(ctx, 128)
    at = tp.SharedMemBarrier.allocate(ctx, count=32, name="at")
    over = tp.TmemDeallocBarrier(ctx)

    @ctx.role("owner", warps=1)
    def owner() -> None:
        tmem.allocate()
        at.arrive()
        over.complete_dealloc(tmem)

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        at.wait(0)
        tmem.from_shared()
        there = tmem.tensor((128, n), a.dtype)
        x = ctx.load_global(a, (0, 0), (128, n), layout="tmem")
        there.store(x)
        ctx.tmem_wait_store()
        first = ctx.fragment(x.cols(0, 8))
        with ctx.per_warp(), ctx.when((first > 3).any()):
            for col in range(0, n, 16):
                part = there.cols(col, 16).load()
                ctx.tmem_wait_load()
                there.cols(col, 16).store(part * 2)
            ctx.tmem_wait_store()
        back = there.load()
        ctx.tmem_wait_load()
        over.signal_complete()
        ctx.store_global(c, (0, 0), back)


@tp.kernel(grid=1)
def a_in_memory(ctx: tp.Context, a: Any, b: Any, c: Any, *, m: int, n: int, half: int = 0) -> None:
    """C = A · Bᵀ with A written to tensor memory by the epilogue's warps; `half`: of 64 rows, in
    the upper or the lower lanes.
    """
    b_tile = ctx.smem(b.box, b.dtype, swizzle=b.swizzle, name="b_tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, count=1, name="full")
    there = tp.SharedMemBarrier.allocate(ctx, count=128, name="there")
    h = Handover(ctx, 512)
    k = b.box[1]

    @ctx.role("mma", warps=1)
    def mma() -> None:
        h.allocate()
        with ctx.elect_one():
            full.expect_bytes(b_tile.nbytes)
            ctx.tma_load(b, (0, 0), b_tile, full)
        full.wait(0)
        there.wait(0)
        ctx.tcgen05_fence_after()
        with ctx.elect_one():
            acc, left = (
                h.tmem.tensor((m, n), col=half << 20),
                h.tmem.tensor((m, k), a.dtype, col=256 + (half << 20)),
            )
            ctx.mma(acc, left, b_tile, accumulate=False)
            ctx.mma_commit(h.done)
        h.over.complete_dealloc(h.tmem)

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        h.find()
        x = ctx.load_global(a, (0, 0), (m, k), layout="tmem" if m == 128 else "wgmma")
        h.tmem.tensor((m, k), a.dtype, col=256 + (half << 20)).store(x)
        ctx.tmem_wait_store()
        ctx.tcgen05_fence_before()
        there.arrive()
        h.wait()
        h.store(c, m, n, col=half << 20)


@tp.kernel(grid=1)
def copied(ctx: tp.Context, a: Any, c: Any) -> None:
    """C := rows of 16 bytes of A, copied by the tensor core to tensor memory; 32 rows go to each
    quarter of the lanes.
    """
    tile = ctx.smem(a.box, a.dtype, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, count=1, name="full")
    h = Handover(ctx, 32)

    @ctx.role("copy", warps=1)
    def copy() -> None:
        h.allocate()
        with ctx.elect_one():
            full.expect_bytes(tile.nbytes)
            ctx.tma_load(a, (0, 0), tile, full)
        full.wait(0)
        ctx.tcgen05_fence_after()
        with ctx.elect_one():
            ctx.tmem_copy(h.tmem.tensor((128, a.box[1]), a.dtype), tile)
            ctx.mma_commit(h.done)
        h.over.complete_dealloc(h.tmem)

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        h.find()
        h.wait()
        x = h.tmem.tensor((128, a.box[1]), a.dtype).load()
        ctx.tmem_wait_load()
        h.over.signal_complete()
        ctx.store_global(c, (0, 0), x)


@dataclass(frozen=True)
class Case:
    """One program to run.

    Attributes:
        name: for test ids. make: rng -> (program, the array it writes, what must be in it, largest
            difference allowed).
    """

    name: str
    make: Callable[[np.random.Generator], Made]


def integers(
    rng: np.random.Generator, shape: tuple[int, int], dtype: object, order: str = "row"
) -> Array:
    """Small integers, C- or Fortran-ordered."""
    x = rng.integers(-4, 5, shape).astype(np.float32).astype(tp.dtype(dtype).numpy)
    return np.asarray(x, order="C" if order == "row" else "F")


def empty(rows: int, cols: int) -> Array:
    """What a kernel must overwrite."""
    return np.full((rows, cols), np.nan, np.float32)


def exact(a: Array, b: Array) -> Array:
    """A · Bᵀ in float64."""
    result: Array = truncated(a).astype(np.float64) @ truncated(b).astype(np.float64).T
    return result


def mma_case(
    a: str,
    b: str = "",
    *,
    m: int = 128,
    n: int = 64,
    k: int = 0,
    tail: int = 0,
    swizzle: int | None = None,
    orders: str = "row row",
    random: bool = False,
    **static: Any,
) -> Case:
    """`product` of two dtypes; k: elements of a box along K, 128 bytes unless given; `tail`:
    elements that K lacks of whole boxes.
    """
    left, right = tp.dtype(a), tp.dtype(b or a)
    words = {
        "b": b,
        "m": m,
        "n": n,
        "k": k,
        "tail": tail,
        "swizzle": swizzle,
        "orders": orders if "col" in orders else "",
        **static,
    }
    k = k or 128 // left.nbytes
    skip = static.get("skip", (0, 0))
    columns = max(32, 1 << (n + static.get("col", 0) - 1).bit_length())

    def make(rng: np.random.Generator) -> Made:
        arrays = []
        for t, rows, order in zip(
            (left, right), (m + skip[0], n + skip[1]), orders.split(), strict=True
        ):
            shape = (rows, K_TILES * k - tail)
            x = (
                rng.standard_normal(shape).astype(np.float32).astype(t.numpy)
                if random
                else integers(rng, shape, t)
            )
            arrays.append(np.asarray(x, order="C" if order == "row" else "F"))
        c = empty(m, n)
        maps = [
            tp.tensor_map(x, box=(x.shape[0], k), swizzle=swizzle, order=o)
            for x, o in zip(arrays, orders.split(), strict=True)
        ]
        program = product.bind(
            *maps, np.array([0, 1, 0, 1], np.int32), c, m=m, n=n, columns=columns, **static
        )
        start = {"last": K_TILES - 1, "flags": 2}.get(static.get("mode", "first"), 0) * k
        x, y = arrays[0][skip[0] :, start:], arrays[1][skip[1] :, start:]
        return (
            program,
            c,
            exact(x, y),
            2.0**-18 * float(exact(np.abs(x), np.abs(y)).max()) if random else 0.0,
        )

    named = " ".join(f"{key}={value}" for key, value in words.items() if value)
    return Case(f"{a} {named}{' random' if random else ''}", make)


def pair_case(dtype: str, n: int) -> Case:
    """`pair`."""

    def make(rng: np.random.Generator) -> Made:
        k = 128 // tp.dtype(dtype).nbytes
        a, b, c = (
            integers(rng, (256, K_TILES * k), dtype),
            integers(rng, (n, K_TILES * k), dtype),
            empty(256, n),
        )
        maps = tp.tensor_map(a, box=(128, k)), tp.tensor_map(b, box=(n // 2, k))
        return (
            pair.bind(*maps, c, n=n, columns=max(32, 1 << (n - 1).bit_length())),
            c,
            exact(a, b),
            0.0,
        )

    return Case(f"pair {dtype} n={n}", make)


def stored_case(dtype: str, m: int, n: int, half: int = 0) -> Case:
    """`through_memory`."""

    def make(rng: np.random.Generator) -> Made:
        a, c = integers(rng, (m, n), dtype), np.zeros((m, n), tp.dtype(dtype).numpy)
        return through_memory.bind(a, c, m=m, n=n, half=half), c, 2 * a.astype(np.float64), 0.0

    return Case(f"stored {dtype} m={m} n={n} half={half}", make)


def by_warp_case(dtype: str, n: int) -> Case:
    """`scaled_by_warp`."""

    def make(rng: np.random.Generator) -> Made:
        a, c = integers(rng, (128, n), dtype), np.zeros((128, n), tp.dtype(dtype).numpy)
        a[:, :8] = 0
        a[32 + 5, 3] = a[96 + 31, 7] = 4
        want = a.astype(np.float64)
        want[32:64] *= 2
        want[96:] *= 2
        return scaled_by_warp.bind(a, c, n=n), c, want, 0.0

    return Case(f"by warp {dtype} n={n}", make)


def a_case(dtype: str, m: int, n: int, k: int, half: int = 0) -> Case:
    """`a_in_memory`."""

    def make(rng: np.random.Generator) -> Made:
        a, b, c = integers(rng, (m, k), dtype), integers(rng, (n, k), dtype), empty(m, n)
        return (
            a_in_memory.bind(a, tp.tensor_map(b, box=(n, k)), c, m=m, n=n, half=half),
            c,
            exact(a, b),
            0.0,
        )

    return Case(
        f"A in tensor memory {dtype} m={m} n={n} k={k}{' lower lanes' if half else ''}", make
    )


def copy_case(rows: int, dtype: str) -> Case:
    """`copied`."""

    def make(rng: np.random.Generator) -> Made:
        cols = 16 // tp.dtype(dtype).nbytes
        a, c = integers(rng, (rows, cols), dtype), np.zeros((128, cols), tp.dtype(dtype).numpy)
        return (
            copied.bind(tp.tensor_map(a, box=(rows, cols), swizzle=0), c),
            c,
            np.tile(a.astype(np.float64), (128 // rows, 1)),
            0.0,
        )

    return Case(f"copied {dtype} rows={rows}", make)


E4M3, E5M2 = "float8_e4m3", "float8_e5m2"
CASES = [
    *(
        mma_case("bfloat16", m=m, n=n)
        for m, n in ((64, 8), (64, 24), (64, 256), (128, 16), (128, 48), (128, 256))
    ),
    *(mma_case(t, n=96) for t in ("float16", "float32", E4M3, E5M2)),
    mma_case(E4M3, E5M2, n=32, m=64),
    mma_case(E5M2, E4M3, n=32),
    *(mma_case(t, tail=16, n=32) for t in ("bfloat16", "float32", E4M3)),
    *(
        mma_case(t, swizzle=swizzle, n=32)
        for t in ("bfloat16", "float32", E4M3)
        for swizzle in (32, 64)
    ),
    *(
        mma_case(t, k=k, n=32)
        for t, k in (("bfloat16", 128), ("bfloat16", 16), ("float32", 64), (E4M3, 256))
    ),
    *(mma_case(t, n=48, skip=(8, 16)) for t in ("bfloat16", E4M3)),
    *(mma_case("bfloat16", orders=orders) for orders in ("col row", "row col", "col col")),
    *(mma_case(t, mode=mode) for t in ("bfloat16", "float32") for mode in ("last", "flags")),
    mma_case("bfloat16", n=128, width=32),
    mma_case("bfloat16", n=64, width=8, col=192),
    mma_case("float32", random=True),
    mma_case("bfloat16", random=True, n=256),
    *(
        pair_case(t, n)
        for t, n in (
            ("bfloat16", 32),
            ("bfloat16", 256),
            ("float16", 128),
            ("float32", 64),
            (E4M3, 96),
        )
    ),
    *(stored_case("float32", m, n) for m, n in ((128, 8), (128, 120), (64, 48))),
    *(stored_case(t, m, n) for t, m, n in (("bfloat16", 128, 64), ("float16", 64, 24))),
    stored_case("float32", 64, 16, half=1),
    stored_case("bfloat16", 64, 16, half=1),
    by_warp_case("float32", 64),
    by_warp_case("bfloat16", 32),
    *(
        a_case(t, m, n, k)
        for t, m, n, k in (
            ("bfloat16", 128, 64, 64),
            ("float16", 64, 32, 16),
            ("bfloat16", 128, 256, 128),
        )
    ),
    a_case("bfloat16", 64, 40, 32, half=1),
    copy_case(128, "bfloat16"),
    copy_case(32, "float16"),
]
