"""What the five pages are built on: barriers, arrays in shared memory, places in a ring,
payloads.
"""

from __future__ import annotations

from tests.conformance.table import Page, Row

BASE = "conformance/test_base.py::"
PHASES = f"{BASE}test_phases_of_a_barrier"
PLACE = "pipelines/barriers/test_mbarriers.py::test_a_state_walks_the_ring[4-0-3]"
ARRAY = "pipelines/barriers/test_mbarriers.py::test_an_array_counts_elements"

PAGE = Page(
    "Base",
    (
        Row("SharedMemBarrier", f"{BASE}test_one_barrier_is_eight_bytes", "barriers"),
        Row(
            "SharedMemBarrier.mbar",
            f"{BASE}test_one_barrier_is_eight_bytes",
            "barriers",
            ours="SharedMemBarrier.ref",
        ),
        Row("SharedMemBarrier.init", f"{BASE}test_init_sets_the_count", "barriers"),
        Row("SharedMemBarrier.expect_bytes", f"{PHASES}[expect_bytes]", "barriers"),
        Row("SharedMemBarrier.expect_bytes_relaxed", f"{PHASES}[expect_bytes_relaxed]", "barriers"),
        Row(
            "SharedMemBarrier.arrive_and_expect_bytes",
            f"{PHASES}[arrive_and_expect_bytes]",
            "barriers",
        ),
        Row("SharedMemBarrier.arrive", f"{PHASES}[arrive]", "barriers"),
        Row("SharedMemBarrier.arrive_cluster", f"{PHASES}[arrive_cluster]", "barriers"),
        Row(
            "SharedMemBarrier.wait",
            f"{BASE}test_a_wait_blocks_until_the_phase_is_complete[wait]",
            "barriers",
        ),
        Row(
            "SharedMemBarrier.wait_acquire",
            f"{BASE}test_a_wait_blocks_until_the_phase_is_complete[wait_acquire]",
            "barriers",
        ),
        Row(
            "SharedMemBarrier.wait_relaxed",
            f"{BASE}test_a_wait_blocks_until_the_phase_is_complete[wait_relaxed]",
            "barriers",
        ),
        Row(
            "SharedMemBarrier.try_wait",
            "pipelines/barriers/test_mbarriers.py::test_try_wait_passes_where_wait_would[1]",
            "barriers",
        ),
        Row("SharedMemBarrier.complete_transaction", f"{PHASES}[complete_transaction]", "barriers"),
        Row("SharedMemBarrier.unsafe_ptr", f"{PHASES}[unsafe_ptr]", "barriers"),
        Row("MbarPtr", ARRAY, "barriers"),
        Row("SMemPtr", ARRAY, "barriers"),
        Row("SMemArray", ARRAY, "barriers"),
        Row("SMemArray.__init__", ARRAY, "barriers"),
        Row("SMemArray.__getitem__", f"{BASE}test_an_element_is_a_pointer", "barriers"),
        Row("SMemArray.__len__", ARRAY, "barriers"),
        Row(
            "SMemArray.ptr",
            f"{BASE}test_an_element_is_a_pointer",
            "barriers",
            ours="SMemArray.__getitem__",
        ),
        Row(
            "SMemArray.ptr_type", f"{BASE}test_an_element_is_a_pointer", "barriers", ours="SMemPtr"
        ),
        Row(
            "SMemArray.Storage",
            f"{BASE}test_arrays_lie_one_after_the_other",
            "barriers",
            ours="SMemArray.__init__(size=)",
        ),
        Row("SMemArray.storage_size", ARRAY, "barriers"),
        Row("SMemArray.stack_allocation", ARRAY, "barriers"),
        Row("SMemTileArray2D", ARRAY, "barriers"),
        Row("SMemTileArray2DRowMajor", ARRAY, "barriers"),
        Row("PipelineState", PLACE, "barriers"),
        Row("PipelineState.index", PLACE, "barriers"),
        Row(
            "PipelineState.phase",
            "pipelines/barriers/test_mbarriers.py::test_a_state_walks_the_ring[4-1-5]",
            "barriers",
        ),
        Row("PipelineState.step", PLACE, "barriers"),
        Row("PipelineState.next", PLACE, "barriers"),
        Row("TilePayload", f"{BASE}test_a_payload_of_ones_own", "flat_inputs"),
        Row("StandardTilePayload", f"{BASE}test_a_standard_payload", "flat_inputs"),
        Row("StandardTilePayload.a_type", f"{BASE}test_a_standard_payload", "flat_inputs"),
        Row("StandardTilePayload.b_type", f"{BASE}test_a_standard_payload", "flat_inputs"),
        Row("StandardTilePayload.a_shape", f"{BASE}test_a_standard_payload", "flat_inputs"),
        Row("StandardTilePayload.b_shape", f"{BASE}test_a_standard_payload", "flat_inputs"),
        Row(
            "StandardTilePayload.num_pipeline_stages",
            f"{BASE}test_a_standard_payload",
            "flat_inputs",
            ours="StandardTilePayload.allocate(num_pipeline_stages=)",
        ),
        Row("StandardTilePayload.a_tiles", f"{BASE}test_a_standard_payload", "flat_inputs"),
        Row("StandardTilePayload.b_tiles", f"{BASE}test_a_standard_payload", "flat_inputs"),
        Row("StandardTilePayload.get_tile", f"{BASE}test_a_standard_payload", "flat_inputs"),
        Row("BlockwiseFP8TilePayload", f"{BASE}test_a_payload_with_scales", "scaled_inputs"),
        Row(
            "BlockwiseFP8TilePayload.a_scales_type",
            f"{BASE}test_a_payload_with_scales",
            "scaled_inputs",
        ),
        Row(
            "BlockwiseFP8TilePayload.a_scales_shape",
            f"{BASE}test_a_payload_with_scales",
            "scaled_inputs",
        ),
        Row(
            "BlockwiseFP8TilePayload.a_scales_tiles",
            f"{BASE}test_a_payload_with_scales",
            "scaled_inputs",
        ),
        Row(
            "BlockwiseFP8TilePayload.get_tile", f"{BASE}test_a_payload_with_scales", "scaled_inputs"
        ),
    ),
)
