"""Rings of K and V tiles: the exact traffic of every member, the arithmetic of tiles, and whole
kernels for both architectures.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ring_places import Places
from tests.support.staged_kernels import (
    BLACKWELL,
    HOPPER,
    Rings,
    bind,
    blackwell,
    hopper,
    multiply_k,
    operands,
)
from tests.support.tracing import from_text, refused
from tilepipe import cuda
from tilepipe.ir import ops
from tilepipe.ir.printer import barrier, expr
from tilepipe.ir.program import walk

VERBS: dict[type[ops.Op], str] = {
    ops.MbarWait: "wait",
    ops.MbarArrive: "arrive",
    ops.MbarExpect: "expect",
    ops.Tcgen05Commit: "commit",
    ops.CursorStep: "step",
    ops.WgmmaCommit: "close",
    ops.WgmmaWait: "retire",
    ops.If: "if",
    ops.For: "for",
    ops.Elect: "elect",
}
HEAD = """
r = Rings(ctx, {cfg}, producer_arrivals=1, consumer_arrivals=1)
k, v, kc, vc, k_ring, v_ring = r.k, r.v, r.kc, r.vc, r.k_ring, r.v_ring
if {tmem}:
    tmem = tp.TmemAllocation(ctx, 32, cta_group={tmem})
