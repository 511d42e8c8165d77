"""Where the simulator finds things in tensor memory, against the places that CuTe computed
(tests/golden): every one of them.

Tensor memory is filled with marks that say where they are; what is read through the simulator's own
views must be the marks of the places that the tables name.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.golden.tables import rows, table
from tilepipe.ir import dtypes
from tilepipe.ir.expressions import const
from tilepipe.ir.hardware.tensor_memory import COLUMNS, LANES
from tilepipe.ir.memory import TmemScales
from tilepipe.machine.actors import CtaPlace
from tilepipe.machine.memory.tensor_access import scale_place
from tilepipe.machine.memory.tensor_memory import TensorMemory, rects
from tilepipe.machine.wording import PTX

Array = npt.NDArray[Any]
SCALES = {"ue8m0": dtypes.float8_e8m0, "ue4m3": dtypes.float8_e4m3}
MATRICES = rows("accumulator_layouts", "cases")
ELEMENTS = {"f32": dtypes.float32, "bf16": dtypes.bfloat16, "f16": dtypes.float16}


def named(row: dict[str, Any]) -> str:
    return (
        f"{row['what']} of {row['ctas']}: {row['rows']}x{row['cols']} {row['dtype']} lane "
        f"{row['first_lane']}"
    )


def memory(words: Array) -> TensorMemory:
    """Tensor memory that holds these words, (columns, lanes): one allocation of all of it."""
    tm = TensorMemory(CtaPlace(0, 1, PTX))
    tm.columns[...] = words
    held: Any = SimpleNamespace(column=0, columns=COLUMNS)
    tm.allocations[0] = held
    return tm


def marks(of: str) -> Array:
    """Words by (column, lane) whose halves, or which as a whole, say the lane, or the column and
    half.
    """
    columns, lanes = np.meshgrid(
        np.arange(COLUMNS, dtype=np.uint32), np.arange(LANES, dtype=np.uint32), indexing="ij"
    )
    whole = {
        "f32": columns * LANES + lanes,
        "lane": lanes | lanes << 16,
        "half": 2 * columns | 2 * columns + 1 << 16,
    }
    return np.ascontiguousarray(whole[of], np.uint32)


@pytest.mark.parametrize("row", MATRICES, ids=named)
def test_matrices(row: dict[str, Any]) -> None:
    dtype = ELEMENTS[row["dtype"]]
    place = row["rows"], row["first_lane"], 0, row["cols"] * dtype.nbytes // 4
    lanes, columns = np.array(row["lanes"])[:, None], np.array(row["columns"])[None, :]
    if dtype.nbytes == 4:
        got = memory(marks("f32")).values(place, dtype).view(np.uint32)
        np.testing.assert_array_equal(got, columns * LANES + lanes)
        # An MMA writes (columns, rows) through the same view.
        np.testing.assert_array_equal(
            memory(marks("f32")).words(place).reshape(row["cols"], row["rows"]).T,
            columns * LANES + lanes,
        )
    else:
        halves = columns * 2 + np.array(row["bytes"])[None, :] // 2
        for of, wanted in (("lane", lanes), ("half", halves)):
            got = memory(marks(of)).values(place, dtype).astype(dtype.numpy).view(np.uint16)
            np.testing.assert_array_equal(got, np.broadcast_to(wanted, (row["rows"], row["cols"])))
    covered = {lane for r0, r1, _, _ in rects(place) for lane in range(r0, r1)}
    assert covered == set(row["lanes"]), "races are looked for on these lanes"


@pytest.mark.parametrize("row", [row for row in MATRICES if row["dtype"] == "f32"], ids=named)
def test_stores_go_where_loads_read(row: dict[str, Any]) -> None:
    place = row["rows"], row["first_lane"], 0, row["cols"]
    tm = memory(np.zeros((COLUMNS, LANES), np.uint32))
    values = np.arange(row["rows"] * row["cols"], dtype=np.float32).reshape(
        row["rows"], row["cols"]
    )
    TensorMemory.put(tm, place, values, dtypes.float32, [0, 1, 2, 3])
    lanes, columns = np.array(row["lanes"])[:, None], np.array(row["columns"])[None, :]
    np.testing.assert_array_equal(tm.columns.view(np.float32)[columns, lanes], values)


def scale_factors(row: dict[str, Any]) -> TmemScales:
    """The scale factors of a case, from address 0."""
    return TmemScales(
        const(0),
        row["rows"],
        row["steps"] * row["per_step"],
        SCALES[row["scale"]],
        4 * -(-row["rows"] // 128),
        const(0),
    )


def places(row: dict[str, Any]) -> tuple[Array, Array, Array]:
    """(columns, lanes of the first copy, bytes) of the scale factors of a case, each (rows,
    blocks).
    """
    of_row = np.array(table("tmem_scale_factors")["row_places"]["of_row"][: row["rows"]])
    blocks = np.array(row["blocks"])
    column = of_row[:, :1] + blocks[None, :, 0]
    return (
        column,
        np.broadcast_to(of_row[:, 1:], column.shape),
        np.broadcast_to(blocks[None, :, 1], column.shape),
    )


@pytest.mark.parametrize(
    "row",
    rows("tmem_scale_factors", "cases"),
    ids=lambda r: f"{r['kind']} {r['rows']}x{r['steps']}",
)
def test_an_mma_finds_its_scale_factors(row: dict[str, Any]) -> None:
    column, lane, byte = places(row)
    rng, scales, site = (
        np.random.default_rng(0),
        scale_factors(row),
        SimpleNamespace(what="mma", loc=None),
    )
    for _ in range(3):  # marks of 7 bits: several fills tell places apart
        quarter = rng.integers(0, 0x7F, (COLUMNS, 32, 4), np.uint8)
        words = np.tile(quarter, (1, 4, 1)).view(np.uint32).reshape(COLUMNS, LANES)
        tm = memory(np.ascontiguousarray(words))
        place = scale_place(None, site, tm, scales, 0)  # type: ignore[arg-type]
        got = place.values(tm, site).astype(scales.dtype.numpy).view(np.uint8)  # type: ignore[arg-type]
        np.testing.assert_array_equal(got, quarter[column, lane, byte])


@pytest.mark.parametrize(
    "row",
    rows("tmem_scale_factors", "cases"),
    ids=lambda r: f"{r['kind']} {r['rows']}x{r['steps']}",
)
def test_copies_bring_scale_factors_to_all_four_quarters(row: dict[str, Any]) -> None:
    """A tile has pieces of 128 rows × 4 blocks, 16 bytes for each of 32 lanes: rows l, l + 32, l +
    64, l + 96 (README of the tables).
    """
    column, lane, byte = places(row)
    scales = scale_factors(row)
    along, over = -(-scales.blocks // 4), -(-scales.rows // 128)
    matrix = np.random.default_rng(1).integers(0, 256, (128 * over, 4 * along), np.uint8)
    tile = np.concatenate(
        [
            matrix[128 * i : 128 * i + 128, 4 * k : 4 * k + 4].reshape(4, 32, 4).transpose(1, 0, 2)
            for i in range(over)
            for k in range(along)
        ]
    )
    tm = memory(np.zeros((COLUMNS, LANES), np.uint32))
    site: Any = SimpleNamespace(what="copy", loc=None)
    place = scale_place(None, site, tm, scales, 0, whole=True)  # type: ignore[arg-type]
    place.copy(tm, tile.reshape(-1, 16))
    held = tm.columns.view(np.uint8).reshape(COLUMNS, 4, 32, 4)
    for quarter in range(4):
        np.testing.assert_array_equal(
            held[column, quarter, lane, byte], matrix[: scales.rows, : scales.blocks]
        )
