"""Reductions of fragments that are refused, and what the accepted ones emit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text

F = "f = ctx.fragment(shape=(64, 32), dtype='{}')\nf.fill(0)\n"


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("int8", "f.sum()", ("floats of up to 32 bits, int32 and uint32, not int8", "to('int32')")),
        ("uint8", "f.max()", ("not uint8", "f.to('int32')")),
        ("float32", "(f > 0).sum()", ("not a condition", "f.to('int32')")),
        ("float64", "f.min()", ("not float64", "f.to('float32')")),
    ],
)
def test_a_dtype_that_threads_do_not_reduce(kind: str, text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        role_from_text(F.format(kind) + text, "warpgroups=1")


def test_a_condition_is_counted_as_integers() -> None:
    program = role_from_text(F.format("float32") + "(f > 0).to('int32').sum()", "warpgroups=1")
    assert "fragment_reduce" in str(program)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("f.max().argmax()", ("argmax() names a column", "64×1 has one column")),
        ("ctx.fragment(shape=(1, 32)).argmin()", ("goes along rows", "one value a column")),
        ("(f > 0).argmax()", ("not a condition", "f.to('int32')")),
        ("with ctx.when(ctx.lane < 4):\n    f.argmin()", ("argmin() is executed by all threads",)),
        (
            "g = ctx.fragment(shape=(4, 256), layout='rows:32')\ng.fill(0)\n"
            "with ctx.per_warp():\n    g.argmax()",
            ('argmax() of layout "rows:32"', "out of per_warp"),
        ),
    ],
)
def test_a_place_that_no_row_has(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        role_from_text(F.format("float32") + text, "warpgroups=1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("f.max().sum(axis=0)", ("64×1 holds one value a row", "take `axis=None`")),
        ("f.max(axis=0).max(axis=0)", ("1×32 already holds one value a column", "`axis=0`")),
        ("f.sum(axis=2)", ("axis", "one of 0, 1 or None")),
        ("f.sum(axis=-1)", ("axis", "one of 0, 1 or None")),
        ("(f > 0).sum(axis=None)", ("not a condition",)),
        ("with ctx.per_warp():\n    f.sum(axis=0)", ("a reduction of columns", "out of per_warp")),
        ("with ctx.per_warp():\n    f.min(axis=None)", ("all elements", "out of per_warp")),
        ("with ctx.when(ctx.warp == 0):\n    f.max(axis=None)", ("all threads of the warpgroup",)),
        ("with ctx.elect_one():\n    f.max(axis=0)", ("all threads of the warpgroup",)),
    ],
)
def test_an_axis_that_cannot_be_reduced(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        role_from_text(F.format("float32") + text, "warpgroups=1")


def test_only_warps_that_hold_other_elements_share_memory() -> None:
    """As many words as columns for each, or one for a scalar."""
    start = "f = ctx.fragment(shape=(8, 1024), layout='rows:{}')\nf.fill(1)\n"
    for threads, text, words in (
        (32, "f.sum(axis=0)", 4 * 1024),
        (64, "f.sum(axis=0)", 2 * 1024),
        (128, "f.sum(axis=0)", None),
        (128, "f.sum(axis=None)", 4),
        (64, "f.max().sum(axis=None)", 4 * 4),  # the rows of a thread take more
        (32, "f.max().sum(axis=None)", 4),
        (128, "f.cols(0, 1024).max(axis=0)", None),
    ):
        kernel = role_from_text(start.format(threads) + text, "warpgroups=1").kernel
        assert [b.cols for b in kernel.buffers] == ([] if words is None else [words]), text


@pytest.mark.slow
def test_a_scalar_of_a_tile_decides_a_branch() -> None:
    """It is the same in all threads of the warpgroup."""

    @tp.kernel(grid=1)
    def k(ctx: tp.Context, a: Any, out: Any) -> None:
        @ctx.role("scale", warpgroups=2)
        def scale() -> None:
            row = 64 * ctx.warpgroup_rank
            x = ctx.load_global(a, (row, 0), (64, 16))
            largest = x.max(axis=None)
            with ctx.when(largest > 2):
                x *= 1 / largest
            ctx.store_global(out, (row, 0), x)

    a = np.random.default_rng(0).uniform(0, 1, (128, 16)).astype(np.float32)
    a[70, 3] = 4
    out = np.zeros_like(a)
    want = np.concatenate([a[:64], a[64:] * np.float32(0.25)])
    for run in (k.bind(a, out).run, k.bind(a, out).ptx("sm_100a").run):
        out[:] = 0
        run()
        np.testing.assert_array_equal(out, want)
    assert k.bind(a, out).check().ok


@pytest.mark.slow
def test_what_is_found_in_a_row_by_each_warp_on_its_own() -> None:
    """Under per_warp a warp has its own rows."""

    @tp.kernel(grid=1)
    def k(ctx: tp.Context, a: Any, out: Any) -> None:
        @ctx.role("find", warpgroups=1)
        def find() -> None:
            x = ctx.load_global(a, (0, 0), (64, 16))
            at = ctx.fragment(shape=(64, 1), dtype="int32")
            with ctx.per_warp():
                at.set(x.argmin()[1])
            ctx.store_global(out, (0,), at)

    a = np.random.default_rng(0).standard_normal((64, 16)).astype(np.float32)
    out = np.zeros(64, np.int32)
    k.bind(a, out).run()
    assert (out == a.argmin(axis=1)).all()
    out[:] = 0
    k.bind(a, out).ptx("sm_90a").run()
    assert (out == a.argmin(axis=1)).all()
