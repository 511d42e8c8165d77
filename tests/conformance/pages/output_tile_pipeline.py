"""The page OutputTilePipeline, and the types that it refers to. Blackwell only."""

from __future__ import annotations

from tests.conformance.table import BLACKWELL, Page, Row

TESTS = "conformance/test_output_tile_pipeline.py::"
TRAFFIC = f"{TESTS}test_traffic"
SHAPE = "pipelines/accumulators/test_output_tiles.py::test_members"
PARTS = f"{TESTS}test_a_stage_by_its_parts"
PLACES = "lang/tensor_memory/test_tensors.py::test_where_stages_lie"
HALVES = "lang/tensor_memory/test_tensors.py::test_halves_of_128_rows"
MEMBERS = f"{TESTS}test_members_of_an_accumulator"
ORDER = "pipelines/accumulators/test_warp_contexts.py::test_their_order"
BY_STEPS = "pipelines/accumulators/test_tensor_memory.py::test_freed_step_by_step"
ADDRESS = "pipelines/accumulators/test_tensor_memory.py::test_each_role_reads_the_address_itself"
STEP = f"{TESTS}test_a_step_of_k_names_both_stages"
PAIRS = "pipelines/barriers/test_pairs.py::"
FLAT, VIEWED, PER_K, SCALED, PAIRED = (
    f"{x}_outputs" for x in ("flat", "viewed", "per_k", "scaled", "paired")
)

