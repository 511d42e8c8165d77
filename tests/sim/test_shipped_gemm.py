"""The shipped GEMM on the machine: every schedule right, every missing line found."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilepipe import sim
from tilepipe.errors import BarrierError, DeadlockError, ExitError, RaceError
from tilepipe.ir import ops, program
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.sm90 import bind, gemm
from tilepipe.program import Program


def bound(
    m: int = 256, n: int = 256, k: int = 512, **settings: Any
) -> tuple[Program, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    a = random.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    b = random.standard_normal((n, k)).astype(ml_dtypes.bfloat16)
    c = np.zeros((m, n), ml_dtypes.bfloat16)
    return bind(a, b, c, GemmConfig(**settings)), c, a.astype(np.float32) @ b.astype(np.float32).T


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"consumers": 1},
        {"cluster": 2},
        {"stages": 2, "k_group_size": 2},
        {"cluster": 2, "consumers": 1, "stages": 3},
    ],
)
def test_numbers_under_every_schedule(settings: dict[str, int], seed: int) -> None:
    built, c, want = bound(**settings)
    run = built.run(seed=seed)
    assert np.abs(c.astype(np.float32) - want).max() <= 2.0**-7 * np.abs(want).max()
    assert run.advice == []
    assert {role.name for role in run.roles} == {"load", "mma"}


@pytest.fixture
def without() -> Any:
    """Runs the GEMM with the ops that a predicate picks left out of its roles."""
    gemm._traces.clear()

    def run(drop: Callable[[ops.Op], bool], seed: int, **settings: Any) -> sim.Run:
        built, _, _ = bound(**settings)

        def prune(block: ops.Block) -> None:
            block.ops = [op for op in block.ops if not drop(op)]
            for op in block.ops:
                for inner in program.bodies(op):
                    prune(inner)

        for role in built.kernel.roles:
            prune(role.body)
        return built.run(seed=seed)

    yield run
    gemm._traces.clear()


def waits_on(name: str) -> Callable[[ops.Op], bool]:
    return lambda op: isinstance(op, ops.MbarWait) and op.bar.array.name == name


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("drop", "error", "said"),
    [
        (
            lambda op: isinstance(op, ops.MbarExpect),
            DeadlockError,
            "no op calls expect_bytes on it",
        ),
        (
            lambda op: isinstance(op, ops.MbarArrive),
            DeadlockError,
            "no op of the kernel arrives on inputs.empty",
        ),
        (lambda op: isinstance(op, ops.WgmmaWait), RaceError, "inputs_"),
        (
            lambda op: isinstance(op, ops.FenceProxyAsync),
            RaceError,
            "race between proxies on output",
        ),
        (lambda op: isinstance(op, ops.NamedSync), RaceError, "race on output"),
        (lambda op: isinstance(op, ops.TmaStoreWait), (ExitError, RaceError), "output"),
        (waits_on("inputs.full"), RaceError, "race on inputs_"),
        (waits_on("inputs.empty"), (RaceError, BarrierError), "inputs"),
    ],
)
@pytest.mark.sampled(3)
def test_a_missing_line_is_found(without: Any, drop: Any, error: Any, said: str, seed: int) -> None:
    with pytest.raises(error) as caught:
        without(drop, seed)
    assert said in str(caught.value)
    assert re.search(r"(sm90|epilogue|multicast)\.py:\d", str(caught.value))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_cluster_without_its_drain(seed: int) -> None:
    gemm._traces.clear()
    built, _, _ = bound(cluster=2)
    load = next(role for role in built.kernel.roles if role.name == "load")
    while not any(
        isinstance(op, ops.TmaLoad) for op in program.walk(ops.Block([load.body.ops[-1]]))
    ):
        load.body.ops.pop()
    try:
        with pytest.raises(
            ExitError,
            match=r"can still arrive on inputs\.empty\[\d\](.|\n)*producer\.drain\(\)",
        ):
            built.run(seed=seed)
    finally:
        gemm._traces.clear()
