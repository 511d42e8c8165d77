"""Which configuration attention over a cache takes, and how many CTAs a launch then has."""

from __future__ import annotations

from typing import Any

import pytest

import tilepipe as tp
from tilepipe.kernels.attention_decode.choice import DecodeProblem, candidates
from tilepipe.kernels.attention_decode.config import DecodeConfig, Form
from tilepipe.kernels.attention_decode.sm90 import workspace_shapes
from tilepipe.registry.attention_decode import ATTENTION_DECODE as SPEC, extents

E4M3: dict[str, Any] = {"cache": "float8_e4m3"}
# batch, heads, heads of the cache, keys
ONE, FEW, MANY, MORE = (1, 32, 8, 32768), (16, 64, 8, 8192), (64, 32, 8, 8192), (128, 32, 8, 4096)


def settings(problem: tuple[int, int, int, int], **given: Any) -> dict[str, Any]:
    names = "batch", "heads", "kv_heads", "s"
    return SPEC.configure(dict(zip(names, problem, strict=True)) | given, tp.H200)[0]


@pytest.mark.parametrize(
    ("problem", "given", "chosen"),
    [
        (ONE, {}, DecodeConfig(bn=64, stages=3, ctas=1, queries="rows")),
        (FEW, {}, DecodeConfig(bn=64, stages=3, ctas=1)),
        (MANY, {}, DecodeConfig(bn=64, stages=2, ctas=2, waves=2)),
        (MORE, {}, DecodeConfig(bn=64, stages=2, ctas=2, waves=4)),
        # a CTA for each of these would have 8 tiles
        ((256, 32, 8, 512), {}, DecodeConfig(bn=64, stages=2, ctas=2)),
        (ONE, E4M3, DecodeConfig(bn=128, stages=5, ctas=1)),
        (MANY, E4M3, DecodeConfig(bn=64, stages=4, ctas=2, waves=2)),
        # too few keys for large tiles
        ((1, 32, 8, 1024), E4M3, DecodeConfig(bn=64, stages=10, ctas=1)),
        # more queries than columns: two CTAs, of which one widens while the other multiplies
        ((1, 8, 1, 1024), E4M3 | {"tokens": 4}, DecodeConfig(bn=64, stages=4, ctas=2)),
    ],
    ids=str,
)
def test_what_is_chosen(problem: Any, given: dict[str, Any], chosen: DecodeConfig) -> None:
    assert SPEC.config(settings(problem, **given)) == chosen


def test_the_cache_s_dtype_has_all_its_names() -> None:
    """Those of PyTorch and ml_dtypes, too, and that of q."""
    for name in ("float8_e4m3fn", "e4m3"):
        assert extents(settings(ONE, cache=name)) == extents(settings(ONE, **E4M3))
    assert not extents(settings(ONE, cache="bfloat16")).narrow
    for name in ("float16", "float8_e5m2"):
        with pytest.raises(tp.BindError, match=f"not that of q: float8_e4m3, got '{name}'"):
            extents(settings(ONE, cache=name))


def test_tuning_keeps_the_waves_that_are_chosen() -> None:
    """Beside one wave: other tiles are compared with what is chosen at its own number of CTAs."""
    found = candidates(DecodeProblem.of(extents(settings(MANY))), tp.H200)
    assert found[0] == DecodeConfig(bn=64, stages=2, ctas=2, waves=2)
    assert {cfg.waves for cfg in found} == {1, 2}
    assert DecodeConfig(bn=64, stages=3, ctas=1, waves=2) in found


@pytest.mark.slow
def test_tuning_tries_both_forms_of_the_queries() -> None:
    """Where they are two programs: tiles of 64 keys with up to 16 queries of a head."""
    for problem in (ONE, MANY):
        found = candidates(DecodeProblem.of(extents(settings(problem))), tp.H200)
        other = {"columns": "rows", "rows": "columns"}[found[0].queries]
        assert found[0].changed(queries=other) in found
        assert {cfg.bn % 64 for cfg in found if cfg.queries == other} == {0}
        # a ring of 3 stages beside another CTA leaves no room for the columns' sums
        both = {cfg.queries for cfg in found if (cfg.bn, cfg.stages, cfg.ctas) == (64, 3, 2)}
        assert both == {"rows"}
    rows = candidates(DecodeProblem.of(extents(settings(ONE, tokens=5))), tp.H200)
    assert {cfg.queries for cfg in rows} == {rows[0].queries}
    assert len(rows) == len({cfg.changed(queries="rows") for cfg in rows})


def test_waves_are_ctas_of_a_launch() -> None:
    found = extents(settings(MANY))
    parts = [workspace_shapes(found, DecodeConfig(waves=n), tp.H200)[0] for n in (1, 2)]
    # two places for each CTA, of which an SM has two at a time
    assert [shape[0] for shape in parts] == [2 * 2 * 132, 2 * 2 * 2 * 132]
    with pytest.raises(tp.BindError, match="waves must be from 1 to 8"):
        DecodeConfig(waves=9)


@pytest.mark.parametrize(
    ("rows", "narrow", "bn", "form"),
    [
        (16, False, 64, Form(columns=True, width=128)),
        (17, False, 64, Form(columns=False, width=128)),
        (16, False, 32, Form(columns=False, width=128)),  # 64 keys are rows of a wgmma
        (8, True, 64, Form(columns=True, width=128)),
    ],
)
def test_few_queries_are_columns(rows: int, narrow: bool, bn: int, form: Form) -> None:
    cfg = DecodeConfig(bn=bn)
    assert Form.of(rows, 80, narrow, cfg) == form
    assert Form.of(rows, 64, narrow, cfg).width == (128 if narrow and form.columns else 64)
    assert not Form.of(rows, 80, narrow, cfg.changed(queries="rows")).columns
