"""What tuning remembers of every kernel: named, written, found again by whoever chooses, merged and
forgotten.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import tilepipe as tp
from tilepipe.kernels.common import tuned, tuned_names
from tilepipe.registry.catalog import KERNELS, KernelSpec
from tilepipe.registry.tuning import Tuning

SPECS = [spec for spec in KERNELS.values() if spec.tuning is not None]
# settings that make a problem with more than one field that is not at its default
UNUSUAL: dict[str, dict[str, Any]] = {
    "gemm": {"dtype": "float8_e4m3", "a_order": "row"},
    "gemm_quantised": {"bits": 8},
    "attention": {"causal": True, "block_mask": "128x128:50", "softcap": 3},
    "attention_backward": {"deterministic": True, "heads": 8, "kv_heads": 8},
    "attention_decode": {"cache": "float8_e4m3", "page": 64, "left": 512},
    "rms_norm": {"backward": True, "dtype": "float32"},
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tuned.json"
    monkeypatch.setenv("TILEPIPE_TUNED", str(path))
    return path


def tuning_of(spec: KernelSpec) -> Tuning[Any, Any]:
    assert spec.tuning is not None
    return spec.tuning


def test_every_kernel_with_a_choice_is_tuned() -> None:
    """The others: nothing is chosen for the problem."""
    others = {name for name, spec in KERNELS.items() if spec.tuning is None}
    assert others == {"append_kv", "gemm_block_scaled", "gemm_stream_k"}
    for spec in SPECS:
        assert tuning_of(spec).tunable.kernel == spec.name
        assert spec.bench or spec.name in ("gemm", "gemm_blockwise")


@pytest.mark.slow
@pytest.mark.parametrize("unusual", [False, True], ids=["usual", "unusual"])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_what_is_remembered_is_chosen(spec: KernelSpec, unusual: bool, file: Path) -> None:
    tuning, given = tuning_of(spec), UNUSUAL.get(spec.name, {}) if unusual else {}
    if spec.name == "attention_backward":
        given = {"heads": 8, "kv_heads": 8} | given
    settings = spec.settings | given
    tunable, problem = tuning.tunable, tuning.problem(settings)
    first, second, *_ = tunable.candidates(problem, tp.H200)
    assert first == tunable.best(problem, tp.H200)
    before, origin = spec.choose(settings, tp.H200)
    assert origin == "chosen for the shape"
    tuned.remember(tunable, problem, tp.H200, second, {"us": 1.5})
    found, origin = spec.choose(settings, tp.H200)
    assert origin == "tuned for the shape"
    assert found == {name: second.as_dict()[name] for name in before}
    assert found != before
    assert spec.choose(settings, None)[1] != "tuned for the shape", "the simulator is not tuned"
    with tuned.unused():
        assert spec.choose(settings, tp.H200) == (before, "chosen for the shape")
    assert tuned.lookup(tunable, problem, tp.H200) == second
    assert tuned.lookup(tunable, problem, tp.Chip(name="H100")) is None


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_all_candidates_can_be_used_for_the_problem(spec: KernelSpec) -> None:
    tuning = tuning_of(spec)
    problem = tuning.problem(spec.settings)
    found = tuning.tunable.candidates(problem, tp.H200)
    assert len(set(found)) == len(found)
    for cfg in found[:48]:
        tuning.tunable.check(cfg, problem, tp.H200)
        spec.config({**spec.settings, **cfg.as_dict()})


@pytest.mark.slow
def test_entries_of_all_kernels_are_merged_and_forgotten(file: Path, tmp_path: Path) -> None:
    tunables = [tuning_of(spec).tunable for spec in SPECS]
    for spec in SPECS:
        tuning = tuning_of(spec)
        problem = tuning.problem(spec.settings)
        best = tuning.tunable.best(problem, tp.H200)
        tuned.remember(tuning.tunable, problem, tp.H200, best, {"date": "2026-11-28"})
    entries, problems = tuned.entries(tunables)
    assert (len(entries), problems) == (len(SPECS), [])
    other = tmp_path / "theirs.json"
    file.rename(other)
    assert tuned.merge(other, tunables) == (len(SPECS), 0, [])
    assert tuned.merge(other, tunables) == (0, len(SPECS), [])
    assert json.loads(file.read_text()) == json.loads(other.read_text())
    assert tuned.forget(tp.H200, "softmax") == 1
    assert tuned.forget(tp.H200, "gemm") == 1, "of the GEMM alone, whose entries name no kernel"
    assert tuned.forget(tp.H200) == len(SPECS) - 2


def test_an_entry_of_no_kernel_is_named(file: Path) -> None:
    config = {"config": {"stages": 3}}
    file.write_text(json.dumps({"H200: conv m=1": config, "H200: softmax m=1": config}, indent=1))
    entries, problems = tuned.entries([tuning_of(spec).tunable for spec in SPECS])
    assert entries == {}
    softmax, conv = problems
    assert f"{file}:7: 'H200: softmax m=1' is ignored: an entry is named as" in softmax
    assert "'H200: softmax m=4096 n=4096', extents first" in softmax
    assert conv == f"{file}:2: 'H200: conv m=1' is ignored: there is no kernel 'conv' that is tuned"


def test_a_bad_entry_of_another_kernel_is_no_warning(file: Path) -> None:
    """Those of a kernel are read when it is first asked for."""
    file.write_text('{"H200: softmax m=1 n=1": {"config": {"stages": 3}}}')
    gemm = tuning_of(KERNELS["gemm"])
    assert tuned.lookup(gemm.tunable, gemm.problem(KERNELS["gemm"].settings), tp.H200) is None
    softmax = tuning_of(KERNELS["softmax"])
    problem = softmax.problem(KERNELS["softmax"].settings)
    with pytest.warns(tuned.TunedFileWarning, match="unknown setting stages; there are ahead"):
        assert tuned.lookup(softmax.tunable, problem, tp.H200) is None
    assert tuned.lookup(softmax.tunable, problem, tp.H200) is None, "it is said once"


def test_every_string_of_a_problem_has_its_choices() -> None:
    """Others are entries that no launch asks for."""
    named = {
        field.name
        for spec in SPECS
        for field in fields(tuning_of(spec).tunable.problem)
        if isinstance(field.default, str)
    }
    assert named == tuned_names.CHOICES.keys()
