"""benchmarks/gemm_*.py: the shapes, the measurements that are kept, what the model makes of them,
and the picture of it.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tilepipe.kernels.gemm import heuristics, tiles_data
from tilepipe.kernels.gemm.heuristics import Problem
from tools.docs.readme import ROOT

FOLDER = ROOT / "benchmarks"
TIMES = FOLDER / "gemm_times.jsonl"


def script(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module(name)


def test_shapes_are_mixed_and_a_third_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = script(monkeypatch, "gemm_shapes")
    every = found.shapes()
    only = [shape for _, shape in every]
    assert len(set(only)) == len(only) == 441
    assert every == found.shapes(), "the same in each run"
    for part in (every[:110], every[-110:]):
        kinds = [kind for kind, _ in part]
        assert all(kinds.count(kind) >= 5 for kind in ("uniform", "layer", "odd", "square"))
    assert 0.28 < np.mean([found.judged(shape) for shape in only]) < 0.39
    assert all(n % 8 == k % 8 == 0 for _, n, k in only), "rows that TMA can take"
    assert any(k * 2 % 128 for _, _, k in only)
    assert any(m % 8 for m, _, _ in only)


@pytest.mark.slow
def test_words_name_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = script(monkeypatch, "gemm_configs")
    every = heuristics.candidates(Problem(4096, 4096, 4096))
    words = [configs.text(cfg) for cfg in every]
    assert len(set(words)) == len(words)
    assert [configs.config(word) for word in words] == every
    other = every[0].changed(raster="rows")
    assert configs.config(configs.text(other)) == other


def test_each_word_of_the_data_is_a_configuration_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of one that is no candidate any more, such as split K with a stage for a store slot."""
    config = script(monkeypatch, "gemm_configs").config
    lines = map(json.loads, TIMES.read_text(encoding="utf-8").splitlines())
    words = sorted({word for line in lines for word, *_ in line["times"]})
    assert len({config(word) for word in words}) == len(words) > 900
    deep = [config(word) for word in words if "-o1" in word]
    assert {cfg.split_k for cfg in deep} >= {1, 2}
    assert {cfg.store_slots for cfg in deep} == {1}


def test_what_was_measured_again_is_averaged_as_if_in_one_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = script(monkeypatch, "gemm_model")
    file = tmp_path / "times.jsonl"
    head = {"shape": [64, 64, 64], "kind": "uniform", "card": "H200"}
    lines = [
        head | {"cublas": [4.0, 2.0], "times": [["c1-64x16-1x1x1", 1.0, None]]},
        head  # on a card that was eight times as slow, in steady state (only of cuBLAS) twice
        | {
            "cublas": [2.0, 4.0],
            "times": [["c1-64x16-1x1x1", 8.0, 6.0], ["c1-64x32-1x1x1", 10.0, 12.0]],
        },
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = model.read(file)
    assert found.words == ["c1-64x16-1x1x1", "c1-64x32-1x1x1"]
    np.testing.assert_allclose(found.us, [[1.0, 1.25], [3.0, 6.0]])
    np.testing.assert_allclose(found.cublas, [1.0, 2.0])


def test_measurements_are_of_shapes_of_the_set(monkeypatch: pytest.MonkeyPatch) -> None:
    model, shapes = (script(monkeypatch, name) for name in ("gemm_model", "gemm_shapes"))
    first = {shape for _, shape in shapes.shapes()}
    more = {shape for _, shape in shapes.shapes(1200)} - first
    more |= set(shapes.long())
    found = {t.shape for t in model.read(TIMES)}
    assert len(first) == 441
    assert first <= found <= first | more
    assert len(found) == 837
    assert not any(map(shapes.judged, found & more)), "those held out are what they were"
    assert TIMES.stat().st_size < 700_000


@pytest.mark.slow
def test_choices_are_worth_what_the_page_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the shapes that the fit has not seen, by what was measured: docs/performance/gemm.md."""
    script(monkeypatch, "gemm_model").judge_all(TIMES)
    printed = capsys.readouterr().out.splitlines()
    burst, steady = (x for x in printed if x.startswith("held out"))
    found = [re.search(r"picked ([\d.]+), worst ([\d.]+)", x) for x in (burst, steady)]
    cells = [f"{float(x[1]):.3f}, worst {x[2]}" for x in found if x]
    page = (ROOT / "docs" / "performance" / "gemm.md").read_text(encoding="utf-8")
    assert f"| held out | 162 | {' | '.join(cells)} |" in page


def test_the_picture_has_a_dot_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    picture, model = (script(monkeypatch, name) for name in ("gemm_picture", "gemm_model"))
    measured = model.Measured(model.read(TIMES)[:20])
    root = ElementTree.fromstring(picture.picture(measured))
    dots = [x for x in root.iter() if x.tag.endswith("circle") and len(x)]
    assert len(dots) == 2 * 20
    titles = [x[0].text or "" for x in dots]
    m, n, k = measured.times[0].shape
    assert sum(title.startswith(f"{m}×{n}×{k}: ") for title in titles) == 2


def test_a_plan_is_measured_as_it_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What fits to parts of some measurements choose, of shapes that are fitted."""
    plan, model = (script(monkeypatch, name) for name in ("gemm_plan", "gemm_model"))
    shapes, config = script(monkeypatch, "gemm_shapes"), script(monkeypatch, "gemm_configs").config
    fitted = [t for t in model.read(TIMES) if not shapes.judged(t.shape)][:60]
    monkeypatch.setattr(plan, "MEMBERS", 2)
    tables = plan.committee(fitted)
    known, new = plan.known(tables, fitted, 5), plan.new(tables, [], 60, 5)
    assert len(new) == 5
    assert not any(shapes.judged(each.shape) for each in (*known, *new))
    of = {t.shape: t for t in fitted}
    for each in known:
        *others, last = each.configs
        assert others
        assert not set(others) & set(of[each.shape].words)
        assert last == plan.fastest(of[each.shape])
    gains = [each.gain for each in new]
    assert gains == sorted(gains, reverse=True)
    plan.write(tmp_path / "plan.jsonl", [*known, *new])
    lines = [json.loads(x) for x in (tmp_path / "plan.jsonl").read_text().splitlines()]
    assert [line["shape"] for line in lines] == [list(x.shape) for x in (*known, *new)]
    assert all(config(word) for line in lines for word in line["configs"])


def test_candidates_are_what_was_close_to_the_fastest_of_a_fitted_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fit, model = script(monkeypatch, "gemm_fit"), script(monkeypatch, "gemm_model")
    judged = script(monkeypatch, "gemm_shapes").judged
    fitted = [t for t in model.read(TIMES) if not judged(t.shape)]
    tiles = fit.candidates(model.Measured(fitted))
    written = {
        kind: {clusters: tuple(map(set, widths)) for clusters, widths in shared.items()}
        for kind, shared in tiles_data.TILES.items()
    }
    assert tiles == written
