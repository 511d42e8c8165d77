"""Finite literals that are infinity in the dtype that they take: an error, not a warning of NumPy
nor a quiet infinity.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import evaluated, refused, role_from_text

START = """
import numpy as np
x = ctx.let(ctx.cta_rank.to("float32"), "x")
h = x.to("float16")
b = x.to("bfloat16")
f = ctx.fragment(shape=(64, 8), dtype="float32")
g = ctx.fragment(shape=(64, 8), dtype="float16")
f.fill(1)
g.fill(1)
v = ctx.var(1.0)
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(("x * 1e300", "1e+300"), ("1e300 - x", "1e+300"), ("x < -1e39", "-1e+39")),
        *(("f * 1e300", "1e+300"), ("f.maximum(-1e300)", "-1e+300"), ("f += 1e39", "1e+39")),
        *(("f.fill(1e300)", "1e+300"), ("f.set(-1e300)", "-1e+300"), ("v.set(1e300)", "1e+300")),
        *(("ctx.select(x > 0, x, -1e300)", "-1e+300"), ("ctx.max(x, 1e300)", "1e+300")),
        *(("h * 65520", "65520 does not fit in float16"), ("g * 1e5", "100000.0")),
        *(("b + 3.4e38", "3.4e+38 does not fit in bfloat16"), ("g.fill(-7e4)", "-70000.0")),
        ("x + np.float64(1e300)", "does not fit in float32, where it would be infinity"),
    ],
)
def test_a_literal_that_overflows(text: str, words: str) -> None:
    with warnings.catch_warnings(), refused(tp.TraceError, words, "float('inf')", text):
        warnings.simplefilter("error")
        role_from_text(START + text, warps="warpgroups=1")


@pytest.mark.parametrize(
    "text",
    [
        *("x * 3.4e38", "h * 65504", "h * 65519", "f * float('-inf')", "g.fill(float('inf'))"),
        *("x.to('float64') * 1e300", "x > float('inf')"),
    ],
)
def test_literals_that_do_not(text: str) -> None:
    role_from_text(START + text, warps="warpgroups=1")


def test_what_overflows_in_arithmetic_is_infinity() -> None:
    found = evaluated(lambda ctx: (ctx.cta_rank + 1).to("float32") * 3e38 * 10, np.float32)
    assert found == np.inf
    folded = evaluated(lambda ctx: ctx.let(3e38) * ctx.let(10.0), np.float32)
    assert folded == np.inf


def test_a_float64_keeps_large_literals() -> None:
    assert evaluated(lambda ctx: (ctx.cta_rank + 1).to("float64") * 1e300, np.float64) == 1e300