@ctx.role('one', {size})
def one():
"""


def role(
    text: str, size: str = "warps=1", tmem: int = 0, cluster: int = 1, **names: Any
) -> tp.Program:
    """A kernel whose only role does `text` with rings of 2 stages, K in 2 parts."""
    head = HEAD.format(cfg="HOPPER", size=size, tmem=tmem)
    body = "\n".join(f"    {line}" for line in text.strip().splitlines())
    kernel = from_text(head + body, Rings=Rings, HOPPER=HOPPER, **names)
    kernel._grid = kernel._cluster = cluster
    return kernel.bind(np.zeros(64, np.int32))


def traffic(program: tp.Program) -> list[str]:
    """What the role does to barriers, groups of MMAs and its places, in program order."""
    found, places = [], Places()
    for op in walk(program.kernel.roles[0].body):
        verb, more = VERBS.get(type(op)), places.unusual(op)
        bar: Any = getattr(op, "bar", None)
        if isinstance(op, ops.CursorStep):
            found.append(f"step {op.cursor.name}{more}")
        elif verb and bar is not None:
            index = re.sub(r"stage_?\d*", "stage", barrier(bar))
            if "[stage" in index and "[" in more:
                index += more  # a stage that is not where it should be
            found.append(
                f"{verb} {index}"
                + (f" {op.nbytes.value}" if isinstance(op, ops.MbarExpect) else "")  # type: ignore[attr-defined]
            )
        elif verb:
            found.append(verb + more)
    return found


WG: dict[str, Any] = {"size": "warpgroups=1"}
TCGEN05: dict[str, Any] = {"tmem": 1}
K_PART, K_LAST = "[stage * 2]", "[(stage * 2) + 1]"
ELECT = "with ctx.elect_one():\n    "
FREED_LAST = ["close", "step k_consumer", "retire", "elect", f"arrive k.empty{K_LAST}"]
WAIT = "\nctx.wgmma_wait(0)"
TRAFFIC: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "producer_acquire": ("k.pipeline.producer_acquire()", {}, [f"wait k.empty{K_LAST}"]),
    "producer_acquire of a part": (
        "k.pipeline.producer_acquire(qk_stage=0)",
        {},
        [f"wait k.empty{K_PART}"],
    ),
    "consumer_wait": ("k_ring.consumer_wait()", {}, [f"wait k.full{K_LAST}"]),
    "consumer_wait of a part": ("k_ring.consumer_wait(qk_stage=0)", {}, [f"wait k.full{K_PART}"]),
    "consumer_release": ("k_ring.consumer_release()" + WAIT, WG, FREED_LAST),
    "consumer_release of a part": (
        "k_ring.consumer_release(qk_stage=0)" + WAIT,
        WG,
        ["close", "retire", "elect", f"arrive k.empty{K_PART}"],
    ),
    "consumer_release, e 0": ("k_ring.consumer_release(e=0)", WG, ["step k_consumer"]),
    "consumer_release_at": (
        "k_ring.consumer_release_at(1)" + WAIT,
        WG,
        ["close", "retire", "elect", "arrive k.empty[3]"],
    ),
    "consumer_release of tcgen05": (
        "k_ring.consumer_release()",
        TCGEN05,
        ["elect", f"commit k.empty{K_LAST}", "step k_consumer"],
    ),
    "consumer_release of tcgen05, one lane": (
        "v_ring.consumer_release(e=ctx.lane == 3)",
        TCGEN05,
        ["if", "commit v.empty[stage]", "step v_consumer"],
    ),
    "consumer_release of tcgen05, e of Mojo": (
        "v_ring.consumer_release(e=ctx.select(ctx.lane == 3, 1, 0))",
        TCGEN05,
        ["if", "commit v.empty[stage]", "step v_consumer"],
    ),
    "consumer_release of tcgen05, a part under elect_one": (
        f"{ELECT}k_ring.consumer_release(qk_stage=0)",
        TCGEN05,
        ["elect", f"commit k.empty{K_PART}"],
    ),
    "consumer_release_at of tcgen05": (
        "v_ring.consumer_release_at(v_ring.state.index() ^ 1)",
        TCGEN05,
        ["elect", "commit v.empty[stage ^ 1]"],
    ),
    "producer_mbar": (
        f"{ELECT}k.pipeline.producer_mbar().arrive()",
        {},
        ["elect", f"arrive k.full{K_PART}"],
    ),
    "producer_mbar of a part": (
        f"{ELECT}k_ring.producer_mbar(1, qk_stage=1).arrive()",
        {},
        ["elect", "arrive k.full[3]"],
    ),
    "consumer_mbar": (
        f"{ELECT}k_ring.consumer_mbar().arrive()",
        {},
        ["elect", f"arrive k.empty{K_PART}"],
    ),
    "consumer_mbar of a stage": (
        f"{ELECT}v_ring.consumer_mbar(1).arrive()",
        {},
        ["elect", "arrive v.empty[1]"],
    ),
    "acquire": ("k.acquire()", {}, [f"wait k.empty{K_PART}"]),
    "acquire of a part": ("k.acquire(qk_stage=1)", {}, [f"wait k.empty{K_LAST}"]),
    "acquire_k": ("k.acquire_k(qk_stage=1)", {}, [f"wait k.empty{K_LAST}"]),
    "acquire_v": ("v.acquire_v()", {}, ["wait v.empty[stage]"]),
    "get_tile": (f"{ELECT}k.get_tile(qk_stage=1)", {}, ["elect"]),
    "get_tile, e 0": (f"{ELECT}k.get_tile(e=0)", {}, ["elect"]),
    "get_tile, e": (
        f"{ELECT}k.get_tile(qk_stage=1, e=1)",
        {},
        ["elect", f"expect k.full{K_LAST} 4096"],
    ),
    "get_tile, e traced": (
        "k.get_tile(e=ctx.lane == 5)",
        {},
        ["if", f"expect k.full{K_PART} 4096"],
    ),
    "get_k": (f"{ELECT}k.get_k(qk_stage=0, e=1)", {}, ["elect", f"expect k.full{K_PART} 4096"]),
    "get_k of a part": (
        f"{ELECT}k.get_k(1, qk_stage=1)",
        {},
        ["elect", f"expect k.full{K_LAST} 4096"],
    ),
    "get_v": (f"{ELECT}v.get_v(1)", {}, ["elect", "expect v.full[stage] 8192"]),
    "commit_step": ("k.commit_step()", {}, ["step k_producer"]),
    "drain": (
        "k.drain()",
        {},
        ["for 2", f"wait k.empty{K_PART}", f"wait k.empty{K_LAST}", "step k_producer"],
    ),
    "consumer_release_at, e 0": ("k_ring.consumer_release_at(1, e=0)", WG, []),
    "wait of a part": ("kc.wait(qk_stage=1)", {}, [f"wait k.full{K_LAST}"]),
    "release of a part": ("kc.release(qk_stage=1)" + WAIT, WG, FREED_LAST),
    "release, e 0": ("vc.release(e=0)", WG, ["step v_consumer"]),
    "release_k, e 0": ("kc.release_k(e=0)", WG, ["step k_consumer"]),
    "release_v, e 0": ("vc.release_v(0)", WG, ["step v_consumer"]),
    "wait": ("kc.wait()", {}, [f"wait k.full{K_PART}"]),
    "release": (
        "vc.release()" + WAIT,
        WG,
        ["close", "step v_consumer", "retire", "elect", "arrive v.empty[stage]"],
    ),
    "release_at": (
        "vc.release_at(0)" + WAIT,
        WG,
        ["close", "retire", "elect", "arrive v.empty[0]"],
    ),
    "wait_k: the last part": ("kc.wait_k()", {}, [f"wait k.full{K_LAST}"]),
    "wait_k of a part": ("kc.wait_k(qk_stage=0)", {}, [f"wait k.full{K_PART}"]),
    "release_k: the last part": ("kc.release_k()" + WAIT, WG, FREED_LAST),
    "release_k of a part": (
        "kc.release_k(qk_stage=0)" + WAIT,
        WG,
        ["close", "retire", "elect", f"arrive k.empty{K_PART}"],
    ),
    "wait_v": ("vc.wait_v()", {}, ["wait v.full[stage]"]),
    "release_v": (
        "vc.release_v()" + WAIT,
        WG,
        ["close", "step v_consumer", "retire", "elect", "arrive v.empty[stage]"],
    ),
    "K is free one group before V": (
        "kc.release_k()\nvc.release_v()\nctx.wgmma_wait(1)\nctx.wgmma_wait(0)",
        WG,
        [
            "close",
            "step k_consumer",
            "close",
            "step v_consumer",
            "retire",
            "elect",
            f"arrive k.empty{K_LAST}",
            "retire",
            "elect",
            "arrive v.empty[stage]",
        ],
    ),
}


@pytest.mark.parametrize("member", TRAFFIC)
def test_traffic(member: str) -> None:
    text, options, want = TRAFFIC[member]
    assert traffic(role(text, **options)) == want


def test_a_release_tells_both_ctas_of_a_pair() -> None:
    program = role(
        "with ctx.when(tp.elect_one_cta(ctx)):\n    k_ring.consumer_release_at(0)",
        tmem=2,
        cluster=2,
    )
    (op,) = (op for op in walk(program.kernel.roles[0].body) if isinstance(op, ops.Tcgen05Commit))
    assert op.mask is not None


@pytest.mark.parametrize(
    ("tile", "want"),
    [
        ("k.get_smem()", ["k_tiles", (32, 64), "row", 0]),
        ("k.get_smem(qk_stage=1)", ["k_tiles", (32, 64), "row", 1]),
        ("k.get_k_smem(qk_stage=1)", ["k_tiles", (32, 64), "row", 1]),
        ("k.get_tile(qk_stage=1).smem", ["k_tiles", (32, 64), "row", 1]),
        ("k.get_k(qk_stage=0).smem", ["k_tiles", (32, 64), "row", 0]),
        ("v.get_v_smem()", ["v_tiles", (128, 32), "col", 0]),
        ("v.get_v(0).smem", ["v_tiles", (128, 32), "col", 0]),
        ("kc.get(qk_stage=1)", ["k_tiles", (32, 64), "row", 1]),
        ("vc.get()", ["v_tiles", (128, 32), "col", 0]),
    ],
)
def test_which_tile(tile: str, want: list[Any]) -> None:
    """Tile stage · parts + part."""
    found: list[Any] = []
    role(
        f"tile = {tile}\nfound.extend([tile.ir('read').buffer.name, tile.shape, "
        "tile.order, tile.ir('read').index])",
        found=found,
    )
    name, shape, order, index = found
    assert [name, shape, order] == want[:3]
    wanted = {"v_tiles": "stage", "k_tiles": "(stage * 2) + 1" if want[3] else "stage * 2"}
    assert re.sub(r"stage_?\d*", "stage", expr(index)) == wanted[name]


def test_the_barriers_and_the_shape() -> None:
    """All full barriers, then all empty ones, [stage][part]; 8 bytes each."""
    found: list[Any] = []
    program = role("found.append(k_ring)", found=found)
    full, empty = program.kernel.barriers[:2]
    assert (full.name, full.size, empty.name, empty.size) == ("k.full", 4, "k.empty", 4)
    assert empty.offset == full.offset + 4 * 8
    ring = found[0]
    assert (
        ring.num_kv_stages,
        ring.num_qk_stages,
        ring.num_stages,
        ring.num_mbars(),
        len(ring.mbar),
    ) == (2, 2, 4, 8, 8)
    assert ring.state.num_stages == 2
    assert tp.KPipeline is tp.VPipeline is tp.KVPipeline is tp.StagedPipeline


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_the_arithmetic_of_a_tile(dtype: str | None) -> None:
    """elements_full and tile_bytes with the parentheses that the page lost."""
    found: list[Any] = []
    role(
        "found.extend([k, v, tp.TMAProducerPipeline(k_ring, r.k_tiles, HOPPER, True, dtype), kc])",
        found=found,
        dtype=dtype,
    )
    k, v, same, kc = found
    for x in (k, same):
        assert (x.elements, x.elements_full, x.tile_bytes, x.bytes) == (
            32 * 64,
            2 * 32 * 64,
            2 * 32 * 64,
            2 * 32 * 64,
        )
        assert (x.num_qk_stages_effective, x.is_k, x.dtype, x.config) == (
            2,
            True,
            tp.bfloat16,
            HOPPER,
        )
        assert x.tile_layout == tp.tile_layout_k_major("bfloat16", 32, 64)
    assert (v.elements, v.elements_full, v.tile_bytes, v.bytes) == (
        128 * 32,
        128 * 32,
        2 * 128 * 32,
        2 * 128 * 32,
    )
    assert (v.num_qk_stages_effective, v.is_k) == (1, False)
    assert v.tile_layout == tp.tile_layout_mn_major("bfloat16", 128, 32)
    assert kc.full_kv_bytes == 2 * 2 * 32 * 64
    assert tp.TMAProducerPipeline.PairType is tp.TMAProducerPipeline.KPairType is tp.TMADestination
    assert tp.TMAProducerPipeline.SMemType.__name__ == "SmemTile"


@pytest.mark.parametrize(
    ("chip", "keys", "v_k_major", "v_swizzle_mode"),
    [(tp.H200, 192, True, 64), (tp.H200, 128, True, 128), (tp.B200, 128, False, 128)],
)
def test_values_of_8_bits_have_contiguous_keys_on_hopper(
    chip: tp.Chip, keys: int, v_k_major: bool, v_swizzle_mode: int
) -> None:
    rows = 128 if chip is tp.H200 else 256
    config = tp.FA4Config(
        qkv_dtype=tp.float8_e4m3, depth=128, BM=rows, BN=keys, num_kv_stages=2, chip=chip,
        use_fused_kv=False,
    )  # fmt: skip
    assert (config.v_k_major, config.v_swizzle_mode) == (v_k_major, v_swizzle_mode)
    wide = tp.FA4Config(
        qkv_dtype=tp.bfloat16, depth=128, BM=rows, BN=keys, num_kv_stages=2, chip=chip,
        use_fused_kv=False,
    )  # fmt: skip
    assert (wide.v_k_major, wide.v_swizzle_mode) == (False, 128)


@pytest.mark.parametrize(
    ("layout", "order"), [("tile_layout_k_major", "row"), ("tile_layout_mn_major", "col")]
)
def test_layouts(layout: str, order: str) -> None:
    made = getattr(tp, layout)("float8_e4m3", 128, 256, 64)
    assert (made.rows, made.cols, made.order, made.swizzle, made.size(), made.nbytes) == (
        128,
        256,
        order,
        64,
        32768,
        32768,
    )
    with refused(tp.TraceError, "swizzle 128", "24 × 2 = 48 bytes"):
        getattr(tp, layout)("bfloat16", 24, 24, 128)


def constructed(text: str) -> list[Any]:
    found: list[Any] = []
    lines = [
        "storage = tp.SMemArray(ctx, tp.SharedMemBarrier, 8, 'own')",
        "ring = tp.StagedPipeline(storage, 2, 2, name='own')",
        "ring.init_mbars(1, 1)",
        "tiles = tp.tile_layout_k_major('bfloat16', 32, 64).allocate(ctx, 4, 'own_tiles')",
        text,
        "ctx.role('one', warps=1)(lambda: None)",
    ]
    from_text("\n".join(lines), HOPPER=HOPPER, found=found).bind(np.zeros(4, np.int32))
    return found


def test_what_a_copy_gets() -> None:
    """`async_copy` and `tma_load` of a destination are the same copy: to the part's tile, its bytes
    on the part's full barrier.
    """
    program = bind(hopper(load=load_with_q), HOPPER, *operands(HOPPER, 3)[:4])
    (loads,) = (x for x in program.kernel.roles if x.name == "load")
    copies = [op for op in walk(loads.body) if isinstance(op, ops.TmaLoad)]
    assert len(copies) == 2 + 3  # of Q; of K in two parts and of V
    for op, tiles, full in zip(
        copies[2:], ("k_tiles", "k_tiles", "v_tiles"), ("k.full", "k.full", "v.full"), strict=True
    ):
        assert (op.dst.buffer.name, op.bar.array.name) == (tiles, full)
        assert re.sub(r"_\d+", "", expr(op.dst.index)) == re.sub(r"_\d+", "", expr(op.bar.index))


@pytest.mark.slow
def test_a_copy_to_several_ctas() -> None:
    """`async_copy` passes its mask on."""
    for mask in (None, 3):
        kernel = from_text(
            "r = Rings(ctx, HOPPER, producer_arrivals=1, consumer_arrivals=1)\n@ctx.role('one',"
            " warps=1)\ndef one():\n"
            f"    with ctx.elect_one():\n        x.async_copy(r.k.get_tile(1), (0, 0), {mask})",
            header="def k(ctx, x):",
            Rings=Rings,
            HOPPER=HOPPER,
        )
        kernel._grid = kernel._cluster = 2
        program = kernel.bind(tp.tensor_map(np.zeros((32, 64), tp.bfloat16.numpy), box=(32, 64)))
        (load,) = (op for op in walk(program.kernel.roles[0].body) if isinstance(op, ops.TmaLoad))
        assert (load.multicast is None) == (mask is None)


@pytest.mark.parametrize("smem", ["tiles", "tiles[0][0, 0]"])
@pytest.mark.parametrize("source", ["storage", "ring", "ring.copy(phase=1)"])
def test_both_constructors(source: str, smem: str) -> None:
    """Over barriers or over a pipeline, over tiles or a pointer to them: the same barriers and
    tiles, a state that starts at phase 1.
    """
    pipe, ring, tiles = constructed(
        f"found.extend([tp.KProducerPipeline({source}, {smem}, HOPPER), ring, tiles])"
    )
    assert (pipe.pipeline._full, pipe.pipeline._empty) == (ring._full, ring._empty)
    assert pipe.smem.buffer is tiles.buffer
    assert (pipe.pipeline._phase, ring._phase) == (1, 0)


def test_two_views_of_one_side_share_its_place() -> None:
    (first, second) = constructed(
        "p = ring.copy(phase=1)\nfound.extend([tp.KProducerPipeline(p, tiles, HOPPER) for _ in"
        " range(2)])"
    )
    assert first.pipeline is second.pipeline


@pytest.mark.parametrize("tiles", [1, 2, 3, 7])
def test_on_hopper(tiles: int) -> None:
    """Counts are derived: one expect_bytes, two warpgroups."""
    q, k, v, out, want = operands(HOPPER, tiles)
    program = bind(hopper(), HOPPER, q, k, v, out)
    counts = {a.name: a.count for a in program.kernel.barriers}
    assert counts == {"k.full": 1, "k.empty": 2, "v.full": 1, "v.empty": 2, "q_full": 1}
    laps = [len(range(s, tiles, 2)) for s in range(2)]
    for seed in range(3):
        out[:] = 0
        run = program.run(seed=seed)
        assert np.array_equal(out, want)
        assert not run.advice
        assert (
            run.completions["k.full"]
            == run.completions["k.empty"]
            == [[n for n in laps for _ in range(2)]]
        )
        assert run.completions["v.full"] == run.completions["v.empty"] == [laps]


@pytest.mark.parametrize("tiles", [1, 2, 5])
def test_on_blackwell(tiles: int) -> None:
    q, k, v, out, want = operands(BLACKWELL, tiles)
    program = bind(blackwell(), BLACKWELL, q, k, v, out)
    counts = {a.name: a.count for a in program.kernel.barriers}
    assert [counts[name] for name in ("k.full", "k.empty", "v.empty", "s.full", "s.empty")] == [
        1,
        1,
        1,
        1,
        128,
    ]
    for seed in range(3):
        out[:] = 0
        run = program.run(seed=seed)
        assert np.array_equal(out, want)
        assert not run.advice


@pytest.mark.slow
def test_a_fragment_of_a_loop_behind_the_loop_compiles() -> None:
    """An operand of wgmma that a loop's body defines has no name behind the loop, where the last
    group is waited for.
    """
    program = bind(hopper(use=late_v), HOPPER, *operands(HOPPER, 3)[:4])
    assert cuda.compile(program.kernel, arch="sm_90a").spill_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "cfg", "arch"), [(hopper, HOPPER, "sm_90a"), (blackwell, BLACKWELL, "sm_100a")]
)
def test_compiles(kernel: Any, cfg: tp.FA4Config, arch: str) -> None:
    program = bind(kernel(), cfg, *operands(cfg, 3)[:4])
    assert cuda.compile(program.kernel, arch=arch).spill_bytes == 0


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, *({"perturb": seed} for seed in range(3))], ids=str)
def test_on_a_gpu(options: dict[str, Any]) -> None:
    q, k, v, out, want = operands(HOPPER, 9)
    bind(hopper(), HOPPER, q, k, v, out).launch(**options)
    assert np.array_equal(out, want)


def late_v(r: Rings, o: Any, q: Any, tiles: Any) -> None:
    """Each V is let go one tile later than it was waited for, by `release_at`; the state steps by
    itself.
    """
    ctx, cfg = r.ctx, r.cfg
    s = ctx.accumulator((64, cfg.BN))
    before = ctx.var(0)
    for n in ctx.range(tiles):
        multiply_k(r, s, q)
        ctx.wgmma_wait(0)
        with ctx.when(n > 0):
            r.vc.release_at(before.get())
            ctx.wgmma_wait(0)
        r.vc.wait_v()
        ctx.mma(o, ctx.fragment(s.to(cfg.qkv_dtype)), r.vc.get())
        ctx.wgmma_commit()
        before.set(r.vc.pipeline.state.index())
        r.vc.pipeline.state.step()
        ctx.wgmma_wait(0)
    r.vc.release_at(before.get())
    ctx.wgmma_wait(0)


@pytest.mark.parametrize("tiles", [1, 2, 5])
def test_a_deferred_release_of_v(tiles: int) -> None:
    q, k, v, out, want = operands(HOPPER, tiles)
    program = bind(hopper(use=late_v), HOPPER, q, k, v, out)
    for seed in range(3):
        out[:] = 0
        run = program.run(seed=seed)
        assert np.array_equal(out, want)
        assert sum(run.completions["v.empty"][0]) == tiles


def load_with_q(r: Rings, k: Any, v: Any, tiles: Any) -> None:
    """One announcement for both parts' bytes, on the barrier of `get_tile` without e: what a
    combined Q and K load does.
    """
    ctx = r.ctx
    for n in ctx.range(tiles):
        for part in r.parts:
            r.k.acquire_k(qk_stage=part)
            with ctx.elect_one():
                dst = r.k.get_tile(qk_stage=part)
                dst.mbar.expect_bytes(dst.smem.nbytes)
                k.async_copy(dst, (n * r.cfg.BN, part * r.cfg.BK0))
        r.k.commit_step()
        r.v.acquire_v()
        with ctx.elect_one():
            v.async_copy(r.v.get_v(1), (0, n * r.cfg.BN))
        r.v.commit_step()
    r.k.drain()
    r.v.drain()


def test_bytes_announced_by_hand_are_counted() -> None:
    q, k, v, out, want = operands(HOPPER, 3)
    program = bind(hopper(load=load_with_q), HOPPER, q, k, v, out)
    assert {a.name: a.count for a in program.kernel.barriers}["k.full"] == 1
    program.run(seed=1)
    assert np.array_equal(out, want)
