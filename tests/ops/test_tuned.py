"""What is remembered of tuning, in the choices of the operations on a GPU; those with settings of
their own, and the simulator's, are as ever. tests/gpu/test_tune_gpu.py launches them.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import tilepipe as tp
from tilepipe.kernels.attention.choice import TUNABLE as ATTENTION, AttentionProblem
from tilepipe.kernels.attention_decode.choice import TUNABLE as DECODE, DecodeProblem
from tilepipe.kernels.common import tuned
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.kernels.gemm_grouped.heuristics import TUNABLE as GROUPED, GroupedProblem
from tilepipe.kernels.gemm_k_grouped.heuristics import TUNABLE as K_GROUPED, KGroupedProblem
from tilepipe.kernels.rows.choice import TUNABLES as ROWS, RowProblem
from tilepipe.kernels.rows.config import RowConfig
from tilepipe.kernels.rows.team import part_rows

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.support.ops.device import STREAM, take_cpu_for_gpu  # noqa: E402
from tilepipe.ops.attention.call import AttentionCall, checked, config  # noqa: E402
from tilepipe.ops.attention_decode.call import (  # noqa: E402
    DecodeCall,
    checked as checked_decode,
    config as config_of_decode,
)
from tilepipe.ops.grouped import gpu as grouped  # noqa: E402
from tilepipe.ops.grouped.call import Extents as Groups  # noqa: E402
from tilepipe.ops.rows import launches as rows, operators, programs  # noqa: E402
from tilepipe.ops.torch import launches  # noqa: E402


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEPIPE_TUNED", str(tmp_path / "tuned.json"))


def remembered(tunable: Tunable[Any, Any], problem: Any) -> Any:
    """Another configuration than the heuristic's, remembered for an H200."""
    _, other, *_ = tunable.candidates(problem, tp.H200)
    tuned.remember(tunable, problem, tp.H200, other, {})
    return other


def half(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.bfloat16)


def test_attention() -> None:
    q, k = half(2, 300, 4, 64), half(2, 500, 2, 64)
    options = True, None, None, 0.0, None, None, None, None, False, "bshd"
    call = AttentionCall(q, k, k, *options, ())
    found, problem = checked(call), AttentionProblem(2, 4, 2, 300, 500, 64, on_right=True)
    other, best = remembered(ATTENTION, problem), ATTENTION.best(problem, tp.H200)
    assert config(found, call, tp.H200) == other != best
    assert config(found, call) == best, "the simulator is not tuned"
    call.settings = (("order", "free"),)
    assert config(found, call, tp.H200) == best.changed(order="free")


def test_decode() -> None:
    q, cache = half(16, 1, 8, 128), half(16, 512, 2, 128)
    options = None, None, True, None, None, None, None, None, False
    call = DecodeCall(q, cache, cache, *options, ())
    found, problem = checked_decode(call), DecodeProblem(16, 1, 8, 2, 512, 128)
    other, best = remembered(DECODE, problem), DECODE.best(problem, tp.H200)
    assert config_of_decode(found, call, tp.H200) == other != best
    assert config_of_decode(found, call) == best
    call.settings = (("stages", 2),)
    assert config_of_decode(found, call, tp.H200) == best.changed(stages=2)


def test_products_of_groups() -> None:
    bf16, wanted = tp.bfloat16, tp.bfloat16
    rows = remembered(GROUPED, GroupedProblem(512, 256, 128, 4, b_order="col"))
    assert grouped._chosen(Groups(512, 256, 128, 4), None, bf16, wanted, "col", tp.H200) == rows
    padded = Groups(512, 256, 128, 4, "padded")
    assert grouped._chosen(padded, 128, bf16, wanted, "col", tp.H200) == rows, "of as many rows"
    of_k = remembered(K_GROUPED, KGroupedProblem(512, 256, 1024, 4))
    found = grouped._chosen(Groups(512, 256, 1024, 4, "k"), None, bf16, wanted, "row", tp.H200)
    assert found == of_k


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kernel", ROWS)
def test_rows(kernel: str, wide: bool, backward: bool) -> None:
    x, weight = half(64, 2048), torch.zeros(2048, dtype=torch.float32 if wide else torch.bfloat16)
    named = {"x": x, "weight": weight}
    if kernel == "softmax" and backward:
        named = {"y": x, "x": half(1, 1), "weight": weight}
    operation = f"{kernel}_backward" if backward else kernel
    assert programs.remembered(operation, named, tp.H200) is None
    other = remembered(ROWS[kernel], RowProblem(64, 2048, tp.bfloat16, wide, backward))
    assert programs.remembered(operation, named, tp.H200) == other
    assert programs.remembered("column_sums", named, tp.H200) is None


