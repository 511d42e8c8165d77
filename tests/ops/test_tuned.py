"""What is remembered of tuning, in the choices of the operations on a GPU; those with settings of
their own, and the simulator's, are as ever. tests/gpu/test_tune_gpu.py launches them.
"""

from __future__ import annotations

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
from tilepipe.kernels.rows.team import part_rows

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tilepipe.ops.attention.call import AttentionCall, checked, config  # noqa: E402
from tilepipe.ops.attention_decode.call import (  # noqa: E402
    DecodeCall,
    checked as checked_decode,
    config as config_of_decode,
)
from tilepipe.ops.grouped import gpu as grouped  # noqa: E402
from tilepipe.ops.grouped.call import Extents as Groups  # noqa: E402
from tilepipe.ops.rows import programs  # noqa: E402


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


@pytest.mark.parametrize("kernel", ["rms_norm", "layer_norm"])
def test_room_for_sums_is_that_of_what_is_remembered(kernel: str) -> None:
    x, weight = half(4096, 2048), half(2048)
    simulated = programs.rows_of_parts(kernel, x, weight, None)
    other = remembered(ROWS[kernel], RowProblem(4096, 2048, backward=True))
    assert programs.rows_of_parts(kernel, x, weight, None) == simulated
    assert programs.rows_of_parts(kernel, x, weight, tp.H200) == part_rows(4096, other, 132)
