"""The page InputTilePipeline."""

from __future__ import annotations

from tests.conformance.table import Page, Row

TESTS = "pipelines/rings/test_input_tiles.py::"
TRAFFIC = f"{TESTS}test_barrier_traffic"
STAGES = f"{TESTS}test_members_of_the_stages"
BUILT = f"{TESTS}test_both_forms_of_construction"
OWN = "conformance/test_input_tile_pipeline.py::"
ENTER = f"{OWN}test_entering_gives_the_thing_itself"

PAGE = Page(
    "InputTilePipeline",
    (
        Row("Payload", STAGES, "flat_inputs", ours="InputTilePipeline.__init__(payload=)"),
        Row(
            "num_group_stages",
            STAGES,
            "flat_inputs",
            ours="InputTilePipeline.__init__(num_group_stages=)",
        ),
        Row(
            "k_group_size",
            f"{TESTS}test_groups_of_k_tiles[5-3]",
            "flat_inputs",
            ours="InputTilePipeline.__init__(k_group_size=)",
        ),
        Row("pipeline", STAGES, "flat_inputs"),
        Row("payload", STAGES, "flat_inputs"),
        Row("BarrierArray", STAGES, "flat_inputs", ours="InputTilePipeline.BarrierArray"),
        Row("Pipeline", STAGES, "flat_inputs", ours="InputTilePipeline.Pipeline"),
        Row(
            "Copyable",
            f"{OWN}test_a_copy_has_cursors_of_its_own",
            "flat_inputs",
            ours="InputTilePipeline.copy",
        ),
        Row("__init__", BUILT, "flat_inputs"),
        Row("init_barriers", BUILT, "flat_inputs"),
        Row(
            "try_acquire_producer",
            f"{TRAFFIC}[try_acquire_producer asks for a free slot]",
            "flat_inputs",
        ),
        Row(
            "try_acquire_consumer", f"{TRAFFIC}[try_acquire_consumer asks for data]", "flat_inputs"
        ),
        Row(
            "wait_producer_if_needed",
            f"{TRAFFIC}[wait_producer_if_needed is the consumer's]",
            "flat_inputs",
        ),
        Row(
            "wait_consumer_if_needed",
            f"{TRAFFIC}[wait_consumer_if_needed is the producer's]",
            "flat_inputs",
        ),
        Row("producer_stage", f"{OWN}test_cursors[producer]", "flat_inputs"),
        Row("consumer_stage", f"{OWN}test_cursors[consumer]", "flat_inputs"),
        Row("producer_mbar", f"{OWN}test_barriers_of_a_stage[producer]", "flat_inputs"),
        Row("consumer_mbar", f"{OWN}test_barriers_of_a_stage[consumer]", "flat_inputs"),
        Row("producer", f"{TRAFFIC}[producer().acquire: ProducerTiles]", "viewed_inputs"),
        Row("consumer", f"{TRAFFIC}[consumer().acquire: ConsumerTiles]", "viewed_inputs"),
        Row("acquire_producer", f"{TRAFFIC}[acquire_producer]", "flat_inputs"),
        Row("acquire_consumer", f"{TRAFFIC}[acquire_consumer]", "flat_inputs"),
        Row("drain_producer", f"{TRAFFIC}[drain_producer]", "flat_inputs"),
        Row("InputProducer", STAGES, "viewed_inputs"),
        Row("InputProducer.__enter__", f"{ENTER}[inputs.producer()-pass]", "viewed_inputs"),
        Row(
            "InputProducer.__exit__",
            f"{TRAFFIC}[leaving the producer view does not drain]",
            "viewed_inputs",
            kept="leaving the view does nothing by definition",
        ),
        Row(
            "InputProducer.acquire",
            f"{TRAFFIC}[producer().acquire: ProducerTiles]",
            "viewed_inputs",
        ),
        Row("InputProducer.acquire_stage", f"{TRAFFIC}[producer().acquire_stage]", "viewed_inputs"),
        Row(
            "InputProducer.try_acquire",
            f"{TRAFFIC}[producer().try_acquire, acquire_if_needed]",
            "viewed_inputs",
        ),
        Row(
            "InputProducer.acquire_if_needed",
            f"{TRAFFIC}[producer().try_acquire, acquire_if_needed]",
            "viewed_inputs",
        ),
        Row("InputProducer.drain", f"{TRAFFIC}[producer().drain]", "viewed_inputs"),
        Row("InputConsumer", STAGES, "viewed_inputs"),
        Row("InputConsumer.__enter__", f"{ENTER}[inputs.consumer()-pass]", "viewed_inputs"),
        Row(
            "InputConsumer.__exit__",
            f"{OWN}test_leaving_the_consumers_view_frees_the_last_stages",
            "viewed_inputs",
        ),
        Row(
            "InputConsumer.acquire",
            f"{TRAFFIC}[consumer().acquire: ConsumerTiles]",
            "viewed_inputs",
        ),
        Row("InputConsumer.acquire_stage", f"{TRAFFIC}[consumer().acquire_stage]", "viewed_inputs"),
        Row(
            "InputConsumer.try_acquire",
            f"{TRAFFIC}[consumer().try_acquire, acquire_if_needed]",
            "viewed_inputs",
        ),
        Row(
            "InputConsumer.acquire_if_needed",
            f"{TRAFFIC}[consumer().try_acquire, acquire_if_needed]",
            "viewed_inputs",
        ),
        Row("InputProducerStage", STAGES, "flat_inputs"),
        Row(
            "InputProducerStage.payload",
            f"{OWN}test_members_of_a_stage[InputProducerStage]",
            "flat_inputs",
        ),
        Row(
            "InputProducerStage.stage",
            f"{OWN}test_members_of_a_stage[InputProducerStage]",
            "flat_inputs",
        ),
        Row(
            "InputProducerStage.barrier",
            f"{OWN}test_members_of_a_stage[InputProducerStage]",
            "flat_inputs",
        ),
        Row(
            "InputProducerStage.expect_bytes",
            f"{OWN}test_expect_bytes_is_the_one_arrival[InputProducerStage]",
            "flat_inputs",
        ),
        Row("InputProducerStage.release", f"{TRAFFIC}[acquire_producer]", "flat_inputs"),
        Row("InputConsumerStage", STAGES, "flat_inputs"),
        Row(
            "InputConsumerStage.payload",
            f"{OWN}test_members_of_a_stage[InputConsumerStage]",
            "flat_inputs",
        ),
        Row(
            "InputConsumerStage.stage",
            f"{OWN}test_members_of_a_stage[InputConsumerStage]",
            "flat_inputs",
        ),
        Row(
            "InputConsumerStage.mbar",
            f"{OWN}test_members_of_a_stage[InputConsumerStage]",
            "flat_inputs",
        ),
        Row("InputConsumerStage.release", f"{TRAFFIC}[acquire_consumer]", "flat_inputs"),
        Row("ConsumerTiles", STAGES, "viewed_inputs"),
        Row(
            "ConsumerTiles.payload", f"{OWN}test_members_of_a_stage[ConsumerTiles]", "viewed_inputs"
        ),
        Row("ConsumerTiles.stage", f"{OWN}test_members_of_a_stage[ConsumerTiles]", "viewed_inputs"),
        Row("ConsumerTiles.mbar", f"{OWN}test_members_of_a_stage[ConsumerTiles]", "viewed_inputs"),
        Row(
            "ConsumerTiles.__enter__",
            f"{ENTER}[inputs.consumer().acquire()-view.mbar().arrive()]",
            "viewed_inputs",
        ),
        Row(
            "ConsumerTiles.__exit__",
            f"{TRAFFIC}[consumer().acquire: ConsumerTiles]",
            "viewed_inputs",
        ),
    ),
)
