"""The setting `block_mask` of attention."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.attention.validation import Extents
from tilepipe.registry.block_masks import RandomBlocks, parsed
from tilepipe.registry.catalog import find
from tilepipe.registry.instances import Size
from tilepipe.registry.settings import Setting


def test_blocks_and_how_many_are_computed() -> None:
    assert parsed("") is None
    assert parsed("128x64:50") == RandomBlocks((128, 64), 50)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("128:50", "such as 128x128:50; got '128:50'"),
        ("128x128", "got '128x128'"),
        ("128x128:101", "got '128x128:101'"),
        ("128x24:50", "multiples of 64 and 16; got (128, 24)"),
    ],
)
def test_what_is_no_block_mask(text: str, said: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(said)):
        parsed(text)


@pytest.mark.parametrize("percent", [0, 25, 100])
def test_a_mask_has_about_so_many_blocks(percent: int) -> None:
    found = Extents(2, 1000, 3000, 3, 3, 64, 64, tp.float16, 1.0)
    mask = RandomBlocks((64, 32), percent).drawn(found, np.random.default_rng(0))
    assert mask.shape == (2, 3, 16, 94)
    assert abs(100 * float(mask.mean()) - percent) < 2


def test_checked_instances_have_keys_for_what_is_left_out() -> None:
    size = Size({"s_q": 128, "s_kv": 640}, 2)
    assert RandomBlocks((64, 64), 50).enlarged(size) == Size({"s_q": 128, "s_kv": 1920}, 2)
    assert RandomBlocks((64, 64), 0).enlarged(size).extents["s_kv"] == 9600
    _, instances = find("attention").instances({"block_mask": "64x64:50"})
    assert all(x.name.endswith(", block_mask=64x64:50") for x in instances)


@pytest.mark.slow
def test_run_compares_with_the_mask() -> None:
    spec = find("attention")
    settings: dict[str, Setting] = {
        "block_mask": "64x64:40",
        "s_q": 200,
        "s_kv": 500,
        "d": 64,
        "causal": True,
    }
    case = spec.make(spec.configure(settings, None)[0], 3, None)
    case.program.run()
    assert case.verify().ok


def test_none_on_blackwell() -> None:
    spec = find("attention")
    settings = spec.configure({"block_mask": "128x128:50", "arch": "sm100"}, None)[0]
    with pytest.raises(tp.BindError, match="attention on Blackwell has no block_mask"):
        spec.make(settings, 0, None)
