"""Integer fragments and operations on bits, each with what NumPy says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array, Case, Made, Rng
from tilepipe.ir import dtypes, numbers

Expression = Callable[[tp.Context, Any], Any]
Reference = Callable[[Array], Array]


def any_bits(rng: Rng, shape: tuple[int, ...], kind: str) -> Array:
    """Integers of all magnitudes, the least and the greatest among them."""
    t = dtypes.dtype(kind)
    low, high = numbers.limits(t)
    values = rng.integers(low, high, shape, endpoint=True) >> rng.integers(0, t.bits, shape)
    values.flat[:3] = low, high, 1
    return values.astype(t.numpy)


@tp.kernel(grid=1)
def through(
    ctx: tp.Context, source: Any, out: Any, *, name: str, shape: tuple[int, int], shared: bool
) -> None:
    """out = an expression of EXPRESSIONS of source; by way of shared tiles, if wanted."""
    tile = ctx.smem(shape, source.dtype, name="tile")[0] if shared else None

    @ctx.role("compute", warpgroups=1)
    def compute() -> None:
        x = ctx.load_global(source, (0, 0), shape)
        if tile is not None:
            ctx.store(tile, x)
            ctx.sync_warpgroup()
            x = ctx.fragment(shape=shape, dtype=source.dtype)
            x.load(tile)
        y = ctx.fragment(EXPRESSIONS[name][1](ctx, x))
        ctx.store_global(out, (0, 0), y)


def _in_order(words: Array, parts: Array) -> Array:
    """The parts of words, (m, c, n), as a fragment's columns: word 2 t + i of eight goes to the
    columns that the thread t of a row holds, in order.
    """
    m, c, n = parts.shape
    assert words.shape == (m, c)
    out = np.zeros((m, n * c), parts.dtype)
    for eight in range(c // 8):
        for t in range(4):
            mine = parts[:, 8 * eight + 2 * t : 8 * eight + 2 * t + 2].reshape(m, 2 * n)
            for v in range(2 * n):
                out[:, 8 * n * eight + v // 2 * 8 + 2 * t + v % 2] = mine[:, v]
    return out


def _split(t: Any) -> Reference:
    """Words as parts of a smaller NumPy dtype."""

    def reference(words: Array) -> Array:
        parts = np.ascontiguousarray(words).view(t).reshape(*words.shape, -1)
        return _in_order(words, parts)

    return reference


def _joined(halves: Array) -> Array:
    """Columns 16 j + 8 i + 2 t and the next, of 16 bits, as word 8 j + 2 t + i."""
    m, c = halves.shape
    pairs = np.ascontiguousarray(halves).view(np.uint32).reshape(m, c // 16, 2, 4)
    return pairs.swapaxes(2, 3).reshape(m, c // 2)


def _nibbles(x: Array) -> Array:
    return _in_order(x, np.stack([x & 15, x >> 4], -1).astype(np.int32) - 8)


def _signed_nibbles(x: Array) -> Array:
    low, high = (x << 4).astype(np.int8) >> 4, x >> 4
    return _in_order(x, np.stack([low, high], -1))


def _unpack(ctx: tp.Context, x: Any) -> Any:
    return ctx.interleave((x & 15).to("int32") - 8, (x >> 4).to("int32") - 8)


def _unpack_signed(ctx: tp.Context, x: Any) -> Any:
    return ctx.interleave((x << 4) >> 4, x >> 4).to("bfloat16")


def _magic(ctx: tp.Context, x: Any) -> Any:
    """A byte as the low bits of a float of 2^23, minus 2^23."""
    return ((x.to("uint32") | 0x4B000000).bitcast("float32") - 2.0**23) * 0.5


# name -> (dtype, expression, reference, dtype of the result)
EXPRESSIONS: dict[str, tuple[str, Expression, Reference, str]] = {
    "copy_int8": ("int8", lambda ctx, x: x, lambda x: x, "int8"),
    "copy_uint8": ("uint8", lambda ctx, x: x, lambda x: x, "uint8"),
    "copy_int32": ("int32", lambda ctx, x: x, lambda x: x, "int32"),
    "copy_uint32": ("uint32", lambda ctx, x: x, lambda x: x, "uint32"),
    "logic": (
        "uint32",
        lambda ctx, x: (~x & 0xFF00FF00 | x >> 8) ^ x << 5,
        lambda x: (~x & np.uint32(0xFF00FF00) | x >> 8) ^ x << 5,
        "uint32",
    ),
    "wrapped": ("uint8", lambda ctx, x: x * 3 - 7, lambda x: x * 3 - 7, "uint8"),
    "signs": ("int8", lambda ctx, x: (x.to("int8") << 3) >> 2, lambda x: (x << 3) >> 2, "int8"),
    "filled": (
        "uint32",
        lambda ctx, x: ctx.select(x > 7, x, ctx.fragment(x * 0 + 0x43004301)),
        lambda x: np.where(x > 7, x, np.uint32(0x43004301)),
        "uint32",
    ),
    "bits_of_integers": (
        "uint32",
        lambda ctx, x: (x & 0x3FFFFFFF).bitcast("float32"),
        lambda x: (x & 0x3FFFFFFF).view(np.float32),
        "float32",
    ),
    "bits_of_floats": (
        "int32",
        lambda ctx, x: x.to("float32").bitcast("uint32"),
        lambda x: x.astype(np.float32).view(np.uint32),
        "uint32",
    ),
    "bits_of_fp8": (
        "uint8",
        lambda ctx, x: (x & 0x77).bitcast("float8_e4m3").to("float32"),
        lambda x: (x & 0x77).view(ml_dtypes.float8_e4m3fn).astype(np.float32),
        "float32",
    ),
    "halves": (
        "uint32",
        lambda ctx, x: (x & 0x3FFF3FFF).bitcast("bfloat16"),
        lambda x: _split(ml_dtypes.bfloat16)(x & np.uint32(0x3FFF3FFF)),
        "bfloat16",
    ),
    "joined": (
        "uint32",
        lambda ctx, x: ctx.fragment((x & 0x3FFF3FFF).bitcast("bfloat16")).bitcast("uint32") + 1,
        lambda x: (x & np.uint32(0x3FFF3FFF)) + 1,
        "uint32",
    ),
    "joined_numbers": (
        "int32",
        lambda ctx, x: (x & 255).to("float32").to("bfloat16").bitcast("uint32"),
        lambda x: _joined((x & 255).astype(ml_dtypes.bfloat16)),
        "uint32",
    ),
    "joined_columns": (
        "int32",
        lambda ctx, x: (x & 255).to("float16").bitcast("uint32").cols(8, 8),
        lambda x: _joined((x & 255).astype(np.float16)[:, 16:]),
        "uint32",
    ),
    "bytes": ("uint32", lambda ctx, x: x.bitcast("uint8"), _split(np.uint8), "uint8"),
    "signed_bytes": (
        "uint32",
        lambda ctx, x: x.bitcast("int8").to("float32") * 0.25,
        lambda x: _split(np.int8)(x).astype(np.float32) * 0.25,
        "float32",
    ),
    "nibbles": ("uint8", _unpack, _nibbles, "int32"),
    "signed_nibbles": ("int8", _unpack_signed, _signed_nibbles, "bfloat16"),
    "magic": ("uint8", _magic, lambda x: x.astype(np.float32) * np.float32(0.5), "float32"),
    "to_bfloat16": (
        "int32",
        lambda ctx, x: x.to("bfloat16"),
        lambda x: x.astype(np.float32).astype(ml_dtypes.bfloat16),
        "bfloat16",
    ),
}

SHAPES = {"joined_columns": (64, 32)}


def expression(
    name: str, shape: tuple[int, int] = (64, 16), shared: bool = False
) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        kind, _, reference, result = EXPRESSIONS[name]
        source = any_bits(rng, shape, kind)
        want = reference(source).astype(dtypes.dtype(result).numpy)
        out = np.full(want.shape, 77, want.dtype)
        return through.bind(source, out, name=name, shape=shape, shared=shared), out, want, 0

    return make


@tp.kernel(grid=1)
def reinterpreted(ctx: tp.Context, x: Any, out: Any) -> None:
    """out[i] = the exponent of x[i], found in its bits; of one number, and then of each lane's."""

    @ctx.role("one", warps=1)
    def one() -> None:
        bits = ctx.load(x[ctx.lane]).bitcast("uint32")
        ctx.store(out[ctx.lane], (bits >> 23 & 0xFF).to("int32") - 127)
        with ctx.elect_one():
            first = ctx.load(x[32]).bitcast("int32")
            ctx.store(out[32], (first >> 23 & 0xFF) - 127)
            ctx.store(out[33], (ctx.load(out[32]) + 127 << 23).bitcast("float32").to("int32"))


def exponents(rng: Rng) -> Made:
    x = (2.0 ** rng.integers(0, 30, 33)).astype(np.float32) * np.float32(1.25)
    powers = np.frexp(x)[1] - 1
    out = np.zeros(34, np.int32)
    return reinterpreted.bind(x, out), out, np.append(powers, 2 ** powers[32]).astype(np.int32), 0


CASES = [
    *(Case(f"bits_{name}", expression(name, SHAPES.get(name, (64, 16)))) for name in EXPRESSIONS),
    *(
        Case(f"bits_{name}_shared", expression(name, shared=True))
        for name in EXPRESSIONS
        if name.startswith("copy")
    ),
    Case("bits_bytes_of_128_rows", expression("bytes", (128, 8))),
    Case("bits_exponents", exponents),
]
