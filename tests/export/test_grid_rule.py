"""The grid of a kernel as an expression, and what cannot be one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tilepipe as tp
from tilepipe.export.rules import Op, Rule, from_json, to_json, value
from tilepipe.program.grid_rule import grid_rule

Grid = Callable[..., object]


def rule_of(grid: Any, *, n: int = 7) -> Rule:
    """The rule of a grid of a tensor `a` (rows, cols), of a number `n` and of the chip."""
    a = tp.tensor_map(np.zeros((32, 64), np.float32))
    known = {"a": a, "n": n, "chip": tp.H200, "size": 3}
    return grid_rule(grid, known, {"a": ("rows", "cols")}, {"n"})


def stepped(a: tp.TensorMap) -> int:
    rows, cols = a.shape
    if rows > 100 and cols % 3 == 1:
        return rows // 7
    return max(1, cols - rows) if cols != rows else 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "grid",
    [
        3,
        (2, 4),
        lambda size: size + 1,
        lambda a: a.shape[0],
        lambda a: a.shape,
        lambda a: -(-a.shape[0] // 48) * -(-a.shape[1] // 5),
        lambda a, chip: min(a.shape[0], chip.sms),
        lambda a, chip: max(1, min(a.shape[0] * 3, chip.sms) // 2),
        lambda a, n: (n + 1, 1 + a.shape[0] % 5),
        lambda a: a.shape[0] // a.shape[1] + 100 // a.shape[0] + 1,
        lambda a: sum(a.shape),
        lambda a: math.prod(a.shape) if a.shape[0] >= 20 else 200 - a.shape[0],
        stepped,
    ],
)
@given(rows=st.integers(1, 10**6), cols=st.integers(1, 400), n=st.integers(0, 99))
def test_the_rule_comes_to_what_the_function_returns(
    grid: Any, rows: int, cols: int, n: int
) -> None:
    class Shaped:
        shape = (rows, cols)

    expected = grid
    if callable(grid):
        names = grid.__code__.co_varnames[: grid.__code__.co_argcount]
        known = {"a": Shaped, "n": n, "chip": tp.H200, "size": 3}
        expected = grid(*(known[name] for name in names))
    if isinstance(expected, tuple):
        expected = math.prod(expected)
    rule = rule_of(grid)
    assert value(rule, {"rows": rows, "cols": cols, "n": n}) == expected
    assert from_json(to_json(rule)) == rule


def test_fixed_extents_are_numbers() -> None:
    a = tp.tensor_map(np.zeros((32, 64), np.float32))
    rule = grid_rule(lambda a: a.shape[0] * a.shape[1], {"a": a}, {"a": (32, "cols")}, ())
    assert rule == Op("mul", (32, "cols"))


def by_half(a: tp.TensorMap) -> int:
    return a.shape[0] / 2  # type: ignore[return-value]


def as_int(a: tp.TensorMap) -> int:
    return int(a.shape[0])


def counted(a: tp.TensorMap) -> int:
    return len([0 for _ in range(a.shape[0])])


def by_strides(a: tp.TensorMap) -> int:
    return int(a.array.strides[0])


def with_float(a: tp.TensorMap) -> object:
    return a.shape[0] * 1.5


def rooted(a: tp.TensorMap) -> int:
    return math.ceil(math.sqrt(a.shape[0]))


@pytest.mark.parametrize(
    ("grid", "what", "line"),
    [
        (by_half, "this line divides by /", "return a.shape[0] / 2"),
        (as_int, "this line converts an extent by int()", "return int(a.shape[0])"),
        (counted, "this line uses an extent as an index, or in range()", "range(a.shape[0])"),
        (by_strides, "it reads `strides` of the array 'a'", "a.array.strides[0]"),
        (with_float, "this line computes with 1.5", "a.shape[0] * 1.5"),
        (rooted, "this line converts an extent by float()", "math.sqrt(a.shape[0])"),
    ],
)
def test_what_cannot_be_expressed_names_the_line(grid: Grid, what: str, line: str) -> None:
    with pytest.raises(tp.ExportError) as error:
        rule_of(grid)
    first, at = str(error.value).split("\n")
    assert first.startswith(f"the grid cannot be exported: {what}")
    assert "integer arithmetic on extents: + - * // % and comparisons, min, max and" in first
    assert "test_grid_rule.py:" in at
    assert line in at


def test_a_grid_that_raises_for_some_extents() -> None:
    def grid(a: tp.TensorMap) -> int:
        if a.shape[0] % 64:
            raise ValueError("rows of 64")
        return 1

    with pytest.raises(tp.ExportError) as error:
        rule_of(grid)
    assert str(error.value) == (
        "the grid cannot be exported: for some extents grid= raises ValueError: rows of 64"
    )


def test_a_grid_that_refuses_some_extents_says_why_in_its_own_words() -> None:
    def grid(a: tp.TensorMap) -> int:
        if a.shape[0] != 32:
            raise tp.BindError(f"rows are 32, got {a.shape[0]} and {a.shape[0] + 1}")
        return 1

    with pytest.raises(tp.ExportError) as error:
        rule_of(grid)
    assert str(error.value) == "rows are 32, got rows and a number known at the launch"


def test_an_extent_is_equal_to_itself() -> None:
    def grid(a: tp.TensorMap) -> int:
        rows, half = a.shape[0], a.shape[0] // 2
        if rows != a.shape[0] * 1 or half > rows // 2 or half < rows // 2:
            raise tp.BindError("other rows")
        return rows if rows == a.shape[0] and half <= rows // 2 and half >= rows // 2 else 1

    assert rule_of(grid) == "rows"


def test_too_many_comparisons() -> None:
    def grid(a: tp.TensorMap) -> int:
        rows = a.shape[0]
        while rows > 1:
            rows = rows // 2
        return 1

    with pytest.raises(tp.ExportError, match="more than 6 comparisons of extents, one after"):
        rule_of(grid)


@pytest.mark.parametrize("text", [None, [], ["pow", 1, 2], ["add", 1], ["neg", 1, 2], {}])
def test_json_that_is_no_rule(text: object) -> None:
    with pytest.raises(tp.ExportError, match="is no expression of a manifest"):
        from_json(text)


def test_a_division_by_zero_is_as_in_c() -> None:
    assert value(Op("floordiv", ("x", 0)), {"x": 5}) == 0
    assert value(Op("mod", ("x", 0)), {"x": 5}) == 5
