"""Which shapes a benchmark measures."""

from __future__ import annotations

import pytest

import tilepipe as tp
from tilepipe.bench.shapes import DEEPGEMM, FP8, STANDARD, Choice, Target, random_shapes, suites
from tilepipe.kernels.gemm.heuristics import Problem

BASE = Problem(1, 1, 1, dtype=tp.float16, b_order="col")


def test_the_standard_shapes_take_the_dtypes_and_orders_given() -> None:
    (suite,) = suites(["standard"], BASE, 0)
    assert suite.target == Target(1.01, 0.96)
    assert [(p.m, p.n, p.k) for p in suite.problems] == list(STANDARD)
    assert {(p.dtype, p.b_order, p.scales) for p in suite.problems} == {(tp.float16, "col", "none")}


def test_fp8_has_row_scales_whatever_is_given() -> None:
    (suite,) = suites(["fp8"], BASE, 0)
    assert suite.target == Target(worst=0.97)
    assert [(p.m, p.n, p.k) for p in suite.problems] == list(FP8)
    assert {(p.dtype, p.out_dtype, p.b_order, p.scales) for p in suite.problems} == {
        (tp.float8_e4m3, tp.bfloat16, "row", "row")
    }


def test_fp8_has_block_scales_where_the_kernel_has() -> None:
    (suite,) = suites(["fp8"], Problem(1, 1, 1, dtype=tp.float8_e4m3, scales="block"), 0)
    assert suite.target == Target(1.09, 1.0)
    assert suite.title == "fp8 e4m3, scales of 1×128 and 128×128 blocks"
    assert {p.scales for p in suite.problems} == {"block"}


def test_deepgemm_has_the_shapes_of_its_tests() -> None:
    (suite,) = suites(["deepgemm"], Problem(1, 1, 1, dtype=tp.float8_e4m3, scales="block"), 0)
    assert [(p.m, p.n, p.k) for p in suite.problems] == list(DEEPGEMM)
    assert {p.scales for p in suite.problems} == {"block"}
    assert suite.target == Target()


def test_random_shapes_are_many_sided_and_repeat_with_their_seed() -> None:
    shapes = random_shapes(7, 300)
    assert shapes == random_shapes(7, 300)
    assert shapes != random_shapes(8, 300)
    for extents in zip(*shapes, strict=True):
        assert all(64 <= x <= 8192 and x % 8 == 0 for x in extents)
        small = sum(x < 724 for x in extents)  # the geometric middle of 64 and 8192
        assert 100 < small < 200
    (suite,) = suites(["random"], BASE, 7)
    assert [(p.m, p.n, p.k) for p in suite.problems] == shapes[:30]
    assert "seed 7" in suite.title
    assert suite.target == Target(0.98, 0.85)


def test_given_shapes_make_one_suite_and_a_name_counts_once() -> None:
    found = suites(["64,128,256", "standard", "8x16x24", "standard"], BASE, 0)
    assert [suite.title for suite in found] == ["the shapes given", "standard shapes"]
    assert [(p.m, p.n, p.k) for p in found[0].problems] == [(64, 128, 256), (8, 16, 24)]
    assert found[0].target == Target()


@pytest.mark.parametrize(
    "text", ["", "64", "64,64", "64,64,64,64", "a,b,c", "64;64;64", "64,-1,64"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(tp.BindError, match="--shapes"):
        suites([text], BASE, 0)


@pytest.mark.parametrize(
    ("text", "count"), [("best-of-8", 8), ("best-of 3", 3), ("best-of:12", 12)]
)
def test_best_of(text: str, count: int) -> None:
    assert Choice.parse(text) == Choice("best", count)


@pytest.mark.parametrize("text", ["best-of", "best-of-0", "best-of-x", "best", "", "Chosen"])
def test_choices_that_do_not_exist(text: str) -> None:
    with pytest.raises(tp.BindError, match="best-of-8"):
        Choice.parse(text)
