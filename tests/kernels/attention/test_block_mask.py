"""Block masks: the lists of tiles of keys beside NumPy; attention right beside float64 of a dense
mask, in the simulator; what is left out is not loaded; verified; compiled without spills; wrong
masks are one sentence.
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
from tilepipe.kernels.attention.block_mask import (
    bind_lists,
    check_block_mask,
    check_block_size,
    lists_shape,
)
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.heuristics import choose_sm90
from tilepipe.kernels.attention.key_lists import HEAD
from tilepipe.kernels.attention.reference import compare_attention
from tilepipe.kernels.attention.scores import Window
from tilepipe.kernels.attention.validation import Extents, check_attention

Array = npt.NDArray[Any]
UNWRITTEN = -7
# (settings, block_size): tiles as large as blocks, and smaller in either extent
FAMILIES: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    "a tile a block": ({"bn": 64, "consumers": 1, "schedule": "single"}, (64, 64)),
    "smaller tiles": ({"bn": 16, "consumers": 1, "stages": 3}, (128, 48)),
    "two warpgroups": ({"bn": 32, "store": "tile"}, (256, 64)),
    "drawn": ({"bn": 64, "schedule": "dynamic", "order": "free"}, (128, 128)),
    "three warpgroups": ({"bn": 32, "consumers": 3, "qk_stages": 2, "d": 128}, (192, 32)),
}


class Problem:
    """q, k, v and a random block mask; results that begin as NaN, lists as -7."""

    def __init__(
        self,
        s_q: int,
        s_kv: int,
        family: str,
        *,
        heads: int = 2,
        kv_heads: int = 1,
        batch: int = 2,
        of_all: tuple[bool, bool] = (False, False),
        density: float = 0.5,
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)
        given, self.block = FAMILIES[family]
        d = given.get("d", 64)
        self.cfg = AttentionConfig(**{name: x for name, x in given.items() if name != "d"})
        shapes = (batch, s_q, heads, d), (batch, s_kv, kv_heads, d), (batch, s_kv, kv_heads, d)
        self.q, self.k, self.v = (rng.standard_normal(x).astype(np.float16) for x in shapes)
        self.out, self.lse = (
            np.full_like(self.q, np.nan),
            np.full((batch, heads, s_q), np.nan, np.float32),
        )
        counts = -(-s_q // self.block[0]), -(-s_kv // self.block[1])
        outer = (1 if one else n for one, n in zip(of_all, (batch, heads), strict=True))
        self.mask = rng.random((*outer, *counts)) < density
        self.found: Extents = check_attention(self.q, self.k, self.v, self.out, self.lse)

    def lists(self, seen: Window) -> tuple[tp.Program, Array]:
        check_block_mask(self.mask, self.block, self.found)
        lists = np.full(lists_shape(self.mask, self.found, self.cfg), UNWRITTEN, np.int32)
        return bind_lists(self.mask, lists, self.found, seen, self.cfg, self.block), lists

    def bind(self, **options: Any) -> tp.Program:
        names = ("causal", "window", "align")
        window: dict[str, Any] = {"causal": False, "window": None}
        window |= {name: options[name] for name in names if name in options}
        program, lists = self.lists(Window.of(**window))
        program.run()
        arrays = self.q, self.k, self.v, self.out, self.lse
        return kernel.bind(*arrays, self.cfg, key_lists=lists, **options)

    def compare(self, **options: Any) -> tp.testing.Comparison:
        mask: dict[str, Any] = {"block_mask": self.mask, "block_size": self.block}
        return compare_attention(self.out, self.q, self.k, self.v, lse=self.lse, **mask, **options)


def wanted_list(mask: Array, t: int, problem: Problem, seen: Window) -> list[int]:
    """The list of tile `t` of queries, as the definition has it: `mask` of its batch and head."""
    s_q, s_kv, bm, bn = problem.found.s_q, problem.found.s_kv, problem.cfg.bm, problem.cfg.bn
    place = int(seen.place(np.array([t * bm]), s_q, s_kv)[0])
    left = -(10**9) if seen.left is None else place - seen.left  # of the first query
    right = 10**9 if seen.right is None else place + seen.right
    walked = [
        j
        for j in reversed(range(-(-s_kv // bn)))
        if mask[t * bm // problem.block[0], j * bn // problem.block[1]]
        and j * bn <= right + bm - 1  # the last query sees its first key
        and (seen.left is None or j >= max(left, 0) // bn)
    ]
    cut_on_right = [j for j in walked if (j + 1) * bn - 1 > right]
    cut_on_left = [j for j in walked if j * bn < left + bm - 1]
    clear = min(len(walked), max(len(cut_on_right), 1))
    return [len(walked), clear, max(clear, len(walked) - len(cut_on_left)), *walked]


@pytest.mark.slow
@settings(max_examples=share(40), deadline=None)
@given(
    s_q=st.integers(1, 400),
    s_kv=st.integers(1, 700),
    family=st.sampled_from(sorted(FAMILIES)),
    density=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    sides=st.tuples(
        st.one_of(st.none(), st.integers(0, 300)), st.one_of(st.none(), st.integers(0, 300))
    ),
    align=st.sampled_from(["first", "last"]),
    seed=st.integers(0, 99),
)
def test_lists_are_those_of_the_definition(
    s_q: int,
    s_kv: int,
    family: str,
    density: float,
    sides: tuple[int | None, int | None],
    align: str,
    seed: int,
) -> None:
    problem = Problem(s_q, s_kv, family, density=density, batch=1, of_all=(True, False), seed=seed)
    seen = Window.of(False, sides, align)
    program, lists = problem.lists(seen)
    program.run(seed=seed)
    for h in range(2):
        for t in range(lists.shape[2]):
            want = wanted_list(problem.mask[0, h], t, problem, seen)
            got = lists[0, h, t].tolist()
            # The two limits say nothing where no side cuts, or nothing is walked.
            compared = [True, seen.right is not None, seen.left is not None]
            for i, needed in enumerate(compared):
                assert not needed or not want[0] or got[i] == want[i], (h, t, i)
            assert got[0] == want[0]
            assert got[HEAD : HEAD + want[0]] == want[HEAD:]
            assert set(got[HEAD + want[0] :]) <= {UNWRITTEN}


MASKS: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": (70, 20)},
    "left, from the first": {"window": (100, 0), "align": "first"},
}


@pytest.mark.sampled(suite=99, classes=lambda family, mask, of_all: [family, tuple(mask), of_all])
@pytest.mark.slow
@pytest.mark.parametrize("of_all", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("family", FAMILIES)
def test_right(family: str, mask: dict[str, Any], of_all: tuple[bool, bool]) -> None:
    problem = Problem(330, 410, family, of_all=of_all)
    problem.bind(**mask).run(seed=1)
    assert problem.compare(**mask).ok
    assert not compare_attention(problem.out, problem.q, problem.k, problem.v, **mask).ok


@pytest.mark.slow
@settings(max_examples=share(20), deadline=None)
@given(
    s_q=st.integers(1, 300),
    s_kv=st.integers(1, 300),
    family=st.sampled_from(sorted(FAMILIES)),
    density=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    left=st.one_of(st.none(), st.integers(0, 200)),
    causal=st.booleans(),
    seed=st.integers(0, 99),
)
def test_right_for_any_mask(
    s_q: int, s_kv: int, family: str, density: float, left: int | None, causal: bool, seed: int
) -> None:
    problem = Problem(s_q, s_kv, family, density=density, batch=1, seed=seed)
    options = {"causal": causal, "window": (left, None)}
    problem.bind(**options).run(seed=seed)
    assert problem.compare(**options).ok


@pytest.mark.slow
def test_options_that_change_scores_hold_within_blocks() -> None:
    problem = Problem(200, 300, "smaller tiles")
    slopes, sinks = (np.array(x, np.float32) for x in ([0.1, 0.02], [1.0, -2.0]))
    options = {"causal": True, "softcap": 5.0, "slopes": slopes, "sinks": sinks}
    problem.bind(**options).run()
    assert problem.compare(**options).ok


def _even_keys(
    ctx: tp.Context, x: Any, query: tp.FragmentValue, key: tp.FragmentValue, head: tp.Value
) -> tp.FragmentValue:
    return ctx.select((key + query) % 2 == 0, x, -np.inf)


@pytest.mark.slow
def test_a_score_function_gets_the_keys_of_the_tile() -> None:
    problem = Problem(200, 300, "smaller tiles")
    problem.bind(score=_even_keys).run()
    assert problem.compare(score=lambda x, i, j, h: np.where((i + j) % 2 == 0, x, -np.inf)).ok


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_that_are_false_are_not_loaded(family: str) -> None:
    """Weights of 0 times their NaN would be NaN."""
    problem = Problem(300, 520, family, of_all=(True, True))
    problem.mask[..., 1::2] = False
    for j in range(1, problem.mask.shape[3], 2):
        keys = slice(j * problem.block[1], (j + 1) * problem.block[1])
        problem.k[:, keys] = problem.v[:, keys] = np.nan
    program = problem.bind()
    program.run()
    problem.k[np.isnan(problem.k)] = problem.v[np.isnan(problem.v)] = 0
    assert problem.compare().ok


@pytest.mark.slow
def test_queries_without_keys() -> None:
    problem = Problem(300, 200, "drawn")
    problem.mask[:, :, 1] = False
    problem.bind().run()
    assert (problem.out[:, 128:256] == 0).all()
    assert (problem.lse[:, :, 128:256] == -np.inf).all()
    assert problem.compare().ok


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_lists_are_verified(family: str) -> None:
    program, _ = Problem(300, 700, family, batch=1).lists(Window.of(True, (300, None)))
    verdict = program.check()
    assert verdict.verdict == "verified", verdict


@pytest.mark.slow
@pytest.mark.sampled(suite=100)
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize(
    ("mask", "changed"), [({}, 0.0), ({"causal": True}, 0.0), ({"window": (99, 99)}, 9.0)]
)
def test_compiles_as_meant(d: int, mask: dict[str, Any], changed: float) -> None:
    q = np.zeros((1, 512, 1, d), tp.bfloat16.numpy)
    found = check_attention(q, q, q)
    seen = Window.of(**{"causal": False, "window": None} | mask)
    cfg = choose_sm90(found, seen.sides, changes=int(changed > 0), block=(128, 128))
    assert (128 % cfg.bm, 128 % cfg.bn, cfg.schedule) == (0, 0, "dynamic")
    blocks = np.ones((1, 1, 4, 4), np.bool_)
    lists = np.zeros(lists_shape(blocks, found, cfg), np.int32)
    program = kernel.bind(
        q, q, q, np.zeros_like(q), None, cfg, key_lists=lists, softcap=changed, **mask
    )
    for each in (program, bind_lists(blocks, lists, found, seen, cfg, (128, 128))):
        compiled = each.compile("sm_90a")
        assert compiled.spill_bytes == 0
        assert "C75" not in compiled.log


@pytest.mark.parametrize(
    ("d", "block", "tile"),
    [
        (64, (192, 128), (192, 128)),
        (64, (128, 128), (128, 128)),
        (128, (64, 160), (64, 160)),
        (128, (256, 96), (128, 96)),
        (128, (128, 224), (128, 112)),
        (256, (128, 128), (128, 64)),
    ],
)
def test_chosen_tiles_divide_blocks(d: int, block: tuple[int, int], tile: tuple[int, int]) -> None:
    q = np.zeros((1, 512, 1, d), np.float16)
    cfg = choose_sm90(check_attention(q, q, q), (False, False), block=block)
    assert (cfg.bm, cfg.bn) == tile


class FlexBlockMask:
    """What of FlexAttention's is looked at."""

    def to_dense(self) -> None: ...


