"""One ring that K and V share: every derived configuration, the traffic, the numbers, and mistakes
in it.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.pipelines.attention.test_staged import traffic
from tests.support.fused_kv_kernels import (
    BLACKWELL,
    DEFAULT,
    HOPPER,
    in_ring_order,
    late_v,
    two_tiles_of_q,
)
from tests.support.ring_kernels import counts_of, laps
from tests.support.staged_kernels import attend, bind, blackwell, hopper, load_all, operands
from tests.support.tracing import from_text, refused
from tilepipe import cuda

DTYPES, DEPTHS, ROWS = (
    ("bfloat16", "float16", "float8_e4m3"),
    (64, 80, 96, 112, 128, 192, 256),
    (256, 128, 64, 32),
)
DERIVED = [
    config
    for dtype, depth, bm, pair in itertools.product(DTYPES, DEPTHS, ROWS, (False, True))
    if (config := tp.FA4Config(qkv_dtype=dtype, depth=depth, BM=bm, pair_cta=pair)).supported()  # type: ignore[arg-type]
]
CONSTRUCTED = """
parts = cfg.num_qk_stages
if cfg.use_fused_kv:
    k_ring = v_ring = tp.KVPipeline.allocate(ctx, cfg.num_kv_stages, producer_arrivals=1,
        consumer_arrivals=1)
    k_tiles = v_tiles = tp.KVTiles.allocate(ctx, cfg)
else:
    k_ring = tp.KPipeline.allocate(ctx, cfg.num_kv_stages, parts, producer_arrivals=1,
        consumer_arrivals=1, name='k')
    v_ring = tp.VPipeline.allocate(ctx, cfg.num_kv_stages, producer_arrivals=1,
        consumer_arrivals=1, name='v')
    k_tiles = tp.tile_layout_k_major(cfg.qkv_dtype, cfg.k_rows_per_cta(), cfg.BK0).allocate(ctx,
        cfg.num_kv_stages * parts, 'k_tiles')
    v_tiles = tp.tile_layout_mn_major(cfg.qkv_dtype, cfg.v_cols_per_cta(), cfg.BK1).allocate(ctx,
        cfg.num_kv_stages, 'v_tiles')
q = ctx.smem((cfg.BM, cfg.BK0), cfg.qkv_dtype, count=parts, name='q')
for k, v in ((tp.KProducerPipeline, tp.VProducerPipeline), (tp.KConsumerPipeline,
    tp.VConsumerPipeline)):
    found.append((k(k_ring, k_tiles, cfg), v(v_ring, v_tiles, cfg)))
