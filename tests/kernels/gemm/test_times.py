"""The model of what a GEMM takes, and the choice by it."""

from __future__ import annotations

import math
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
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
from tilepipe.kernels.gemm.times import Scratch, Table
from tilepipe.kernels.gemm.times_constants import H200, Constants
from tilepipe.kernels.gemm.times_facts import Facts, Floats, Settings, place

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
    """What stands at the head of `times_constants`, of one configuration."""
    rows_off, store_off = off_line(2 * problem.k), off_line(2 * problem.n)
    m, n = (problem.m, problem.n) if cfg.swap == "none" else (problem.n, problem.m)
    rows, cols = m / cfg.bm, n / cfg.bn
    clusters = math.ceil(rows / cfg.cluster) * math.ceil(cols / cfg.cluster_n)
    size, k_bytes = cfg.cluster_size, cfg.bk * 2
    tiles = clusters * problem.batch * cfg.k_parts
    waves = math.ceil(tiles / tp.H200.resident_clusters(size))
    ctas = tiles / waves * size
    steps = math.ceil(problem.k / (cfg.bk * cfg.split_k * cfg.k_parts))
    a, b = k_bytes * cfg.bm / cfg.cluster_n, k_bytes * cfg.bn / cfg.cluster
    inputs, results = 2 * problem.k * (m + n) * problem.batch, 2 * m * n * problem.batch
    new = inputs / (tiles * steps * size * (a + b))

    pingpong = cfg.schedule == "pingpong"
    cycles = k_bytes / 32 * cfg.bm / 64 * cfg.bn / 2
    mma = cycles / c.tensor_mhz * (c.pingpong if pingpong else 1)
    outside = c.outside[size > 1 and cfg.split_k == 1]
    loaded = a * (1 + outside * (1 - rows / math.ceil(rows)))
    loaded += b * (1 + outside * (1 - cols / math.ceil(cols)))
    load = loaded * (1 / c.sm_loads + ctas / c.chip_loads + new * c.missed / c.sm_loads)
    load *= (*c.skew, 1.0)[rows_off]
    wait = (c.latency + c.far * new) / (cfg.stages - 1)
    shared = 0 if cfg.split_k > 1 else min(size, 3) - 1
    filled = k_bytes * (cfg.bm + cfg.bn) / c.fill[shared]
    step = (mma**8 + load**8 + wait**8 + filled**8 + c.floor[shared] ** 8) ** (1 / 8)

    width = store_width(tp.bfloat16, cfg)
    boxes = cfg.rows / 64 * cfg.bn / cfg.split_k / width
    filled = math.ceil(boxes / slices_of_slot(tp.bfloat16, cfg))
    store = c.store * cfg.bm * cfg.bn / (128 * 256) + c.slice * filled + c.box * boxes
    store *= (c.skewed_store if store_off < 2 else 1.0) * (c.extras if problem.extras else 1.0)
    hidden = c.hidden if pingpong else 0.0
    once = 0.0 if size == 1 else c.join[size > 2]
    if cfg.split_k > 1:
        once = float(np.interp(math.log2(cfg.split_k), range(4), (0.0, *c.split)))
        once += c.exchange * cfg.bm * cfg.bn / (128 * 256) * (1 - 1 / cfg.split_k)
    if cfg.k_parts > 1:
        once += c.meet + c.part * cfg.k_parts * cfg.bm * cfg.bn / (128 * 256)
    body = waves * (steps * step + store * (1 - hidden) + c.wave) + store * hidden + c.start + once

    again = sum(
        x * min(1, x / L2_BYTES)
        for x, readers in ((2 * m * problem.k, n), (2 * n * problem.k, m))
        for x in [x * problem.batch]
        if readers > 256
    )
    memory = (inputs + c.written * results) / c.dram + again / c.again
    memory *= 1 + c.idle * (1 - ctas / tp.H200.sms)
    stored = k_bytes * (cfg.bm + cfg.bn)
    power = cycles / c.mma_power + stored / c.fill_power + (a + b) / c.load_power
    power = tiles * steps * size * power + (inputs + results) / c.dram_power
    factor = 1.0 + correction(cfg, problem, c)
    pause = (body**4 + memory**4) ** (1 / 4) * factor
    return pause, (pause**4 + (power * factor) ** 4) ** (1 / 4)


