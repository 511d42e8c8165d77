"""Attention on operands of 8 bits: right in the simulator, compiled without spills, with values
turned as it takes them.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tilepipe.cuda.nvrtc import sass
from tilepipe.kernels.attention import sm90_bind as kernel, sm100
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.heuristics import choose_sm90
from tilepipe.kernels.attention.reference import attention, compare_attention
from tilepipe.kernels.attention.validation import Extents
from tilepipe.kernels.attention.values import bind_turn, turned, turned_shape

Array = npt.NDArray[Any]
FP8 = ml_dtypes.float8_e4m3fn
NAMES = ("q_scales", "k_scales", "v_scales")


def operands(
    s_q: int,
    s_kv: int,
    heads: int = 2,
    kv_heads: int = 1,
    d: int = 64,
    d_v: int = 0,
    batch: int = 1,
) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(s_q + s_kv)
    shapes = (batch, s_q, heads, d), (batch, s_kv, kv_heads, d), (batch, s_kv, kv_heads, d_v or d)
    q, k, v = (rng.standard_normal(shape).astype(FP8) for shape in shapes)
    return q, k, v


def verify(
    q: Array, k: Array, v: Array, cfg: AttentionConfig | None, out: Any = ml_dtypes.bfloat16,
    **options: Any,
) -> Array:  # fmt: skip
    """Runs it, and compares every element with float64."""
    result = np.full((*q.shape[:3], v.shape[3]), np.nan, out)
    lse = np.full((q.shape[0], q.shape[2], q.shape[1]), np.nan, np.float32)
    kernel.bind(q, k, turned(v), result, lse, cfg, **options).run()
    found = compare_attention(result, q, k, v, lse=lse, **options)
    assert found.ok, found
    assert found.rel_error < 0.03
    return result


CONFIGS = {
    "one": AttentionConfig(bn=64, consumers=1, stages=3),
    "turns": AttentionConfig(bn=32, schedule="single", store="tile"),
    "three": AttentionConfig(bn=96, consumers=3, order="free", q_stages=2),
    "promoted": AttentionConfig(bn=64, accumulate="promote", schedule="dynamic"),
}


@pytest.mark.slow
@pytest.mark.sampled(suite=2)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("cfg", CONFIGS.values(), ids=CONFIGS)
def test_right_in_every_configuration(cfg: AttentionConfig, causal: bool) -> None:
    """The last tile of keys is not full, nor the last 16 keys."""
    verify(*operands(200, 301, heads=4, kv_heads=2), cfg, causal=causal)


@pytest.mark.sampled(3, suite=2)
@pytest.mark.parametrize(
    ("d", "d_v"), [(16, 16), (64, 64), (96, 80), (128, 128), (192, 128), (256, 256)]
)
def test_heads_of_all_sizes(d: int, d_v: int) -> None:
    verify(*operands(70, 150, d=d, d_v=d_v), None, causal=True)


@pytest.mark.slow
@pytest.mark.parametrize("promote", [False, True])
def test_operands_stand_for_scaled_ones(promote: bool) -> None:
    rng = np.random.default_rng(0)
    scales: dict[str, Any] = {
        name: rng.uniform(0.25, 4, (2, 2)).astype(np.float32) for name in NAMES
    }
    q, k, v = operands(130, 90, heads=4, kv_heads=2, batch=2)
    cfg = AttentionConfig(bn=64, accumulate="promote" if promote else "fast")
    verify(q, k, v, cfg, np.float16, **scales)
    out = verify(q, k, v, cfg, **scales)
    half = np.zeros_like(out)
    kernel.bind(q, k, turned(v), half, None, cfg, v_scale=0.5, **scales).run()
    assert np.array_equal(half.astype(np.float32), out.astype(np.float32) / 2)


@pytest.mark.slow
def test_scores_of_scaled_operands_are_changed_after_scaling() -> None:
    options: dict[str, Any] = {
        name: np.full((1, 1), x, np.float32) for name, x in zip(NAMES, (2, 3, 1), strict=True)
    }
    options |= {"softcap": 5.0, "window": (60, 0), "sinks": np.ones(2, np.float32)}
    options["slopes"] = np.array([0.5, 0.1], np.float32)
    q, k, v = operands(100, 100)
    verify(q, k, v, None, **options)


def test_small_weights_are_not_lost() -> None:
    """Weights are 2^8 times as large before they are rounded: of one of 2^-12 of the largest, which
    float8_e4m3 holds no other way, as much arrives as of the largest.
    """
    q, k, v = (np.zeros((1, s, 1, 32), FP8) for s in (1, 256, 256))
    q[..., 0], k[:, 0, :, 0] = 1, 8  # the first key's score is 12 log(2), the others' 0
    v[:, 1:] = 1
    out, scale = np.zeros((1, 1, 1, 32), np.float16), 12 * np.log(2) / 8
    kernel.bind(q, k, turned(v), out, None, CONFIGS["one"], scale=scale).run()
    want, _ = attention(q, k, v, scale=scale)
    assert want[0, 0, 0, 0] == pytest.approx(255 / 4351)
    assert out[0, 0, 0, 0] == pytest.approx(want[0, 0, 0, 0], rel=0.005)


@pytest.mark.slow
@pytest.mark.parametrize(("s_kv", "d_v"), [(40, 64), (130, 32), (16, 144)])
def test_values_are_turned_on_the_gpu_as_by_numpy(s_kv: int, d_v: int) -> None:
    _, _, v = operands(1, s_kv, kv_heads=2, d_v=d_v, batch=2)
    out = np.full(turned_shape(*v.shape), 1, np.uint8)
    program = bind_turn(v.view(np.uint8), out.view(np.uint32))
    program.run()
    assert np.array_equal(out, turned(v).view(np.uint8))
    assert program.compile("sm_90a").spill_bytes == 0


def test_turning_values_is_right_in_all_orders() -> None:
    _, _, v = operands(1, 20, d_v=32)
    out = np.zeros(turned_shape(*v.shape), np.uint8)
    verdict = bind_turn(v.view(np.uint8), out.view(np.uint32)).check()
    assert verdict.verdict == "verified", verdict


def test_turned_values_have_the_keys_of_each_16_in_the_order_of_operands() -> None:
    v = (np.arange(20) % 16).astype(FP8).reshape(1, 20, 1, 1)
    found = turned(v).astype(np.float32)[0, 0, 0]
    assert found.tolist()[:16] == [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]
    assert found.tolist()[16:] == [0, 1, 0, 0, 2, 3, 0, 0, *[0] * 8]


@pytest.mark.sampled(suite=100, classes=lambda d, promote, causal: [promote])
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(
    ("d", "promote"),
    [(64, True), (64, False), (128, True), (128, False), (192, False), (256, False)],
)
def test_compiles_as_meant(d: int, promote: bool, causal: bool) -> None:
    """What is chosen has no spills, and no wgmma is serialised (`compile` raises)."""
    q, k, v = operands(64, 512, d=d)
    found = Extents(1, 64, 512, 2, 1, d, d, tp.float8_e4m3, 1.0)
    cfg = choose_sm90(found, (False, causal), accumulate="promote" if promote else "fast")
    out, counter = np.zeros(q.shape, ml_dtypes.bfloat16), np.zeros(1, np.int32)
    given: dict[str, Any] = {"counter": counter} if cfg.schedule == "dynamic" else {}
    compiled = kernel.bind(q, k, turned(v), out, None, cfg, causal=causal, **given).compile(
        "sm_90a"
    )
    assert compiled.spill_bytes == 0
    assert "C75" not in compiled.log


def test_weights_are_packed_without_shuffles() -> None:
    """Weights go from accumulators to operands by conversions alone."""
    q, k, v = operands(64, 512)
    out = np.zeros(q.shape, ml_dtypes.bfloat16)
    source = kernel.bind(q, k, turned(v), out, None, CONFIGS["one"]).source()
    lines = [line for line in source.splitlines() if "pack_e4m3(" in line and "acc" in line]
    assert lines
    assert all("= join(pack_e4m3(" in line for line in lines)


@pytest.mark.slow
def test_exponentials_come_before_the_wait_for_the_products_beside_them() -> None:
    q, k, v = operands(64, 512)
    out = np.zeros(q.shape, ml_dtypes.bfloat16)
    compiled = kernel.bind(q, k, turned(v), out, None, CONFIGS["one"]).compile("sm_90a")
    loops = sass.loops(sass.disassemble(compiled.data))
    body = next(x.instructions for x in loops if 30 < x.count()["MUFU"] < 40)
    waits = [i for i, x in enumerate(body) if x.opcode.startswith("WARPGROUP.DEPBAR")]
    exponentials = [i for i, x in enumerate(body) if x.opcode.startswith("MUFU.EX2")]
    assert len(waits) == 2
    assert waits[0] < min(exponentials) < max(exponentials) < waits[1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"v": "bf16"},
            "takes q, k and v of float8_e4m3 together, and an out of bfloat16 or float16",
        ),
        ({"out": "fp8"}, "and an out of bfloat16 or float16; got q float8_e4m3"),
        (
            {"v": "straight"},
            "beside k (1, 64, 1, 64) (1, 1), d_v and 64; it has shape (1, 64, 1, 64)",
        ),
        ({"q_scales": np.ones((1, 2), np.float32)}, "q_scales is float32 of shape (1, 1)"),
        ({"k_scales": np.ones((1, 1), np.float64)}, "it is float64 of (1, 1)"),
        (
            {"cfg": AttentionConfig(bn=48)},
            "bn = 48 must be a multiple of 32, the keys of one wgmma",
        ),
        (
            {"cfg": AttentionConfig(bn=160, consumers=3)},
            "bn / 2 + bn / 8 + d_v / 2 = 80 + 20 + 32 = 132 registers of a thread; with 3",
        ),
        (
            {"cfg": AttentionConfig(bn=256, accumulate="promote")},
            "bn / 2 + bn / 8 + d_v / 2 · 2 = 128 + 32 + 64 = 224",
        ),
    ],
)
def test_refused(change: dict[str, Any], said: str) -> None:
    q, k, v = operands(64, 64)
    given: dict[str, Any] = {"v": turned(v), "out": np.zeros(q.shape, np.float16)} | change
    others = {"bf16": v.astype(ml_dtypes.bfloat16), "fp8": np.zeros(q.shape, FP8), "straight": v}
    given |= {n: others[x] for n, x in given.items() if isinstance(x, str)}
    with pytest.raises(tp.BindError, match=re.escape(said)):
        kernel.bind(q, k, **given)


def test_what_is_of_8_bits_alone_is_refused_of_16() -> None:
    q, k, v = (x.astype(ml_dtypes.bfloat16) for x in operands(64, 64))
    with pytest.raises(tp.BindError, match="v_scale say what float8_e4m3 stands for; q, k and v"):
        kernel.bind(q, k, v, np.zeros_like(q), v_scale=2.0)
    with pytest.raises(tp.BindError, match='accumulate="promote" is of operands of 8 bits'):
        kernel.bind(q, k, v, np.zeros_like(q), None, AttentionConfig(bn=64, accumulate="promote"))


def test_8_bits_are_refused_on_blackwell_and_of_odd_heads() -> None:
    q, k, v = operands(64, 64)
    with pytest.raises(tp.BindError, match="attention takes bfloat16 or float16, the same for"):
        sm100.bind(q, k, v, np.zeros(q.shape, np.float16))
    q, k, v = operands(64, 64, d=24)
    with pytest.raises(tp.BindError, match="has a multiple of 16 elements of 8 bits, 256 at most"):
        kernel.bind(q, k, turned(v), np.zeros(q.shape, np.float16))
