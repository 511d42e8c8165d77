"""Settings that no GEMM for Hopper can have: each is one sentence."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tilepipe as tp
from tilepipe.kernels.gemm.config import GemmConfig


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bn": "64"}, "bn must be an integer, got '64'"),
        ({"bk": None}, "bk must be an integer, got None"),
        ({"stages": 2.5}, "stages must be an integer, got 2.5"),
        ({"stages": True}, "stages must be an integer, got True"),
        ({"raster": 3}, "raster must be a string, got 3"),
        ({"raster": "zigzag"}, "raster must be one of grouped, rows, columns"),
        ({"k_group_size": "x"}, "k_group_size must be an integer, got 'x'"),
        ({"cluster": 0}, "cluster must be at least 1"),
        ({"consumers": 0}, "consumers must be at least 1"),
        (
            {"bm": 256, "bn": 256},
            (
                r"accumulator of 128×256 float32 takes? 128 \* 256 / 128 = 256 registers of "
                r"each thread; at most \d+"
            ),
        ),
        ({"bm": 128, "bn": 256, "consumers": 1}, "128×256 float32"),
    ],
    ids=str,
)
def test_settings_that_no_kernel_can_have(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match=words):
        GemmConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"consumers": 4}, "consumers must be 1, 2 or 3"),
        ({"consumers": 9, "bn": 20}, "consumers must be 1, 2 or 3"),
        ({"bn": 264}, "bn must be a multiple of 8 in 8..256, or of 32 in 256..512"),
        (
            {"bm": 512, "bn": 16},
            "bm must be 64, 128 or 192 rows for each of the 2 warpgroups of a tile: 128, 256 or"
            " 384",
        ),
        (
            {"consumers": 3, "bm": 192, "bn": 216},
            "bn above 200 must be a multiple of 16 where consumers is 3: two wgmmas have half of"
            " the columns each",
        ),
    ],
    ids=str,
)
def test_one_rule_that_is_broken_is_said_alone(settings: dict[str, Any], rule: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        GemmConfig(**settings)
    assert str(caught.value).startswith(f"{rule} (")
    assert all(f"{name}={value}" in str(caught.value) for name, value in settings.items())


def test_split_k_does_not_go_with_ping_pong() -> None:
    with pytest.raises(tp.BindError, match="split_k above 1 takes schedule cooperative"):
        GemmConfig(bm=64, schedule="pingpong", split_k=2)


@pytest.mark.parametrize("bn", [320, 448])
def test_an_accumulator_block_is_split_evenly(bn: int) -> None:
    """Above 256 columns there are two blocks, and each is split."""
    with pytest.raises(tp.BindError, match="multiple of 8, of 16 where bn is above 256"):
        GemmConfig(bm=64, consumers=1, bn=bn, split_k=3, stages=2)


ONE_OF_THREE = "only one of cluster, cluster_n and split_k may be above 1 ("


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"split_k": 9, "bn": 144}, "split_k must be from 1 to 8"),
        ({"split_k": 2, "cluster": 2}, ONE_OF_THREE),
        ({"cluster": 4, "cluster_n": 4}, ONE_OF_THREE),
        ({"cluster": 3}, "cluster must be 1, 2, 4 or 8"),
        ({"cluster_n": 16}, "cluster_n must be 1, 2, 4 or 8"),
        (
            {"bn": 16, "cluster": 4},
            "each CTA of a cluster loads 8 rows of the B tiles of a stage, or more; bn *"
            " k_group_size = 16 are less than 8 * cluster = 32",
        ),
    ],
    ids=str,
)
def test_rules_of_clusters(settings: dict[str, Any], rule: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(rule)):
        GemmConfig(**settings)
