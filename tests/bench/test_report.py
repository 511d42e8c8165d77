"""Tables from made-up figures."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

import tilepipe as tp
from tilepipe.bench import host, picture
from tilepipe.bench.report import (
    Check,
    Line,
    Side,
    Table,
    as_json,
    config_text,
    geometric_mean,
    problem_json,
    regime_table,
    shape_text,
    tflops,
    to_markdown,
)
from tilepipe.bench.shapes import NAMES, Suite, Target, suites
from tilepipe.description import svg
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig

BIG, SMALL = Problem(4096, 4096, 4096), Problem(128, 256, 64)
GOOD, BAD = Check(1.7e-3, 0.01, True), Check(0.3, 9.0, False)


def line(
    problem: Problem,
    peer: float,
    ours: float,
    regime: str = "burst",
    check: Check = GOOD,
    origin: str = "chosen",
) -> Line:
    return Line(
        problem,
        GemmConfig(bn=256, cluster=2),
        origin,
        regime,
        peer,
        ours,
        0.004,
        0.012,
        GOOD,
        check,
    )


LINES = [
    line(BIG, 180.0, 175.0),
    line(BIG, 210.0, 200.0, "steady"),
    line(SMALL, 4.0, 5.0),
    line(SMALL, 4.0, 4.0, "steady"),
]
SUITE = Suite("two shapes", (BIG, SMALL), Target(0.9, 0.9))


def test_the_picture_has_a_panel_for_each_regime_and_a_colour_for_each_suite() -> None:
    two = [Suite("large", (BIG,), Target()), Suite("small", (SMALL,), Target())]
    root = ElementTree.fromstring(picture.of_lines(two, [LINES[:2], LINES[2:]], "cuBLAS"))
    dots = {x[0].text: x.attrib for x in root.iter() if x.tag.endswith("circle") and len(x)}
    names = (
        "4096×4096×4096: 1.029",
        "4096×4096×4096: 1.050",
        "128×256×64: 0.800",
        "128×256×64: 1.000",
    )
    assert list(dots) == [names[0], names[2], names[1], names[3]]
    burst, steady, slow, even = (dots[name] for name in names)
    assert burst["class"] == steady["class"] != slow["class"] == even["class"]
    assert float(burst["cx"]) > float(slow["cx"]), "more FLOP"
    assert float(burst["cy"]) < float(slow["cy"]), "faster"
    assert float(steady["cy"]) > float(slow["cy"]), "a panel below"
    texts = [x.text for x in root.iter() if x.tag.endswith("text")]
    assert {"cuBLAS time / ours", "large", "small"} <= set(texts)
    assert "after a pause: geometric mean 0.907" in texts
    assert "steady: geometric mean 1.025" in texts


def drawn(panels: list[picture.Panel], groups: list[str]) -> tuple[list[Any], list[Any]]:
    """The dots of a picture, and its texts."""
    every = [*ElementTree.fromstring(picture.drawn(panels, groups, "cuBLAS")).iter()]
    return (
        [x for x in every if x.tag.endswith("circle")],
        [x for x in every if x.tag.endswith("text")],
    )


@pytest.mark.parametrize("ratios", [(0.4, 0.8, 1.7, 2.5), (0.04, 0.8, 1.7, 30.0)], ids=str)
def test_each_ratio_has_its_own_height_in_the_picture(ratios: tuple[float, ...]) -> None:
    dots = [
        picture.Dot(str(x), flop, x, 0)
        for x, flop in zip(ratios, (1e4, 1e6, 1e13, 3e14), strict=True)
    ]
    circles, texts = drawn([picture.Panel("burst", dots, "")], ["all"])
    heights, places = ([float(x.get(name)) for x in circles if len(x)] for name in ("cy", "cx"))
    scale = picture.Scale.of(dots)
    first, *_, last = heights
    for ratio, height in zip(ratios, heights, strict=True):
        share = math.log(ratio / ratios[0]) / math.log(ratios[-1] / ratios[0])
        assert height == pytest.approx(first + share * (last - first), abs=0.1)
    assert picture.TOP <= last < first <= picture.TOP + picture.HIGH + 0.1
    assert places == sorted(set(places))
    assert picture.LEFT <= places[0] < places[-1] <= picture.WIDTH - picture.RIGHT
    lines = [scale.down(ratio) for ratio in scale.lines]
    assert 1.0 in scale.lines
    assert min(x - y for x, y in itertools.pairwise(lines)) >= picture.APART
    assert {"1e4", "1e15", "1.0"} <= {x.text for x in texts}


def test_all_suites_at_once_have_a_colour_each_and_a_legend_inside_the_picture() -> None:
    problem = Problem(1, 1, 1, dtype=tp.float8_e4m3, scales="row")
    names = [suite.title for suite in suites([*NAMES, "64,64,64"], problem, 2**32 - 1)]
    dots = [picture.Dot("", 1e9, 1.0, group) for group in range(len(names))]
    circles, texts = drawn([picture.Panel("burst", dots, "")], names)
    assert len({x.get("fill") for x in circles}) == len(names) == len(NAMES) + 1
    words = {x.text: x for x in texts}
    right = [float(words[name].get("x")) + svg.width(name, 11) for name in names]
    assert max(right) <= picture.WIDTH
    places = {(words[name].get("x"), words[name].get("y")) for name in names}
    assert len(places) == len(names)


def test_the_table_of_a_regime() -> None:
    table = regime_table(SUITE, "burst", LINES, "cuBLAS")
    assert table.title == "two shapes, burst"
    assert table.columns[:4] == ("M×N×K", "config", "cuBLAS µs", "cuBLAS TFLOP/s")
    assert table.rows == (
        (
            "4096×4096×4096",
            "128×256×64 s4 c2×1",
            "180.0",
            "764",
            "175.0",
            "785",
            "1.029",
            "1.7e-03",
        ),
        ("128×256×64", "128×256×64 s4 c2×1", "4.0", "1", "5.0", "1", "0.800", "1.7e-03"),
    )
    assert "geometric mean of the ratios 0.907 (at least 0.90: met)" in table.notes[0]
    assert "worst 0.800 at 128×256×64 (at least 0.90: MISSED)" in table.notes[0]
    assert "at most 1.2%" in table.notes[1]


def test_a_further_peer_has_columns_and_a_note() -> None:
    faster, wrong = Side(170.0, 0.001, GOOD), Side(6.0, 0.001, BAD)
    mine = [
        replace(line(BIG, 180.0, 175.0), others={"DeepGEMM": faster}),
        line(SMALL, 4.0, 5.0),
    ]
    table = regime_table(SUITE, "burst", mine, "scaled_mm")
    assert table.columns[-3:] == ("DeepGEMM µs", "DeepGEMM / ours", "error")
    assert [row[-3:] for row in table.rows] == [
        ("170.0", "0.971", "1.7e-03"),
        ("", "", "1.7e-03"),
    ]
    assert "DeepGEMM / ours: geometric mean 0.971; worst 0.971 at 4096×4096×4096" in table.notes
    assert as_json(mine[0])["others"]["DeepGEMM"]["us"] == 170.0
    (row,) = (bad := regime_table(SUITE, "burst", [replace(mine[1], others={"x": wrong})], "")).rows
    assert row[-1] == "WRONG"
    assert any(note.startswith("WRONG: x at 128×256×64") for note in bad.notes)


def test_without_a_target_nothing_is_met_or_missed() -> None:
    table = regime_table(Suite("given", (BIG,)), "steady", LINES, "cuBLAS")
    assert "1.025" in table.notes[0]  # of 1.05 and 1.00
    assert "met" not in table.notes[0].replace("geometric", "")
    assert "MISSED" not in table.notes[0]


@pytest.mark.parametrize("regime", ["burst", "steady"])
def test_a_wrong_result_is_told_in_the_row_and_below(regime: str) -> None:
    table = regime_table(SUITE, regime, [line(SMALL, 4.0, 1.0, regime, BAD)], "cuBLAS")
    assert table.rows[0][-1] == "WRONG"
    assert any("WRONG: ours at 128×256×64" in note and "3.0e-01" in note for note in table.notes)


def test_where_a_configuration_comes_from_is_said() -> None:
    table = regime_table(SUITE, "burst", [line(BIG, 1.0, 1.0, origin="tuned")], "cuBLAS")
    assert table.rows[0][1].endswith("(tuned)")


def test_no_lines_make_an_empty_table() -> None:
    assert regime_table(SUITE, "burst", [], "cuBLAS").rows == ()


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (GemmConfig(), "128×128×64 s4"),
        (GemmConfig(schedule="pingpong", bn=192, cluster=2), "128×192×64 s4 pp c2×1"),
        (GemmConfig(consumers=1, bm=64, split_k=2, stages=8), "64×128×64 s8 w1 k2"),
        (GemmConfig(swap="ab"), "128×128×64 s4 T"),
        (GemmConfig(cluster_n=2, raster="columns"), "128×128×64 s4 c1×2 columns"),
        (GemmConfig(group=4, store_slots=1), "128×128×64 s4 o1 g4"),
        (GemmConfig(k_group_size=2, stages=2), "128×128×64 s2 k_group_size=2"),
        (BlockwiseGemmConfig(bm=192, consumers=3, stages=4), "192×128×128 s4 w3"),
        (BlockwiseGemmConfig(bn=160, splits=2, cluster_n=2), "128×160×128 s5 c1×2 /80"),
    ],
)
def test_configurations_in_few_letters(config: GemmConfig | BlockwiseGemmConfig, text: str) -> None:
    assert config_text(config) == text


def test_shapes_say_what_is_unusual() -> None:
    assert (
        shape_text(Problem(1, 2, 3, batch=4, a_order="col", dtype=tp.float16))
        == "1×2×3 batch=4 a_order=col"
    )


def test_figures() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert math.isnan(geometric_mean([]))
    assert tflops(Problem(1000, 1000, 1000), 2.0) == pytest.approx(1000.0)
    assert tflops(Problem(1000, 1000, 1000, batch=2), 2.0) == pytest.approx(2000.0)


def test_markdown() -> None:
    text = to_markdown(Table("two", ("a", "b"), (("x", "1"), ("y", "2")), ("first", "second")))
    assert text == "**two**\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n| y | 2 |\n\nfirst  \nsecond\n"


def test_json_can_be_read_back() -> None:
    found = json.loads(json.dumps(as_json(LINES[0])))
    assert found["problem"]["dtype"] == "bfloat16"
    assert found["problem"] == problem_json(BIG)
    assert found["ratio"] == pytest.approx(180 / 175)
    assert found["ours_error"] == {"rel_error": 1.7e-3, "max_error": 0.01, "right": True}


def test_host_tables_say_what_is_met() -> None:
    table = host.overhead_table(
        {"program.launch()": 4.2, "ops.matmul(a, b)": 31.0, "torch.matmul(a, b)": 9.0}
    )
    assert table.rows == (
        ("program.launch()", "4.2", "below 10: met"),
        ("ops.matmul(a, b)", "31.0", "below 25: MISSED"),
        ("torch.matmul(a, b)", "9.0", ""),
    )
    cold = host.cold_table({"import": 0.2, "trace": 0.3, "print": 0.1, "compile": 0.4})
    assert cold.rows[-1] == ("trace + print + compile", "800", "below 700: MISSED")


def test_host_time_is_that_of_the_call_and_not_of_the_wait() -> None:
    order: list[str] = []
    us = host.host_us(lambda: order.append("call"), lambda: order.append("wait"))
    assert 0 < us < 1000
    assert order.count("call") == 20 + host.CALLS * host.BATCHES
    assert order[-1] == "wait"


@pytest.mark.slow
def test_cold_start_runs_every_step() -> None:
    pytest.importorskip("cuda.bindings", reason="NVRTC is not installed")
    seconds = host.cold_start(runs=1)
    assert list(seconds) == ["import", "trace", "print", "compile"]
    assert all(value > 0 for value in seconds.values())
