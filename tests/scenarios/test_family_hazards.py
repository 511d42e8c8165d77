"""Sixteen hazards met in GEMM and attention kernels of this family, and what catches each, or makes
it impossible.

| hazard | caught, or made impossible, by |
|---|---|
| 1 a row that sees no key: a trip count of `tiles - 1` for none | here; the shipped kernels:
`test_a_row_without_keys_is_zero` |
| 2 a producer that is not given the consumers' part of K | here |
| 3 a setting that only some roles know: how often P is handed over | here |
| 4 a ring too small for what is held at once | `FA4Config.broken_rule`;
`test_a_ring_too_small_for_what_is_held_at_once` |
| 5 one stride for the producer and another for the consumer | `test_staged_mistakes`: slots of
another size, order, swizzle, type |
| 6 a reservation of shared memory that is short | impossible: the layout is derived, here |
| 7 a remote arrival before the barrier is initialised |
`test_a_remote_arrival_before_the_initialisation_is_visible` |
| 8 warps that return before a barrier of the whole cluster | no hang, here: who has exited is not
waited for (PTX ISA, barrier.cluster) |
| 9 the address of tensor memory read before it is published |
`test_tmem.test_the_address_read_without_a_barrier` |
| 10 a CTA that does not let the next kernel in | no hang: its end does;
`test_every_cta_lets_the_next_kernel_in` |
| 11 0 · NaN from what no copy has written | here: TMA fills with zeros; anything else is poison |
| 12 asking for the next tile before the throttle is told |
`test_fetching_before_the_throttle_is_told` |
| 13 more prefetched than the ring holds | here |
| 14 a copy that is left out, and its bytes | here |
| 15 warp contexts with several tiles to a stage | here |
| 16 the second of two tiles, where there is one | here |
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.pipelines.attention.test_staged import role
from tests.scenarios.support import at, clean, faults
from tests.support import staged_kernels as staged
from tests.support.staged_kernels import (
    BLACKWELL,
    HOPPER,
    Rings,
    attend,
    bind,
    blackwell,
    hopper,
    load_all,
    multiply_k,
    multiply_v,
)


def where(mark: str) -> str:
    return at(__file__, mark)


def attention(tiles: int = 5, **changes: Any) -> tp.Program:
    return bind(hopper(**changes), HOPPER, *staged.operands(HOPPER, tiles)[:4])


@pytest.mark.slow
def test_1_a_row_that_sees_no_key() -> None:
    """The load role makes no tile; the MMAs of the first are in front of the loop."""
    program = attention(load=lambda r, k, v, tiles: load_all(r, k, v, tiles * 0))
    faults(program, tp.DeadlockError, "role 'mma'", "k.full[0]", "1 of 1 arrivals")


def guarded(r: Rings, o: Any, q: Any, tiles: Any) -> None:
    with r.ctx.when(tiles * 0 > 0):
        attend(r, o, q, tiles)


def test_1_guarded() -> None:
    q, k, v, out, _ = staged.operands(HOPPER, 3)
    program = bind(
        hopper(load=lambda r, k, v, tiles: load_all(r, k, v, tiles * 0), use=guarded),
        HOPPER,
        q,
        k,
        v,
        out,
    )
    for _ in clean(program):
        assert not out.any()


@pytest.mark.parametrize("tiles", [4, 5, 8])
def test_2_the_producer_loads_more_than_its_consumers_part(tiles: int) -> None:
    """Two stages of each ring take what is left over until the third."""
    program = attention(tiles, use=lambda r, o, q, n: attend(r, o, q, n - 3))
    faults(program, tp.DeadlockError, "role 'load'", "k.empty", "2 of 2 arrivals")


def issue_in_two_parts(
    r: Rings, o: Any, s: Any, p: Any, q: Any, scores: tp.ProducerPipeline, tiles: Any
) -> None:
    """The MMA warp waits for P twice a tile; the softmax hands it over once."""
    ctx = r.ctx
    for n in ctx.range(tiles):
        for part in r.parts:
            r.kc.wait_k(qk_stage=part)
            with ctx.elect_one():
                ctx.mma(s, q[part], r.kc.get(qk_stage=part), accumulate=part > 0)
            r.kc.release_k(qk_stage=part)
        scores.commit_mma()
        for _ in range(2):
            scores.step()
            scores.acquire()  # <handed over>
        r.vc.wait_v()
        ctx.tcgen05_fence_after()
        with ctx.elect_one():
            ctx.mma(o, p, r.vc.get(), accumulate=n > 0)
        r.vc.release_v()


def test_3_a_setting_that_one_role_has_and_another_has_not() -> None:
    program = bind(blackwell(use=issue_in_two_parts), BLACKWELL, *staged.operands(BLACKWELL, 3)[:4])
    faults(
        program, tp.DeadlockError, "role 'mma'", "role 'softmax'", "s.empty", where("handed over")
    )


@pytest.mark.parametrize(("kernel", "cfg"), [(hopper, HOPPER), (blackwell, BLACKWELL)])
def test_6_what_is_reserved_is_what_is_used(kernel: Any, cfg: tp.FA4Config) -> None:
    """Buffers and barriers lie beside each other, aligned, and none ends behind the reservation."""
    made = bind(kernel(), cfg, *staged.operands(cfg, 2)[:4]).kernel
    pieces = sorted(
        [(b.offset, b.nbytes) for b in made.buffers]
        + [(b.offset, 8 * b.size) for b in made.barriers]
    )
    ends = [offset + size for offset, size in pieces]
    assert all(end <= following for end, (following, _) in zip(ends, pieces[1:], strict=False))
    assert max(ends) <= made.smem_bytes
    assert all(b.offset % b.align == 0 for b in made.buffers)


@tp.kernel(grid=2, cluster=2)
def leaving(ctx: tp.Context, out: Any, *, early: bool) -> None:
    @ctx.role("one", warps=2)
    def one() -> None:
        if early:
            with ctx.when((ctx.cta_rank == 0) | (ctx.warp == 0)):
                ctx.cluster_arrive()
                ctx.cluster_wait()
                with ctx.elect_one():
                    ctx.store(out[ctx.block_id, ctx.warp], 1)
        else:
            ctx.cluster_arrive()
            ctx.cluster_wait()
            with ctx.elect_one():
                ctx.store(out[ctx.block_id, ctx.warp], 1)


@pytest.mark.parametrize(("early", "want"), [(True, [[1, 1], [1, 0]]), (False, [[1, 1], [1, 1]])])
def test_8_a_warp_that_leaves_before_the_clusters_barrier(
    early: bool, want: list[list[int]]
) -> None:
    out = np.zeros((2, 2), np.int32)
    for _ in clean(leaving.bind(out, early=early)):
        assert out.tolist() == want
        out[:] = 0


def test_11_the_end_of_the_last_tile_is_zero_and_not_what_lies_behind() -> None:
    """37 keys in tiles of 32: the second ends 27 rows behind the tensor, in NaNs."""
    q, k, v, out, _ = staged.operands(HOPPER, 2)
    k[37:] = v[37:] = np.nan
    want = q.astype(np.float32) @ k[:37].astype(np.float32).T @ v[:37].astype(np.float32)
    for _ in clean(bind(hopper(), HOPPER, q, k[:37], v[:37], out)):
        assert np.array_equal(out, want)


def load_v_by_hand(r: Rings, k: Any, v: Any, tiles: Any) -> None:
    """V tiles without a copy: their bytes are credited, and nothing is written."""
    ctx = r.ctx
    for n in ctx.range(tiles):
        for part in r.parts:
            r.k.acquire(qk_stage=part)
            with ctx.elect_one():
                k.async_copy(r.k.get_tile(qk_stage=part, e=1), (n * r.cfg.BN, part * r.cfg.BK0))
        r.k.commit_step()
        r.v.acquire()
        with ctx.elect_one():
            r.v.get_tile(e=1).mbar.complete_transaction(None, r.v.tile_bytes)
        r.v.commit_step()


@pytest.mark.slow
def test_11_a_tile_that_nothing_has_written_is_poison() -> None:
    faults(attention(load=load_v_by_hand), tp.PoisonError, "v_tiles", "role 'mma'")


def prefetching(ahead: int) -> Any:
    def load(r: Rings, k: Any, v: Any, tiles: Any) -> None:
        """`ahead` K tiles before the first V."""
        ctx = r.ctx

        def keys(n: Any) -> None:
            for part in r.parts:
                r.k.acquire(qk_stage=part)  # <prefetch>
                with ctx.elect_one():
                    k.async_copy(r.k.get_tile(qk_stage=part, e=1), (n * r.cfg.BN, part * r.cfg.BK0))
            r.k.commit_step()

        for early in range(ahead):
            keys(early)
        for n in ctx.range(tiles):
            r.v.acquire()
            with ctx.elect_one():
                v.async_copy(r.v.get_tile(e=1), (0, n * r.cfg.BN))
            r.v.commit_step()
            with ctx.when(n + ahead < tiles):
                keys(n + ahead)
        r.k.drain()
        r.v.drain()

    return load


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_13_as_much_prefetched_as_the_ring_and_the_mma_hold(ahead: int) -> None:
    q, k, v, out, want = staged.operands(HOPPER, 6)
    for _ in clean(bind(hopper(load=prefetching(ahead)), HOPPER, q, k, v, out)):
        assert np.array_equal(out, want)
        out[:] = 0


@pytest.mark.slow
def test_13_more_prefetched_than_the_ring_holds() -> None:
    """The fourth K waits for the MMA of the second to retire, which waits behind that of the first
    V.
    """
    faults(
        attention(6, load=prefetching(4)),
        tp.DeadlockError,
        "role 'load'",
        "k.empty",
        "v.full",
        where("prefetch"),
    )


ELIDED = """
with ctx.elect_one():
    dst = v.get_v(1)
    {}
