"""The model of what a GEMM takes, and the choice by it."""

from __future__ import annotations

import math
import random
import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.common.tiling import slices_of_slot, store_width
from tilepipe.kernels.gemm import heuristics, times_constants
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm.model import L2_BYTES, off_line, predicted_us
from tilepipe.kernels.gemm.times import Facts, Floats, Settings, Table
from tilepipe.kernels.gemm.times_constants import H200, Constants

SHAPES = ((64, 64, 64), (2304, 2304, 2304), (16, 5120, 2880), (7000, 5000, 3000), (100, 8, 8))


@pytest.fixture(scope="module")
def configs() -> list[GemmConfig]:
    return heuristics.candidates(Problem(4096, 4096, 4096))


def times(configs: list[GemmConfig], problem: Problem, constants: Constants = H200) -> Floats:
    settings = Settings(configs, problem.dtype, problem.out_dtype, tp.H200)
    return np.array(Table(settings, constants).times(Facts.of(problem)))


@pytest.mark.parametrize("shape", SHAPES)
def test_many_configurations_take_what_each_takes_alone(
    shape: tuple[int, int, int], configs: list[GemmConfig]
) -> None:
    some = configs[::97]
    together = times(some, Problem(*shape))
    alone = np.concatenate([times([cfg], Problem(*shape)) for cfg in some], axis=1)
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_best_is_the_first_candidate(shape: tuple[int, int, int]) -> None:
    problem = Problem(*shape)
    ranked = heuristics.ranked(problem)
    assert heuristics.best(problem) == ranked[0][0] == heuristics.candidates(problem, limit=1)[0]
    us = [time for _, time in ranked]
    assert us == sorted(us)
    both = times([ranked[0][0]], problem)
    assert us[0] == pytest.approx(float(np.sqrt(both.prod())))
    assert both[0] <= both[1], "the power limit makes nothing faster"


def test_a_choice_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEPIPE_TUNED", "off")
    asked: list[Problem] = []
    scores = Table.scores

    def seen(table: Table, problem: Problem) -> Floats:
        asked.append(problem)
        return scores(table, problem)

    monkeypatch.setattr(Table, "scores", seen)
    shape = 1234, 2344, 3456
    for _ in range(3):
        heuristics.choose(*shape, tp.bfloat16, tp.bfloat16)
    assert asked == [Problem(*shape)]


@pytest.mark.slow
def test_more_work_takes_longer(configs: list[GemmConfig]) -> None:
    problem = Problem(1024, 1024, 1024)
    usual = times(configs, problem)
    for more in (
        replace(problem, k=4096),
        replace(problem, m=8192),
        replace(problem, n=8192),
        replace(problem, batch=8),
    ):
        assert (times(configs, more) > usual).all()


def test_rows_off_a_line_take_longer(configs: list[GemmConfig]) -> None:
    aligned, off = (times(configs, Problem(4096, 4096, k)) for k in (4096, 4088))
    assert np.median(off / aligned) > 1.02
    assert (off > 1.2 * aligned).any()


@pytest.mark.parametrize(
    ("row_bytes", "off"),
    [(16, 0), (32, 1), (64, 2), (128, 3), (3008, 2), (4000, 1), (6000, 0), (6016, 3), (4096, 3)],
)
def test_how_far_rows_are_off_a_line(row_bytes: int, off: int) -> None:
    assert off_line(row_bytes) == off
    padded = {off_line(row_bytes - missing) for missing in range(16)}
    assert padded == {off}, "what is no multiple of 16 bytes is copied to rows that are"


def test_rows_of_any_length_are_off_by_one_of_four_distances() -> None:
    assert {off_line(n) for n in range(1, 1025)} == {0, 1, 2, 3}


@pytest.mark.parametrize("odd", [3001, 3004, 3007])
def test_odd_extents_take_what_their_padded_copies_take(
    odd: int, configs: list[GemmConfig]
) -> None:
    """Rows of 3001 elements are copied to rows of 3008, and those are on a line."""
    usual, padded = (times(configs, Problem(3008, extent, extent)) for extent in (odd, 3008))
    np.testing.assert_allclose(usual, padded, rtol=0.01)
    fp8, padded_fp8 = (
        predicted_us(Problem(3008, extent, extent, dtype=tp.float8_e4m3), configs[0])
        for extent in (odd, 3008)
    )
    assert fp8 == pytest.approx(padded_fp8, rel=0.01)


