"""Small changes of members that nobody can notice, each with the reason; and further tests of
members whose row names one.
"""

from __future__ import annotations

BASE, RING, INPUTS, OUTPUTS = (
    f"conformance/test_{x}.py::"
    for x in ("base", "producer_consumer_pipeline", "input_tile_pipeline", "output_tile_pipeline")
)
POINTERS, STAGED, NUMBERS = (
    "pipelines/barriers/test_arrays.py::",
    "pipelines/attention/test_staged.py::",
    "conformance/test_kernels.py::test_gives_what_numpy_gives",
)
EXAMPLES = "conformance/test_page_examples.py::test_gives_what_numpy_gives"
PEER = f"{BASE}test_a_barrier_of_a_peer"

# Our name and the change -> why it changes nothing.
EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "SharedMemBarrier.arrive_and_expect_bytes",
        "the opposite: 'True'",
    ): "pred=True is then a branch on a condition that always holds",
    ("TmemDeallocBarrier.signal_complete", "number +1: '0'"): (
        "the thread's two arrivals, on the peer's barrier and its own, change places; it makes"
        " both before it goes on"
    ),
}
# Our name -> tests below tests/ that also run for its small changes.
ALSO: dict[str, tuple[str, ...]] = {
    "SharedMemBarrier.init": (f"{BASE}test_one_barrier_is_initialised",),
    "SharedMemBarrier.arrive_and_expect_bytes": (PEER,),
    "SharedMemBarrier.arrive_cluster": (
        PEER,
        f"{BASE}test_how_an_arrival_on_a_peers_copy_is_ordered",
    ),
    "SharedMemBarrier.complete_transaction": (PEER,),
    "SMemArray.__init__": (
        f"{BASE}test_init_sets_the_count",
        f"{BASE}test_arrays_lie_one_after_the_other",
        "pipelines/barriers/test_mbarriers.py::test_refused_in_set_up",
    ),
    "ProducerConsumerPipeline.full": (f"{POINTERS}test_the_barriers_of_a_pipeline",),
    "ProducerConsumerPipeline.empty": (f"{POINTERS}test_the_barriers_of_a_pipeline",),
    "ProducerConsumerPipeline.copy": (
        f"{POINTERS}test_every_pipeline_is_copied_with_its_place",
        f"{POINTERS}test_a_copied_pipeline_goes_on_where_the_original_was",
    ),
    "ProducerConsumerPipeline.__init__": (
        f"{POINTERS}test_pointers_that_do_not_fit",
        f"{POINTERS}test_two_pipelines_in_one_array",
        f"{RING}test_numbers_of_stages_that_no_ring_has",
        f"{RING}test_a_ring_of_one_stage_takes_two_barriers",
    ),
    "ProducerConsumerPipeline.init_mbars": (
        f"{RING}test_counts_that_no_barrier_has",
        f"{RING}test_the_largest_and_the_smallest_count",
    ),
    "InputTilePipeline.__init__": (
        f"{INPUTS}test_the_group_size_of_the_constructor",
        f"{INPUTS}test_whose_barrier_gets_the_bytes",
        f"{POINTERS}test_two_pipelines_in_one_array",
    ),
    "InputTilePipeline.init_barriers": (f"{POINTERS}test_two_pipelines_in_one_array",),
    "InputTilePipeline.consumer": (
        f"{INPUTS}test_every_way_to_acquire_has_the_lag",
        f"{INPUTS}test_every_way_to_acquire_counts_who_takes_a_stage",
    ),
    "InputConsumer.acquire_if_needed": (f"{INPUTS}test_every_way_to_acquire_has_the_lag",),
    "InputProducerStage.barrier": (f"{INPUTS}test_whose_barrier_gets_the_bytes",),
    "InputConsumerStage.release": (
        f"{INPUTS}test_whom_a_release_of_tiles_that_mmas_have_read_tells",
    ),
    "OutputTilePipeline.__init__": (
        f"{OUTPUTS}test_columns_that_the_stages_do_not_fit",
        "pipelines/accumulators/test_output_tiles.py::test_the_mask_of_a_pair",
    ),
    "OutputTilePipeline.init_barriers": (f"{OUTPUTS}test_two_rings_of_accumulators_in_one_array",),
    "OutputTilePipeline.release_from_epilogue": (
        f"{OUTPUTS}test_each_release_frees_an_accumulator_of_its_own_pipeline",
    ),
    "TmemStage.from_offset": (f"{OUTPUTS}test_a_stage_by_its_parts",),
    "TmemDeallocBarrier.signal_complete": (
        "pipelines/accumulators/test_tensor_memory.py::test_every_epilogue_thread_of_the_pair_signals",
        "pipelines/accumulators/test_tensor_memory.py::test_the_life_by_hand",
    ),
    "TmemDeallocBarrier.complete_dealloc": (
        "pipelines/accumulators/test_tensor_memory.py::test_it_is_waited_for_before_the_columns_go",
        NUMBERS,
    ),
    "MmaStage.release": (
        f"{OUTPUTS}test_clusters_without_pairs_tell_their_own_cta",
        f"{OUTPUTS}test_a_commit_by_hand_to_one_cta_of_a_pair",
    ),
    "AccumBarrier.arrive": (NUMBERS,),
    "MmaOp.mma": (EXAMPLES, NUMBERS, "lang/tensor_memory/test_addresses.py::test_against_numpy"),
    "MmaOp.commit": (EXAMPLES, f"{OUTPUTS}test_a_commit_by_hand_to_one_cta_of_a_pair"),
    "TMAProducerPipeline.__init__": (f"{STAGED}test_the_arithmetic_of_a_tile", NUMBERS),
    "TMAConsumerPipeline.get": (
        "pipelines/attention/test_staged_mistakes.py::test_refused_while_tracing",
    ),
    "RolePipeline.release_no_step": (
        "pipelines/rings/test_role_pipeline.py::test_a_pair_releases_on_the_even_cta",
    ),
    "GlobalTensor.async_copy": (f"{STAGED}test_a_copy_to_several_ctas",),
}
