"""`tiles.view(shape, dtype)`: the slots of an array as tiles of another dtype."""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import cuda


@tp.kernel(grid=1)
def through_words(ctx: tp.Context, a: tp.GlobalTensor, out: tp.GlobalTensor, *, reads: str) -> None:
    """out = 2 · a, whose sums pass through the slot that held a, as float32."""
    halves = ctx.smem((64, 64), "bfloat16", count=2, name="halves")
    words = halves.view((64, 32), "float32", swizzle=None, name="words")

    @ctx.role("rows", warpgroups=1)
    def rows() -> None:
        x = ctx.load_global(a, (0, 0), (64, 64))
        ctx.store(halves[1], x)
        ctx.sync_warpgroup()
        half = ctx.fragment(shape=(64, 64), dtype="bfloat16")
        half.load(halves[1])
        ctx.sync_warpgroup()
        ctx.store(words[1], half.to("float32").cols(0, 32) * 2)
        ctx.sync_warpgroup()
        if reads == "halves":
            half.load(halves[1])
        y = ctx.fragment(shape=(64, 32))
        y.load(words[1])
        ctx.store_global(out, (0, 0), y)


def program(reads: str = "words") -> tuple[tp.Program, np.ndarray, np.ndarray]:
    a = np.arange(64 * 64).reshape(64, 64).astype(tp.bfloat16.numpy)
    out = np.zeros((64, 32), np.float32)
    return through_words.bind(a, out, reads=reads), a, out


def test_a_slot_holds_tiles_of_another_dtype() -> None:
    made, a, out = program()
    made.run()
    assert (out == 2 * a[:, :32].astype(np.float32)).all()
    words = next(b for b in made.kernel.buffers if b.name == "words")
    assert (words.dtype, words.tile_bytes, words.step) == (tp.float32, 8192, 8192)
    assert made.kernel.smem_bytes == 2 * 8192
    assert made.check().verdict == "verified"
    out[...] = 0
    made.ptx("sm_90a").run(1)
    assert (out == 2 * a[:, :32].astype(np.float32)).all()
    assert cuda.compile(made.kernel, arch="sm_90a").spill_bytes == 0


def test_what_was_written_as_one_dtype_is_not_read_as_another() -> None:
    made, *_ = program("halves")
    with pytest.raises(tp.PoisonError, match=r"halves\[1\]") as caught:
        made.run()
    assert (
        "The slot holds what was written as words[1], and a view does not reinterpret what was"
        " written through another: read it through words[1]."
    ) in str(caught.value)


def test_a_swizzle_is_an_int() -> None:
    @tp.kernel(grid=1)
    def text(ctx: tp.Context, a: tp.GlobalTensor) -> None:
        ctx.smem((8, 64), "float32", name="t").view((8, 64), swizzle="128")  # type: ignore[arg-type]

    with pytest.raises(tp.TraceError) as caught:
        text.bind(np.zeros(8, np.float32))
    assert str(caught.value).startswith(
        "swizzle='128': must be one of the ints 0, 32, 64, 128, and divide a row of 256 bytes"
    )


def test_a_tile_of_another_dtype_that_is_too_large() -> None:
    @tp.kernel(grid=1)
    def wide(ctx: tp.Context, a: tp.GlobalTensor) -> None:
        ctx.smem((64, 64), "bfloat16", name="halves").view((64, 64), "float32")

    with pytest.raises(tp.TraceError) as caught:
        wide.bind(np.zeros(8, np.float32))
    assert "a view of 'halves': a tile 64×64 float32 has 16,384 bytes" in str(caught.value)
