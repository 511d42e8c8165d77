"""Predicted times: what a run asks of a chip, and what that costs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.timeline.kernels import COPY, LATENCY, copying
from tilepipe.ir.chip import H200, Chip
from tilepipe.machine import calibration
from tilepipe.machine.calibration import Costs, Demand, costs
from tilepipe.registry.catalog import find

FIT = Path(__file__).parents[2] / "benchmarks" / "cost_model"


def test_pipeline_and_arithmetic_take_turns_and_memory_works_meanwhile() -> None:
    given = Costs(launch_us=1.0, memory=2.0, pipeline=0.5, special_us=10.0, plain_us=4.0)
    assert given.predicted_us(Demand(8.0, 1.0, 0.25, 0.5)) == 1.0 + 4.0 + 2.5 + 2.0
    assert given.predicted_us(Demand(8.0, 20.0, 0.25, 0.5)) == 41.0


def test_what_a_run_asks_for() -> None:
    program = copying(rows=3, columns=2)
    run = program.run()
    chip = program.launch_args.chip
    chain = 4 * (COPY + LATENCY) / chip.clock_ghz / 1e3
    assert run.demand.pipeline_us == pytest.approx(chain)
    assert run.demand.memory_us == pytest.approx(2 * 3 * 2 * 512 / chip.dram_gbps / 1e3)
    assert (run.demand.special, run.demand.plain) == (0.0, 0.0)
    assert run.predicted_us == costs(chip).predicted_us(run.demand)


@pytest.mark.slow
def test_element_wise_operations_are_counted_in_loops() -> None:
    spec = find("attention")
    given = {"heads": 2, "kv_heads": 2, "s_q": 256, "s_kv": 512}
    config, _ = spec.configure(given, None)
    program = spec.make(config, 0).program
    demand, sms = program.run().demand, program.launch_args.grid
    weights = 2 * 256 * 512  # an exponential each, and a few for each row
    assert 1.0 <= demand.special * sms * 1e6 / weights < 1.1
    assert 3.0 <= demand.plain * sms * 1e6 / weights < 8.0


def test_each_file_is_of_a_chip_that_was_measured() -> None:
    for file in calibration.FOLDER.iterdir():
        found = json.loads(file.read_text(encoding="utf-8"))
        assert f"{found['chip']}.json" == file.name
        assert found["from"].startswith("fitted to ")
        assert f"measured on an {found['chip']}" in found["from"]


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("H200", "H200"), ("NVIDIA H200", "H200"), ("NVIDIA H200-SXM", "H200"),
        ("NVIDIA X1 80GB", "X1"), ("X1", "X1"),
        ("NVIDIA H100", "H200"), ("B200", "H200"), ("NVIDIA GH200 480GB", "H200"), ("X12", "H200"),
    ],
)  # fmt: skip
def test_a_chip_has_its_own_costs_or_those_of_an_h200(
    name: str, measured: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"H200": Costs(1.0, 1.0, 1.0, 1.0, 1.0), "X1": Costs(2.0, 3.0, 4.0, 5.0, 6.0)}
    for chip, its in known.items():
        text = json.dumps({"chip": chip, "costs": asdict(its)})
        (tmp_path / f"{chip}.json").write_text(text, encoding="utf-8")
    monkeypatch.setattr(calibration, "FOLDER", tmp_path)
    assert calibration.measured_chip(Chip(name)) == measured
    assert costs(Chip(name)) == known[measured]


def test_measured_kernels_are_predicted_within_a_tenth_in_the_median() -> None:
    times = {(x["kernel"], x["settings"]): x["us"] for x in lines("times")}
    errors = []
    for x in lines("demands"):
        us = times[x.pop("kernel"), x.pop("settings")]
        errors.append(abs(costs(H200).predicted_us(Demand(**x)) / us - 1))
    assert len(errors) >= 60
    assert np.median(errors) < 0.1


def lines(name: str) -> list[dict[str, Any]]:
    text = (FIT / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
