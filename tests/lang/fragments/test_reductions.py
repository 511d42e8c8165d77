"""Reductions of fragments that are refused, and what the accepted ones emit."""

from __future__ import annotations

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
