"""The page ProducerConsumerPipeline."""

from __future__ import annotations

from tests.conformance.table import Page, Row

TESTS = "pipelines/rings/test_producer_consumer.py::"
TRAFFIC = f"{TESTS}test_barrier_traffic"
LAYOUT = f"{TESTS}test_layout_and_bytes"
POINTERS = "pipelines/barriers/test_arrays.py::test_the_barriers_of_a_pipeline"
OWN = "conformance/test_producer_consumer_pipeline.py::"
LINEAR = "pipelines/rings/test_stages.py::"

PAGE = Page(
    "ProducerConsumerPipeline",
    (
        Row(
            "num_stages", LAYOUT, "flat_ring", ours="ProducerConsumerPipeline.__init__(num_stages=)"
        ),
        Row("full", f"{POINTERS}[full[1].arrive]", "flat_ring"),
        Row("empty", f"{POINTERS}[empty[2].arrive]", "flat_ring"),
        Row(
            "Copyable",
            f"{TESTS}test_a_copy_shares_the_barriers",
            "flat_ring",
            ours="ProducerConsumerPipeline.copy",
        ),
        Row("__init__", f"{TESTS}test_both_forms_of_construction[page]", "flat_ring"),
        Row("wait_producer", f"{TRAFFIC}[wait_producer: the consumer waits on full]", "flat_ring"),
        Row("wait_consumer", f"{TRAFFIC}[wait_consumer: the producer waits on empty]", "flat_ring"),
        Row("try_wait_producer", f"{TRAFFIC}[try_wait_producer]", "flat_ring"),
        Row("try_wait_consumer", f"{TRAFFIC}[try_wait_consumer]", "flat_ring"),
        Row("wait_producer_if_needed", f"{TRAFFIC}[wait_producer_if_needed]", "flat_ring"),
        Row("wait_consumer_if_needed", f"{TRAFFIC}[wait_consumer_if_needed]", "flat_ring"),
        Row("producer_mbar", f"{TRAFFIC}[producer_mbar is full]", "flat_ring"),
        Row("consumer_mbar", f"{TRAFFIC}[consumer_mbar is empty]", "flat_ring"),
        Row("producer_stage", f"{OWN}test_cursors[producer]", "flat_ring"),
        Row("consumer_stage", f"{OWN}test_cursors[consumer]", "flat_ring"),
        Row("consumer_step", f"{TRAFFIC}[consumer_step: no barrier traffic]", "flat_ring"),
        Row("producer_step", f"{TRAFFIC}[producer_step: no barrier traffic]", "flat_ring"),
        Row("smem_bytes", LAYOUT, "flat_ring"),
        Row("init_mbars", f"{TESTS}test_both_forms_of_construction[page]", "flat_ring"),
        Row("producer_signal_and_step", f"{TRAFFIC}[producer_signal_and_step]", "signals"),
        Row("consumer_signal_and_step", f"{TRAFFIC}[consumer_signal_and_step]", "signals"),
        Row("produce", f"{TRAFFIC}[produce: waits, steps]", "stages"),
        Row("consume", f"{TRAFFIC}[consume: waits, arrives, steps]", "stages"),
        Row("consume_explicit", f"{TRAFFIC}[consume_explicit: waits, steps]", "stages"),
        Row("acquire_producer", f"{TRAFFIC}[acquire_producer, release]", "stages"),
        Row("acquire_consumer", f"{TRAFFIC}[acquire_consumer, release]", "stages"),
        Row("ProduceContext", f"{LINEAR}test_never_entered[pipe.produce()-words0]", "stages"),
        Row("ProduceContext.__enter__", f"{TRAFFIC}[produce: waits, steps]", "stages"),
        Row("ProduceContext.__exit__", f"{TRAFFIC}[produce: waits, steps]", "stages"),
        Row("ConsumeContext", f"{LINEAR}test_never_entered[pipe.consume()-words1]", "stages"),
        Row("ConsumeContext.__enter__", f"{TRAFFIC}[consume: waits, arrives, steps]", "stages"),
        Row("ConsumeContext.__exit__", f"{TRAFFIC}[consume: waits, arrives, steps]", "stages"),
        Row(
            "ExplicitConsumeContext",
            f"{LINEAR}test_never_entered[pipe.consume_explicit()-words2]",
            "stages",
        ),
        Row(
            "ExplicitConsumeContext.__enter__",
            f"{TRAFFIC}[consume_explicit: waits, steps]",
            "stages",
        ),
        Row(
            "ExplicitConsumeContext.__exit__",
            f"{TRAFFIC}[consume_explicit: waits, steps]",
            "stages",
        ),
        Row("ProducerStage", f"{OWN}test_members_of_a_stage[producer]", "stages"),
        Row("ProducerStage.index", f"{OWN}test_members_of_a_stage[producer]", "stages"),
        Row("ProducerStage.mbar", f"{OWN}test_members_of_a_stage[producer]", "stages"),
        Row("ProducerStage.release", f"{TRAFFIC}[acquire_producer, release]", "stages"),
        Row("ConsumerStage", f"{OWN}test_members_of_a_stage[consumer]", "stages"),
        Row("ConsumerStage.index", f"{OWN}test_members_of_a_stage[consumer]", "stages"),
        Row("ConsumerStage.mbar", f"{OWN}test_members_of_a_stage[consumer]", "stages"),
        Row("ConsumerStage.arrive", f"{TRAFFIC}[consume_explicit, arrive by lane]", "stages"),
        Row("ConsumerStage.release", f"{TRAFFIC}[acquire_consumer, release]", "stages"),
        Row(
            "ConsumerStage.release_without_signal",
            f"{TRAFFIC}[acquire_consumer, release_without_signal]",
            "stages",
        ),
    ),
)
