"""Arguments of tensor-map encodings, and TMA's rules with their messages."""

from __future__ import annotations

import ctypes

import pytest

from tilepipe.cuda.runtime.tensormap import MAP_BYTES, EncodedMap, TiledMap, tiled_map
from tilepipe.errors import BindError
from tilepipe.ir import dtypes
from tilepipe.ir.memory import TensorParam


def test_row_major() -> None:
    param = TensorParam("a", dtypes.bfloat16, 2, box=(128, 64), swizzle=128)
    wanted = TiledMap("BFLOAT16", "128B", (776, 1000), (784 * 2,), (64, 128), (1, 1))
    assert tiled_map(param, (1000, 776), (784, 1)) == wanted


def test_column_major_swaps_the_last_two_dimensions() -> None:
    param = TensorParam("a", dtypes.float16, 2, order="col", box=(128, 64), swizzle=128)
    wanted = TiledMap("FLOAT16", "128B", (1000, 776), (1008 * 2,), (64, 64), (1, 1))
    assert tiled_map(param, (1000, 776), (1, 1008)) == wanted, "box of 128 rows: two panels of 64"


def test_a_box_wider_than_a_panel_is_one_panel() -> None:
    param = TensorParam("c", dtypes.float32, 3, box=(1, 16, 128), swizzle=128)
    wanted = TiledMap("FLOAT32", "128B", (256, 64, 3), (1024, 65536), (32, 16, 1), (1, 1, 1))
    assert tiled_map(param, (3, 64, 256), (16384, 256, 1)) == wanted


def test_without_swizzle_and_with_extent_one() -> None:
    param = TensorParam("x", dtypes.uint8, 2, box=(1, 32))
    assert tiled_map(param, (1, 40), (3, 1)) == TiledMap(
        "UINT8", "NONE", (40, 1), (48,), (32, 1), (1, 1)
    )
    line = TensorParam("x", dtypes.float32, 1, box=(64,))
    assert tiled_map(line, (1000,), (1,)) == TiledMap("FLOAT32", "NONE", (1000,), (), (64,), (1,))


def test_ragged_rows_are_two_dimensions() -> None:
    """A box of 64 rows has two dimensions: any last row, and the row from the end of the box."""
    param = TensorParam("c", dtypes.bfloat16, 2, box=(64, 64), swizzle=128, ragged=True)
    wanted = TiledMap(
        "BFLOAT16",
        "128B",
        (776, 64, 1001),
        (784 * 2, 784 * 2),
        (64, 64, 1),
        (1, 1, 1),
        before=64 * 784 * 2,
    )
    assert tiled_map(param, (1000, 776), (784, 1)) == wanted
    batched = TensorParam("c", dtypes.float32, 3, box=(1, 16, 32), swizzle=128, ragged=True)
    wanted = TiledMap(
        "FLOAT32",
        "128B",
        (32, 16, 2, 3),
        (128, 128, 4096),
        (32, 16, 1, 1),
        (1,) * 4,
        before=16 * 128,
    )
    assert tiled_map(batched, (3, 1, 32), (1024, 9, 1)) == wanted


def test_a_ragged_map_of_loads_begins_at_the_tensor() -> None:
    """Its rows have three dimensions, whose strides take the boxes of all tiles round the address
    space and back to their rows.
    """
    param = TensorParam("v", dtypes.bfloat16, 3, box=(1, 64, 64), swizzle=128, ragged=True)
    param.loaded = True
    row = 784 * 2
    found = tiled_map(param, (4, 1000, 776), (784_000, 784, 1))
    assert found == TiledMap(
        "BFLOAT16",
        "128B",
        (776, 2**30, 1001, 2**30 + 1, 4),
        (row, row, 2**34 - row, 784_000 * 2),
        (64, 64, 1, 1, 1),
        (1,) * 5,
        before=0,
    )
    wrap = 2**30
    for start, rows in ((0, 64), (0, 1), (37, 5), (990, 10), (999, 1)):
        at = wrap - rows, start + rows, wrap
        assert all(0 <= x < extent for x, extent in zip(at, found.global_dim[1:4], strict=True))
        strides = found.global_strides[:3]
        place = sum(x * stride for x, stride in zip(at, strides, strict=True))
        assert place % 2**64 == start * row
        assert at[0] + rows == found.global_dim[1], "what follows the rows lies outside"


