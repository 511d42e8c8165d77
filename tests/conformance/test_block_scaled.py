"""Block-scaled tiles and their tensor memory: the members that the pages name, each seen to do
something.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.conformance.kernels_block_scaled import PAYLOAD
from tests.support.tracing import from_text, refused

SET_UP = """
held = PAYLOAD.allocate(ctx, 6, 'inputs')
config = tp.OutputPipelineConfig(2, 64)
tmem = tp.BlockScaledTmem(ctx, config, PAYLOAD)
"""


def found_by(text: str) -> list[Any]:
    """What `found` holds after a kernel with this in its only role, of one warp that has allocated
    `tmem`.
    """
    found: list[Any] = []
    body = "\n".join(
        f"    {line}" for line in f"tmem.allocate()\n{text}\ntmem.deallocate()".splitlines()
    )
    from_text(
        SET_UP + "@ctx.role('one', warps=1)\ndef one():\n" + body, PAYLOAD=PAYLOAD, found=found
    ).bind(np.zeros(4, np.int32))
    return found


def test_a_block_scaled_payload() -> None:
    """Four tiles: A and B, and their scale factors in whole pieces of 512 bytes; a stage's bytes
    include them.
    """
    found = found_by(
        "found.extend([held, *(x.ir('read').index.value for x in held.get_tile(1, 2,"
        " k_group_size=3))])"
    )
    held, *indices = found
    assert indices == [5, 5, 5, 5]
    for name in ("a", "b", "sfa", "sfb"):
        (tile,) = found_by(f"found.append(held.get_{name}_tile(1, 2, k_group_size=3).ir('read'))")
        assert (tile.buffer.name, tile.index.value) == (f"inputs_{name}", 5)
    assert (held.sfa_type, held.sfb_type, held.sfa_shape, held.sfb_shape) == (
        "float8_e8m0",
        "float8_e8m0",
        (128, 4),
        (64, 4),
    )
    assert [len(x) for x in (held.a_tiles, held.b_tiles, held.sfa_tiles, held.sfb_tiles)] == [6] * 4
    assert [x.tile_bytes for x in (held.sfa_tiles, held.sfb_tiles)] == [512, 512]
    assert held.tile_bytes == (128 + 64) * 128 + 2 * 512


@pytest.mark.parametrize(
    ("rows", "blocks", "shape"),
    [(128, 4, (2, 256)), (64, 4, (2, 256)), (256, 8, (8, 256)), (129, 5, (8, 256))],
)
def test_tiles_of_scale_factors(rows: int, blocks: int, shape: tuple[int, int]) -> None:
    """Whole pieces of 128 rows × 4 blocks, as lines of 256 bytes, unswizzled."""
    found: list[Any] = []
    text = f"""
    tiles = tp.SMemTileArrayWithLayout(ctx, 'float8_e8m0', tp.scale_factor_k_major({rows},
        {blocks}), 3)
    found.extend([tiles, (tiles.buffer.rows, tiles.buffer.cols), tiles.buffer.swizzle])
    ctx.role('one', warps=1)(lambda: None)
    """
    from_text(text, found=found).bind(np.zeros(4, np.int32))
    tiles, lines, swizzle = found
    assert (lines, swizzle, len(tiles), tiles.layout) == (
        shape,
        0,
        3,
        tp.scale_factor_k_major(rows, blocks),
    )


def test_block_scaled_tensor_memory() -> None:
    """Accumulators | SFA | SFB: 2 × 64, 4 and 4 columns; 256 are allocated."""
    (tmem, *starts) = found_by(
        "found.extend([tmem, *(x.offset() for x in (tmem.sfa(), tmem.sfb()))])"
    )
    assert (tmem.sfa_offset, tmem.sfa_cols, tmem.sfb_offset, tmem.sfb_cols, tmem.columns) == (
        128,
        4,
        132,
        4,
        256,
    )
    texts = [repr(x) for x in starts]
    assert ("128" in texts[0], "132" in texts[1]) == (True, True)


def test_more_than_tensor_memory_has() -> None:
    with refused(
        tp.TraceError,
        "2 accumulators × 256 columns + 4 of SFA + 4 of SFB = 520, but tensor memory has 512",
    ):
        from_text(
            "tp.BlockScaledTmem(ctx, tp.OutputPipelineConfig(2, 256), PAYLOAD)", PAYLOAD=PAYLOAD
        ).bind(np.zeros(4, np.int32))
