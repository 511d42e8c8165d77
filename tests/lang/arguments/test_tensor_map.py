"""Tensor maps: what is found in an array, and one error for each rule of TMA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text, refused, role_from_text

BF16 = tp.bfloat16.numpy


def zeros(*shape: int, dtype: Any = BF16) -> Any:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(
    ("array", "box", "order", "swizzle"),
    [
        (zeros(128, 128), (64, 64), "row", 128),
        (zeros(128, 128), (64, 32), "row", 64),
        (zeros(128, 128), (64, 16), "row", 32),
        (zeros(128, 128), (64, 8), "row", 0),
        (zeros(128, 128), (64, 128), "row", 128),
        (zeros(128, 128).T, (64, 32), "col", 128),
        (zeros(128, 128, dtype=np.float32), (8, 32), "row", 128),
        (zeros(4, 128, 64), (1, 64, 64), "row", 128),
        (zeros(64), (64,), "row", 0),
        (zeros(128, 128)[:, 8:72], (16, 16), "row", 32),
        (zeros(1, 24), (1, 24), "row", 0),
    ],
)
def test_what_is_found(array: Any, box: tuple[int, ...], order: str, swizzle: int) -> None:
    m = tp.tensor_map(array, box=box)
    assert (m.rank, m.order, m.box, m.swizzle, m.shape) == (
        array.ndim,
        order,
        box,
        swizzle,
        array.shape,
    )
    assert m.array is array


def test_an_order_that_both_would_do() -> None:
    row = zeros(1, 64)
    assert tp.tensor_map(row, box=(1, 64)).order == "row"
    assert tp.tensor_map(zeros(64, 1), box=(64, 1), order="col").order == "col"


def test_without_a_box_there_are_no_rules_of_tma() -> None:
    m = tp.tensor_map(zeros(7, 13))
    assert (m.box, m.swizzle, m.rank) == (None, 0, 2)


RULES: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "rank 0": (np.float32(1).reshape(()), (), ("1..5 dimensions", "has 0")),
    "rank 6": (zeros(1, 1, 1, 1, 1, 8), (1, 1, 1, 1, 1, 8), ("1..5 dimensions", "has 6")),
    "box rank": (zeros(64, 64), (64,), ("box (64,)", "1 dimensions", "2")),
    "box extent": (zeros(512, 64), (257, 64), ("(257, 64)", "1..256", "257")),
    "box zero": (zeros(64, 64), (0, 64), ("1..256", "got 0")),
    "box negative": (zeros(64, 64), (-8, 64), ("1..256", "got -8")),
    "box float": (zeros(64, 64), (8.0, 64), ("integer", "8.0")),
    "16-byte row": (zeros(64, 64), (8, 4), ("8 bytes", "multiple of 16", "16-byte units")),
    "16-byte row, col": (zeros(64, 64).T, (4, 8), ("8 bytes", "multiple of 16")),
    "zero rows": (zeros(0, 64), (8, 64), ("every extent >= 1", "(0, 64)")),
    "zero columns": (zeros(64, 0), (8, 64), ("every extent >= 1", "(64, 0)")),
    "stride": (
        zeros(64, 100),
        (8, 64),
        ("multiples of 16 bytes", "dimension 0", "stride of 200 bytes", "multiple of 8 elements."),
    ),
    "stride of a slice": (
        zeros(64, 128)[:, :60][::-1],
        (8, 8),
        ("positive multiples of 16", "-256"),
    ),
    "stride zero": (
        np.broadcast_to(zeros(1, 64), (64, 64)),
        (8, 64),
        ("positive multiples of 16", "stride of 0 bytes"),
    ),
    "nothing contiguous": (
        zeros(64, 64)[::2, ::2],
        (8, 8),
        ("contiguous in neither", "contiguous copy"),
    ),
    "strided, of one dimension": (
        zeros(64)[::2],
        (8,),
        ("strides (4,) bytes is not contiguous; TMA needs a stride", "contiguous copy"),
    ),
    "dtype bool": (zeros(64, 64, dtype=np.bool_), (8, 64), ("TMA does not move boolean",)),
    "dtype complex": (zeros(64, 64, dtype=np.complex64), (8, 64), ("unknown dtype", "complex64")),
    "dtype object": (zeros(64, 64, dtype=object), (8, 64), ("unknown dtype",)),
    "no array": ("text", (8,), ("expected an array", "str")),
    "a list": ([1, 2], (2,), ("expected an array", "list")),
}


@pytest.mark.parametrize("rule", RULES)
def test_rules(rule: str) -> None:
    array, box, words = RULES[rule]
    with refused(tp.BindError, *words):
        tp.tensor_map(array, box=box)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"swizzle": 48}, ("swizzle must be one of (0, 32, 64, 128)", "48")),
        ({"swizzle": 128, "box": (8, 32)}, ("64 bytes", "not a multiple of 128", "swizzle span")),
        ({"order": "col"}, ("dimension 0 must be contiguous", "128 bytes apart")),
        ({"order": "diagonal"}, ('order must be "row" or "col"', "'diagonal'")),
        ({"order": "x", "box": None}, ('order must be "row" or "col"', "'x'")),
        ({"box": 32}, ("a box is a tuple of 2 extents", "got 32")),
        ({"box": (8, True)}, ("integer", "True")),
    ],
)
def test_rules_of_options(options: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(tp.BindError, *words):
        tp.tensor_map(zeros(64, 64), **{"box": (8, 64), **options})


def test_an_array_of_one_dimension_has_one_order() -> None:
    with refused(tp.BindError, 'order must be "row", of an array of 1 dimension', "'col'"):
        tp.tensor_map(zeros(64), order="col")


@pytest.mark.parametrize(
    ("shape", "order"),
    [((100, 1), "col"), ((1, 100), "row"), ((1, 1), "row"), ((3, 100, 1), "row")],
)
def test_the_order_that_tma_takes_where_both_would_do(shape: tuple[int, ...], order: str) -> None:
    assert tp.tensor_map(zeros(*shape)).order == order


@pytest.mark.parametrize(
    ("array", "box", "words"),
    [
        (zeros(128, 128), None, "rank 2, with no box"),
        (zeros(128), (64,), "rank 1, with a box"),
        (zeros(2, 2, 2, 8, 8), (1, 1, 1, 8, 8), "rank 5"),
    ],
)
def test_maps_that_cannot_be_ragged(array: Any, box: tuple[int, ...] | None, words: str) -> None:
    with refused(tp.BindError, "a ragged map is of an array of rank 2..4, and has a box", words):
        tp.tensor_map(array, box=box, ragged=True)


LOAD = """
tile = ctx.smem({shape}, '{dtype}', order='{order}', swizzle={swizzle}, name='tile')
full = tp.SharedMemBarrier.allocate(ctx)
@ctx.role('load', warps=1)
def load():
    with ctx.elect_one():
        full.expect_bytes(tile.tile_bytes)
        {op}
