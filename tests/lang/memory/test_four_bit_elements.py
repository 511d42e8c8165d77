"""Elements of 4 bits: two in a byte everywhere, and nowhere 0 bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.errors import BindError, TilepipeError, TraceError
from tilepipe.ir import layout
from tilepipe.ir.expressions import const
from tilepipe.ir.hardware.operand_tiles import broken_descriptor_rule, broken_tma_rule
from tilepipe.ir.memory import SmemBuffer, Tile, Tmem

FP4 = tp.float4_e2m1


def test_sizes() -> None:
    assert [FP4.bytes_of(n) for n in (0, 2, 256)] == [0, 1, 128]
    assert (FP4.per_byte, tp.float8_e8m0.per_byte, tp.bfloat16.bytes_of(3)) == (2, 1, 6)
    with pytest.raises(BindError, match="float4_e2m1 has 4 bits: one element has no address"):
        _ = FP4.nbytes
    with pytest.raises(
        BindError, match="3 elements of float4_e2m1, of 4 bits, are no whole number of bytes"
    ):
        FP4.bytes_of(3)


def test_memory_of_tiles() -> None:
    b = SmemBuffer("b", FP4, 3, 64, 256, swizzle=128)
    assert (b.tile_bytes, b.nbytes) == (64 * 128, 3 * 64 * 128)
    assert Tile(b, const(0), const(8), const(64), 16, 128).nbytes == 16 * 64
    assert Tmem(const(0), 128, 64, FP4).columns == 8
    assert layout.panel_elements(b) == 256
    offsets = layout.byte_offsets(b, np.array([0, 0, 0, 1, 1]), np.array([0, 1, 2, 0, 255]))
    assert list(offsets) == [0, 0, 1, 128 + 16, 128 + (127 ^ 16)]


@pytest.mark.parametrize(
    ("cols", "swizzle", "part", "words"),
    [
        (512, 128, (0, 0, 64, 256), None),
        (512, 128, (0, 256, 64, 256), None),
        (512, 128, (0, 128, 64, 256), "TMA copies whole panels of 256 × 1/2 = 128 bytes"),
        (64, 0, (0, 0, 64, 32), "32 × 1/2 = 16 bytes apart; those of"),
        (32, 0, (8, 0, 56, 32), None),
        (32, 0, (4, 0, 60, 32), "multiple of 128 bytes, 8 lines of 16"),
    ],
)
def test_rules_of_tma_in_shared_memory(
    cols: int, swizzle: int, part: tuple[int, int, int, int], words: str | None
) -> None:
    row, col, rows, width = part
    found = broken_tma_rule(
        Tile(
            SmemBuffer("b", FP4, 1, 64, cols, swizzle=swizzle),
            const(0),
            const(row),
            const(col),
            rows,
            width,
        )
    )
    assert found is None if words is None else words in str(found)


@pytest.mark.parametrize(
    ("cols", "swizzle", "order", "col", "words"),
    [
        (256, 128, "row", 64, None),
        (256, 128, "row", 32, "takes 64 elements of K, 32 bytes within a line"),
        (256, 0, "row", 0, "have 256 × 1/2 = 128. Give the buffer swizzle=128."),
        (32, 0, "row", 0, "have 32 × 1/2 = 16. Pad its columns to a multiple of 64."),
        (256, 128, "col", 0, "reads float4_e2m1 only where K is contiguous"),
    ],
)
def test_rules_of_descriptors(
    cols: int, swizzle: int, order: str, col: int, words: str | None
) -> None:
    b = SmemBuffer("b", FP4, 1, 256, cols, order, swizzle)
    found = broken_descriptor_rule(
        Tile(b, const(0), const(0), const(col), 64, 64 if cols > 64 else cols), "tcgen05.mma"
    )
    assert found is None if words is None else words in str(found)


# -- tensor maps -----------------------------------------------------------------------


def bytes_of(*shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.zeros(shape, np.uint8)


def test_a_map_of_bytes() -> None:
    m = tp.tensor_map(bytes_of(100, 144), box=(64, 256), dtype="float4_e2m1")
    assert (m.dtype, m.shape, m.box, m.swizzle, m.order) == (FP4, (100, 288), (64, 256), 128, "row")
    m = tp.tensor_map(bytes_of(3, 64, 16), box=(1, 64, 32), dtype=FP4)
    assert (m.shape, m.swizzle) == ((3, 64, 32), 0)
    assert tp.tensor_map(bytes_of(64, 16), dtype="e8m0", box=(64, 16)).shape == (64, 16)
    assert tp.tensor_map(bytes_of(64, 16), dtype=tp.float8_e4m3).dtype is tp.float8_e4m3


@pytest.mark.slow
def test_a_packed_tensor_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    m = tp.tensor_map(
        torch.zeros((64, 128), dtype=torch.uint8).view(torch.float4_e2m1fn_x2), box=(64, 256)
    )
    assert (m.dtype, m.shape, m.box) == (FP4, (64, 256), (64, 256))
    m = tp.tensor_map(
        torch.zeros((64, 128), dtype=torch.uint8).view(torch.float8_e8m0fnu), box=(64, 16)
    )
    assert (m.dtype, m.shape) == (tp.float8_e8m0, (64, 128))


@pytest.mark.parametrize(
    ("array", "arguments", "words"),
    [
        (
            np.zeros((64, 64), FP4.numpy),
            {"box": (64, 64)},
            ("a byte for each element", "Pack each two neighbours", "dtype='float4_e2m1'"),
        ),
        (
            np.zeros((64, 64), np.float16),
            {"dtype": "e8m0"},
            ("got float8_e8m0 for an array of float16",),
        ),
        (
            bytes_of(64, 64),
            {"dtype": "bfloat16"},
            ("floats of 8 or 4 bits", "got bfloat16 for an array of uint8"),
        ),
        (
            bytes_of(64, 64).T,
            {"dtype": FP4, "box": (64, 64)},
            ("packed along the last dimension", "got order 'col'"),
        ),
        (
            bytes_of(64, 64),
            {"dtype": FP4, "box": (64, 33)},
            ("33 contiguous elements of 4 bits are no whole number of bytes",),
        ),
        (
            bytes_of(64, 64),
            {"dtype": FP4, "box": (64, 16)},
            ("16 contiguous elements are 16 × 1/2 = 8 bytes, not a multiple of 16",),
        ),
        (
            bytes_of(64, 40),
            {"dtype": FP4, "box": (64, 32)},
            ("strides that are positive multiples of 16 bytes", "a stride of 40 bytes"),
        ),
    ],
)
def test_maps_that_are_refused(
    array: Any, arguments: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(BindError) as caught:
        tp.tensor_map(array, **arguments)
    assert [word for word in words if word not in str(caught.value)] == []


# -- kernels ---------------------------------------------------------------------------


def trace(body: Any) -> None:
    """A kernel of one warpgroup whose set-up and role are `body`."""

    @tp.kernel()
    def k(ctx: tp.Context, x: Any, y: Any) -> None:
        made: list[Any] = []
        body(ctx, x, y, made)

        @ctx.role("one", warpgroups=1)
        def one() -> None:
            for step in made:
                step()

    k.bind(
        tp.tensor_map(bytes_of(64, 128), box=(64, 256), dtype=FP4),
        tp.tensor_map(bytes_of(64, 16), dtype="e8m0", box=(64, 16)),
    )


def in_role(step: Any) -> Any:
    """A body whose role does `step(ctx, a tile of fp4, the tensors)`."""

    def body(ctx: tp.Context, x: Any, y: Any, made: list[Any]) -> None:
        tile = ctx.smem((64, 256), FP4, name="tile")[0]
        made.append(lambda: step(ctx, tile, x, y))

    return body


def bar(ctx: tp.Context) -> Any:
    return ctx.tracer  # never reached: the coordinates are looked at first


MISTAKES: dict[str, tuple[Any, str]] = {
    "an odd tile": (
        lambda ctx, x, y, made: ctx.smem((64, 33), FP4),
        "the contiguous extent of a tile is even, got 64×33",
    ),
    "an odd tile, col": (
        lambda ctx, x, y, made: ctx.smem((33, 64), FP4, order="col"),
        "is even, got 33×64, col order",
    ),
    "a swizzle": (
        lambda ctx, x, y, made: ctx.smem((64, 96), FP4, swizzle=128),
        "divide a row of 48 bytes",
    ),
    "an odd column": (
        in_role(lambda ctx, tile, x, y: tile.cols(3, 64)),
        "starts at an even column.* got 64 from 3",
    ),
    "an odd width": (in_role(lambda ctx, tile, x, y: tile.cols(2, 63)), "got 63 from 2"),
    "a traced column": (
        in_role(lambda ctx, tile, x, y: tile.cols(ctx.block_id, 64)),
        "got 64 from block_id",
    ),
    "an element": (
        in_role(lambda ctx, tile, x, y: ctx.load(tile[0, 0])),
        "threads do not compute with float4_e2m1",
    ),
    "an element of a tensor": (
        in_role(lambda ctx, tile, x, y: ctx.load(x[0, 0])),
        "pass the array a second time as uint8",
    ),
    "a scale factor": (
        in_role(lambda ctx, tile, x, y: ctx.load(y[0, 0])),
        "threads do not compute with float8_e8m0",
    ),
    "a store": (
        in_role(lambda ctx, tile, x, y: ctx.store(tile[0, 0], 1.0)),
        "threads do not compute with float4_e2m1",
    ),
    "a fragment": (
        in_role(lambda ctx, tile, x, y: ctx.fragment(shape=(64, 64), dtype=FP4)),
        "threads do not compute with float4_e2m1",
    ),
    "a conversion": (
        in_role(lambda ctx, tile, x, y: ctx.block_id.to("e8m0")),
        "threads do not compute with float8_e8m0",
    ),
    "a fragment's": (
        in_role(lambda ctx, tile, x, y: ctx.fragment(shape=(64, 64)).to(FP4)),
        "threads do not compute with float4_e2m1",
    ),
    "a stored fragment": (
        in_role(lambda ctx, tile, x, y: ctx.store(tile, ctx.fragment(shape=(64, 256)))),
        "store: threads do not compute with float4_e2m1",
    ),
    "global memory": (
        in_role(lambda ctx, tile, x, y: ctx.load_global(x, (0, 0), (64, 64))),
        "'x' is float4_e2m1; fragments move",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_threads_cannot_do(name: str) -> None:
    body, words = MISTAKES[name]
    with pytest.raises(TraceError, match=words):
        trace(body)


@tp.kernel()
def loads_at(ctx: tp.Context, x: Any, *, col: int) -> None:
    """A TMA load from column `col`."""
    tile = ctx.smem((64, 256), FP4, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            full.expect_bytes(tile.nbytes)
            ctx.tma_load(x, (0, ctx.block_id * 8 + col if col < 0 else col), tile, full)
        full.wait(0)


@pytest.mark.parametrize(
    ("col", "words"),
    [
        (16, "element 16, 16 × 1/2 = 8 bytes. Start at a multiple of 32 elements"),
        (33, "element 33. Start"),
        (-40, "element -40, -40 × 1/2 = -20 bytes"),
    ],
)
def test_coordinates_of_tma(col: int, words: str) -> None:
    map_ = tp.tensor_map(bytes_of(64, 256), box=(64, 256), dtype=FP4)
    with pytest.raises(TilepipeError) as caught:
        loads_at.bind(map_, col=col).run()
    assert words in str(caught.value)


def test_bytes_that_are_expected_and_moved() -> None:
    program = loads_at.bind(tp.tensor_map(bytes_of(64, 256), box=(64, 256), dtype=FP4), col=32)
    assert "nbytes=8192" in str(program)
    assert program.run().roles[0].bytes_loaded == 8192
