"""What the functions of `tilepipe.testing` refuse: the argument is named, with what to give
instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.testing import kernels
from tests.testing.kernels import bind_doubled
from tilepipe.testing import compare, compare_matmul, perturb, run

Call = Callable[..., object]
BOTH: list[Call] = [run, lambda program, **options: perturb(program, device="sim", **options)]
ONES = np.ones((2, 3), np.float32)


def refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        call()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        (3, "seeds= takes several, such as range(4) or [3]; got 3"),
        (None, "seeds= takes several, such as range(4) or [None]; got None"),
        ("ab", "seeds= takes integers, such as range(4); got 'a' in 'ab'"),
        ([1, 1.5], "seeds= takes integers, such as range(4); got 1.5 in [1, 1.5]"),
        ([True], "seeds= takes integers, such as range(4); got True"),
        (range(0), "seeds= is empty: nothing would be run"),
    ],
)
@pytest.mark.parametrize("call", BOTH, ids=["run", "perturb"])
def test_seeds(call: Call, seeds: object, words: str) -> None:
    refused(lambda: call(bind_doubled()[0], seeds=seeds), words)


@pytest.mark.parametrize("given", [None, kernels.doubled, [], bind_doubled])
def test_what_is_no_program(given: Any) -> None:
    calls: dict[str, Call] = {"check": tp.testing.check, "run": BOTH[0], "perturb": BOTH[1]}
    for name, call in calls.items():
        refused(
            lambda call=call: call(given),  # type: ignore[misc]
            f"{name} takes programs, which kernel.bind(...) gives; got {given!r:.80}",
        )


@pytest.mark.parametrize("name", ["rtol", "atol"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("x", "= is an array of real numbers; got 'x'"),
        (-1, "= says how far an element may be off: finite numbers, 0 or more; got -1"),
        ([0, np.nan, 0], "finite numbers, 0 or more; got [0, nan, 0]"),
        (np.inf, "finite numbers, 0 or more; got inf"),
        (
            [[1], [1, 2]],
            "= is an array of real numbers, or nested lists of equal lengths; got [[1], [1, 2]]",
        ),
        ([1, 1], "= is a number, or an array that broadcasts to the output's "),
    ],
)
def test_tolerances(name: str, given: object, words: str) -> None:
    options: dict[str, Any] = {name: given}
    refused(
        lambda: compare(ONES, ONES, **options), name + words if words.startswith("=") else words
    )
    program, a, _ = bind_doubled()
    refused(lambda: run(program, expect=2 * a, **options), words)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: compare("a", "b"), "got is an array of real numbers; got 'a'"),  # type: ignore[arg-type]
        (lambda: compare(ONES, "b"), "want is an array of real numbers; got 'b'"),
        (lambda: compare(ONES, None), "want is an array of real numbers; got None"),  # type: ignore[arg-type]
        (lambda: compare(ONES, 1j * ONES), "want is an array of real numbers; got array("),
        (lambda: compare_matmul(ONES, "a", ONES), "a is an array of real numbers; got 'a'"),  # type: ignore[arg-type]
        (
            lambda: compare_matmul(ONES, ONES, ONES),
            "compare_matmul takes a (m, k) and b (k, n); got (2, 3) and (2, 3)",
        ),
        (lambda: compare_matmul(ONES, ONES[0], ONES), "got (3,) and (2, 3)"),
        (
            lambda: compare_matmul(ONES, ONES, ONES.T, "float8"),
            "no error bound for accumulation in 'float8'; known: float32",
        ),
        (
            lambda: run(bind_doubled()[0], expect="x"),
            "expect= for 'out' is an array of real numbers; got 'x'",
        ),
        (
            lambda: run(bind_doubled()[0], expect=lambda a: None),
            "expect= for 'out' is an array of real numbers; got None",
        ),
    ],
)
def test_what_is_no_array_of_numbers(call: Callable[[], object], words: str) -> None:
    refused(call, words)


def test_lists_are_arrays() -> None:
    assert compare([1.0, 2.0], [1.0, 2.0]).ok  # type: ignore[arg-type]
