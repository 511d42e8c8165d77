"""Which schedule, tile and band of heads attention takes on Hopper, and its counter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.attention import sm90_bind as kernel
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.heuristics import choose_sm90
from tilepipe.kernels.attention.validation import Extents


def chosen(d: int, causal: bool, s: int, kv_heads: int = 16, **more: Any) -> AttentionConfig:
    found = Extents(1, s, s, 16, kv_heads, d, d, tp.bfloat16, 1.0, **more)
    return choose_sm90(found, (False, causal))


@pytest.mark.parametrize(
    ("d", "causal", "s", "schedule", "bn", "group"),
    [
        (128, False, 4096, "dynamic", 160, 1),
        (128, True, 4096, "dynamic", 128, 16),
        (128, True, 8192, "dynamic", 128, 8),
        (128, True, 16384, "dynamic", 160, 4),
        (128, False, 1024, "dynamic", 128, 1),
        (128, False, 1100, "dynamic", 160, 1),
        (64, False, 16384, "dynamic", 128, 1),
        (64, True, 1024, "dynamic", 128, 16),
        (64, True, 16384, "dynamic", 128, 8),
        (256, False, 4096, "persistent", 64, 1),
        (256, True, 131072, "dynamic", 64, 1),
    ],
)
def test_schedule_tile_and_band(
    d: int, causal: bool, s: int, schedule: str, bn: int, group: int
) -> None:
    """Bands of heads whose K and V take 32 MiB, so that L2 keeps them."""
    cfg = chosen(d, causal, s)
    assert (cfg.schedule, cfg.bn, cfg.group) == (schedule, bn, group)


@pytest.mark.parametrize(
    ("d", "causal", "s", "consumers", "q_stages"),
    [
        (64, True, 2048, 2, 2),
        (64, True, 4096, 3, 2),
        (64, False, 1024, 3, 2),
        (128, True, 8192, 2, 2),
        (128, False, 8192, 2, 1),
    ],
)
def test_warpgroups_and_tiles_of_queries(
    d: int, causal: bool, s: int, consumers: int, q_stages: int
) -> None:
    cfg = chosen(d, causal, s)
    assert (cfg.consumers, cfg.q_stages) == (consumers, q_stages)


@pytest.mark.parametrize(
    ("d", "plain", "window", "changed", "all_of_it"),
    [(64, 128, 128, 80, 80), (128, 160, 128, 128, 112), (256, 64, 48, 48, 48)],
)
def test_fewer_keys_where_registers_are_short(
    d: int, plain: int, window: int, changed: int, all_of_it: int
) -> None:
    found = Extents(1, 16384, 16384, 4, 4, d, d, tp.bfloat16, 1.0)
    assert choose_sm90(found, (False, True)).bn == plain
    assert choose_sm90(found, (True, True)).bn == window
    assert choose_sm90(found, (False, True), changes=1).bn == changed
    assert choose_sm90(found, (True, True), changes=2).bn == all_of_it


def test_heads_that_share_keys_make_a_band_wider() -> None:
    assert chosen(128, True, 8192, kv_heads=4).group == 4 * chosen(128, True, 8192).group


def test_packed_sequences_differ_in_length() -> None:
    assert chosen(64, False, 4096, sequences=3).schedule == "dynamic"


def attend(cfg: AttentionConfig | None, **options: Any) -> tp.Program:
    q = np.zeros((1, 256, 1, 64), np.float16)
    return kernel.bind(q, q, q, np.zeros_like(q), None, cfg, **options)


@pytest.mark.parametrize(
    ("schedule", "counter", "message"),
    [
        ("single", np.zeros(1, np.int32), r'counter is of schedule="dynamic"; leave it out'),
        ("dynamic", np.zeros(2, np.int32), "counter has one element, it has 2"),
        ("dynamic", np.zeros((1, 1), np.int32), "counter must have 1 dimension"),
        ("dynamic", np.zeros(1, np.float32), "counter is float32; it must be int32"),
        ("dynamic", 0, "counter must be an array, got 0"),
    ],
)
def test_counters_that_are_refused(schedule: str, counter: Any, message: str) -> None:
    with pytest.raises(tp.BindError, match=message):
        attend(AttentionConfig(schedule=schedule), counter=counter)


def test_a_counter_is_left_as_it_was() -> None:
    counter = np.zeros(1, np.int32)
    attend(AttentionConfig(bn=64, schedule="dynamic"), counter=counter).run()
    assert counter.tolist() == [0]
    counter[0] = 1
    with pytest.raises(tp.BindError, match="it must be 0 when the kernel starts"):
        attend(AttentionConfig(bn=64, schedule="dynamic"), counter=counter).run()


class Elsewhere:
    """An array that is not NumPy's, as of a GPU."""

    def __init__(self, x: Any) -> None:
        self._x = x

    def __getattr__(self, name: str) -> Any:
        return getattr(self._x, name)


