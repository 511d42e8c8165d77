"""The table of how many may share a tile, and how values are listed."""

from __future__ import annotations

import pytest

from tilepipe.registry.catalog import find
from tools.docs import shares


@pytest.mark.slow
def test_the_page_has_what_configurations_take() -> None:
    page = shares.PAGE.read_text(encoding="utf-8")
    assert shares.on_page(page) == shares.table(), "python -m tools.docs.shares"


@pytest.mark.parametrize(
    ("values", "text"),
    [([1, 2, 4, 8], "1, 2, 4, 8"), ([1, 2, 3], "1, 2, 3"), (range(1, 9), "1 to 8"), ([], "")],
    ids=str,
)
def test_values_as_the_table_has_them(values: list[int], text: str) -> None:
    assert shares.listed(values) == text


def test_what_the_page_says_beside_the_table() -> None:
    gemm = find("gemm")
    gemm.config(gemm.settings | {"split_k": 3, "bn": 96})
    assert not shares.takes(gemm, "sm90", "split_k", 9)
    assert shares.takes(gemm, "sm100", "cta_group", 2)
