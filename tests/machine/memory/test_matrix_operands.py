"""Matrix descriptors, against those that CUTLASS computes and against the layout of tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.golden.tables import rows
from tests.support.machine.matrix_descriptors import wgmma_bits
from tilepipe.errors import SimFault
from tilepipe.ir import dtypes
from tilepipe.ir.layout import byte_offsets
from tilepipe.ir.memory import SmemBuffer
from tilepipe.machine.memory.matrix_operands import MatrixDescriptor, operand_places

ROWS = rows("smem_descriptors")
TYPES = {8: dtypes.int8, 16: dtypes.bfloat16, 32: dtypes.float32}


def tile_of(case: dict[str, Any]) -> SmemBuffer:
    """The tile of a row of the table; two elements of 4 bits are one of 8 bits."""
    bits, k = max(case["bits"], 8), case["k"] * case["bits"] // max(case["bits"], 8)
    order = "row" if case["major"] == "K" else "col"
    return SmemBuffer("tile", TYPES[bits], 1, case["mn"], k, order, case["swizzle"])


@pytest.mark.parametrize("major", ["K", "MN"])
def test_a_descriptor_names_the_bytes_of_its_tile(major: str) -> None:
    """Each step along K of each of CUTLASS's descriptors reads the elements that the layout of the
    tile puts there.
    """
    seen = 0
    for case in (row for row in ROWS if row["major"] == major):
        tile = tile_of(case)
        each = 32 // tile.dtype.nbytes
        for step, text in enumerate(case["descriptors"]):
            descriptor = MatrixDescriptor.of_tcgen05(int(text, 16))
            assert descriptor.swizzle == case["swizzle"]
            m, k = np.arange(tile.rows)[:, None], step * each + np.arange(each)
            want = case["start"] + byte_offsets(tile, m, k)
            got = operand_places(descriptor, tile.rows, tile.dtype.nbytes, k_major=major == "K")
            assert (got[..., 0] == want).all(), (case, step)
            seen += 1
    assert seen > 300


def test_without_a_swizzle_the_offsets_lead_from_one_core_matrix_to_the_next() -> None:
    """PTX ISA, canonical layouts without swizzle: core matrices of 8 rows of 16 bytes."""
    d = MatrixDescriptor(start=64, leading=1024, stride=256, swizzle=0)
    at = operand_places(d, 16, 2, k_major=True)
    assert at[0, 0].tolist() == [64, 65]
    assert at[1, 7, 0] == 64 + 16 + 14
    assert at[8, 0, 0] == 64 + 256
    assert at[9, 8, 0] == 64 + 256 + 16 + 1024
    turned = operand_places(d, 16, 2, k_major=False)
    assert turned[8, 0, 0] == 64 + 256
    assert turned[9, 9, 0] == 64 + 256 + 2 + 1024 + 16


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_wgmma_bits_and_fields(swizzle: int) -> None:
    d = MatrixDescriptor(start=0x4400, leading=0x80, stride=0x400, swizzle=swizzle)
    assert MatrixDescriptor.of_wgmma(wgmma_bits(d)) == d


def test_bits_that_nothing_is_known_of_are_refused() -> None:
    with pytest.raises(SimFault, match="base offset 0"):
        MatrixDescriptor.of_wgmma(1 << 49)
    with pytest.raises(SimFault, match=r"the bits 0x20000000000000 are set"):
        MatrixDescriptor.of_tcgen05(1 << 46 | 1 << 53)
    with pytest.raises(SimFault, match="bits 46-48 are 0; they must be 1"):
        MatrixDescriptor.of_tcgen05(2 << 61)
    with pytest.raises(SimFault, match="the swizzle in bits 61-63 is 3; there are 0, 1, 2, 4"):
        MatrixDescriptor.of_tcgen05(1 << 46 | 3 << 61)
    with pytest.raises(SimFault, match="base offset in bits 49-51 is 5; only 0 is modelled"):
        MatrixDescriptor.of_tcgen05(1 << 46 | 5 << 49 | 2 << 61)
    with pytest.raises(SimFault, match="bit 52 is set: an absolute address"):
        MatrixDescriptor.of_tcgen05(1 << 46 | 1 << 52)