OWN = (
    Row("opc", SHAPE, FLAT, ours="OutputTilePipeline.__init__(config=)"),
    Row("pipeline", SHAPE, FLAT),
    Row("tmem", SHAPE, FLAT),
    Row(
        "mma_complete_mask",
        "pipelines/accumulators/test_output_tiles.py::test_the_mask_of_a_pair",
        PAIRED,
    ),
    Row("BarrierArray", SHAPE, FLAT, ours="OutputTilePipeline.BarrierArray"),
    Row("cta_group", SHAPE, FLAT),
    Row("num_stages", SHAPE, FLAT),
    Row("Pipeline", SHAPE, FLAT, ours="OutputTilePipeline.Pipeline"),
    Row("Stage", SHAPE, FLAT, ours="OutputTilePipeline.Stage"),
    Row("stage_stride_cols", SHAPE, FLAT),
    Row("Tmem", SHAPE, FLAT, ours="OutputTilePipeline.Tmem"),
    Row(
        "Copyable",
        f"{TESTS}test_a_copy_has_cursors_of_its_own",
        FLAT,
        ours="OutputTilePipeline.copy",
    ),
    Row("__init__", SHAPE, FLAT),
    Row(
        "init_barriers",
        "pipelines/accumulators/test_output_tiles.py::test_init_barriers_with_the_counts_of_the_rule",
        FLAT,
    ),
    Row("acquire_for_mma", f"{TRAFFIC}[acquire_for_mma]", FLAT),
    Row("release_from_mma", f"{TRAFFIC}[release_from_mma]", FLAT),
    Row("acquire_for_epilogue", f"{TRAFFIC}[acquire_for_epilogue]", FLAT),
    Row("release_from_epilogue", f"{TRAFFIC}[release_from_epilogue]", FLAT),
    Row("producer", f"{TRAFFIC}[producer]", VIEWED),
    Row("consumer", f"{TRAFFIC}[consumer]", VIEWED),
    Row("acquire_mma_linear", f"{TRAFFIC}[acquire_mma_linear]", FLAT),
    Row("acquire_epilogue_linear", f"{TRAFFIC}[acquire_epilogue_linear]", FLAT),
    Row("get_pipeline", SHAPE, FLAT),
    Row("per_k", f"{TRAFFIC}[per_k().produce]", PER_K),
    Row("per_k_epilogue", f"{TRAFFIC}[per_k_epilogue]", SCALED),
)
TENSOR_MEMORY = (
    Row("OutputPipelineConfig", SHAPE, FLAT),
    Row("OutputPipelineConfig.num_stages", SHAPE, FLAT),
    Row("OutputPipelineConfig.stage_stride_cols", SHAPE, FLAT),
    Row("OutputPipelineConfig.cta_group", SHAPE, FLAT),
    Row("TmemAllocation", SHAPE, FLAT),
    Row("TmemAllocation.addr", ADDRESS, FLAT),
    Row("TmemAllocation.allocate", BY_STEPS, FLAT),
    Row("TmemAllocation.from_shared", ADDRESS, FLAT),
    Row("TmemAllocation.release_lock", ORDER, FLAT),
    Row("TmemAllocation.deallocate", BY_STEPS, FLAT),
    Row("TmemStage", PARTS, FLAT),
    Row("TmemStage.index", PARTS, FLAT),
    Row("TmemStage.offset", PLACES, FLAT),
    Row("TmemStage.tensor", PARTS, FLAT),
    Row("TmemStage.load_upper", HALVES, FLAT),
    Row("TmemStage.load_lower", HALVES, FLAT),
    Row("TmemStage.from_offset", PLACES, FLAT),
    Row("TmemTensor", HALVES, FLAT),
    Row("TmemFragments", HALVES, FLAT),
    Row("TmemFragments.upper", HALVES, FLAT),
    Row("TmemFragments.lower", HALVES, FLAT),
    Row("TmemDeallocBarrier", BY_STEPS, FLAT),
    Row("TmemDeallocBarrier.signal_complete", BY_STEPS, FLAT),
    Row("TmemDeallocBarrier.complete_dealloc", ORDER, FLAT),
    Row("MmaWarpContext", ORDER, VIEWED),
    Row("MmaWarpContext.__enter__", ORDER, VIEWED),
    Row("MmaWarpContext.__exit__", ORDER, VIEWED),
    Row("EpilogueWarpContext", ORDER, VIEWED),
    Row("EpilogueWarpContext.__enter__", ORDER, VIEWED),
    Row("EpilogueWarpContext.__exit__", ORDER, VIEWED),
    Row("MmaWarp", ORDER, FLAT),
    Row("MmaWarp.create", ORDER, FLAT),
    Row("MmaWarp.release", ORDER, FLAT),
    Row("EpilogueWarp", ORDER, FLAT),
    Row("EpilogueWarp.create", ORDER, FLAT),
    Row("EpilogueWarp.release", ORDER, FLAT),
)
STAGES = (
    Row("OutputStage", f"{MEMBERS}[OutputStage of the MMA]", FLAT),
    Row("OutputStage.index", f"{MEMBERS}[OutputStage of the MMA]", FLAT),
    Row("OutputStage.tmem", f"{MEMBERS}[OutputStage of the epilogue]", FLAT),
    Row("OutputStage.pipeline", f"{MEMBERS}[OutputStage of the MMA]", FLAT),
    Row("OutputStage.from_raw", PARTS, FLAT),
    Row("OutputProducer", f"{TRAFFIC}[producer]", VIEWED),
    Row("OutputProducer.__enter__", f"{TRAFFIC}[producer]", VIEWED),
    Row("OutputProducer.__exit__", f"{TRAFFIC}[producer]", VIEWED),
    Row("OutputConsumer", f"{TRAFFIC}[consumer]", VIEWED),
    Row("OutputConsumer.__enter__", f"{TRAFFIC}[consumer]", VIEWED),
    Row("OutputConsumer.__exit__", f"{TRAFFIC}[consumer]", VIEWED),
    Row("MmaStage", f"{MEMBERS}[MmaStage]", FLAT),
    Row("MmaStage.tmem", f"{MEMBERS}[MmaStage]", SCALED),
    Row("MmaStage.tmem_offset", f"{MEMBERS}[MmaStage]", FLAT),
    Row("MmaStage.index", f"{MEMBERS}[MmaStage]", FLAT),
    Row("MmaStage.mbar", f"{MEMBERS}[MmaStage]", FLAT),
    Row("MmaStage.release", f"{TRAFFIC}[acquire_mma_linear]", FLAT),
    Row("EpilogueStage", f"{MEMBERS}[EpilogueStage]", FLAT),
    Row("EpilogueStage.tmem", f"{MEMBERS}[EpilogueStage]", FLAT),
    Row("EpilogueStage.tmem_offset", f"{MEMBERS}[EpilogueStage]", FLAT),
    Row("EpilogueStage.index", f"{MEMBERS}[EpilogueStage]", FLAT),
    Row("EpilogueStage.release", f"{TRAFFIC}[acquire_epilogue_linear]", FLAT),
    Row("AccumBarrier", f"{PAIRS}test_accum_barrier", FLAT),
    Row("AccumBarrier.arrive", f"{PAIRS}test_accum_barrier", FLAT),
)
STEPS_OF_K = (
    Row("OutputKPipeline", f"{TRAFFIC}[per_k().produce]", PER_K),
    Row("OutputKPipeline.produce", f"{TRAFFIC}[per_k().produce]", PER_K),
    Row("OutputKPipeline.consume", f"{TRAFFIC}[per_k().consume]", PER_K),
    Row(
        "OutputKPipeline.acquire_k_stage_linear",
        f"{TRAFFIC}[per_k().acquire_k_stage_linear]",
        SCALED,
    ),
    Row("MmaKStage", f"{TRAFFIC}[per_k().produce]", PER_K),
    Row("MmaKStage.__enter__", f"{TRAFFIC}[per_k().produce]", PER_K),
    Row("MmaKStage.__exit__", f"{TRAFFIC}[per_k().produce]", PER_K),
    Row("PerKConsumerStage", f"{TRAFFIC}[per_k().consume]", PER_K),
    Row("PerKConsumerStage.__enter__", f"{TRAFFIC}[per_k().consume]", PER_K),
    Row("PerKConsumerStage.__exit__", f"{TRAFFIC}[per_k().consume]", PER_K),
    Row("EpilogueKContext", f"{TRAFFIC}[per_k_epilogue]", SCALED),
    Row("EpilogueKContext.__enter__", f"{TRAFFIC}[per_k_epilogue]", SCALED),
    Row("EpilogueKContext.__exit__", f"{TRAFFIC}[per_k_epilogue]", SCALED),
    Row("EpilogueKStage", STEP, SCALED),
    Row("EpilogueKStage.output_stage", STEP, SCALED),
    Row("EpilogueKStage.input_stage_index", STEP, SCALED),
    Row("EpilogueKStage.input_pipeline", STEP, SCALED),
    Row("EpilogueKStage.arrive_input", f"{TRAFFIC}[per_k_epilogue, arrive_input]", SCALED),
    Row(
        "accum.promote",
        "pipelines/accumulators/test_per_k.py::test_promote_against_numpy",
        SCALED,
        ours="BlockwiseFP8Accumulator.promote",
    ),
)
FUNCTIONS = (
    Row("mma_arrive", f"{PAIRS}test_a_commit_without_a_mask", FLAT, ours="mma_arrive"),
    Row(
        "mma_arrive_multicast",
        f"{PAIRS}test_a_commit_with_the_mask_of_the_pair",
        PAIRED,
        ours="mma_arrive_multicast",
    ),
    Row(
        "umma_arrive_leader_cta",
        f"{PAIRS}test_umma_arrive_leader_cta",
        PAIRED,
        ours="umma_arrive_leader_cta",
    ),
    Row("elect_one_cta", f"{PAIRS}test_the_even_cta_leads", PAIRED, ours="elect_one_cta"),
    Row("mma_op.mma", f"{TRAFFIC}[mma_op.mma]", FLAT, ours="MmaOp.mma"),
    Row("mma_op.commit", f"{TRAFFIC}[mma_op.commit]", FLAT, ours="MmaOp.commit"),
    Row("lane_id", f"{TESTS}test_lane_id", SCALED, ours="Context.lane"),
)

PAGE = Page(
    "OutputTilePipeline", (*OWN, *TENSOR_MEMORY, *STAGES, *STEPS_OF_K, *FUNCTIONS), BLACKWELL
)