@pytest.mark.parametrize(
    ("mask", "size", "said"),
    [
        (
            np.ones((1, 1, 2, 3), np.bool_),
            (128, 128),
            "here (1 or 3, 1 or 2, 2, 2) for block_size=(128, 128); it is bool of (1, 1, 2, 3)."
            " There are ceil(200 / 128) = 2 blocks of queries and ceil(256 / 128) = 2 of keys",
        ),
        (np.ones((2, 1, 2, 2), np.bool_), (128, 128), "it is bool of (2, 1, 2, 2)"),
        (np.ones((2, 2), np.bool_), (128, 128), "it is bool of (2, 2)"),
        (
            np.ones((1, 1, 200, 256), np.bool_),
            (128, 128),
            "A mask of single scores is written as causal=, window= or a score function",
        ),
        (
            np.ones((1, 1, 2, 2), np.float32),
            (128, 128),
            "it is float32 of (1, 1, 2, 2). A mask of single",
        ),
        (FlexBlockMask(), (128, 128), "pass block_mask=mask.to_dense().bool(), and what it masks"),
        (None, 128, "block_size is a pair (queries, keys) of multiples of 64 and 16; got 128"),
        (None, (128, 24), "multiples of 64 and 16; got (128, 24)"),
        (None, (128, 0), "multiples of 64 and 16; got (128, 0)"),
        (None, (True, 64), "multiples of 64 and 16; got (True, 64)"),
    ],
)
def test_refused(mask: Any, size: Any, said: str) -> None:
    q, k = np.zeros((3, 200, 2, 64), np.float16), np.zeros((3, 256, 2, 64), np.float16)
    with pytest.raises(tp.BindError, match=re.escape(said)):
        check_block_mask(mask, size, check_attention(q, k, k))