def test_without_a_counter_another_schedule_is_chosen() -> None:
    """NumPy arrays get a counter where the configuration asks for it; others must bring one."""
    arrays = [np.zeros((1, 256, 1, 128), np.float16) for _ in range(2)]
    others = [Elsewhere(x) for x in arrays]
    both: list[list[Any]] = [arrays, others]
    for q, out in both:
        program = kernel.bind(q, q, q, out)
        assert [role.name for role in program.kernel.roles] == ["load", "attend"]
        asked = AttentionConfig(schedule="dynamic")
        if isinstance(q, Elsewhere):
            with pytest.raises(tp.BindError, match=r"pass counter=, an int32 array of one 0"):
                kernel.bind(q, q, q, out, None, asked)
        else:
            roles = [role.name for role in kernel.bind(q, q, q, out, None, asked).kernel.roles]
            assert roles == ["schedule", "load", "attend"]


@pytest.mark.parametrize(
    ("d", "causal", "accumulate", "tile"),
    [
        (64, False, None, (2, 192, "promote")),
        (128, True, None, (2, 128, "promote")),
        (128, False, "fast", (2, 192, "fast")),
        (256, False, None, (2, 96, "fast")),
    ],
)
def test_operands_of_8_bits(
    d: int, causal: bool, accumulate: str | None, tile: tuple[int, int, str]
) -> None:
    """Sums are promoted where registers hold them twice; warpgroups take no turns."""
    found = Extents(1, 4096, 4096, 16, 16, d, d, tp.float8_e4m3, 1.0)
    cfg = choose_sm90(found, (False, causal), accumulate=accumulate)
    assert (cfg.consumers, cfg.bn, cfg.accumulate) == tile
    assert (cfg.order, cfg.schedule, cfg.store) == ("free", "dynamic", "tile")
    masked = choose_sm90(found, (False, causal), accumulate=accumulate, block=(64, 64))
    assert (masked.consumers, 64 % masked.bn) == (1, 0)


@pytest.mark.parametrize("changes", range(3))
@pytest.mark.parametrize("dtype", [tp.float8_e4m3, tp.bfloat16])
def test_every_choice_obeys_the_rules(dtype: tp.DType, changes: int) -> None:
    """Of all head sizes: what is chosen fits registers and shared memory, and stores as it may."""
    unit = 16 // dtype.nbytes
    for d in range(unit, 257, unit):
        for d_v in (8, 16, 64, 72, 96, 128, 192, 208, 256):
            found = Extents(1, 4096, 4096, 4, 2, d, d_v, dtype, 1.0)
            for block in (None, (64, 32), (192, 160)):
                cfg = choose_sm90(found, (changes > 0, True), changes=changes, block=block)
                tiles = cfg.tiles(dtype, d, d_v)
                assert (cfg.bm, cfg.bn) == (tiles.BM, tiles.BN)


def test_blocks_of_8_bits_that_no_tile_divides() -> None:
    found = Extents(1, 4096, 4096, 4, 2, 64, 64, tp.float8_e4m3, 1.0)
    with pytest.raises(tp.BindError, match="a block has a multiple of 32 keys"):
        choose_sm90(found, (False, False), block=(64, 48))
