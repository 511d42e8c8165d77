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