def by_the_equation(cfg: GemmConfig, problem: Problem, c: Constants) -> tuple[float, float]:
    """What stands at the head of `times_constants`, without corrections, for operands on lines."""
    m, n = (problem.m, problem.n) if cfg.swap == "none" else (problem.n, problem.m)
    rows, cols = m / (cfg.bm * cfg.cluster), n / (cfg.bn * cfg.cluster_n)
    size, k_bytes = cfg.cluster_size, cfg.bk * 2
    tiles = math.ceil(rows) * math.ceil(cols)
    waves = math.ceil(tiles / tp.H200.resident_clusters(size))
    ctas = tiles / waves * size
    steps = math.ceil(problem.k / (cfg.bk * cfg.split_k))
    a, b = k_bytes * cfg.bm / cfg.cluster_n, k_bytes * cfg.bn / cfg.cluster
    inputs, results = 2 * problem.k * (m + n), 2 * m * n
    new = inputs / (tiles * steps * size * (a + b))

    pingpong = cfg.schedule == "pingpong"
    cycles = k_bytes / 32 * cfg.bm / 64 * cfg.bn / 2
    mma = cycles / c.tensor_mhz * (c.pingpong if pingpong else 1)
    loaded = a * (1 + c.outside * (1 - rows / math.ceil(rows)))
    loaded += b * (1 + c.outside * (1 - cols / math.ceil(cols)))
    load = loaded * (1 / c.sm_loads + ctas / c.chip_loads + new * c.missed / c.sm_loads)
    wait = (c.latency + c.far * new) / (cfg.stages - 1)
    shared = 0 if cfg.split_k > 1 else min(size, 3) - 1
    filled = k_bytes * (cfg.bm + cfg.bn) / c.fill[shared]
    step = (mma**8 + load**8 + wait**8 + filled**8 + c.floor[shared] ** 8) ** (1 / 8)

    width = store_width(tp.bfloat16, cfg)
    boxes = cfg.rows / 64 * cfg.bn / cfg.split_k / width
    filled = math.ceil(boxes / slices_of_slot(tp.bfloat16, cfg))
    store = c.store * cfg.bm * cfg.bn / (128 * 256) + c.slice * filled + c.box * boxes
    hidden = c.hidden if pingpong else 0.0
    once = 0.0 if size == 1 else c.join[size > 2]
    if cfg.split_k > 1:
        once = float(np.interp(math.log2(cfg.split_k), range(4), (0.0, *c.split)))
        once += c.exchange * cfg.bm * cfg.bn / (128 * 256) * (1 - 1 / cfg.split_k)
    body = waves * (steps * step + store * (1 - hidden) + c.wave) + store * hidden + c.start + once

    again = sum(
        x * min(1, x / L2_BYTES)
        for x, readers in ((2 * m * problem.k, n), (2 * n * problem.k, m))
        if readers > 256
    )
    memory = (inputs + c.written * results) / c.dram + again / c.again
    memory *= 1 + c.idle * (1 - ctas / tp.H200.sms)
    stored = k_bytes * (cfg.bm + cfg.bn)
    power = cycles / c.mma_power + stored / c.fill_power + (a + b) / c.load_power
    power = tiles * steps * size * power + (inputs + results) / c.dram_power
    pause = (body**4 + memory**4) ** (1 / 4)
    return pause, (pause**4 + power**4) ** (1 / 4)


@pytest.mark.parametrize("shape", [(2048, 4096, 4096), (100, 2944, 8192), (8192, 256, 640)])
def test_times_are_those_of_the_equation_in_the_docstring(
    shape: tuple[int, int, int], configs: list[GemmConfig]
) -> None:
    some, problem, constants = configs[::7], Problem(*shape), replace(H200, corrections={})
    assert {1, 2, 4} <= {cfg.cluster_size for cfg in some}
    assert {1, 2, 4} <= {cfg.split_k for cfg in some}
    found = times(some, problem, constants)
    expected = np.array([by_the_equation(cfg, problem, constants) for cfg in some]).T
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_each_constant_has_its_place_in_the_equation_and_a_meaning() -> None:
    equation, meanings = times_constants.__doc__ or "", Constants.__doc__ or ""
    for field in fields(Constants):
        assert re.search(rf"\b{field.name}\b", equation), field.name
        assert re.search(rf"^ {{8}}{field.name}: \S.*", meanings, re.M), field.name


def test_rows_outside_of_the_operand_take_time() -> None:
    """Of 16 rows, a tile of 64 loads 48 that are not there."""
    few, many = (GemmConfig(bm=64, bn=bn, consumers=1, stages=8, swap="ab") for bn in (16, 64))
    us = times([few, many], Problem(16, 4096, 8192))[0]
    assert us[1] > 1.1 * us[0]
    full = times([few, many], Problem(64, 4096, 8192))[0]
    assert full[1] < full[0]


