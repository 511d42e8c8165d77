"""The benchmark of products with PyTorch's CPU in place of the GPU: what is verified, picked and
said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.bench.shapes import Choice, Suite, Target
from tilepipe.kernels.common import tuned
from tilepipe.kernels.gemm import heuristics as gemm_choice
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import TUNABLE, Problem
from tilepipe.kernels.gemm_blockwise import (
    heuristics as blockwise_fp8_choice,
    sm90 as gemm_blockwise,
)

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.support.bench.emulated import (  # noqa: E402
    PROBLEM,
    Machine,
    Simulated,
    machine,
    one_element,
)
from tilepipe.bench import gemm, operands  # noqa: E402

__all__ = ["machine"]

CHOSEN = Choice()


def measured(
    machine: Machine,
    problem: Problem,
    choice: Choice = CHOSEN,
    regimes: tuple[str, ...] = ("burst", "steady"),
) -> Any:
    suite = Suite("one", (problem,), Target())
    machine.steps.clear()
    (lines,) = gemm.run([suite], choice, regimes, 3, 0, tp.H200, machine.steps.append)
    assert len(machine.steps) == gemm.steps([suite], choice, regimes)
    return lines


@pytest.mark.slow
@pytest.mark.parametrize(
    "problem",
    [
        PROBLEM,
        Problem(72, 136, 264, a_order="col", b_order="col"),
        Problem(64, 64, 64, dtype=tp.float16, out_dtype=tp.float16),
        Problem(64, 72, 80, dtype=tp.float32, out_dtype=tp.float32),
        Problem(64, 72, 80, extras=True, source=True),
    ],
    ids=str,
)
def test_both_results_are_verified(machine: Machine, problem: Problem) -> None:
    lines = measured(machine, problem)
    assert [line.regime for line in lines] == ["burst", "steady"]
    for line in lines:
        assert line.right
        assert (line.peer_us, line.ours_us) == (12.0, 10.0)
        assert line.ratio == pytest.approx(1.2)
        assert line.config == gemm_choice.best(problem)
        assert 0 <= line.ours_check.rel_error < 3e-3


@pytest.mark.slow
def test_fp8_with_row_scales(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def peer(self: operands.Operands, i: int) -> None:
        assert self.a_scale is not None
        assert self.b_scale is not None
        a, b = self.a[i].float() * self.a_scale[:, None], self.b[i].float() * self.b_scale[:, None]
        self.peer_c[i].copy_(a @ b.t())

    monkeypatch.setattr(operands.Operands, "peer", peer)
    (line,) = measured(
        machine, Problem(64, 72, 96, dtype=tp.float8_e4m3, scales="row"), regimes=("burst",)
    )
    assert line.right
    assert 1e-4 < line.ours_check.rel_error < 3e-3


@pytest.mark.parametrize(("k", "right"), [(8192, True), (4096, True), (128, False)])
def test_fp8_sums_are_judged_by_how_many_products_they_have(
    k: int, right: bool, machine: Machine
) -> None:
    """Both results had these errors at K = 8192 on an H200 (docs/performance/gemm.md): the largest
    is right there, and not of 128 products.
    """
    made = operands.operands(Problem(64, 64, k, dtype=tp.float8_e4m3, scales="row"))
    want = made.want(0)
    rms = float(want.square().mean().sqrt())
    got = want + torch.randn(want.shape, generator=torch.Generator().manual_seed(1)) * rms * 2e-3
    got[3, 5] = want[3, 5] + 7.5e-2 * rms
    check = made.check([got])
    assert 1.9e-3 < check.rel_error < 2.7e-3
    assert check.max_error == pytest.approx(7.5e-2, rel=1e-3)
    assert check.right is right
    # Two percent in every element, a sum without an eighth of its products: wrong whatever K is.
    assert made.a_scale is not None
    assert made.b_scale is not None
    for factor, terms in ((1.02, k), (1.0, k - k // 8)):
        less = (
            made.a[0].float()[:, :terms]
            * made.a_scale[:, None]
            @ (made.b[0].float()[:, :terms] * made.b_scale[:, None]).t()
        )
        assert not made.check([factor * less]).right


def test_fp8_sums_of_blocks_have_128_products(machine: Machine) -> None:
    made = operands.operands(Problem(64, 128, 4096, dtype=tp.float8_e4m3, scales="block"))
    want = made.want(0)
    got = want.clone()
    got[3, 5] += 7.5e-2 * float(want.square().mean().sqrt())
    assert not made.check([got.float()]).right
    assert made.check([want.float()]).right


@pytest.mark.slow
def test_fp8_with_block_scales(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator in place of our kernel, PyTorch's float32 in place of `scaled_mm`."""
    problem = Problem(72, 136, 272, dtype=tp.float8_e4m3, scales="block")

    def peer(self: operands.BlockwiseOperands, i: int) -> None:
        self.peer_c[i].copy_(self.want(i))

    def simulated(a: Any, b: Any, a_scales: Any, b_scales: Any, c: Any, config: Any) -> Any:
        return Simulated(
            machine, {"a": a, "b": b, "c": c, "a_scales": a_scales, "b_scales": b_scales}, config
        )

    monkeypatch.setattr(operands.BlockwiseOperands, "peer", peer)
    monkeypatch.setattr(gemm_blockwise, "bind", simulated)
    lines = measured(machine, problem)
    assert [(line.right, line.config) for line in lines] == [
        (True, blockwise_fp8_choice.best(problem))
    ] * 2
    assert 1e-4 < lines[0].ours_check.rel_error < 3e-3
    assert gemm.peer(problem) == "scaled_mm"
    machine.broken = half
    assert not measured(machine, problem, regimes=("burst",))[0].right


