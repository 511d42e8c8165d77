"""The settings of shipped kernels."""

from __future__ import annotations

import pytest

from tilepipe.registry.catalog import find


@pytest.mark.parametrize(("dtype", "bk"), [("bfloat16", 64), ("float32", 32), ("float8_e4m3", 128)])
def test_settings_that_are_not_given_suit_the_dtype(dtype: str, bk: int) -> None:
    """Also where other tile settings are given: a row of a K tile is one swizzle span."""
    settings: list[dict[str, int | str]] = [{}, {"bn": 256}]
    for given in settings:
        config, _ = find("gemm").configure({"dtype": dtype, **given}, None)
        assert config["bk"] == bk
        assert config["bn"] == given.get("bn", 128)
    assert find("gemm").configure({"dtype": dtype, "bk": 256}, None)[0]["bk"] == 256
