"""Scalars that callers give on the host: made plain, or refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe.host_arguments import (
    plain_bool,
    plain_int,
    require_bool,
    require_function,
    require_int,
)


def test_plain_scalars() -> None:
    assert [plain_int(x) for x in (3, np.uint8(3), True, np.True_, 3.0, "3", np.ones(1, int))] == [
        3,
        3,
        *[None] * 5,
    ]
    assert [plain_bool(x) for x in (False, np.True_, 0, 1.0, None)] == [
        False,
        True,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: require_int(True, "n", 1), "n is an integer of at least 1; got True"),
        (lambda: require_int(9, "n", 1, 8), "n is an integer in 1..8; got 9"),
        (lambda: require_int(2**34, "n"), "n is an integer of 32 bits; got 17179869184"),
        (lambda: require_int(0, "n", 1), "n is an integer of at least 1; got 0"),
        (
            lambda: require_int(1 << 31, "n", 1),
            "n is an integer in 1..2147483647; got 2147483648",
        ),
        (lambda: require_int(1.5, "n", 1, 8), "n is an integer in 1..8; got 1.5"),
        (lambda: require_int("3", "n"), "n is an integer of 32 bits; got '3'"),
        (lambda: require_bool(1, "b"), "b is True or False; got 1"),
        (lambda: require_bool(None, "b"), "b is True or False; got None"),
        (lambda: require_function(3, "f"), "f is a function, or None; got 3"),
    ],
)
def test_required(call: Callable[[], object], words: str) -> None:
    with refused(tp.BindError, words):
        call()


def test_what_is_as_wanted_comes_back_plain() -> None:
    found = (
        require_int(np.int8(3), "n"),
        require_int(1, "n", 1, 8),
        require_int(8, "n", 1, 8),
        require_int(-(2**31), "n"),
        require_bool(np.False_, "b"),
        require_bool(True, "b"),
    )
    assert found == (3, 1, 8, -(2**31), False, True)
    assert [type(x) for x in found] == [int] * 4 + [bool] * 2
    assert require_function(None, "f") is None
    assert require_function(abs, "f") is abs