ctx.role('load', warps=1)(lambda: None)
"""


def test_how_many_configurations_there_are() -> None:
    assert (len(DERIVED), sum(bool(c.use_fused_kv) for c in DERIVED)) == (84, 47)


@pytest.mark.parametrize(
    "cfg",
    DERIVED,
    ids=lambda c: f"{c.qkv_dtype}-{c.depth}-{c.BM}-{'pair' if c.pair_cta else 'one'}",
)
def test_every_derived_configuration_can_be_built(cfg: tp.FA4Config) -> None:
    """Rings, tiles and both sides of K and V, beside Q, within the chip's shared memory; in one
    ring the two views of a side step one place, and the tiles lie at the same bytes.
    """
    found: list[Any] = []
    program = from_text(CONSTRUCTED, cfg=cfg, found=found).bind(np.zeros(4, np.int32))
    assert program.kernel.smem_bytes <= cfg.smem_used() <= tp.B200.smem_per_cta
    for k, v in found:
        assert (k.pipeline is v.pipeline) == bool(cfg.use_fused_kv)
        assert (k.smem.tile_bytes, v.smem.tile_bytes) == (
            cfg.bytes_per_k // cfg.num_qk_stages,
            cfg.bytes_per_v,
        )
        assert (k.smem.buffer.offset == v.smem.buffer.offset) == bool(cfg.use_fused_kv)


@pytest.mark.slow
@pytest.mark.parametrize("widths", [(192, 128), (128, 256)])
def test_slots_are_as_large_as_the_larger_tile(widths: tuple[int, int]) -> None:
    """K of depth 192 beside V of 128 columns, and the other way round."""
    cfg = tp.FA4Config(
        qkv_dtype=tp.bfloat16,
        depth=widths[0],
        ov_depth=widths[1],
        BM=64,
        BN=32,
        num_kv_stages=3,
        num_qk_stages=1,
        use_fused_kv=True,
        chip=tp.H200,
    )
    for use in (in_ring_order, late_v):
        q, k, v, out, want = operands(cfg, 5)
        program = bind(hopper(cfg, use=use), cfg, q, k, v, out)
        kv, other = (b for b in program.kernel.buffers if b.name.startswith("kv_tiles"))
        assert (kv.step, other.step, kv.offset) == (
            2 * 32 * max(widths),
            2 * 32 * max(widths),
            other.offset,
        )
        program.run(seed=1)
        assert np.array_equal(out, want)


@pytest.mark.parametrize("tiles", [1, 2, 5])
@pytest.mark.parametrize("use", [in_ring_order, late_v])
def test_on_hopper(use: Any, tiles: int) -> None:
    q, k, v, out, want = operands(HOPPER, tiles)
    program = bind(hopper(HOPPER, use=use), HOPPER, q, k, v, out)
    assert counts_of(program) == {"kv.full": 1, "kv.empty": 1, "q_full": 1}
    for seed in range(3):
        out[:] = 0
        run = program.run(seed=seed)
        assert np.array_equal(out, want)
        assert not run.advice
        assert run.completions["kv.full"] == run.completions["kv.empty"] == [laps(2 * tiles, 3)]


@pytest.mark.parametrize("tiles", [1, 2, 5])
def test_on_blackwell(tiles: int) -> None:
    q, k, v, out, want = operands(BLACKWELL, tiles)
    program = bind(blackwell(BLACKWELL), BLACKWELL, q, k, v, out)
    for seed in range(3):
        out[:] = 0
        run = program.run(seed=seed)
        assert np.array_equal(out, want)
        assert run.completions["kv.empty"] == [laps(2 * tiles, 3)]


def bound(tiles: int) -> tuple[tp.Program, Any, Any]:
    """The default configuration: 256 rows of Q and depth 128."""
    rng = np.random.default_rng(0)
    q = (rng.random((256, 128)) < 0.05).astype(tp.bfloat16.numpy)
    k, v = (
        rng.integers(-1, 2, (tiles * DEFAULT.BN, 128)).astype(tp.bfloat16.numpy) for _ in range(2)
    )
    s = (q.astype(np.float32) @ k.astype(np.float32).T).astype(tp.bfloat16.numpy).astype(np.float32)
    want, out = s @ v.astype(np.float32), np.zeros((256, 128), np.float32)
    maps = (
        tp.tensor_map(x, box=box)
        for x, box in ((q, (128, 128)), (k, (128, 128)), (v.swapaxes(0, 1), (128, 128)))
    )
    return two_tiles_of_q.bind(*maps, out), out, want


@pytest.mark.parametrize("tiles", [1, 2, 4])
def test_two_tiles_of_q(tiles: int) -> None:
    program, out, want = bound(tiles)
    for seed in range(2):
        out[:] = 0
        run = program.run(seed=seed)
        assert np.array_equal(out, want)
        assert run.completions["kv.full"] == run.completions["kv.empty"] == [laps(2 * tiles, 5)]


def test_verified() -> None:
    q, k, v, out, _ = operands(HOPPER, 3)
    assert bind(hopper(HOPPER, use=late_v), HOPPER, q, k, v, out).check().ok
    q, k, v, out, _ = operands(BLACKWELL, 3)
    assert bind(blackwell(BLACKWELL), BLACKWELL, q, k, v, out).check().ok
    verdict = bound(3)[0].check()
    assert verdict.ok, str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("use", [in_ring_order, late_v])
def test_compiles_for_hopper(use: Any) -> None:
    program = bind(hopper(HOPPER, use=use), HOPPER, *operands(HOPPER, 3)[:4])
    assert cuda.compile(program.kernel, arch="sm_90a").spill_bytes == 0


@pytest.mark.slow
def test_compiles_for_blackwell() -> None:
    assert (
        cuda.compile(
            bind(blackwell(BLACKWELL), BLACKWELL, *operands(BLACKWELL, 3)[:4]).kernel,
            arch="sm_100a",
        ).spill_bytes
        == 0
    )
    assert cuda.compile(bound(3)[0].kernel, arch="sm_100a").spill_bytes == 0


@pytest.mark.gpu
@pytest.mark.parametrize("use", [in_ring_order, late_v])
def test_on_a_gpu(use: Any) -> None:
    q, k, v, out, want = operands(HOPPER, 9)
    bind(hopper(HOPPER, use=use), HOPPER, q, k, v, out).launch()
    assert np.array_equal(out, want)


# -- mistakes --------------------------------------------------------------------------


def test_k_of_the_next_tile_before_v_of_this_one() -> None:
    """The order of two rings, S of the next tile ahead of O of this one, takes V's slot for K's:
    the slot holds something else.
    """
    program = bind(hopper(HOPPER, use=attend), HOPPER, *operands(HOPPER, 4)[:4])
    with refused(
        tp.PoisonError,
        "reads kv_tiles_k[1]",
        "The slot holds what was written as kv_tiles_v[1]",
        "place in the ring wrong",
    ):
        program.run()


def test_a_load_into_a_slot_that_the_other_view_still_has() -> None:
    """K of the next lap is loaded over V of this one: a race between two views of the same
    bytes.
    """

    def hasty(r: Any, k: Any, v: Any, tiles: Any) -> None:
        for n in r.ctx.range(tiles):
            with r.ctx.when(n < 1):
                r.k.acquire()
            with r.ctx.elect_one():
                k.async_copy(r.k.get_tile(1), (n * r.cfg.BN, 0))
            r.k.commit_step()
            r.v.acquire()
            with r.ctx.elect_one():
                v.async_copy(r.v.get_tile(1), (0, n * r.cfg.BN))
            r.v.commit_step()

    program = bind(hopper(HOPPER, load=hasty, use=late_v), HOPPER, *operands(HOPPER, 4)[:4])
    words = (
        "race on kv_tiles_k[1] and kv_tiles_v[1], which share their bytes",
        "tma_load v -> kv_tiles_v[1]",
        "tma_load k -> kv_tiles_k[1]",
    )
    with refused(tp.RaceError, *words):
        for seed in range(20):
            program.run(seed=seed)


def test_a_second_drain() -> None:
    def twice(r: Any, k: Any, v: Any, tiles: Any) -> None:
        load_all(r, k, v, tiles)
        r.v.drain()

    with refused(
        tp.TraceError,
        "'kv' is drained at staged_kernels.py",
        "K and V share this ring",
        "Drain one of the two views",
    ):
        bind(hopper(HOPPER, load=twice, use=late_v), HOPPER, *operands(HOPPER, 2)[:4])


def test_one_place_for_both_views_of_a_side() -> None:
    text = """
    ring, tiles = tp.KVPipeline.allocate(ctx, 3, name='kv', producer_arrivals=1,
        consumer_arrivals=1), tp.KVTiles.allocate(ctx, CFG)
    k, v = tp.KProducerPipeline(ring, tiles, CFG), tp.VProducerPipeline(ring, tiles, CFG)
    @ctx.role('load', warps=1)
    def load():
        k.acquire_k(qk_stage=0)
        with ctx.elect_one():
            k.get_k(1, qk_stage=0)
        k.commit_step()
        v.acquire_v()
        with ctx.elect_one():
            v.get_v(1)
        v.commit_step()
    """
    program = from_text(text, CFG=HOPPER).bind(np.zeros(4, np.int32))
    assert [x for x in traffic(program) if x != "elect"] == [
        "wait kv.empty[stage]",
        "expect kv.full[stage] 8192",
        "step kv_producer",
        "wait kv.empty[stage]",
        "expect kv.full[stage] 8192",
        "step kv_producer",
    ]