NORMS = ["rms_norm", "layer_norm"]


@pytest.mark.parametrize("kernel", NORMS)
def test_room_for_sums_is_that_of_what_is_remembered(kernel: str) -> None:
    problem = RowProblem(4096, 2048, backward=True)
    simulated = programs.partial_sums(kernel, problem, None)
    other = remembered(ROWS[kernel], problem)
    assert programs.partial_sums(kernel, problem, None) == simulated
    height, settings = programs.partial_sums(kernel, problem, tp.H200)
    assert height == part_rows(4096, other, 132)
    assert programs.config(kernel, settings) == other


class NoLauncher:
    """As `Program.launcher()` gives it; it launches nothing."""

    tensors = ()

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        assert (addresses, stream) == ((), STREAM)


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[RowConfig | None]:
    """The configurations of the gradients of norms that have been bound since, with CPU tensors in
    the place of a GPU's.
    """
    take_cpu_for_gpu(monkeypatch)
    monkeypatch.setattr(tp.Program, "launcher", lambda program: NoLauncher())
    monkeypatch.setattr(torch.cuda, "device", lambda ordinal: nullcontext())
    monkeypatch.setattr(launches, "_launchers", {})
    rows.partial_sums.cache_clear()
    found: list[RowConfig | None] = []
    binder = programs.norm_backward

    def spied(name: str, eps: float) -> programs.Binder:
        def bind(v: programs.Named, cfg: RowConfig | None) -> tp.Program:
            found.append(cfg)
            return binder(name, eps)(v, cfg)

        return bind

    monkeypatch.setattr(programs, "norm_backward", spied)
    return found


def gradients(kernel: str, *matrices: Any) -> None:
    for x in matrices:
        weight = torch.ones(x.shape[1], dtype=x.dtype)
        getattr(operators, f"{kernel}_backward")(x, x, weight, 1e-6, 1)


@pytest.mark.parametrize("kernel", NORMS)
def test_the_gradient_of_a_norm_looks_once_for_what_is_remembered(
    kernel: str, bound: list[RowConfig | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = remembered(ROWS[kernel], RowProblem(64, 2048, backward=True))
    stats, stat = [], os.stat

    def counted(path: Any, **options: Any) -> os.stat_result:
        stats.extend([path] if path == str(tuned.location()) else [])
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", counted)
    gradients(kernel, *[half(64, 2048)] * 5)
    assert len(stats) == 1
    assert bound == [other]
    gradients(kernel, half(65, 2048))
    assert len(stats) == 2, "another problem"


@pytest.mark.parametrize("kernel", NORMS)
def test_a_launch_bound_later_has_the_configuration_of_its_sums(
    kernel: str, bound: list[RowConfig | None]
) -> None:
    """The file has changed between the two: sums of one, and a kernel of the other, would not
    go together.
    """
    gradients(kernel, half(64, 2048))
    remembered(ROWS[kernel], RowProblem(64, 2048, backward=True))
    gradients(kernel, half(64, 4096)[:, :2048])  # with other strides: bound anew
    assert len(bound) == 2
    assert bound[0] == bound[1]


@pytest.mark.parametrize("kernel", NORMS)
def test_an_entry_that_a_gradient_cannot_use_is_complained_of_once(
    kernel: str, bound: list[RowConfig | None]
) -> None:
    problem = RowProblem(64, 8192, backward=True)
    impossible = ROWS[kernel].config(threads=32, warpgroups=1)  # 256 elements a thread
    tuned.remember(ROWS[kernel], problem, tp.H200, impossible, {})
    with pytest.warns(tuned.TunedFileWarning, match="elements of a row are more") as caught:
        gradients(kernel, *[half(64, 8192)] * 3, half(64, 16384)[:, :8192])  # the last bound anew
    assert len(caught) == 1