def test_block_masks_are_of_batches() -> None:
    found = Extents(1, 200, 256, 2, 2, 64, 64, tp.float16, 1.0, sequences=3)
    with pytest.raises(tp.BindError, match="packed sequences have none"):
        check_block_mask(np.ones((1, 1, 2, 2), np.bool_), (128, 128), found)


def test_a_block_size_is_a_pair_of_numbers() -> None:
    assert check_block_size([np.int64(64), 16]) == (64, 16)


@pytest.mark.parametrize(
    ("settings", "block", "said"),
    [
        ({"consumers": 3}, (128, 128), "a tile has 192 queries, 64 · consumers=3, and does not"),
        ({"bn": 96}, (128, 128), "a tile has 96 keys, bn, and does not divide blocks of 128"),
    ],
)
def test_tiles_that_do_not_divide_blocks(
    settings: dict[str, Any], block: tuple[int, int], said: str
) -> None:
    problem = Problem(200, 256, "drawn")
    problem.cfg, problem.block = AttentionConfig(**settings), block
    with pytest.raises(tp.BindError, match=re.escape(said)):
        problem.lists(Window())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda lists: lists[:, :, :1],
            "here (1 or 2, 1 or 2, 2, 7) of tiles of 128 queries and 64 keys; they have"
            " (2, 2, 1, 7)",
        ),
        (lambda lists: np.concatenate([lists] * 2), "they have (4, 2, 2, 7)"),
        (lambda lists: lists.astype(np.int64), "key_lists"),
        (lambda lists: lists[0], "key_lists"),
    ],
)
def test_lists_of_another_problem(change: Any, said: str) -> None:
    problem = Problem(200, 256, "drawn")
    _, lists = problem.lists(Window())
    arrays = problem.q, problem.k, problem.v, problem.out, problem.lse
    with pytest.raises(tp.BindError, match=re.escape(said)):
        kernel.bind(*arrays, problem.cfg, key_lists=change(lists))


def test_lists_are_of_a_configuration_and_of_batches() -> None:
    problem = Problem(200, 256, "drawn")
    _, lists = problem.lists(Window())
    with pytest.raises(tp.BindError, match="key_lists are of one configuration: pass it as cfg="):
        kernel.bind(problem.q, problem.k, problem.v, problem.out, key_lists=lists)
    bounds = np.array([0, 200], np.int32), np.array([0, 256], np.int32)
    q, k, v, out = (x[0] for x in (problem.q, problem.k, problem.v, problem.out))
    with pytest.raises(tp.BindError, match="packed sequences have none"):
        kernel.bind(
            q,
            k,
            v,
            out,
            cfg=problem.cfg,
            cu_seqlens_q=bounds[0],
            cu_seqlens_k=bounds[1],
            key_lists=lists,
        )
