"""Contests beside peers: what is measured, what is verified and what the tables say, with made-up
kernels and times.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

import tilepipe as tp
from tilepipe.bench.report import Check

torch = pytest.importorskip("torch")

from tilepipe.bench import attention, beside, timing  # noqa: E402
from tilepipe.bench.beside import OURS, Contest, Sides  # noqa: E402
from tilepipe.registry.attention import extents  # noqa: E402

RIGHT, WRONG = Check(2e-3, 0.1, True), Check(0.4, 9.0, False)


@dataclass
class Made:
    """A contest that lasts as long as it is told."""

    us: dict[str, float]
    wrong: tuple[str, int] = ("", 0)
    missing: dict[str, str] = field(default_factory=dict)
    wiped: int = 0

    def sides(self) -> Sides:
        def wipe() -> None:
            self.wiped += 1

        def check(name: str, i: int) -> Check:
            assert self.wiped == 1
            return WRONG if (name, i) == self.wrong else RIGHT

        return Sides(
            "128×64", 3, {name: (lambda i: None) for name in self.us}, wipe, check, self.missing
        )

    def contest(self, name: str) -> Contest:
        return Contest(name, {"s_q": 8}, 2e9, self.sides)


class Block:
    """Of two launches: the sets 0 and 1 were used."""

    count = 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    us: dict[str, float] = {}

    def samples(blocks: Any, *_: object) -> dict[str, timing.Sample]:
        return {
            name: timing.Sample((us[name] * 0.9, us[name], us[name] * 1.1, us[name]))
            for name in blocks
        }

    monkeypatch.setattr(timing, "block", lambda launch, sets: Block())
    monkeypatch.setattr(timing, "burst", samples)
    monkeypatch.setattr(timing, "steady", samples)
    return us


def lines_of(clock: dict[str, float], made: list[Made], steps: list[str]) -> list[beside.Line]:
    found = []
    for i, each in enumerate(made):
        clock.update(each.us)
        found += beside.run([each.contest(f"problem {i}")], ("burst", "steady"), 4, steps.append)
    return found


def test_all_sides_are_in_the_table(clock: dict[str, float]) -> None:
    steps: list[str] = []
    made = [
        Made({OURS: 10.0, "cuDNN": 12.0, "FA2": 20.0}),
        Made({OURS: 20.0, "FA2": 30.0}, missing={"cuDNN": "no mask"}),
    ]
    lines = lines_of(clock, made, steps)
    assert steps == [
        "problem 0, burst",
        "problem 0, steady",
        "problem 1, burst",
        "problem 1, steady",
    ]
    table = beside.table(lines, "burst")
    assert table.columns == (
        "problem",
        "config",
        "ours µs",
        "ours TFLOP/s",
        "error",
        "cuDNN µs",
        "cuDNN TFLOP/s",
        "cuDNN / ours",
        "FA2 µs",
        "FA2 TFLOP/s",
        "FA2 / ours",
    )
    assert table.rows == (
        (
            "problem 0",
            "128×64",
            "10.0",
            "200",
            "2.0e-03",
            "12.0",
            "167",
            "1.200",
            "20.0",
            "100",
            "2.000",
        ),
        ("problem 1", "128×64", "20.0", "100", "2.0e-03", "", "", "", "30.0", "67", "1.500"),
    )
    notes = "\n".join(table.notes)
    for words in (
        "cuDNN / ours: geometric mean 1.200",
        "FA2 / ours: geometric mean 1.732, worst 1.500 at problem 1",
        "no cuDNN at problem 1: no mask",
    ):
        assert words in notes
    assert all(line.right for line in lines)


def test_a_reason_is_said_once_for_all_peers_and_problems_that_have_it(
    clock: dict[str, float],
) -> None:
    everywhere = {"cuDNN": "takes no float8", "FA4": "takes no float8"}
    made = [Made({OURS: 10.0, "FA2": 9.0}, missing=everywhere) for _ in range(3)]
    made[1:] = [Made({OURS: 10.0}, missing=everywhere | {"FA2": "no mask"}) for _ in range(2)]
    table = beside.table(lines_of(clock, made, []), "burst")
    assert [note for note in table.notes if note.startswith("no ")] == [
        "no cuDNN, FA4: takes no float8",
        "no FA2 at problem 1; problem 2: no mask",
    ]
    assert not any("cuDNN" in column or "FA4" in column for column in table.columns)


@pytest.mark.parametrize("wrong", [(OURS, 0), (OURS, 1), ("cuDNN", 1)])
def test_a_wrong_result_of_any_side_is_told(
    clock: dict[str, float], wrong: tuple[str, int]
) -> None:
    lines = lines_of(clock, [Made({OURS: 10.0, "cuDNN": 12.0}, wrong)], [])
    assert not any(line.right for line in lines)
    table = beside.table(lines, "steady")
    assert table.rows[0][table.columns.index("error")] == "WRONG"
    assert any(
        f"WRONG: {wrong[0]} at problem 0" in note and "4.0e-01" in note for note in table.notes
    )


def test_a_set_that_no_launch_used_is_not_looked_at(clock: dict[str, float]) -> None:
    assert all(line.right for line in lines_of(clock, [Made({OURS: 10.0}, (OURS, 2))], []))


def test_json_can_be_read_back(clock: dict[str, float]) -> None:
    line = lines_of(clock, [Made({OURS: 10.0, "cuDNN": 15.0}, missing={"FA2": "old"})], [])[0]
    found = json.loads(json.dumps(beside.as_json(line)))
    assert found["problem"] == {"s_q": 8}
    assert (found["us"], found["ratio"]) == ({OURS: 10.0, "cuDNN": 15.0}, {"cuDNN": 1.5})
    assert found["error"]["cuDNN"]["right"]
    assert (found["missing"], found["regime"]) == ({"FA2": "old"}, "burst")


def test_the_standard_problems_of_attention() -> None:
    found = attention.problems({}, [])
    assert {(p["d"], p["causal"], p["s_q"], p["batch"]) for p in found} == {
        (d, causal, s, 16384 // s)
        for d in (64, 128)
        for causal in (False, True)
        for s in (4096, 8192, 16384)
    }
    assert {(p["heads"], p["kv_heads"], p["dtype"], p["arch"]) for p in found} == {
        (16, 16, "bfloat16", "sm90")
    }
    assert [
        (p["d"], p["causal"], p["s_q"])
        for p in attention.problems({"d": 64, "causal": True}, ["quick"])
    ] == [(64, True, 8192)]
    (given,) = attention.problems({"s_q": 100, "s_kv": 300, "heads": 4}, [])
    assert (given["batch"], given["s_q"], given["s_kv"], given["heads"], given["kv_heads"]) == (
        1,
        100,
        300,
        4,
        1,
    )
    with pytest.raises(tp.BindError, match=r"or random, or packed alone, got '64,64'"):
        attention.problems({}, ["64,64"])


def test_random_problems_of_attention() -> None:
    found = attention.problems({}, ["random"], seed=3)
    assert found == attention.problems({}, ["random"], seed=3)
    assert found != attention.problems({}, ["random"], seed=4)
    assert Counter((p["d"], p["causal"]) for p in found) == {
        (d, causal): 3 for d in (64, 128) for causal in (False, True)
    }
    for p in found:
        assert p["s_q"] == p["s_kv"]
        assert p["s_q"] in range(1024, 32769, 8)
        assert p["kv_heads"] in range(1, p["heads"] + 1)
        assert 1 <= p["batch"] <= 16
    assert {p["d"] for p in attention.problems({"d": 64}, ["random"])} == {64}


def test_problems_in_few_words_and_their_work() -> None:
    (contest,) = attention.contests(
        {"s_q": 100, "s_kv": 300, "causal": True, "bn": 64, "d": 64}, [], tp.H200, 0
    )
    assert contest.problem == "D=64 causal S=100×300 batch=1 heads=2 kv_heads=1"
    assert contest.settings["bn"] == 64
    assert contest.flop == 4 * 2 * 64 * sum(range(201, 301))
    standard = attention.contests({}, ["quick"], tp.H200, 0)
    assert [c.problem for c in standard] == [
        "D=128 full S=8192",
        "D=128 causal S=8192",
        "D=64 full S=8192",
        "D=64 causal S=8192",
    ]
    assert standard[0].flop == 4 * 16 * 128 * 16384 * 8192


@pytest.mark.parametrize("causal", [False, True])
def test_a_sample_of_rows_beside_float64(monkeypatch: pytest.MonkeyPatch, causal: bool) -> None:
    monkeypatch.setattr(attention, "DEVICE", "cpu")
    (problem,) = attention.problems(
        {"s_q": 200, "s_kv": 200, "heads": 2, "d": 64, "causal": causal}, []
    )
    operands = attention.Operands(extents(problem), causal, seed=1, sets=2)
    turned = [x[1].transpose(1, 2).float() for x in (operands.q, operands.k, operands.v)]
    made = (
        torch.nn.functional.scaled_dot_product_attention(*turned, is_causal=causal, enable_gqa=True)
        .transpose(1, 2)
        .bfloat16()
    )
    operands.results["a"] = [made * torch.nan, made]
    assert operands.check("a", 1).right
    assert 1e-4 < operands.check("a", 1).rel_error < 4e-3
    operands.results["a"][1] = made * 1.02
    assert not operands.check("a", 1).right
    operands.wipe()
    assert not operands.check("a", 1).right