def correction(cfg: GemmConfig, problem: Problem, c: Constants) -> float:
    """What the places that are known say of a configuration, by how like it is to each."""
    m, n, k = (
        max(-6.0, min(math.log2(x) - 10.5, 5.0)) / 4 for x in (problem.m, problem.n, problem.k)
    )
    off = float(off_line(2 * problem.k) < 3), float(off_line(2 * problem.n) < 2)
    traits = 1, m, n, k, *off, m * m, n * n, k * k, m * n, m * k, n * k
    here, total = place(cfg), 0.0
    for there, weights in c.corrections.items():
        apart = sum((x - y) ** 2 for x, y in zip(here, there, strict=True))
        weight = sum(w * x for w, x in zip(weights, traits, strict=True))
        total += math.exp(-apart / (2 * 1.5**2)) * weight
    return total


KINDS = (
    Problem(2048, 4096, 4096),
    Problem(100, 2944, 8192),
    Problem(8192, 256, 640),
    Problem(1000, 1001, 1500),
    Problem(333, 2056, 8, batch=24),
    Problem(16, 5120, 2888, extras=True),
    Problem(20000, 4104, 16400),
)


@pytest.mark.parametrize("problem", KINDS)
@pytest.mark.parametrize("corrected", [False, True])
def test_times_are_those_of_the_equation_in_the_docstring(
    problem: Problem, corrected: bool, configs: list[GemmConfig]
) -> None:
    constants = H200 if corrected else replace(H200, corrections={})
    some = configs[::3]
    assert {1, 2, 4} <= {cfg.cluster_size for cfg in some}
    assert {1, 2, 4} <= {cfg.split_k for cfg in some}
    assert {1, 2} <= {cfg.k_parts for cfg in some}
    settings = Settings(some, problem.dtype, problem.out_dtype, tp.H200)
    found = np.array(Table(settings, constants, problem.extras).times(Facts.of(problem)))
    expected = np.array([by_the_equation(cfg, problem, constants) for cfg in some]).T
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("problem", KINDS)
def test_what_is_chosen_is_the_fastest_by_the_equation(problem: Problem) -> None:
    """The choice is made in float32, among hundreds at once."""
    ranked = heuristics.ranked(problem)
    found = [us for _, us in ranked[:40]]
    expected = [math.prod(by_the_equation(cfg, problem, H200)) ** 0.5 for cfg, _ in ranked[:40]]
    np.testing.assert_allclose(found, expected, rtol=2e-6)
    assert ranked[0][0] == heuristics.best(problem)
    assert expected[0] < min(expected) * (1 + 2e-6)


def test_several_products_at_once_have_the_times_that_each_has_alone(
    configs: list[GemmConfig],
) -> None:
    """As the fit has them: an element for each configuration, each with a product of its own."""
    some = configs[: len(KINDS)]
    settings = Settings(some, tp.bfloat16, tp.bfloat16, tp.H200)
    facts = Facts(*(np.array(x).T for x in zip(*map(Facts.of, KINDS), strict=True)))
    together = np.array(Table(settings, H200).times(facts))
    alone = [times([cfg], problem)[:, 0] for cfg, problem in zip(some, KINDS, strict=True)]
    np.testing.assert_allclose(together, np.array(alone).T, rtol=1e-12)


def test_threads_choose_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each works in arrays of its own."""
    problems = [Problem(1000 + 8 * i, 2000 + 16 * i, 500 + 24 * i) for i in range(100)]
    (_, table) = heuristics._known(problems[0], tp.H200)
    expected = [table.scores(problem) for problem in problems]
    powers, here = Table.powers, threading.Barrier(4)

    def met(self: Table, facts: Facts, scratch: Scratch) -> tuple[Floats, Floats]:
        """All threads have their arrays before one of them writes."""
        here.wait(60)
        found = powers(self, facts, scratch)
        here.wait(60)
        return found

    monkeypatch.setattr(Table, "powers", met)
    with ThreadPoolExecutor(4) as pool:
        for scores, wanted in zip(pool.map(table.scores, problems), expected, strict=True):
            np.testing.assert_array_equal(scores, wanted)


def test_each_constant_has_its_place_in_the_equation_and_a_meaning() -> None:
    equation, meanings = times_constants.__doc__ or "", Constants.__doc__ or ""
    for field in fields(Constants):
        assert re.search(rf"\b{field.name}\b", equation), field.name
        assert re.search(rf"^ {{8}}{field.name}: \S.*", meanings, re.M), field.name


def test_rows_outside_of_the_operand_take_time() -> None:
    """Of 16 rows, a tile of 64 loads 48 that are not there."""
    few, many = (GemmConfig(bm=64, bn=bn, consumers=1, stages=8, swap="ab") for bn in (16, 64))
    us = times([few, many], Problem(16, 4096, 8192))[0]
    assert us[1] > 1.05 * us[0]
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
    assert 2 * len(small) < len(every)
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
    assert 500 < len(found) < made < 4 * len(found)


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
