"""New keys and values in a cache: simulated and from the PTX, in every order, and compiled."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.append_kv.reference import appended, compare
from tilepipe.kernels.append_kv.sm90 import bind
from tilepipe.kernels.attention_decode.reference import CacheArrays

FAMILIES: dict[str, dict[str, Any]] = {
    "default": {},
    "pages": {"page": 8},
    "float16, one token": {"dtype": tp.float16, "tokens": 1},
    "more heads than a CTA takes": {"heads": 9, "d": 256},
    "short heads": {"d": 8, "heads": 1},
    "heads of no power of two": {"d": 80, "heads": 3, "new": tp.float32},
    "of 8 bits": {"dtype": tp.float8_e4m3, "d": 128},
    "of 8 bits, pages": {"dtype": tp.float8_e4m3, "page": 16, "new": tp.float32},
}
ROOM = 64


def problem(
    *,
    tokens: int = 2,
    heads: int = 2,
    d: int = 64,
    page: int = 0,
    dtype: tp.DType = tp.bfloat16,
    new: tp.DType = tp.bfloat16,
) -> tuple[CacheArrays, Any, Any, Any]:
    """A cache, and what is written there: of sequences that end anywhere, of which some have no
    place for all new tokens.
    """
    rng = np.random.default_rng(0)
    lengths = np.array([2, 0, 1, 64, 65, 33, -7, 20], np.int32)
    n = len(lengths)
    shape, table = (n, ROOM, heads, d), None
    if page:
        shape = n * ROOM // page, page, heads, d
        table = rng.permutation(shape[0]).astype(np.int32).reshape(n, -1)
    k, v = ((100 * rng.standard_normal((n, tokens, heads, d))).astype(new.numpy) for _ in range(2))
    old = [rng.standard_normal(shape).astype(np.float32).astype(dtype.numpy) for _ in range(2)]
    scales = [rng.uniform(0.1, 2, (n, heads)).astype(np.float32) for _ in range(2)]
    of_8_bits = scales if dtype.nbytes == 1 else [None, None]
    return CacheArrays(old[0], old[1], table, *of_8_bits), k, v, lengths


def program(cache: CacheArrays, k: Any, v: Any, lengths: Any) -> tp.Program:
    return bind(
        cache.k,
        cache.v,
        k,
        v,
        lengths,
        block_table=cache.table,
        k_descale=cache.k_scales,
        v_descale=cache.v_scales,
    )


@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_writes_what_it_must_and_nothing_else(family: str, printed: bool) -> None:
    cache, k, v, lengths = problem(**FAMILIES[family])
    want = appended(cache, k, v, lengths, ROOM)
    made = program(cache, k, v, lengths)
    if printed:
        made.ptx("sm_90a").run(0)
    else:
        assert made.run(seed=1).advice == []
    for found, wanted in ((cache.k, want.k), (cache.v, want.v)):
        assert np.array_equal(found.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("family", ["default", "pages", "of 8 bits, pages"])
def test_every_order_is_right(family: str) -> None:
    given = {"tokens": 1} | FAMILIES[family]
    assert program(*problem(**given)).check().ok


@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_it_compiles_without_spills(family: str) -> None:
    assert program(*problem(**FAMILIES[family])).compile("sm_90a").spill_bytes == 0


def test_other_extents_need_no_other_kernel() -> None:
    cache, k, v, lengths = problem(heads=3)
    first = program(cache, k, v, lengths).kernel
    other = dataclasses.replace(cache, k=cache.k[:2].copy(), v=cache.v[:2].copy())
    assert program(other, k[:2, :1].copy(), v[:2, :1].copy(), lengths[:2].copy()).kernel is first


@pytest.mark.parametrize("numbers", [False, True])
def test_a_descale_of_zero_stores_zeros(numbers: bool) -> None:
    """amax / 448 of a head of zeros is 0, and zeros divided by it are no NaN."""
    cache, k, v, lengths = problem(dtype=tp.float8_e4m3)
    k[0], v[0, :, 0] = 0, np.inf
    scales = [np.zeros((8, 2), np.float32) if numbers else np.ones((8, 2), np.float32)] * 2
    scales[0][0] = 0
    scales[1][0] = 0
    cache = dataclasses.replace(cache, k_scales=scales[0], v_scales=scales[1])
    want = appended(cache, k, v, lengths, ROOM)
    given: Any = (0.0, 0.0) if numbers else scales
    bind(cache.k, cache.v, k, v, lengths, k_descale=given[0], v_descale=given[1]).run()
    assert not cache.k[0, :2].astype(np.float32).any()
    assert not cache.v[0, :2].astype(np.float32).any()
    assert np.array_equal(cache.k.view(np.uint8), want.k.view(np.uint8))
    assert np.array_equal(cache.v.view(np.uint8), want.v.view(np.uint8))


def test_the_lowest_length_writes_nothing() -> None:
    cache, k, v, lengths = problem()
    lengths[:] = np.iinfo(np.int32).min
    before = cache.k.copy()
    program(cache, k, v, lengths).run()
    assert np.array_equal(cache.k.view(np.uint16), before.view(np.uint16))


def test_a_cache_that_is_wrong_is_told_from_one_that_is_right() -> None:
    """In every bit; NaN is as good as any other, where it should be."""
    cache, k, v, lengths = problem()
    cache.k[1] = np.nan
    want = appended(cache, k, v, lengths, ROOM)
    program(cache, k, v, lengths).run()
    assert compare(cache, want) == tp.testing.Comparison(True, 0.0, 0.0, ())
    cache.v[5, 3, 1, 2] += 8
    found = compare(cache, want)
    assert (found.ok, found.worst, found.worst_at, found.wrong) == (
        False,
        np.inf,
        (1, 5, 3, 1, 2),
        1,
    )
    assert 0 < found.rel_error < 0.01
    cache.k[1, 0, 0, 0] = 1  # a key that nobody writes
    assert (compare(cache, want).wrong, compare(cache, want).worst_at) == (2, (0, 1, 0, 0, 0))
