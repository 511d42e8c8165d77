"""The settings of shipped kernels."""

from __future__ import annotations

import pytest

from tilepipe.errors import BindError
from tilepipe.registry.catalog import find
from tools.snapshot.doors import KERNELS
from tools.snapshot.families import FAMILIES


@pytest.mark.parametrize(("dtype", "bk"), [("bfloat16", 64), ("float32", 32), ("float8_e4m3", 128)])
def test_settings_that_are_not_given_suit_the_dtype(dtype: str, bk: int) -> None:
    """Also where other tile settings are given: a row of a K tile is one swizzle span."""
    settings: list[dict[str, int | str]] = [{}, {"bn": 256}]
    for given in settings:
        config, _ = find("gemm").configure({"dtype": dtype, **given}, None)
        assert config["bk"] == bk
        assert config["bn"] == given.get("bn", 128)
    assert find("gemm").configure({"dtype": dtype, "bk": 256}, None)[0]["bk"] == 256


@pytest.mark.parametrize("consumers", [1, 2, 3])
def test_a_setting_of_another_architecture_is_refused_at_its_default_too(consumers: int) -> None:
    assert find("gemm").settings["consumers"] == 2
    with pytest.raises(BindError, match="arch=sm100 has no setting consumers; it has bm, "):
        find("gemm").configure({"arch": "sm100", "consumers": consumers}, None)


@pytest.mark.parametrize("key", FAMILIES)
def test_no_family_gives_a_setting_of_another_architecture(key: str) -> None:
    (name, chosen, _), *_ = KERNELS[key]
    for settings in FAMILIES[key].values():
        find(name).configure({**chosen, **settings}, None)
