"""The page ProducerTiles."""

from __future__ import annotations

from tests.conformance.table import Page, Row

TRAFFIC = (
    "pipelines/rings/test_input_tiles.py::test_barrier_traffic[producer().acquire: ProducerTiles]"
)
STAGES = "pipelines/rings/test_input_tiles.py::test_members_of_the_stages"
MEMBERS = "conformance/test_input_tile_pipeline.py::test_members_of_a_stage[ProducerTiles]"
BYTES = (
    "conformance/test_input_tile_pipeline.py::test_expect_bytes_is_the_one_arrival[ProducerTiles]"
)
BUILT = "conformance/test_input_tile_pipeline.py::test_tiles_by_the_constructor_of_the_page"
ENTER = (
    "conformance/test_input_tile_pipeline.py::test_entering_gives_the_thing_itself"
    "[inputs.producer().acquire()-view.expect_bytes(0)]"
)

PAGE = Page(
    "ProducerTiles",
    (
        Row("Payload", STAGES, "viewed_inputs", ours="InputTilePipeline.allocate(payload=)"),
        Row(
            "num_group_stages",
            STAGES,
            "viewed_inputs",
            ours="InputTilePipeline.allocate(num_group_stages=)",
        ),
        Row(
            "k_group_size",
            STAGES,
            "viewed_inputs",
            ours="InputTilePipeline.allocate(k_group_size=)",
        ),
        Row("pipeline_ptr", MEMBERS, "viewed_inputs", ours="ProducerTiles.pipeline_ptr"),
        Row("PipelineType", MEMBERS, "viewed_inputs", ours="ProducerTiles.PipelineType"),
        Row("__init__", BUILT, "viewed_inputs"),
        Row("payload", MEMBERS, "viewed_inputs"),
        Row("stage", MEMBERS, "viewed_inputs"),
        Row("expect_bytes", BYTES, "viewed_inputs"),
        Row("barrier", MEMBERS, "viewed_inputs"),
        Row("__enter__", ENTER, "viewed_inputs"),
        Row("__exit__", TRAFFIC, "viewed_inputs"),
    ),
)
