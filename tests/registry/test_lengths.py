"""The setting `lengths` of packed sequences."""

from __future__ import annotations

import re

import pytest

import tilepipe as tp
from tilepipe.registry.lengths import parsed


def test_queries_and_keys() -> None:
    assert parsed("") == []
    assert parsed("100,30:200,0") == [(100, 100), (30, 200), (0, 0)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("100,", "such as 100,30:200,0; got '' in '100,'"),
        ("100,-3", "got '-3'"),
        ("1:2:3", "got '1:2:3'"),
        ("0:5,0", "one sequence must have a query, and one a key: '0:5,0'"),
    ],
)
def test_what_is_no_lengths(text: str, said: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(said)):
        parsed(text)
