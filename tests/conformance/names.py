"""Every name that the five API pages define or mention, page by page: what the table must have a
row for.

A type that a page only names stands here with its members. `Base` is what all five are built on.
The lists are kept apart from the rows, so that a row that is forgotten is missing somewhere.
"""

from __future__ import annotations

NAMES: dict[str, str] = {
    "Base": """
        SharedMemBarrier SharedMemBarrier.mbar SharedMemBarrier.init SharedMemBarrier.expect_bytes
        SharedMemBarrier.expect_bytes_relaxed
        SharedMemBarrier.arrive_and_expect_bytes SharedMemBarrier.arrive
        SharedMemBarrier.arrive_cluster SharedMemBarrier.wait
        SharedMemBarrier.wait_acquire SharedMemBarrier.wait_relaxed SharedMemBarrier.try_wait
        SharedMemBarrier.complete_transaction
        SharedMemBarrier.unsafe_ptr
        MbarPtr SMemPtr
        SMemArray SMemArray.__init__ SMemArray.__getitem__ SMemArray.__len__ SMemArray.ptr
        SMemArray.ptr_type SMemArray.Storage
        SMemArray.storage_size SMemArray.stack_allocation
        SMemTileArray2D SMemTileArray2DRowMajor SMemTileArrayWithLayout
        PipelineState PipelineState.index PipelineState.phase PipelineState.step PipelineState.next
        TilePayload
        StandardTilePayload StandardTilePayload.a_type StandardTilePayload.b_type
        StandardTilePayload.a_shape StandardTilePayload.b_shape
        StandardTilePayload.num_pipeline_stages StandardTilePayload.a_tiles
        StandardTilePayload.b_tiles StandardTilePayload.get_tile
        BlockwiseFP8TilePayload BlockwiseFP8TilePayload.a_scales_type
        BlockwiseFP8TilePayload.a_scales_shape
        BlockwiseFP8TilePayload.a_scales_tiles BlockwiseFP8TilePayload.get_tile
        BlockScaledTilePayload BlockScaledTilePayload.sfa_type BlockScaledTilePayload.sfb_type
        BlockScaledTilePayload.sfa_shape
        BlockScaledTilePayload.sfb_shape BlockScaledTilePayload.sfa_tiles
        BlockScaledTilePayload.sfb_tiles
        BlockScaledTilePayload.get_tile
    """,
    "ProducerConsumerPipeline": """
        num_stages full empty Copyable __init__
        wait_producer wait_consumer try_wait_producer try_wait_consumer wait_producer_if_needed
        wait_consumer_if_needed
        producer_mbar consumer_mbar producer_stage consumer_stage consumer_step producer_step
        smem_bytes init_mbars
        producer_signal_and_step consumer_signal_and_step produce consume consume_explicit
        acquire_producer acquire_consumer
        ProduceContext ProduceContext.__enter__ ProduceContext.__exit__
        ConsumeContext ConsumeContext.__enter__ ConsumeContext.__exit__
        ExplicitConsumeContext ExplicitConsumeContext.__enter__ ExplicitConsumeContext.__exit__
        ProducerStage ProducerStage.index ProducerStage.mbar ProducerStage.release
        ConsumerStage ConsumerStage.index ConsumerStage.mbar ConsumerStage.arrive
        ConsumerStage.release
        ConsumerStage.release_without_signal
    """,
    "InputTilePipeline": """
        Payload num_group_stages k_group_size pipeline payload BarrierArray Pipeline Copyable
        __init__ init_barriers
        try_acquire_producer try_acquire_consumer wait_producer_if_needed wait_consumer_if_needed
        producer_stage consumer_stage
        producer_mbar consumer_mbar producer consumer acquire_producer acquire_consumer
        drain_producer
        InputProducer InputProducer.__enter__ InputProducer.__exit__ InputProducer.acquire
        InputProducer.acquire_stage
        InputProducer.try_acquire InputProducer.acquire_if_needed InputProducer.drain
        InputConsumer InputConsumer.__enter__ InputConsumer.__exit__ InputConsumer.acquire
        InputConsumer.acquire_stage
        InputConsumer.try_acquire InputConsumer.acquire_if_needed
        InputProducerStage InputProducerStage.payload InputProducerStage.stage
        InputProducerStage.barrier
        InputProducerStage.expect_bytes InputProducerStage.release
        InputConsumerStage InputConsumerStage.payload InputConsumerStage.stage
        InputConsumerStage.mbar InputConsumerStage.release
        ConsumerTiles ConsumerTiles.payload ConsumerTiles.stage ConsumerTiles.mbar
        ConsumerTiles.__enter__ ConsumerTiles.__exit__
    """,
    "ProducerTiles": """
        Payload num_group_stages k_group_size pipeline_ptr PipelineType __init__ payload stage
        expect_bytes barrier __enter__ __exit__
    """,
    "OutputTilePipeline": """
        opc pipeline tmem mma_complete_mask BarrierArray cta_group num_stages Pipeline Stage
        stage_stride_cols Tmem
        Copyable __init__ init_barriers acquire_for_mma release_from_mma acquire_for_epilogue
        release_from_epilogue producer consumer
        acquire_mma_linear acquire_epilogue_linear get_pipeline per_k per_k_epilogue
        OutputPipelineConfig OutputPipelineConfig.num_stages OutputPipelineConfig.stage_stride_cols
        OutputPipelineConfig.cta_group
        TmemAllocation TmemAllocation.addr TmemAllocation.allocate TmemAllocation.from_shared
        TmemAllocation.release_lock
        TmemAllocation.deallocate
        TmemStage TmemStage.index TmemStage.offset TmemStage.tensor TmemStage.load_upper
        TmemStage.load_lower TmemStage.from_offset
        TmemTensor TmemFragments TmemFragments.upper TmemFragments.lower BlockScaledTmem
        BlockScaledTmem.sfa BlockScaledTmem.sfb
        TmemDeallocBarrier TmemDeallocBarrier.signal_complete TmemDeallocBarrier.complete_dealloc
        OutputStage OutputStage.index OutputStage.tmem OutputStage.pipeline OutputStage.from_raw
        OutputProducer OutputProducer.__enter__ OutputProducer.__exit__ OutputConsumer
        OutputConsumer.__enter__ OutputConsumer.__exit__
        MmaStage MmaStage.tmem MmaStage.tmem_offset MmaStage.index MmaStage.mbar MmaStage.release
        EpilogueStage EpilogueStage.tmem EpilogueStage.tmem_offset EpilogueStage.index
        EpilogueStage.release
        OutputKPipeline OutputKPipeline.produce OutputKPipeline.consume
        OutputKPipeline.acquire_k_stage_linear
        MmaKStage MmaKStage.__enter__ MmaKStage.__exit__
        PerKConsumerStage PerKConsumerStage.__enter__ PerKConsumerStage.__exit__
        EpilogueKContext EpilogueKContext.__enter__ EpilogueKContext.__exit__
        EpilogueKStage EpilogueKStage.output_stage EpilogueKStage.input_stage_index
        EpilogueKStage.input_pipeline
        EpilogueKStage.arrive_input
        AccumBarrier AccumBarrier.arrive mma_arrive mma_arrive_multicast umma_arrive_leader_cta
        elect_one_cta
        MmaWarpContext MmaWarpContext.__enter__ MmaWarpContext.__exit__
        EpilogueWarpContext EpilogueWarpContext.__enter__ EpilogueWarpContext.__exit__
        MmaWarp MmaWarp.create MmaWarp.release EpilogueWarp EpilogueWarp.create EpilogueWarp.release
        mma_op.mma mma_op.commit accum.promote lane_id
    """,
    "TMAProducerPipeline": """
        dtype config is_k pipeline smem bytes elements elements_full KPairType
        num_qk_stages_effective PairType SMemType tile_bytes
        tile_layout __init__(mbar,smem) __init__(pipeline,smem) get_smem get_tile acquire
        commit_step get_k_smem get_k acquire_k
        get_v_smem get_v acquire_v
        StagedPipeline StagedPipeline.mbar StagedPipeline.state StagedPipeline.num_stages
        StagedPipeline.num_mbars
        StagedPipeline.producer_mbar StagedPipeline.consumer_mbar StagedPipeline.producer_acquire
        StagedPipeline.consumer_wait
        StagedPipeline.consumer_release StagedPipeline.consumer_release_at KPipeline VPipeline
        KVPipeline
        TMADestination TMADestination.mbar TMADestination.smem
        TMAConsumerPipeline TMAConsumerPipeline.get TMAConsumerPipeline.wait
        TMAConsumerPipeline.release TMAConsumerPipeline.wait_k
        TMAConsumerPipeline.release_k TMAConsumerPipeline.wait_v TMAConsumerPipeline.release_v
        RolePipeline RolePipeline.acquire RolePipeline.commit RolePipeline.commit_mma
        RolePipeline.wait RolePipeline.release
        RolePipeline.release_no_step RolePipeline.step ProducerPipeline ConsumerPipeline
        tile_layout_k_major tile_layout_mn_major tma_op.async_copy
        FA4Config FA4Config.qkv_dtype FA4Config.rope_dtype FA4Config.scale_dtype
        FA4Config.num_kv_stages FA4Config.num_qk_stages
        FA4Config.swizzle_mode FA4Config.BK0 FA4Config.BK1 FA4Config.k_rows_per_cta
        FA4Config.v_cols_per_cta FA4Config.supported
    """,
}

TO_COME: dict[str, str] = {}  # page, or "page: name" -> what it will be


def names(page: str) -> list[str]:
    """The names of a page, in the order of the list."""
    return NAMES[page].split()


def to_come(page: str, name: str) -> bool:
    """Whether a name is known to be missing."""
    return page in TO_COME or f"{page}: {name}" in TO_COME
