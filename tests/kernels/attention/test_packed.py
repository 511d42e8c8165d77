"""Packed sequences of different lengths: right in the simulator beside float64 of each sequence
alone, whatever the others hold; verified; compiled without spills; wrong bounds are one sentence.
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
from tilepipe.kernels.attention.packed import search_steps
from tilepipe.kernels.attention.packed_reference import bounds_of, compare_packed
from tilepipe.kernels.attention.reference import NumpyScore
from tilepipe.kernels.attention.scores import ScoreFunction
from tilepipe.registry.catalog import find

Array = npt.NDArray[Any]
Lengths = list[tuple[int, int]]
SMALL = {
    1: AttentionConfig(bn=64, consumers=1, schedule="single"),
    2: AttentionConfig(bn=32, stages=3, group=3, store="tile", qk_stages=1),
    3: AttentionConfig(bn=64, consumers=3, order="free", schedule="single", group=2),
}
LENGTHS: dict[str, Lengths] = {
    "all kinds": [(100, 130), (0, 50), (37, 0), (1, 1), (128, 128), (0, 0), (300, 200), (64, 257)],
    "one": [(200, 300)],
    "whole tiles": [(128, 128), (256, 128)],
    "the first and the last empty": [(0, 0), (70, 90), (0, 0)],
    "single queries": [(1, n) for n in (1, 2, 100, 0, 65, 33, 64, 7, 129, 20)],
    "more queries than keys": [(200, 70), (130, 1)],
}


class Problem:
    """q, k, v of packed sequences, and results that begin as NaN."""

    def __init__(
        self, lengths: Lengths, heads: int = 4, kv_heads: int = 2, d: int = 64, seed: int = 0
    ) -> None:
        rng = np.random.default_rng(seed)
        self.q_bounds, self.k_bounds = (bounds_of(list(x)) for x in zip(*lengths, strict=True))
        shapes = [(self.q_bounds[-1], heads, d), *[(self.k_bounds[-1], kv_heads, d)] * 2]
        self.q, self.k, self.v = (
            rng.standard_normal(shape).astype(tp.bfloat16.numpy) for shape in shapes
        )
        self.out = np.full(self.q.shape, np.nan, self.q.dtype)
        self.lse = np.full((heads, len(self.q)), np.nan, np.float32)

    def bind(self, cfg: AttentionConfig | None = None, **options: Any) -> tp.Program:
        return kernel.bind(
            self.q,
            self.k,
            self.v,
            self.out,
            self.lse,
            cfg,
            cu_seqlens_q=self.q_bounds,
            cu_seqlens_k=self.k_bounds,
            **options,
        )

    def compare(self, **options: Any) -> tp.testing.Comparison:
        bounds = self.q_bounds, self.k_bounds
        return compare_packed(self.out, self.q, self.k, self.v, *bounds, lse=self.lse, **options)


@pytest.mark.slow
@pytest.mark.sampled(suite=48, classes=lambda lengths, cfg, causal: [tuple(lengths), cfg, causal])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("cfg", [None, *SMALL.values()], ids=["chosen", "1", "2", "3"])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_right(lengths: Lengths, cfg: AttentionConfig | None, causal: bool) -> None:
    problem = Problem(lengths)
    problem.bind(cfg, causal=causal).run(seed=1)
    assert problem.compare(causal=causal).ok


@pytest.mark.slow
@settings(max_examples=share(8), deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 150), st.integers(0, 150)), min_size=1, max_size=8),
    ratio=st.sampled_from([1, 3]),
    left=st.one_of(st.none(), st.integers(0, 160)),
    causal=st.booleans(),
    consumers=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_right_for_any_lengths(
    lengths: Lengths, ratio: int, left: int | None, causal: bool, consumers: int, seed: int
) -> None:
    lengths = [*lengths, (1, 1)]
    problem = Problem(lengths, ratio, 1, seed=seed)
    options = {"causal": causal, "window": (left, None)}
    problem.bind(SMALL[consumers], **options).run(seed=seed)
    assert problem.compare(**options).ok


@pytest.mark.slow
@pytest.mark.parametrize("number", [8, 9, 64, 65])
def test_finds_one_of_many_sequences(number: int) -> None:
    lengths = [(i % 3, 1 + i % 5) for i in range(number)]
    problem = Problem(lengths, 1, 1)
    problem.bind(SMALL[1], causal=True).run()
    assert problem.compare(causal=True).ok


@pytest.mark.parametrize(("number", "steps"), [(1, 1), (8, 1), (9, 2), (64, 2), (65, 3), (4096, 4)])
def test_steps_of_the_search(number: int, steps: int) -> None:
    assert search_steps(number) == steps


@pytest.mark.slow
@pytest.mark.sampled(suite=2, classes=lambda cfg, bad: [cfg, bad])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("cfg", [None, *SMALL.values()], ids=["chosen", "1", "2", "3"])
def test_what_other_sequences_hold_does_not_matter(cfg: AttentionConfig | None, bad: float) -> None:
    """Tiles reach into the next sequence; weights of 0 times its NaN would be NaN."""
    lengths = [(100, 70), (50, 60), (90, 130), (40, 50), (70, 33)]
    problem = Problem(lengths)
    for i in (1, 3):
        problem.q[slice(*problem.q_bounds[i : i + 2])] = bad
        keys = slice(*problem.k_bounds[i : i + 2])
        problem.k[keys] = problem.v[keys] = bad
    problem.bind(cfg).run()
    want = Problem(lengths)
    for i in (0, 2, 4):
        bounds = want.q_bounds[i : i + 2], want.k_bounds[i : i + 2]
        arrays = problem.out, want.q, want.k, want.v
        assert compare_packed(*arrays, *bounds, lse=problem.lse).ok, i


def in_documents(
    ctx: tp.Context, x: Any, query: tp.FragmentValue, key: tp.FragmentValue, head: tp.Value
) -> tp.FragmentValue:
    return ctx.select(query // 32 == key // 32, x, -np.inf)


def in_documents_numpy(x: Array, query: Array, key: Array, head: int) -> Array:
    return np.where(query // 32 == key // 32, x, -np.inf)


HEADS = np.array([0.5, -1.0, 2.0, 0.1], np.float32)
OPTIONS: dict[str, dict[str, Any]] = {
    "window": {"window": (20, 3)},
    "soft cap": {"softcap": 2.0, "causal": True},
    "ALiBi": {"slopes": np.abs(HEADS) / 8},
    "sinks": {"sinks": HEADS, "causal": True},
    "aligned to the first": {"causal": True, "align": "first", "window": (60, None)},
    "all": {"window": (70, 0), "softcap": 3.0, "slopes": np.abs(HEADS) / 8, "sinks": HEADS},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options_count_places_within_a_sequence(options: dict[str, Any]) -> None:
    problem = Problem(LENGTHS["all kinds"])
    problem.bind(SMALL[1], **options).run()
    assert problem.compare(**options).ok


@pytest.mark.slow
@pytest.mark.parametrize("score", [(in_documents, in_documents_numpy)])
def test_a_score_function_counts_within_a_sequence(score: tuple[ScoreFunction, NumpyScore]) -> None:
    problem = Problem(LENGTHS["all kinds"])
    problem.bind(score=score[0], causal=True).run()
    assert problem.compare(score=score[1], causal=True).ok


@pytest.mark.slow
def test_rows_in_no_sequence_are_not_written() -> None:
    problem = Problem([(50, 50), (100, 100), (60, 60)])
    problem.q_bounds, problem.k_bounds = problem.q_bounds[1:3], problem.k_bounds[1:3]
    problem.bind().run()
    assert problem.compare().ok
    assert np.isnan(problem.out[:50].astype(np.float32)).all()
    assert np.isnan(problem.out[150:].astype(np.float32)).all()
    assert np.isnan(problem.lse[:, :50]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers", [(0, 300, 300, 100), (0, 50, 100, 99_999), (-70, 50, 2**31 - 1, -(2**31))]
)
def test_bounds_that_became_wrong_write_nothing_outside(numbers: tuple[int, ...]) -> None:
    """On a GPU nobody looks at them: what they say beyond the tensors is left out."""
    problem = Problem([(50, 50), (100, 100), (60, 60)])
    room = np.full((len(problem.q) + 64, *problem.q.shape[1:]), 7, problem.q.dtype)
    problem.out = room[32:-32]
    program = problem.bind(SMALL[1])
    problem.q_bounds[:], problem.k_bounds[:] = numbers, numbers
    program.run()
    assert (room[:32] == 7).all()
    assert (room[-32:] == 7).all()


def test_sequences_that_came_to_share_rows_are_a_fault() -> None:
    problem = Problem([(50, 50), (100, 100), (60, 60)])
    program = problem.bind(SMALL[1])
    problem.q_bounds[:] = 0, 300, 100, 210
    with pytest.raises(tp.RaceError, match="race on tensor 'out'"):
        program.run()


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"lengths": "100:70,0:20,33:0,64:97,130:65", "consumers": 1},
        {"lengths": "64:96,64:32,64:64", "consumers": 1, "causal": True, "store": "tile"},
        {"lengths": "100:160,130:160", "schedule": "persistent", "left": 20, "right": 3},
        {"lengths": "64:160,1,70:150", "consumers": 1, "schedule": "persistent", "order": "free"},
    ],
)
def test_verified(given: dict[str, Any]) -> None:
    """Empty sequences, one block, odd and even counts, a window's edges, ends within a tile."""
    small: dict[str, Any] = {"d": 64, "bn": 32, "heads": 1, "schedule": "single"} | given
    _, instances = find("attention").instances(small)
    for instance in instances:
        assert instance.make().check().verdict == "verified"


