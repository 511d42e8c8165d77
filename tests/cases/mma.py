"""MMAs of every operand type as small programs with NumPy references: for the simulator, for NVRTC,
and for a GPU.

Most operands are small integers, so that every sum is exact in float32 and in the narrower sums of
the fp8 tensor cores, and the result must be equal, not near.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp

Array = npt.NDArray[Any]
Made = tuple[tp.Program, Array, Array, float]
M, K_TILES = 64, 3


@tp.kernel(grid=1)
def product(
    ctx: tp.Context,
    a: Any,
    b: Any,
    flags: Any,
    c: Any,
    *,
    n: int,
    m: int = M,
    skip: tuple[int, int] = (0, 0),
    mode: str = "fill",
    registers: bool = False,
    turned: bool = False,
) -> None:
    """C (m, n) from A (rows, k) and B (rows, k), of which the rows from `skip` on are multiplied,
    one box after the other along k.

    `mode`: "fill": C += A · Bᵀ on zeros; "first": the first box overwrites (`k > 0`); "last": each
    box overwrites; "flags": box k adds where flags[k] is not 0. `registers`: A goes through a
    fragment. `turned`: A and B are (k, rows), and their tiles are multiplied as transposes.
    """
    a_tile = ctx.smem(a.box, a.dtype, order=a.order, swizzle=a.swizzle, name="a_tile")[0]
    b_tile = ctx.smem(b.box, b.dtype, order=b.order, swizzle=b.swizzle, name="b_tile")[0]
    along = 0 if turned else 1
    width = math.gcd(n, 32)
    out = ctx.smem((m, width), c.dtype, count=n // width, name="out")
    full = tp.SharedMemBarrier.allocate(ctx, count=1, name="full")

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        acc = ctx.accumulator((m, n))
        if mode == "fill":
            acc.fill(0)
        for k in ctx.range(ctx.ceil_div(a.shape[along], a.box[along])):
            at: Any = (k * a.box[0], 0) if turned else (0, k * a.box[1])
            with ctx.elect_one("role"):
                full.expect_bytes(a_tile.nbytes + b_tile.nbytes)
                ctx.tma_load(a, at, a_tile, full)
                ctx.tma_load(b, at, b_tile, full)
            full.wait(k % 2)
            left: Any = (a_tile.T if turned else a_tile).rows(skip[0], m)
            if registers:
                held = ctx.fragment(shape=left.shape, dtype=a.dtype)
                held.load(left)
                left = held
            adds: Any = {"fill": True, "first": k > 0, "last": False}.get(mode)
            if adds is None:
                adds = ctx.load(flags[k]) != 0
            right = b_tile.T if turned else b_tile
            ctx.mma(acc, left, right.rows(skip[1], n), accumulate=adds)
            ctx.wgmma_commit()
            ctx.wgmma_wait(0)
            ctx.sync_warpgroup()
        for j in range(n // width):
            ctx.store(out[j], acc.cols(width * j, width))
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        with ctx.elect_one("role"):
            for j in range(n // width):
                ctx.tma_store(c, (0, width * j), out[j])
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


@dataclass(frozen=True)
class Case:
    """One program to run.

    Attributes:
        name: for test ids. opcode: what its machine code must hold, `QGMMA.64x8x32.F32.E4M3.E5M2`.
        make: rng -> (program, the array it writes, what must be in it, largest difference allowed).
    """

    name: str
    opcode: str
    make: Callable[[np.random.Generator], Made]


_SASS = {
    "bfloat16": "BF16",
    "float16": "",
    "float32": "TF32",
    "float8_e4m3": "E4M3",
    "float8_e5m2": "E5M2",
}


def case(
    a: str,
    b: str = "",
    n: int = 64,
    *,
    m: int = M,
    k: int = 0,
    swizzle: int | None = None,
    orders: str = "row row",
    random: bool = False,
    **static: Any,
) -> Case:
    """The case of two dtypes and n; k: elements of a box along K, 128 bytes unless given."""
    left, right = tp.dtype(a), tp.dtype(b or a)
    words = {
        "b": b,
        "k": k,
        "m": m if m != M else "",
        "swizzle": swizzle,
        "orders": orders if "col" in orders else "",
        **static,
    }
    k = k or 128 // left.nbytes
    skip_a, skip_b = static.get("skip", (0, 0))

    def make(rng: np.random.Generator) -> Made:
        arrays = []
        for t, rows, order in zip(
            (left, right), (m + skip_a, n + skip_b), orders.split(), strict=True
        ):
            shape = (rows, K_TILES * k)
            x = rng.standard_normal(shape) if random else rng.integers(-4, 5, shape)
            arrays.append(
                np.asarray(
                    x.astype(np.float32).astype(t.numpy), order="C" if order == "row" else "F"
                )
            )
        flags = np.array([0, 1, 0, 1][: K_TILES + 1], np.int32)
        c = np.full((m, n), np.nan, np.float32)
        turned = bool(static.get("turned"))
        maps = [
            tp.tensor_map(
                np.ascontiguousarray(x.T) if turned else x,
                box=(k, x.shape[0]) if turned else (x.shape[0], k),
                swizzle=swizzle,
                order=o,
            )
            for x, o in zip(arrays, orders.split(), strict=True)
        ]
        program = product.bind(
            *maps, flags, tp.tensor_map(c, box=(m, math.gcd(n, 32))), n=n, m=m, **static
        )
        x, y = (
            truncated(z[skip:]).astype(np.float64)
            for z, skip in zip(arrays, (skip_a, skip_b), strict=True)
        )
        start = {"last": K_TILES - 1, "flags": 2}.get(static.get("mode", "fill"), 0) * k
        x, y = x[:, start:], y[:, start:]
        return (
            program,
            c,
            x @ y.T,
            2.0**-18 * float((np.abs(x) @ np.abs(y).T).max()) if random else 0.0,
        )

    tail = (
        ""
        if left is right and left.nbytes == 2
        else f".{_SASS[right.name]}"
        if left.nbytes == 1
        else ""
    )
    types = f".{_SASS[left.name]}{tail}" if _SASS[left.name] else ""
    opcode = f"{'QGMMA' if left.nbytes == 1 else 'HGMMA'}.64x{n}x{32 // left.nbytes}.F32{types}"
    name = " ".join(
        [
            a,
            f"n={n}",
            *(f"{key}={value}" for key, value in words.items() if value),
            *(["random"] if random else []),
        ]
    )
    return Case(name, opcode, make)


def truncated(x: Array) -> Array:
    """float32 as tf32, by dropping the low 13 bits; other dtypes as they are."""
    if x.dtype != np.float32:
        return x
    cut: Array = (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return cut


E4M3, E5M2 = "float8_e4m3", "float8_e5m2"
CASES = [
    *(case(t, n=n) for t in ("bfloat16", "float32", E4M3, E5M2) for n in (8, 24, 104, 256)),
    case("float16"),
    case(E4M3, E5M2, 96),
    case(E5M2, E4M3, 96),
    *(case(t, swizzle=swizzle) for t in ("float32", E4M3) for swizzle in (32, 64)),
    *(
        case(t, k=k, m=128)
        for t, k in (("float32", 64), (E4M3, 256), (E5M2, 32), ("bfloat16", 128))
    ),
    *(case(t, n=48, skip=(8, 16)) for t in ("float32", E4M3)),
    *(
        case(t, mode=mode)
        for t in ("bfloat16", "float32", E4M3)
        for mode in ("first", "last", "flags")
    ),
    case("bfloat16", mode="first", k=16),
    case("bfloat16", mode="last", k=16),
    case("bfloat16", mode="last", m=128),
    case("bfloat16", mode="first", registers=True),
    case("bfloat16", mode="last", registers=True),
    case("float16", mode="first", orders="col col"),
    *(case(t, n=128, k=64, m=128, turned=True) for t in ("bfloat16", "float16")),
    case("bfloat16", n=64, k=32, turned=True, skip=(64, 64)),
    case("bfloat16", n=64, k=80, turned=True, swizzle=64),
    case("float32", random=True),
    case("bfloat16", random=True, mode="first"),
]