@pytest.mark.parametrize(
    ("shape", "strides", "address", "box", "message"),
    [
        (
            (100, 100),
            (100, 1),
            0,
            (64, 64),
            "positive multiples of 16 .*dimension 0 has a stride of 200 bytes.* 8 elements",
        ),
        ((100, 104), (104, 1), 8, (64, 64), "it starts at 0x8"),
        (
            (104, 104),
            (1, 104),
            0,
            (64, 64),
            "dimension 1 must be contiguous, and its elements of 2 bytes are 208 bytes apart",
        ),
        ((100, 104), (-104, 1), 0, (64, 64), "stride of -208 bytes"),
        ((0, 104), (104, 1), 0, (64, 64), "has 0 elements"),
        (
            (100, 104),
            (104, 1),
            0,
            (257, 64),
            "box .*257, 64.* of tensor 'a': each extent must be 1..256, got 257",
        ),
        ((100, 104), (104, 1), 0, (64, 4), "4 × 2 = 8 bytes, not a multiple of 16"),
        ((100,), (1,), 0, (64, 64), "is 2-d"),
        ((100, 104), (104, 1), 0, None, "has no box"),
    ],
)
def test_rules(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    address: int,
    box: tuple[int, ...] | None,
    message: str,
) -> None:
    with pytest.raises(BindError, match=message):
        tiled_map(TensorParam("a", dtypes.bfloat16, 2, box=box), shape, strides, address)


def test_elements_of_four_bits_are_encoded_as_bytes() -> None:
    param = TensorParam("a", dtypes.float4_e2m1, 2, box=(128, 256), swizzle=128)
    assert tiled_map(param, (1000, 768), (800, 2)) == TiledMap(
        "UINT8", "128B", (384, 1000), (400,), (128, 128), (1, 1)
    )
    narrow = TensorParam("a", dtypes.float4_e2m1, 3, box=(1, 64, 32))
    assert tiled_map(narrow, (3, 64, 96), (6144, 96, 2)) == TiledMap(
        "UINT8", "NONE", (48, 64, 3), (48, 3072), (16, 64, 1), (1, 1, 1)
    )
    with pytest.raises(BindError, match="dimension 0 has a stride of 40 bytes"):
        tiled_map(param, (1000, 80), (80, 2))


def test_how_far_a_tensor_reaches() -> None:
    form = TiledMap("BFLOAT16", "128B", (776, 1000), (784 * 2,), (64, 128), (1, 1))
    assert form.reach == 999 * 784 * 2 + 776 * 2
    assert TiledMap("FLOAT32", "NONE", (1000,), (), (64,), (1,)).reach == 4000


@pytest.mark.parametrize(
    ("reach", "driver_version", "bit"),
    [(131071, 13010, 0), (131072, 13010, 1), (131071, 12080, 0), (131071, 13020, 1)],
)
def test_the_bit_of_large_tensors_is_cleared_where_a_driver_sets_it_wrongly(
    reach: int, driver_version: int, bit: int
) -> None:
    source = ctypes.create_string_buffer(b"\xff" * MAP_BYTES, MAP_BYTES)
    made = EncodedMap(ctypes.addressof(source), reach, driver_version)
    words = (ctypes.c_uint64 * (MAP_BYTES // 8)).from_address(made.address)
    full = (1 << 64) - 1
    assert list(words) == [full, full - ((1 - bit) << 21), *[full] * 14]
