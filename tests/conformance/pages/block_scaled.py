"""Block-scaled tiles, of the base, and their tensor memory, of OutputTilePipeline. Blackwell
only.
"""

from __future__ import annotations

from tests.conformance.table import BLACKWELL, Page, Row

TESTS = "conformance/test_block_scaled.py::"
PAYLOAD, MEMORY = f"{TESTS}test_a_block_scaled_payload", f"{TESTS}test_block_scaled_tensor_memory"
KERNEL = "block_scaled"

TILES = Page(
    "Base",
    (
        Row("SMemTileArrayWithLayout", f"{TESTS}test_tiles_of_scale_factors", KERNEL),
        Row("BlockScaledTilePayload", PAYLOAD, KERNEL),
        Row("BlockScaledTilePayload.sfa_type", PAYLOAD, KERNEL),
        Row("BlockScaledTilePayload.sfb_type", PAYLOAD, KERNEL),
        Row("BlockScaledTilePayload.sfa_shape", PAYLOAD, KERNEL),
        Row("BlockScaledTilePayload.sfb_shape", PAYLOAD, KERNEL),
        Row("BlockScaledTilePayload.sfa_tiles", PAYLOAD, KERNEL),
        Row("BlockScaledTilePayload.sfb_tiles", PAYLOAD, KERNEL),
        Row("BlockScaledTilePayload.get_tile", PAYLOAD, KERNEL),
    ),
    BLACKWELL,
)
MEMORY_PAGE = Page(
    "OutputTilePipeline",
    (
        Row("BlockScaledTmem", MEMORY, KERNEL),
        Row("BlockScaledTmem.sfa", MEMORY, KERNEL),
        Row("BlockScaledTmem.sfb", MEMORY, KERNEL),
    ),
    BLACKWELL,
)