@pytest.mark.parametrize(("extras", "source"), [(True, False), (True, True)])
def test_what_the_epilogue_needs_leaves_out_large_tiles(extras: bool, source: bool) -> None:
    problem = Problem(4096, 4096, 4096, extras=extras, source=source)
    found = heuristics.candidates(problem)
    three = {cfg.rows * cfg.bn // 128 for cfg in found if cfg.consumers == 3}
    assert max(three) == (88 if source else 112)
    assert max(cfg.rows * cfg.bn // 128 for cfg in found) == 128
    tall = max(cfg.bn for cfg in found if cfg.bm == 256)
    assert tall == (96 if source else 128)


def test_a_stage_may_take_the_place_of_a_store_slot() -> None:
    found = heuristics.candidates(Problem(256, 7168, 2048))
    tile = [
        cfg for cfg in found if (cfg.bm, cfg.bn, cfg.cluster, cfg.swap) == (128, 112, 2, "none")
    ]
    cooperative = {(x.stages, x.store_slots) for x in tile if x.schedule == "cooperative"}
    assert cooperative == {(6, 2), (7, 1)}


def test_small_products_look_at_small_tiles_only() -> None:
    def areas(m: int, n: int, batch: int = 1) -> list[int]:
        found = heuristics.candidates(Problem(m, n, 4096, batch))
        return [cfg.bm * cfg.bn for cfg in found]

    small, middle, every = areas(64, 128), areas(256, 512), areas(2048, 2048)
    assert [max(small), max(middle)] == [8192, 16384]
    assert 3 * len(small) < len(every)
    assert 3 * len(middle) < 2 * len(every)
    assert len(areas(64, 128, batch=100)) == len(every), "many small ones fill large tiles"


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"a_order": "col"},
        {"b_order": "col"},
        {"extras": True},
        {"extras": True, "source": True},
        {"out_dtype": tp.float32},
    ],
)
def test_looking_at_small_tiles_only_changes_no_choice(kind: dict[str, Any]) -> None:
    """Of 400 products whose C is a little below the limits of `SMALL`, some with a long K."""
    rng = random.Random(1)
    every = heuristics.candidates(Problem(4096, 4096, 4096, **kind))
    table = Table.of(every, Problem(4096, 4096, 4096, **kind), tp.H200)
    problems: list[Problem] = []
    for limit, _ in heuristics.SMALL:
        for _ in range(200):
            elements = limit / 2 ** rng.uniform(0, 1.5) / 64
            m = min(max(1, int(elements ** rng.uniform(0.1, 0.9))), int(elements))
            n, k = int(elements / m), int(2 ** rng.uniform(0, 12))
            problems.append(Problem(8 * m, 8 * n, 8 * k, **kind))
    assert all(heuristics.candidates(each) != every for each in problems[::50])
    for problem in problems:
        assert every[int(table.scores(problem).argmin())] == heuristics.best(problem), problem


def test_candidates_are_made_with_few_configurations_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making one costs tens of microseconds, since its rules are checked: the first product of a
    process waits for all.
    """
    made = 0
    check = GemmConfig.__post_init__

    def counted(cfg: GemmConfig) -> None:
        nonlocal made
        made += 1
        check(cfg)

    monkeypatch.setattr(GemmConfig, "__post_init__", counted)
    chip = replace(tp.H200, name="another")
    found = heuristics.candidates(Problem(4096, 4096, 4096), chip)
    assert 1000 < len(found) < made < 4 * len(found)


@pytest.mark.parametrize("extent", [1, 1 << 18])
def test_the_smallest_and_the_largest_products_have_times(extent: int) -> None:
    """Eighth powers of them stay within the range of float32."""
    us = np.array([time for _, time in heuristics.ranked(Problem(extent, extent, extent))])
    assert (np.isfinite(us) & (us > 1)).all()
    assert (us > 1e6).all() or extent == 1


@pytest.mark.parametrize(
    "tile",
    [
        {"bm": 64, "bn": 176, "cluster": 4, "swap": "none"},  # 44 rows of B for each CTA
        {"bm": 128, "bn": 16, "cluster": 1, "swap": "ab"},
    ],
)
def test_few_rows_have_tiles_of_their_own(tile: dict[str, object]) -> None:
    """None of which the older model, of products of fp8, was fitted to."""
    for dtype, wanted in ((tp.bfloat16, True), (tp.float8_e4m3, False)):
        found = heuristics.candidates(Problem(200, 5120, 5120, dtype=dtype))
        some = [x for x in found if all(getattr(x, name) == y for name, y in tile.items())]
        assert bool(some) is wanted