"""


@pytest.mark.parametrize(
    ("shape", "dtype", "order", "swizzle", "words"),
    [
        ((32, 64), "bfloat16", "row", 128, ("box of 'x' is 64×64", "tile is 32×64")),
        (
            (64, 64),
            "float16",
            "row",
            128,
            ("dtype of 'x' is bfloat16", "'tile' is float16", "must agree"),
        ),
        ((64, 64), "bfloat16", "col", 128, ("order of 'x' is row", "'tile' is col")),
        ((64, 64), "bfloat16", "row", 64, ("swizzle of 'x' is 128", "'tile' is 64")),
    ],
)
@pytest.mark.parametrize(
    "op", ["ctx.tma_load(x, (0, 0), tile[0], full)", "ctx.tma_store(x, (0, 0), tile[0])"]
)
def test_a_copy_needs_the_tile_of_its_map(
    shape: Any, dtype: str, order: str, swizzle: int, words: tuple[str, ...], op: str
) -> None:
    k = from_text(
        LOAD.format(shape=shape, dtype=dtype, order=order, swizzle=swizzle, op=op),
        header="def k(ctx, x):",
    )
    with refused(tp.TraceError, *words, op):
        k.bind(tp.tensor_map(zeros(128, 128), box=(64, 64)))


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("ctx.tma_load(x, (0,), tile[0], full)", ("takes 2 coordinates", "got 1")),
        (
            "ctx.tma_load(x, (0, 0.5), tile[0], full)",
            ("TMA coordinate must be an integer", "float32 0.5"),
        ),
        ("full.expect_bytes(1.5)", ("number of bytes must be an integer", "1.5")),
        (
            "ctx.tma_load(x, (0, 0), tile[0], full, multicast=2)",
            ("mask 0b10", "outside the cluster of 1"),
        ),
        ("ctx.tma_load(x, (0, 0), tile[0], full, multicast=0)", ("names at least one", "mask 0b0")),
        (
            "ctx.tma_load(x, (0, 0), tile[0], full, multicast=1 << ctx.lane)",
            ("multicast mask", "varies by lane"),
        ),
        (
            "ctx.tma_load(bare, (0, 0), tile[0], full)",
            ("needs a tensor map with a box", "bare array"),
        ),
        (
            "ctx.tma_store(x, (0, 0), tile[0], rows=3)",
            ("rows= needs a ragged map of 'x'", "ragged=True"),
        ),
        (
            "ctx.tma_store(ragged, (0, 0), tile[0], rows=0.5)",
            ("rows= of tma_store must be an integer", "float32 0.5"),
        ),
        (
            "ctx.tma_load(x, (0, 0), tile[0], full, lines=3)",
            ("lines= needs a ragged map of 'x'", "ragged=True"),
        ),
        (
            "ctx.tma_load(ragged, (0, 0), tile[0], full, lines=0.5)",
            ("lines= of tma_load must be an integer", "float32 0.5"),
        ),
        (
            "ctx.tma_load(ragged, (0, 0), tile[0], full, lines=ctx.lane)",
            ("lines= of tma_load", "varies by lane"),
        ),
        (
            "ctx.tma_load(ragged, (-1, 0), tile[0], full)",
            ("a load by a ragged map", "not start before it: its box starts at (-1, 0)"),
        ),
    ],
)
def test_refused_copies(op: str, words: tuple[str, ...]) -> None:
    k = from_text(
        LOAD.format(shape=(64, 64), dtype="bfloat16", order="row", swizzle=128, op=op),
        header="def k(ctx, x, bare, ragged):",
    )
    with refused(tp.TraceError, *words):
        k.bind(
            tp.tensor_map(zeros(128, 128), box=(64, 64)),
            zeros(64, 64),
            tp.tensor_map(zeros(128, 128), box=(64, 64), ragged=True),
        )


def test_loads_by_a_ragged_map_leave_it_room_for_the_lines() -> None:
    load = "ctx.tma_load(x, (0, 0, 0, 0), tile[0], full, lines=3)"
    k = from_text(
        LOAD.format(shape=(64, 64), dtype="bfloat16", order="row", swizzle=128, op=load),
        header="def k(ctx, x):",
    )
    with refused(tp.TraceError, "map of 'x', of rank 4", "at most 5 dimensions", "at most 3"):
        k.bind(tp.tensor_map(zeros(1, 1, 128, 128), box=(1, 1, 64, 64), ragged=True))


def test_rows_of_a_column_major_tile_are_not_left_out_of_a_store() -> None:
    store = "ctx.tma_store(x, (0, 0), tile[0], rows=3)"
    k = from_text(
        LOAD.format(shape=(64, 64), dtype="bfloat16", order="col", swizzle=128, op=store),
        header="def k(ctx, x):",
    )
    with refused(tp.TraceError, "leaves out rows of a row-major tile", "'x' is column-major"):
        k.bind(tp.tensor_map(zeros(128, 128).T, box=(64, 64), ragged=True))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("(8, 64), 'bfloat16', order='diagonal'", ("order", "diagonal")),
        ("(8, 64), 'bfloat16', swizzle=48", ("swizzle=48",)),
        ("(8, 32), 'bfloat16', swizzle=128", ("swizzle=128", "64 bytes")),
        ("(4, 64), 'bfloat16', swizzle=128", ("8 lines", "4 lines", "swizzle=0")),
        ("(0, 64), 'bfloat16'", ("static shape", "(0, 64)")),
        ("(8, 64), 'bfloat16', count=0", ("count >= 1",)),
        ("(8, ctx.block_id), 'bfloat16'", ("static shape",)),
        ("(8,), 'bfloat16'", ("(rows, cols)",)),
    ],
)
def test_refused_allocations(arguments: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        role_from_text("pass", before=f"ctx.smem({arguments})")


@pytest.mark.parametrize("box", [None, (1, 8, 8)])
@pytest.mark.parametrize(("order", "inner"), [("row", 2), ("col", 1)])
def test_an_order_that_is_said_is_that_of_the_array(
    order: str, inner: int, box: tuple[int, ...] | None
) -> None:
    """Without a box, too: the printed kernel takes the elements of that dimension side by side."""
    x = np.zeros((2, 64, 64), np.float32)
    x = x if order == "row" else x.swapaxes(1, 2)
    assert tp.tensor_map(x, box, order=order).order == order
    words = f"dimension {inner} must be contiguous, and its elements of 4 bytes are 8 bytes apart"
    with refused(tp.BindError, words):
        tp.tensor_map(x[:, :: 1 + (inner == 1), :: 1 + (inner == 2)], box, order=order)
    other = "col" if order == "row" else "row"
    with refused(tp.BindError, "must be contiguous, and its elements of 4 bytes are 256 bytes"):
        tp.tensor_map(x, box, order=other)
