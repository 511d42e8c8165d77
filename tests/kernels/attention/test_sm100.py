"""Attention for sm_100 in the simulator: right for every shape, setting and mask; refused where it
cannot be.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.kernels.attention.sm100_cases import BF16, Problem, blocks, counts, grown, simulate
from tests.support.ring_kernels import counts_of
from tilepipe.kernels.attention import sm100
from tilepipe.kernels.attention.config import Sm100AttentionConfig
from tilepipe.kernels.attention.heuristics import choose_sm100
from tilepipe.kernels.attention.scores import Window

# (s_q, s_kv): whole blocks, one more and one less than a block, less than one, one query, one key,
# more queries than keys
SHAPES = [
    (256, 256),
    (512, 384),
    (128, 128),
    (200, 300),
    (257, 129),
    (255, 127),
    (129, 1),
    (1, 1),
    (1, 300),
    (40, 20),
    (128, 513),
    (384, 256),
    (300, 100),
    (500, 40),
]


@pytest.mark.slow
@pytest.mark.sampled(suite=5)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, int], d: int, causal: bool) -> None:
    for seed in (0, 1):
        simulate(*shape, d, seed=seed, causal=causal)


@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("s_kv", [1, 31, 32, 33, 95, 96, 128, 160, 192, 193, 256, 300])
def test_trip_counts(s_kv: int) -> None:
    """Rings of two stages and blocks of 32 keys: fewer blocks than stages, as many, more; every
    phase that is begun is completed.
    """
    for s_q, causal in itertools.product((256, 300), (False, True)):
        run = Problem(s_q, s_kv, 64, causal=causal, bn=32).right(seed=2)
        steps = sum(blocks(s_q, s_kv, causal, first, bn=32) for first in range(0, s_q, 256))
        completed = {name: sum(map(sum, found)) for name, found in run.completions.items()}
        ctas = -(-s_q // 256)
        of_each_block = (
            "k.full",
            "k.empty",
            "v.full",
            "v.empty",
            "s0.full",
            "s0.empty0",
            "s0.empty1",
            "s1.full",
            "o0.full",
            "o1.full",
        )
        assert {name: completed[name] for name in of_each_block} == dict.fromkeys(
            of_each_block, steps
        )
        assert (completed["factors0.full"], completed["q1_full"]) == (steps + ctas, ctas)


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"bn": 32},
        {"bn": 64, "stages": 3},
        {"bn": 96},
        {"stages": 2},
        {"bn": 64, "stages": 5},
        {"rescale_above": 1},
        {"rescale_above": 15},
        {"bn": 32, "stages": 2, "rescale_above": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("d", [64, 128])
def test_every_setting(settings: dict[str, int], d: int) -> None:
    for causal in (False, True):
        simulate(300, 420, d, seed=1, causal=causal, change=grown(1.7), **settings)


@pytest.mark.slow
@pytest.mark.parametrize(("heads", "kv_heads"), [(3, 3), (4, 2), (6, 2), (4, 1)])
def test_heads_that_share_keys(heads: int, kv_heads: int) -> None:
    simulate(140, 200, 64, batch=2, heads=heads, kv_heads=kv_heads, causal=True, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_dtypes(dtype: Any) -> None:
    for d, scale in ((64, None), (128, 0.3)):
        simulate(200, 300, d, dtype=dtype, scale=scale, causal=True)


@pytest.mark.slow
def test_without_the_log_sum_exp() -> None:
    problem = Problem(200, 300, lse=False)
    problem.right()
    assert "param lse" not in str(problem.program)


@pytest.mark.slow
@pytest.mark.parametrize("d", [64, 128])
def test_rows_that_see_no_key(d: int) -> None:
    """With more queries than keys under a causal mask the first see nothing: 0 and -inf, exactly;
    whole tiles and CTAs of them too.
    """
    for s_q, s_kv in ((300, 100), (700, 90), (129, 1)):
        problem = Problem(s_q, s_kv, d, causal=True)
        problem.right(seed=1)
        none = Window.of(True, None).seen(s_q, s_kv)[1] == 0
        assert none.sum() == s_q - s_kv
        assert not problem.out[0, none].any()
        assert problem.lse is not None
        assert (problem.lse[0, 0, none] == -math.inf).all()
        assert np.isfinite(problem.lse[0, 0, ~none]).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_large_scores(dtype: Any) -> None:
    """Rows that are nearly one-hot, where the maximum grows by much, by little and not at all."""

    def change(factor: float) -> Any:
        def both(q: Any, k: Any, v: Any) -> None:
            q *= dtype(12)
            grown(factor)(q, k, v)

        return both

    for factor in (0.5, 1.0, 1.3, 3.0):
        Problem(256, 512, 64, dtype=dtype, causal=True, change=change(factor)).right(seed=4)


@pytest.mark.slow
def test_equal_scores() -> None:
    """All keys alike: P is 1 everywhere, the sum the number of keys, the output their mean."""

    def change(q: Any, k: Any, v: Any) -> None:
        k[...] = k[:, :1]

    problem = Problem(256, 300, change=change)
    problem.right()
    np.testing.assert_allclose(
        problem.out[0, :, 0].astype(float),
        np.broadcast_to(problem.v[0, :, 0].astype(float).mean(0), (256, 128)),
        atol=0.01,
    )


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["heads first", "packed", "padded"])
def test_strides(memory: str) -> None:
    """Arrays as frameworks have them: (batch, heads, s, d) in memory; q, k, v in one array; rows
    with a gap.
    """
    batch, s, heads, d = 2, 150, 2, 64
    rng = np.random.default_rng(1)
    if memory == "packed":
        x = rng.standard_normal((batch, s, 3, heads, d)).astype(BF16)
        q, k, v = (x[:, :, i] for i in range(3))
    elif memory == "heads first":
        q, k, v = (
            rng.standard_normal((batch, heads, s, d)).astype(BF16).transpose(0, 2, 1, 3)
            for _ in range(3)
        )
    else:
        q, k, v = (
            rng.standard_normal((batch, s, heads, d + 8)).astype(BF16)[..., :d] for _ in range(3)
        )
    problem = Problem(s, s, d, batch=batch, heads=heads)
    out = np.zeros_like(problem.out) if memory == "packed" else np.zeros_like(q)
    problem.q, problem.k, problem.v, problem.out = q, k, v, out
    problem.program = sm100.bind(q, k, v, out, problem.lse)
    problem.right()


@pytest.mark.sampled(suite=7)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", [64, 128])
def test_interleavings(d: int, causal: bool, seed: int) -> None:
    for settings in ({"bn": 32, "stages": 2}, {"bn": 64, "stages": 3, "rescale_above": 1}, {}):
        simulate(400, 500, d, seed=seed, causal=causal, change=grown(1.5), **settings)


@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_problems(seed: int) -> None:
    rng = np.random.default_rng(seed)
    s_q, s_kv = (int(rng.integers(1, 420)) for _ in range(2))
    kv_heads = int(rng.integers(1, 3))
    simulate(
        s_q,
        s_kv,
        int(rng.choice([64, 128])),
        seed=seed,
        causal=bool(rng.integers(2)),
        heads=kv_heads * int(rng.integers(1, 3)),
        kv_heads=kv_heads,
        batch=int(rng.integers(1, 3)),
        dtype=(BF16, np.float16)[seed % 2],
        change=grown(float(rng.uniform(0.8, 2))),
        bn=int(rng.choice([32, 64, 128])),
        stages=2,
        rescale_above=int(rng.integers(1, 9)),
    )


@pytest.mark.slow
def test_derived_counts() -> None:
    for d, lse in itertools.product((64, 128), (False, True)):
        assert counts_of(Problem(256, 256, d, lse=lse).program) == counts()


def test_the_order_of_the_mmas() -> None:
    """S0 = Q0 · Kn; O1 += P1 · V(n-1); S1 = Q1 · Kn; O0 += P0 · Vn: between S and the P made of it
    the tensor core has other work.
    """
    found: list[str] = []

    def note(agent: Any, site: Any, start: float, end: float) -> None:
        if site.kind == "tcgen05_mma":
            found.append(site.what)

    problem = Problem(256, 384, 64)
    problem.program.run(seed=3, on_event=note)
    bn = 128
    names: dict[str, tuple[str, str]] = {}
    for i in range(2):
        names |= {f"S{i}": (f"= q{i}[0]", "k["), f"O{i}": (f"tmem[v_2 + {2 * bn + 64 * i}]", "v[")}
    order = [
        name
        for what in found
        for name, words in names.items()
        if all(word in what for word in words)
    ]
    halved = [name for name, _ in itertools.groupby(order)]
    assert halved == ["S0", "S1", "O0", "S0", "O1", "S1", "O0", "S0", "O1", "S1", "O0", "O1"]
    assert len(order) == len(found) == 3 * (2 + 4)


@pytest.mark.slow
def test_the_trace_does_not_depend_on_the_shapes() -> None:
    def text(*shape: int, **more: Any) -> str:
        sm100.attention.forget()
        return str(Problem(*shape, bn=64, **more).program)

    assert text(256, 256, 64) == text(1000, 77, 64, batch=2, heads=6, kv_heads=2)


@pytest.mark.slow
def test_the_last_queries_come_first() -> None:
    """With a causal mask they have the most blocks; a grid that ends in short work leaves fewer SMs
    idle.
    """
    problem = Problem(768, 768, 64, causal=True, bn=64)
    run = problem.right()
    assert [sum(found) for found in run.completions["s0.full"]] == [12, 8, 4]


# -- refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bn": 48}, "bn must be a multiple of 32 in 32..128"),
        ({"bn": 160}, "bn must be a multiple of 32 in 32..128"),
        ({"bn": 0}, "bn must be at least 1"),
        ({"stages": 1}, "stages must be at least 2: a V tile is held"),
        ({"rescale_above": 16}, "rescale_above must be at most 15"),
        ({"rescale_above": 8.0}, "rescale_above must be an integer, got 8.0"),
    ],
    ids=str,
)
def test_settings_that_no_kernel_can_have(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(words)):
        Sm100AttentionConfig(**settings)


def half(*shape: int) -> Any:
    return np.zeros(shape, np.float16)


BAD_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"cfg": 3}, "attention: cfg is an Sm100AttentionConfig, got 3"),
    ({"q": half(1, 64, 2, 96), "out": half(1, 64, 2, 96)}, "96"),
    ({"k": half(1, 64, 3, 64), "v": half(1, 64, 3, 64)}, "multiple"),
    ({"scale": -1.0}, "scale"),
    ({"lse": np.zeros((1, 64, 2), np.float32)}, "lse must be float32 of shape (1, 2, 64)"),
    ({"q": np.zeros((1, 64, 2, 65), np.float16)[..., :64]}, "attention: q:"),
    ({"v": np.zeros((1, 64, 2, 65), np.float16)[..., :64]}, "attention: v:"),
    ({"out": half(1, 64, 64, 2).swapaxes(2, 3)}, "attention: out:"),
]


@pytest.mark.parametrize(
    ("arguments", "words"), BAD_ARGUMENTS, ids=[words for _, words in BAD_ARGUMENTS]
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], words: str) -> None:
    given = {name: half(1, 64, 2, 64) for name in ("q", "k", "v", "out")} | arguments
    with pytest.raises(tp.BindError, match=re.escape(words)):
        sm100.bind(**given)


def test_too_much_shared_memory() -> None:
    with pytest.raises(tp.TilepipeError, match=r"shared memory|smem"):
        Problem(128, 128, 128, stages=3)


@pytest.mark.slow
def test_the_default_fills_shared_memory() -> None:
    for d in (64, 128):
        cfg = choose_sm100(d)
        Problem(64, 64, d, stages=cfg.stages)
        if d == 128:
            with pytest.raises(tp.TilepipeError):
                Problem(64, 64, d, stages=cfg.stages + 1)


def test_a_result_of_the_wrong_kind_is_seen() -> None:
    """The comparison that these tests rely on."""
    problem = Problem(128, 128)
    problem.right()
    problem.out[0, 5, 0, 7] += 1
    assert not problem.compared().ok
    problem.right()
    assert problem.lse is not None
    problem.lse[0, 0, 3] += 0.01
    assert not problem.compared().ok
