"""The page TMAProducerPipeline, and the types that it refers to. The kernels are of wgmma: for
Hopper.
"""

from __future__ import annotations

from tests.conformance.table import Page, Row

STAGED = "pipelines/attention/test_staged.py::"
TRAFFIC = f"{STAGED}test_traffic"
ARITHMETIC = f"{STAGED}test_the_arithmetic_of_a_tile"
TILE = f"{STAGED}test_which_tile"
BOTH = f"{STAGED}test_both_constructors"
SHAPE = f"{STAGED}test_the_barriers_and_the_shape"
LAYOUTS = f"{STAGED}test_layouts"
COPIED = f"{STAGED}test_what_a_copy_gets"
ROLE = "pipelines/rings/test_role_pipeline.py::"
SIDE = f"{ROLE}test_traffic"
CONFIG = "pipelines/attention/test_fa4_config.py::"
TILES, ROLES = "staged_tiles", "staged_roles"
INIT = "TMAProducerPipeline.__init__"

OWN = (
    Row("dtype", ARITHMETIC, TILES, ours=f"{INIT}(dtype=)"),
    Row("config", ARITHMETIC, TILES, ours=f"{INIT}(config=)"),
    Row("is_k", ARITHMETIC, TILES, ours=f"{INIT}(is_k=)"),
    Row("pipeline", BOTH, TILES),
    Row("smem", BOTH, TILES),
    Row("bytes", ARITHMETIC, TILES),
    Row("elements", ARITHMETIC, TILES),
    Row("elements_full", ARITHMETIC, TILES),
    Row("KPairType", ARITHMETIC, TILES, ours="TMAProducerPipeline.KPairType"),
    Row("num_qk_stages_effective", ARITHMETIC, TILES),
    Row("PairType", ARITHMETIC, TILES, ours="TMAProducerPipeline.PairType"),
    Row("SMemType", ARITHMETIC, TILES, ours="TMAProducerPipeline.SMemType"),
    Row("tile_bytes", ARITHMETIC, TILES),
    Row("tile_layout", ARITHMETIC, TILES),
    Row("__init__(mbar,smem)", f"{BOTH}[storage-tiles]", TILES, ours=INIT),
    Row("__init__(pipeline,smem)", f"{BOTH}[ring-tiles]", TILES, ours=INIT),
    Row("get_smem", f"{TILE}[k.get_smem(qk_stage=1)-want1]", TILES),
    Row("get_tile", f"{TRAFFIC}[get_tile, e]", TILES),
    Row("acquire", f"{TRAFFIC}[acquire of a part]", TILES),
    Row("commit_step", f"{TRAFFIC}[commit_step]", TILES),
    Row("get_k_smem", f"{TILE}[k.get_k_smem(qk_stage=1)-want2]", TILES),
    Row("get_k", f"{TRAFFIC}[get_k]", TILES),
    Row("acquire_k", f"{TRAFFIC}[acquire_k]", TILES),
    Row("get_v_smem", f"{TILE}[v.get_v_smem()-want5]", TILES),
    Row("get_v", f"{TRAFFIC}[get_v]", TILES),
    Row("acquire_v", f"{TRAFFIC}[acquire_v]", TILES),
)
RINGS = (
    Row("StagedPipeline", SHAPE, ROLES),
    Row("StagedPipeline.mbar", SHAPE, TILES),
    Row("StagedPipeline.state", SHAPE, ROLES),
    Row("StagedPipeline.num_stages", SHAPE, TILES),
    Row("StagedPipeline.num_mbars", SHAPE, TILES),
    Row("StagedPipeline.producer_mbar", f"{TRAFFIC}[producer_mbar]", ROLES),
    Row("StagedPipeline.consumer_mbar", f"{TRAFFIC}[consumer_mbar]", ROLES),
    Row("StagedPipeline.producer_acquire", f"{TRAFFIC}[producer_acquire]", ROLES),
    Row("StagedPipeline.consumer_wait", f"{TRAFFIC}[consumer_wait]", ROLES),
    Row("StagedPipeline.consumer_release", f"{TRAFFIC}[consumer_release]", ROLES),
    Row("StagedPipeline.consumer_release_at", f"{TRAFFIC}[consumer_release_at]", ROLES),
    Row("KPipeline", SHAPE, TILES),
    Row("VPipeline", SHAPE, TILES),
    Row("KVPipeline", SHAPE, TILES),
    Row("TMADestination", COPIED, TILES),
    Row("TMADestination.mbar", COPIED, TILES),
    Row("TMADestination.smem", COPIED, TILES),
    Row("TMAConsumerPipeline", TRAFFIC, TILES),
    Row("TMAConsumerPipeline.get", f"{TILE}[kc.get(qk_stage=1)-want7]", TILES),
    Row("TMAConsumerPipeline.wait", f"{TRAFFIC}[wait]", TILES),
    Row("TMAConsumerPipeline.release", f"{TRAFFIC}[release]", TILES),
    Row("TMAConsumerPipeline.wait_k", f"{TRAFFIC}[wait_k: the last part]", TILES),
    Row("TMAConsumerPipeline.release_k", f"{TRAFFIC}[release_k: the last part]", TILES),
    Row("TMAConsumerPipeline.wait_v", f"{TRAFFIC}[wait_v]", TILES),
    Row("TMAConsumerPipeline.release_v", f"{TRAFFIC}[release_v]", TILES),
    Row("RolePipeline", f"{ROLE}test_over_arrays_of_ones_own", ROLES),
    Row("RolePipeline.acquire", f"{SIDE}[acquire]", ROLES),
    Row("RolePipeline.commit", f"{SIDE}[commit]", ROLES),
    Row("RolePipeline.commit_mma", f"{SIDE}[commit_mma]", ROLES),
    Row("RolePipeline.wait", f"{SIDE}[wait]", ROLES),
    Row("RolePipeline.release", f"{SIDE}[release]", ROLES),
    Row("RolePipeline.release_no_step", f"{SIDE}[release_no_step]", ROLES),
    Row("RolePipeline.step", f"{SIDE}[step]", ROLES),
    Row("ProducerPipeline", SIDE, ROLES),
    Row("ConsumerPipeline", SIDE, ROLES),
    Row("tile_layout_k_major", LAYOUTS, TILES, ours="tile_layout_k_major"),
    Row("tile_layout_mn_major", LAYOUTS, TILES, ours="tile_layout_mn_major"),
    Row("tma_op.async_copy", COPIED, TILES, ours="GlobalTensor.async_copy"),
)
SHAPES = (
    Row("FA4Config", f"{CONFIG}test_the_ring_of_a_known_shape", TILES),
    Row("FA4Config.qkv_dtype", f"{CONFIG}test_types_by_name[qkv_dtype]", TILES),
    Row("FA4Config.rope_dtype", f"{CONFIG}test_types_by_name[rope_dtype]", TILES),
    Row("FA4Config.scale_dtype", f"{CONFIG}test_types_by_name[scale_dtype]", TILES),
    Row("FA4Config.num_kv_stages", f"{CONFIG}test_the_ring_of_a_known_shape", TILES),
    Row("FA4Config.num_qk_stages", f"{CONFIG}test_the_ring_of_a_known_shape", TILES),
    Row("FA4Config.swizzle_mode", f"{CONFIG}test_extents", TILES),
    Row("FA4Config.BK0", f"{CONFIG}test_extents", TILES),
    Row("FA4Config.BK1", f"{CONFIG}test_extents", TILES),
    Row("FA4Config.k_rows_per_cta", f"{CONFIG}test_what_a_cta_of_a_pair_loads", TILES),
    Row("FA4Config.v_cols_per_cta", f"{CONFIG}test_what_a_cta_of_a_pair_loads", TILES),
    Row("FA4Config.supported", f"{CONFIG}test_the_ring_of_a_known_shape", TILES),
)

PAGE = Page("TMAProducerPipeline", (*OWN, *RINGS, *SHAPES), archs=("sm_90a",))
