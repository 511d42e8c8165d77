"""Operations of Python and NumPy that objects of a kernel do not have: each error says what to
write, at the kernel's line.
"""

from __future__ import annotations

import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text

BEFORE = """
import math
import numpy as np
tiles = ctx.smem((64, 32), "float32", name="tiles")
"""
START = """
x = ctx.let(ctx.cta_rank + 1, "x")
f = ctx.fragment(shape=(64, 32), dtype="float32")
f.fill(1)
tile = tiles[0]
v = ctx.var(1)
"""


def says(text: str, *words: str) -> None:
    with refused(tp.TraceError, *words, text.splitlines()[-1].strip()):
        role_from_text(f"{START}{text}", warps="warpgroups=1", before=BEFORE)


ELEMENT = ("it is a place in memory".capitalize(), "`ctx.load(out[i])` reads it", "ctx.atomic_add")


@pytest.mark.parametrize(
    "text",
    [
        *("out[x] + 1", "1 - out[x]", "out[x] > 0", "out[x] == 0", "0 != out[x]", "-out[x]"),
        *("out[x] + x", "x * out[x]", "f + out[x]", "out[x] * f", "x ** out[x]", "out[x] ** 2"),
        *("out[x] += 1", "abs(out[x])", "if out[x]: pass", "y = 1 if out[x] == 0 else 2"),
        *("np.float32(2) * out[x]", "ctx.store(out[0], out[x])", "ctx.when(out[x] > 0)"),
    ],
)
def test_an_element_is_no_value(text: str) -> None:
    says(text, *ELEMENT)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tile[0, x] + 1", "`ctx.load(tile[i, j])` reads it"),
        ("tile + 1", "`f.load(tile)` of a fragment reads it"),
        ("tiles * 2", "`f.load(tiles[i])` of a fragment reads tile i"),
        ("out + 1", "`ctx.load(out[i])` reads an element, `ctx.load_global` a fragment"),
        ("f - out", "`ctx.load_global` a fragment"),
        ("out[x] = 1", "`ctx.store(out[i], x)` writes an element"),
        ("out[x, 0] = 1.0", "`ctx.store(out[i], x)` writes an element"),
        ("tile[0, 0] = x", "`ctx.store(tile[r, c], x)` one element"),
        ("tile[...] = f", "`ctx.store(tile, f)` writes a fragment"),
        ("tiles[0] = f", "`ctx.store(tiles[i], f)` writes a fragment to tile i"),
    ],
)
def test_places_are_read_and_written_by_ctx(text: str, words: str) -> None:
    says(text, words)


def test_places_are_equal_if_they_are_one() -> None:
    role_from_text("t = tiles[0]\nassert t == t and t in [t] and tiles and t", before=BEFORE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("np.exp(f)", '`f.apply("exp")` of a fragment'),
        ("np.exp(x)", '`ctx.math("exp", x)` of a scalar'),
        ("np.exp(v)", '`ctx.math("exp", x)` of a scalar'),
        ("np.maximum(f, f)", "`f.maximum(g)` of fragments"),
        ("np.maximum(2.0, x)", "`ctx.max(x, y)`"),
        ("np.abs(f)", "`abs(x)`"),
        ("np.where(f > 0, f, 0)", "`ctx.select(cond, x, y)`"),
        ("np.sum(f)", "`f.sum()`"),
        ("np.matmul(f, f)", "`ctx.mma(acc, a, b)`"),
        ("np.interp(x, [0], [1])", "arrays of the host"),
        ("f @ f", "`ctx.mma(acc, a, b)`"),
        ("tile @ tile", "`ctx.mma(acc, a, b)`"),
        ("np.ones((3, 3)) @ f", "`ctx.mma(acc, a, b)`"),
        ("round(f)", '`f.apply("round")` of a fragment'),
        ("round(x)", '`ctx.math("round", x)` of a scalar'),
        ("math.floor(f)", '`f.apply("floor")`'),
        ("math.ceil(x)", '`ctx.math("ceil", x)`'),
        ("math.trunc(x)", '`x.to("int32")`'),
        ("math.exp(x)", '`ctx.math("exp", x)`'),
        ("math.exp(f)", '`f.apply("exp")`'),
        ("divmod(x, 2)", "`x // y` and `x % y`"),
        ("divmod(7, f)", "`x // y` and `x % y`"),
        ("+f", "leave it out"),
        ("f'{x:03d}'", "`ctx.print("),
        ("f'{f:.3f}'", "the format '.3f'"),
        ("max(x, 3)", "`max(x, y)` of traced values is `ctx.max(x, y)`"),
        ("min(3, x)", "`min(x, y)` of traced values is `ctx.min(x, y)`"),
        ("max(f, f)", "`f.maximum(g)`"),
        ("assert x > 0", "`assert` on a traced value is `ctx.assert_(cond, message)`"),
        ("assert (f > 0)", "the truth of a fragment"),
    ],
)
def test_functions_of_python_and_numpy(text: str, words: str) -> None:
    says(text, words)


def test_a_text_without_a_format_shows_the_expression() -> None:
    role_from_text('assert "traced int32" in f"{ctx.block_id + 1}"')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "ctx.role('two', warpgroup=1)",
            "ctx.role has no argument `warpgroup=`; it has `warpgroups=`",
        ),
        ("ctx.accumulator((64, 8), kind='f')", "ctx.accumulator has no argument `kind=`. It takes"),
        ("f.maximum(othr=f)", "has no argument `othr=`; it has `other=`"),
        ("tp.StaticScheduler(ctx, tile=(1, 1))", "has no argument `tile=`; it has `tiles=`"),
    ],
)
def test_an_argument_that_a_member_does_not_have(text: str, words: str) -> None:
    says(text, words)