def test_scales_of_blocks_are_as_scaled_mm_asks(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M contiguous; those of B in lines of a multiple of four blocks, whatever K is."""
    given: list[Any] = []

    def scaled_mm(
        a: Any, b: Any, scale_a: Any, kind_a: Any, scale_b: Any, kind_b: Any, **options: Any
    ) -> Any:
        given.extend([scale_a, scale_b])
        return torch.zeros(a.shape[0], b.shape[1], dtype=options["output_dtype"])

    monkeypatch.setattr(torch.nn.functional, "scaled_mm", scaled_mm)
    made = operands.operands(Problem(72, 136, 272, dtype=tp.float8_e4m3, scales="block"))
    made.peer(0)
    scale_a, scale_b = given
    assert (scale_a.shape, scale_a.stride()) == ((72, 3), (1, 72))
    assert (scale_b.shape, scale_b.stride()) == ((4, 2), (1, 4))
    assert torch.equal(scale_b[:3].t(), made.b_scale)


def unwritten(config: GemmConfig, c: Any) -> None:
    c[0, 0] = np.nan


def half(config: GemmConfig, c: Any) -> None:
    c[...] = c.astype(np.float32) * 1.01


@pytest.mark.slow
@pytest.mark.parametrize("broken", [one_element, unwritten, half])
def test_a_wrong_result_is_seen(machine: Machine, broken: Any) -> None:
    machine.broken = broken
    for line in measured(machine, PROBLEM):
        assert not line.right
        assert line.peer_check.right


@pytest.mark.slow
def test_a_tuned_configuration_is_used_only_where_asked(machine: Machine) -> None:
    tuned.remember(TUNABLE, PROBLEM, tp.H200, GemmConfig(bn=64), {})
    assert [line.origin for line in measured(machine, PROBLEM)] == ["chosen"] * 2
    lines = measured(machine, PROBLEM, Choice("tuned"))
    assert [(line.origin, line.config.bn) for line in lines] == [("tuned", 64)] * 2
    assert [line.origin for line in measured(machine, Problem(8, 8, 8), Choice("tuned"))] == [
        "chosen"
    ] * 2


def test_best_of_measures_and_a_given_configuration_stands(machine: Machine) -> None:
    third = gemm_choice.candidates(PROBLEM, tp.H200, 3)[2]
    machine.us = lambda config: 5.0 if config == third else 10.0
    assert [
        (line.config, line.origin) for line in measured(machine, PROBLEM, Choice("best", 3))
    ] == [(third, "best")] * 2
    given = GemmConfig(stages=3)
    assert [
        (line.config, line.origin)
        for line in measured(machine, PROBLEM, Choice("given", config=given))
    ] == [(given, "given")] * 2


def test_a_configuration_that_does_not_compile_ends_the_benchmark(machine: Machine) -> None:
    machine.refuses = lambda config: True
    with pytest.raises(tp.LimitError, match="too large"):
        measured(machine, PROBLEM)


def test_operands_are_normal_and_apart(machine: Machine) -> None:
    found = operands.Operands(Problem(200, 120, 72), seed=3, sets=3)
    values = torch.stack([x.float() for x in found.a])
    assert abs(float(values.mean())) < 0.02
    assert float(values.std()) == pytest.approx(1, abs=0.02)
    assert all(x.data_ptr() % 16 == 0 for x in (*found.a, *found.b, *found.c))
    assert not torch.equal(found.a[0], found.a[1])
    assert bool(found.c[0].isnan().all())
    again = operands.Operands(Problem(200, 120, 72), seed=3, sets=3)
    assert torch.equal(found.b[2], again.b[2])