@pytest.mark.sampled(suite=100)
@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"causal": True}, {}, OPTIONS["all"]], ids=["causal", "full", "all"]
)
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("longest", [4096, 16384])
def test_compiles_as_meant(d: int, longest: int, options: dict[str, Any]) -> None:
    program = Problem([(64, 64)], d=d).bind(longest=longest, **options)
    compiled = program.compile("sm_90a")
    assert compiled.spill_bytes == 0
    assert "C75" not in compiled.log


def number(*values: int, dtype: Any = np.int32) -> Array:
    return np.array(values, dtype)


@pytest.mark.parametrize(
    ("q_bounds", "k_bounds", "said"),
    [
        (number(0, 80), None, "cu_seqlens_q is given without cu_seqlens_k"),
        (None, number(0, 80), "cu_seqlens_k is given without cu_seqlens_q"),
        (number(0, 80, dtype=np.int64), number(0, 80), "cu_seqlens_q is int32 of shape"),
        (number(0, 80), number(0), "it is int32 of (1,)"),
        (number(0, 40, 80), number(0, 80), "cu_seqlens_q has 3 numbers and cu_seqlens_k 2"),
        (
            number(0, 50, 40, 80),
            number(0, 40, 50, 80),
            "cu_seqlens_q begins at 0 or above and does not descend; cu_seqlens_q[1] is 50 and"
            " cu_seqlens_q[2] is 40",
        ),
        (number(-1, 80), number(0, 80), "cu_seqlens_q[0] is -1"),
        (number(0, 80), number(0, 81), "cu_seqlens_k ends at 81, and k has 80 rows"),
    ],
)
def test_bounds_that_cannot_be(q_bounds: Any, k_bounds: Any, said: str) -> None:
    problem = Problem([(80, 80)])
    problem.q_bounds, problem.k_bounds = q_bounds, k_bounds
    with pytest.raises(tp.BindError, match=re.escape(said)):
        problem.bind()


def test_packed_arrays_have_three_dimensions() -> None:
    problem = Problem([(80, 80)])
    q = problem.q
    said = r"q must have 3 dimensions \(total_q, heads, d\), as .* it has shape "
    problem.q = q[None]
    with pytest.raises(tp.BindError, match=said + r"\(1, 80, 4, 64\): pass q\[0\]$"):
        problem.bind()
    problem.q = q.reshape(2, 40, 4, 64)
    with pytest.raises(tp.BindError, match=said + r".*: pass q\.reshape\(-1, 4, 64\)$"):
        problem.bind()
    problem = Problem([(80, 80)])
    problem.lse = problem.lse[:, :79]
    with pytest.raises(tp.BindError, match=r"float32 of shape \(4, 80\), \(heads, total_q\)"):
        problem.bind()