v.commit_step()
vc.wait_v()
"""


def test_14_a_copy_that_is_left_out_is_credited_by_hand() -> None:
    run = role(ELIDED.format("dst.mbar.complete_transaction(None, v.tile_bytes)")).run()
    assert run.completions["v.full"] == [[1, 0]]


def test_14_a_copy_that_is_left_out() -> None:
    faults(role(ELIDED.format("pass")), tp.DeadlockError, "v.full[0]", "8,192 bytes")


@tp.kernel()
def grouped(ctx: tp.Context, a: Any, b: Any, out: Any, *, group: int) -> None:
    """One tile of C, whose input stages hold `group` steps of K, by the contexts of both warps."""
    payload = tp.StandardTilePayload(
        a_type=a.dtype, b_type=b.dtype, a_shape=(128, 16), b_shape=(16, 16)
    )
    inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=2, k_group_size=group)
    outputs = tp.OutputTilePipeline.allocate(ctx, tp.OutputPipelineConfig(2, 16))
    groups = a.shape[1] // (16 * group)

    @ctx.role("load", warps=1)
    def load() -> None:
        with inputs.producer() as producer:
            for step in ctx.range(groups):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    for j in range(group):
                        a_tile, b_tile = stage.tile(j)
                        ctx.tma_load(a, (0, (step * group + j) * 16), a_tile, stage.barrier())
                        ctx.tma_load(b, (0, (step * group + j) * 16), b_tile, stage.barrier())
            producer.drain()

    @ctx.role("mma", warps=1)
    def mma() -> None:
        with outputs.mma_warp(), inputs.consumer() as consumer, outputs.producer() as output:
            acc = output.tmem.tensor((128, 16))
            for step in ctx.range(groups):
                with consumer.acquire() as stage, ctx.elect_one():
                    for j in range(group):
                        ctx.mma(acc, *stage.tile(j), accumulate=True if j else step > 0)
                    ctx.mma_commit(stage.mbar())

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        with outputs.epilogue_warp(), outputs.consumer() as output:
            x = output.tmem.tensor((128, 16)).load()
            ctx.tmem_wait_load()
            ctx.store_global(out, (0, 0), x)


@pytest.mark.parametrize("group", [1, 2, 3])
def test_15_warp_contexts_with_several_tiles_to_a_stage(group: int) -> None:
    rng = np.random.default_rng(group)
    a, b = (rng.integers(-3, 4, (rows, 16 * 12)).astype(tp.bfloat16.numpy) for rows in (128, 16))
    out = np.zeros((128, 16), np.float32)
    program = grouped.bind(
        tp.tensor_map(a, box=(128, 16)), tp.tensor_map(b, box=(16, 16)), out, group=group
    )
    for run in clean(program):
        assert np.array_equal(out, a.astype(np.float32) @ b.astype(np.float32).T)
        assert sum(run.completions["inputs.full"][0]) == 12 // group


def in_pairs(r: Rings, o: Any, q: Any, tiles: Any) -> None:
    """Two tiles at a time, whether or not there is a second."""
    ctx = r.ctx
    s = ctx.accumulator((64, r.cfg.BN))
    for _ in ctx.range(0, tiles, 2):
        for _half in range(2):
            multiply_k(r, s, q)
            ctx.wgmma_wait(0)
            multiply_v(r, o, ctx.fragment(s.to(r.cfg.qkv_dtype)))
            ctx.wgmma_wait(0)


@pytest.mark.slow
@pytest.mark.parametrize("tiles", [1, 3])
def test_16_a_second_tile_that_is_never_loaded(tiles: int) -> None:
    faults(
        attention(tiles, use=in_pairs), tp.DeadlockError, "role 'mma'", "k.full", "1 of 1 arrivals"
    )


def test_16_an_even_number_of_tiles() -> None:
    for run in clean(attention(4, use=in_pairs)):
        assert sum(run.completions["v.empty"][0]) == 4
