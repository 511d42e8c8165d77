"""The model of what a GEMM takes, and the choice by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.gemm import heuristics
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm.model import off_line, predicted_us
from tilepipe.kernels.gemm.times import H200, Constants, Facts, Floats, Settings, Table

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
