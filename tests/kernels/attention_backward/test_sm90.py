"""The gradients of attention on Hopper: right in the simulator and verified for every feature,
compiled without spills, in a fixed order where that is asked for, mistakes caught.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tests.support.cuda.banks import stores, wavefronts
from tilepipe.kernels.attention.reference import attention
from tilepipe.kernels.attention_backward import reference, sm90_bind as kernel
from tilepipe.kernels.attention_backward.config import QUERIES, WALKS, BackwardConfig
from tilepipe.kernels.attention_backward.heuristics import TOGETHER, choose_sm90
from tilepipe.kernels.attention_backward.validation import check_backward

Array = npt.NDArray[Any]
Shape = tuple[int, int, int, int, int, int]

# (batch, s_q, s_kv, heads, kv_heads, d)
SHAPES: dict[str, Shape] = {
    "whole tiles": (1, 128, 256, 1, 1, 128),
    "ragged": (2, 100, 150, 2, 2, 64),
    "one query": (1, 1, 200, 1, 1, 128),
    "one key": (1, 130, 1, 1, 1, 64),
    "more queries than keys": (1, 200, 140, 1, 1, 128),
    "heads that share keys": (1, 70, 300, 4, 2, 128),
    "narrow heads": (1, 140, 130, 2, 1, 40),
}


class Problem:
    """Operands, the three programs and the gradients that they write."""

    def __init__(
        self,
        shape: Shape,
        causal: bool = False,
        dtype: tp.DType = tp.bfloat16,
        *,
        deterministic: bool = False,
        cfg: BackwardConfig | None = None,
        **options: Any,
    ) -> None:
        batch, s_q, s_kv, heads, kv_heads, d = shape
        rng, kind = np.random.default_rng(0), dtype.numpy

        def drawn(*extents: int) -> Array:
            return rng.standard_normal(extents).astype(kind)

        self.q, self.dout = (drawn(batch, s_q, heads, d) for _ in range(2))
        self.k, self.v = (drawn(batch, s_kv, kv_heads, d) for _ in range(2))
        self.options = {"causal": causal, **options}
        out, lse = attention(self.q, self.k, self.v, **self.options)
        out, lse = out.astype(kind), lse.astype(np.float32)
        found = check_backward(self.q, self.k, self.v, out, self.dout, lse)

        def junk(extents: tuple[int, ...], dtype: str) -> Array:
            return np.full(extents, np.nan if dtype == "float32" else 77, dtype)

        self.space = kernel.Workspace.of(found, deterministic, junk)
        self.dq, self.dk, self.dv = (np.full_like(x, np.nan) for x in (self.q, self.k, self.v))
        self.prepare = kernel.bind_prepare(out, self.dout, lse, self.space)
        self.program = kernel.bind(
            self.q, self.k, self.v, self.dout, self.dk, self.dv, self.space, cfg, **self.options
        )
        self.finish = kernel.bind_finish(self.space.sums, self.space.delta, self.dq, found.scale)

    def run(self, seed: int = 0) -> None:
        for program in (self.prepare, self.program, self.finish):
            program.run(seed=seed)

    def verify(self) -> None:
        got = self.dq, self.dk, self.dv
        found = reference.compare(got, self.dout, self.q, self.k, self.v, **self.options)
        assert [x.ok for x in found] == [True] * 3, found


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_gradients_are_those_of_float64(shape: Shape, causal: bool) -> None:
    problem = Problem(shape, causal)
    problem.run()
    problem.verify()


@pytest.mark.slow
@pytest.mark.sampled(suite=9, classes=lambda group, walk: [group, walk])
@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("group", [1, 2, 3])
def test_bands_of_heads(group: int, walk: str) -> None:
    """Of 6 heads of keys in 6, 3 and 2 bands, each shared by 2 of queries."""
    cfg = BackwardConfig(group, walk)
    problem = Problem((2, 200, 300, 6, 3, 64), True, tp.float16, cfg=cfg, deterministic=True)
    problem.run()
    problem.verify()


@pytest.mark.slow
def test_a_mask_that_begins_at_the_first_key_leaves_keys_that_no_query_sees() -> None:
    problem = Problem((1, 100, 300, 1, 1, 64), True, align="first")
    problem.run()
    problem.verify()
    assert not problem.dk[:, 100:].any()
    assert not problem.dv[:, 100:].any()


@pytest.mark.slow
@pytest.mark.sampled(suite=12, classes=lambda d, walk, causal: [(d, causal), walk])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("d", [64, 128])
def test_turns_fix_the_order_of_sums(d: int, walk: str, causal: bool) -> None:
    """Of two heads of keys in two bands, one of which is walked upwards where bands alternate."""
    sums = []
    for seed in range(2):
        cfg = BackwardConfig(1, walk)
        problem = Problem((1, 150, 400, 2, 2, d), causal, deterministic=True, cfg=cfg)
        problem.run(seed)
        problem.verify()
        sums.append(problem.space.sums.tobytes())
    assert len(set(sums)) == 1
    assert problem.space.turns is not None
    assert problem.space.turns.max() == 4  # tiles of keys


@pytest.mark.sampled(suite=3, classes=lambda **form: form.items())
@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True], ids=["any order", "in turns"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", [64, 128])
def test_every_form_is_verified(d: int, causal: bool, deterministic: bool) -> None:
    problem = Problem((1, 200, 256, 2, 1, d), causal, deterministic=deterministic)
    for program in (problem.prepare, problem.program, problem.finish):
        verdict = program.check()
        assert verdict.verdict == "verified", verdict
        assert not verdict.unreached
        unordered = any("in no fixed order" in x for x in verdict.advice)
        assert unordered == (program is problem.program and not deterministic)
        program.run()


@pytest.mark.sampled(suite=6, classes=lambda walk, causal: [walk, causal])
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("walk", WALKS)
def test_every_walk_is_verified_in_turns(walk: str, causal: bool) -> None:
    """In two bands, with as many CTAs at once as there are, and with fewer."""
    problem = Problem(
        (1, 200, 256, 4, 2, 64), causal, deterministic=True, cfg=BackwardConfig(1, walk)
    )
    problem.prepare.run()
    verdict = problem.program.check()
    assert verdict.verdict == "verified", verdict
    assert not verdict.unreached
    assert not any("in no fixed order" in x for x in verdict.advice)


@pytest.mark.slow
def test_without_the_wait_for_a_turn_the_order_is_not_fixed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tp.Context, "wait_until", lambda *args, **options: None)
    problem = Problem((1, 128, 256, 1, 1, 128), deterministic=True, cfg=BackwardConfig(group=5))
    problem.prepare.run()
    advice = problem.program.check().advice
    assert any("several agents add floating-point numbers in no fixed order" in x for x in advice)


@pytest.mark.sampled(suite=100, classes=lambda d, causal: [d])
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", [64, 128])
def test_no_register_spills_and_no_wgmma_waits_for_the_one_before(d: int, causal: bool) -> None:
    problem = Problem((1, 128, 128, 1, 1, d), causal, deterministic=True)
    for program in (problem.prepare, problem.program, problem.finish):
        compiled = program.compile("sm_90a")
        assert compiled.spill_bytes == compiled.stack_bytes == 0
        assert "C75" not in compiled.log


@pytest.mark.slow
@pytest.mark.parametrize("d", [64, pytest.param(128, marks=pytest.mark.thorough)])
def test_the_printed_code_computes_the_same(d: int) -> None:
    """`ptx.test_print_families` has sums in any order, in `make test-all`."""
    problem = Problem((1, 70, 140, 1, 1, d), True, deterministic=True)
    for program in (problem.prepare, problem.program, problem.finish):
        program.ptx("sm_90a").run(seed=1)
    problem.verify()


@pytest.mark.parametrize("d", [64, 128])
def test_no_two_lanes_of_a_store_of_dq_meet_in_a_bank(d: int) -> None:
    source = Problem((1, 80, 128, 1, 1, d)).program.source()
    assert source.count("= dq_tile() + ") == 2  # addresses, computed before the stores
    found = stores(source, "dq_tile")
    assert len(found) == 4 * (QUERIES[d] if d == 128 else QUERIES[d] // 2) // 2
    assert [wavefronts(x.lanes) for x in found] == [1] * len(found)


def test_which_heads_are_dealt_out_together() -> None:
    assert choose_sm90(True, False, True, 64, 4096, tp.H200) == BackwardConfig(group=4)
    assert choose_sm90(False, False, False, 64, 4096, tp.H200) == BackwardConfig(group=1)
    for s_kv, together in ((0, 64), (1, 64), (300, 64), (4096, 4), (8192, 2), (16384, 1)):
        full = choose_sm90(False, True, False, 99, s_kv, tp.H200)
        assert full == BackwardConfig(group=together)
        causal = BackwardConfig(min(2 * together, 64), "alternate")
        assert choose_sm90(True, True, False, 99, s_kv, tp.H200) == causal
        shared = BackwardConfig(causal.group, "queries")
        assert choose_sm90(True, True, True, 4, s_kv, tp.H200) == shared
    half = replace(tp.H200, sms=66)
    assert choose_sm90(False, True, False, 64, 4096, half) == BackwardConfig(group=2)
    found = {choose_sm90(True, True, True, 64, n, tp.H200).group for n in range(0, 40_000, 50)}
    assert found == set(TOGETHER)


def test_two_bands_alternate_where_there_are_two_heads() -> None:
    groups = {n: choose_sm90(True, True, False, n, 4096, tp.H200).group for n in (1, 2, 8, 12, 64)}
    assert groups == {1: 1, 2: 1, 8: 4, 12: 8, 64: 8}


@pytest.mark.slow
def test_lengths_of_keys_share_what_is_compiled_in_the_fixed_order() -> None:
    """For each other source NVRTC takes a second, and TILEPIPE_JIT=error refuses it."""
    sources = {
        Problem((1, 8, s_kv, 1, 1, 64), deterministic=True).program.source()
        for s_kv in (1000, 1024, 1100, 1200, 1300)
    }
    assert len(sources) == 1


def test_mistakes() -> None:
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((1, s, 2, 64)).astype(np.float16) for s in (100, 70))
    lse, wide = np.zeros((1, 2, 100), np.float32), np.zeros((1, 100, 2, 160), np.float16)
    with pytest.raises(tp.BindError, match="heads of q and k have 160 elements; there are grad"):
        check_backward(wide, wide, wide, wide, wide, lse)
    with pytest.raises(tp.BindError, match=r"attention_backward: lse must be float32 of"):
        check_backward(q, k, k, q, q, lse[:, :, :50])
    with pytest.raises(tp.BindError, match=r"dout, the gradient of out, must have its"):
        check_backward(q, k, k, q, q[:, :50], lse)
    problem = Problem((1, 100, 70, 1, 1, 64))
    given = problem.q, problem.k, problem.v, problem.dout
    with pytest.raises(tp.BindError, match="dk must have the shape and dtype of k"):
        kernel.bind(*given, problem.dq, problem.dv, problem.space)
    with pytest.raises(tp.BindError, match="group must be at least 1"):
        BackwardConfig(group=0)
    with pytest.raises(tp.BindError, match="walk is one of heads, queries, alternate"):
        BackwardConfig(walk="up")
