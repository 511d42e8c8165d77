"""The Hopper attention kernel: right in the simulator for every feature, compiled without spills,
wrong variants caught.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

import tilepipe as tp
from tests.support.examples import share
from tilepipe.kernels.attention import sm90_bind as kernel
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.reference import compare_attention

Array = npt.NDArray[Any]


def operands(
    shape: tuple[int, int, int, int, int, int], dtype: tp.DType = tp.bfloat16, seed: int = 0
) -> tuple[Array, Array, Array]:
    """q, k, v for (batch, s_q, s_kv, heads, kv_heads, d)."""
    batch, s_q, s_kv, heads, kv_heads, d = shape
    rng = np.random.default_rng(seed)
    extents = ((batch, s_q, heads, d), (batch, s_kv, kv_heads, d), (batch, s_kv, kv_heads, d))
    q, k, v = (rng.standard_normal(x).astype(dtype.numpy) for x in extents)
    return q, k, v


def verify(
    shape: tuple[int, int, int, int, int, int],
    causal: bool,
    cfg: AttentionConfig | None = None,
    dtype: tp.DType = tp.bfloat16,
    seed: int = 0,
    scale: float | None = None,
) -> None:
    q, k, v = operands(shape, dtype, seed)
    out = np.full(q.shape, np.nan, q.dtype)
    lse = np.full((shape[0], shape[3], shape[1]), np.nan, np.float32)
    kernel.bind(q, k, v, out, lse, cfg, causal=causal, scale=scale).run(seed=seed)
    assert compare_attention(out, q, k, v, causal=causal, scale=scale, lse=lse).ok


SMALL = {
    1: AttentionConfig(bn=64, consumers=1),
    2: AttentionConfig(bn=32, stages=3),
    3: AttentionConfig(bn=64, consumers=3, order="free"),
}
# (batch, s_q, s_kv, heads, kv_heads, d)
SHAPES = {
    "whole tiles": (1, 256, 256, 2, 2, 128),
    "ragged": (2, 200, 300, 2, 2, 64),
    "one key": (1, 130, 1, 1, 1, 64),
    "one query": (1, 1, 200, 2, 1, 128),
    "heads that share keys": (1, 70, 90, 6, 2, 64),
    "more queries than keys": (1, 300, 100, 2, 1, 64),
    "more tiles than a wave": (1, 520, 40, 140, 140, 64),
}


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_right(shape: tuple[int, int, int, int, int, int], causal: bool) -> None:
    verify(shape, causal)


@pytest.mark.sampled(
    suite=100,
    classes=lambda dtype, consumers, qk_stages, schedule: [
        dtype, (consumers, schedule), (qk_stages, schedule),
    ],
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [tp.bfloat16, tp.float16])
@pytest.mark.parametrize("consumers", [1, 2, 3])
@pytest.mark.parametrize("qk_stages", [1, 2])
@pytest.mark.parametrize("schedule", ["persistent", "single", "dynamic"])
def test_right_in_every_configuration(
    dtype: tp.DType, consumers: int, qk_stages: int, schedule: str
) -> None:
    small = SMALL[consumers]
    store = "tile" if consumers == 2 else "registers"
    cfg = AttentionConfig(
        small.bn, small.stages, qk_stages, consumers, small.order, schedule, store, group=2
    )
    verify((1, 200, 150, 3, 3, 128), True, cfg, dtype, seed=consumers)


@pytest.mark.slow
@settings(max_examples=share(25), deadline=None)
@given(
    s_q=st.integers(1, 200),
    s_kv=st.integers(1, 200),
    ratio=st.sampled_from([1, 3]),
    d=st.sampled_from([64, 128]),
    causal=st.booleans(),
    seed=st.integers(0, 99),
    consumers=st.integers(1, 3),
)
def test_right_for_any_lengths(
    s_q: int, s_kv: int, ratio: int, d: int, causal: bool, seed: int, consumers: int
) -> None:
    verify((1, s_q, s_kv, ratio, 1, d), causal, SMALL[consumers], seed=seed)


@pytest.mark.slow
def test_scales_and_large_scores() -> None:
    verify((1, 100, 100, 1, 1, 64), False, scale=3.0)
    q, k, v = operands((1, 64, 200, 1, 1, 64))
    q *= np.asarray(100, q.dtype)
    out = np.zeros_like(q)
    kernel.bind(q, k, v, out).run()
    assert compare_attention(out, q, k, v).ok


def test_keys_behind_the_last_are_not_read() -> None:
    """What lies behind s_kv in memory is NaN; a tile's end is filled with zeros instead (hazard of
    partial V tiles).
    """
    q, k, v = operands((1, 64, 200, 1, 1, 64))
    longer = [np.concatenate([x, np.full_like(x, np.nan)], axis=1) for x in (k, v)]
    out = np.zeros_like(q)
    kernel.bind(q, longer[0][:, :200], longer[1][:, :200], out).run()
    assert compare_attention(out, q, k, v).ok


def test_a_row_without_keys_is_zero() -> None:
    q, k, v = operands((1, 200, 30, 1, 1, 64))
    out, lse = np.full_like(q, np.nan), np.zeros((1, 1, 200), np.float32)
    kernel.bind(q, k, v, out, lse, causal=True).run()
    assert not out[:, :170].any()
    assert np.isneginf(lse[..., :170]).all()
    assert np.isfinite(lse[..., 170:]).all()


@pytest.mark.sampled(suite=100)
@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("d", [128, 64])
@pytest.mark.parametrize("dtype", [tp.bfloat16, tp.float16])
@pytest.mark.parametrize("s_kv", [16384, 256])
def test_compiles_as_meant(dtype: tp.DType, d: int, causal: bool, s_kv: int) -> None:
    """No spills, no wgmma serialised, no setmaxnreg ignored (`compile` raises); nothing but MMAs,
    softmax and barriers in the loop. `make test` compiles the form that holds most.
    """
    q, k, v = operands((1, 64, s_kv, 1, 1, d), dtype)
    for lse in (None, np.zeros((1, 1, 64), np.float32)):
        compiled = kernel.bind(q, k, v, np.zeros_like(q), lse, causal=causal).compile("sm_90a")
        assert compiled.spill_bytes == 0
        assert "C75" not in compiled.log


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bn": 256}, "registers of a thread; with 2 consumers at most 200"),
        ({"bn": 144, "consumers": 3}, "bn / 2 + bn / 4 + d_v / 2 = 72 + 36 + 64 = 172"),
        ({"bn": 128, "stages": 4}, "shared memory"),
        ({"bn": 176, "store": "tile"}, "+ other tiles of Q and the output's 32,768 = "),
        ({"stages": 1}, "stages must be at least 2"),
        ({"order": "pingpong"}, "order must be one of turns, free"),
        ({"schedule": "clc"}, "schedule must be one of persistent, single, dynamic"),
        ({"consumers": 4}, "consumers must be 1, 2 or 3"),
    ],
)
def test_a_configuration_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    q, k, v = operands((1, 64, 64, 1, 1, 128))
    with pytest.raises(tp.BindError, match=re.escape(said)):
        kernel.bind(q, k, v, np.zeros_like(q), None, AttentionConfig(**settings))
