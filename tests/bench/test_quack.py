"""QuACK as a peer of the GEMM, by a stand-in of its functions on the host: what it is given, when
it is left out, and what its tuning adds to the time of a run.
"""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType
from typing import Any

import pytest

import tilepipe as tp

pytest.importorskip("torch")

from tilepipe.bench import gemm as gemm_bench, operands, quack, timing
from tilepipe.bench.shapes import Choice, Suite
from tilepipe.kernels.gemm.heuristics import Problem


def gemm(a: Any, b: Any, out: Any, tuned: bool) -> None:
    """As QuACK's, which takes B as (k, n)."""
    assert tuned
    out.copy_(a.float() @ b.float())


def gemm_add(a: Any, b: Any, c: Any, out: Any, beta: float, tuned: bool) -> None:
    assert tuned
    out.copy_(a.float() @ b.float() + beta * c.float())


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """QuACK's functions, and operands in memory of the host, two sets of them."""
    package, module = ModuleType("quack"), ModuleType("quack.gemm_interface")
    package.__spec__ = importlib.machinery.ModuleSpec("quack", None)
    vars(module).update(gemm=gemm, gemm_add=gemm_add)
    monkeypatch.setitem(sys.modules, "quack", package)
    monkeypatch.setitem(sys.modules, "quack.gemm_interface", module)
    on_the_host(monkeypatch)
    return module


def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operands, "DEVICE", "cpu")
    monkeypatch.setattr(timing, "sets_for", lambda nbytes: 2)


def product(**kind: Any) -> operands.Operands:
    return operands.operands(Problem(72, 200, 136, **kind))


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"a_order": "col", "b_order": "col"},
        {"dtype": tp.float16, "out_dtype": tp.float32},
        {"source": True, "extras": True},
    ],
)
def test_its_result_is_the_product(kind: dict[str, Any], installed: ModuleType) -> None:
    x = product(**kind)
    able, missing = x.other_peers()
    ((name, (launch, results)),) = able.items()
    assert (name, missing) == ("QuACK", {})
    assert not x.check(results, 1).right  # not written
    launch(1)
    assert x.check(results, 1).right


@pytest.mark.parametrize("kind", [{"dtype": tp.float32}, {"dtype": tp.float8_e4m3}])
def test_other_products_are_measured_without_it(
    kind: dict[str, Any], installed: ModuleType
) -> None:
    assert product(**kind, out_dtype=tp.float32).other_peers() == ({}, {})


def test_without_it_the_reason_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "quack", None)
    on_the_host(monkeypatch)
    able, missing = product().other_peers()
    assert able == {}
    assert "quack" in missing["QuACK"]


def test_a_product_that_it_refuses(installed: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*given: Any, **more: Any) -> None:
        raise AssertionError("stride must be divisible by 8\nsecond line")

    monkeypatch.setattr(installed, "gemm", refuses)
    why = "AssertionError: stride must be divisible by 8"
    assert product().other_peers() == ({}, {"QuACK": why})


def test_its_tuning_counts_in_the_time_of_a_run(
    installed: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(*problems: Problem) -> float:
        suite = Suite("some", problems)
        return gemm_bench.seconds([suite], Choice(), ["burst"], 5)

    half, eight = Problem(64, 64, 64), Problem(64, 64, 64, dtype=tp.float8_e4m3)
    beside = quack.TUNING_S + timing.seconds(1, ["burst"], 5)
    assert seconds(half, half, eight) == pytest.approx(3 * seconds(eight) + 2 * beside)
    monkeypatch.setitem(sys.modules, "quack", None)
    assert seconds(half) == seconds(eight)
