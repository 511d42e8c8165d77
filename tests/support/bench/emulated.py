"""The CPU in place of the GPU for benchmarks and searches of the GEMM: NumPy computes kernels, and
they take the time that a test gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

import tilepipe as tp
from tests.support.ops.memory import at
from tilepipe.bench import operands, timing
from tilepipe.kernels.gemm import sm90 as kernel
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise.sm90 import bind as simulated_bind

PROBLEM = Problem(72, 136, 264)


class Block:
    """Launches at once; its time is given."""

    count = 2

    def __init__(self, launch: Callable[[int], object], sets: int, us: float) -> None:
        self.launch, self.sets, self.us = launch, sets, us

    def run(self) -> float:
        for i in range(self.count):
            self.launch(i % self.sets)
        return self.us


class Machine:
    """Kernels by NumPy. `us`: what a configuration takes. `broken`: changes a result."""

    def __init__(self) -> None:
        self.us: Callable[[GemmConfig], float] = lambda config: 10.0
        self.broken: Callable[[GemmConfig, Any], None] = lambda config, c: None
        self.refuses: Callable[[GemmConfig], bool] = lambda config: False
        self.steps: list[str] = []

    def bind(
        self, a: Any, b: Any, c: Any, config: GemmConfig, *, beta: float = 0.0, **arrays: Any
    ) -> Any:
        if self.refuses(config):
            raise tp.LimitError("too large\n  in all its parts")
        given = {name: x for name, x in arrays.items() if x is not None}
        return Launcher(self, {"a": a, "b": b, "c": c} | given, config, beta)

    def block(self, launch: Any, sets: int) -> Block:
        config = getattr(launch, "config", None)
        return Block(launch, sets, 12.0 if config is None else self.us(config))


class Launcher:
    """A program and its launcher in one."""

    def __init__(
        self, machine: Machine, bound: Mapping[str, Any], config: GemmConfig, beta: float = 0.0
    ) -> None:
        self.machine, self.bound, self.config, self.beta = machine, bound, config, beta
        self.tensors = tuple(bound)

    def launcher(self) -> Launcher:
        return self

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        x = {
            name: at(place, self.bound[name])
            for name, place in zip(self.tensors, addresses, strict=True)
        }
        a, b = (x[n].astype(np.float32) for n in "ab")
        if "a_scale" in x:
            a, b = a * x["a_scale"][:, None], b * x["b_scale"][:, None]
        sums = a @ b.T
        if "source" in x:
            sums = sums + self.beta * x["source"].astype(np.float32)
        x["c"][...] = sums.astype(x["c"].dtype)
        self.machine.broken(self.config, x["c"])


class Simulated(Launcher):
    """The blockwise kernel, in the simulator."""

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        x = {
            name: at(place, self.bound[name])
            for name, place in zip(self.tensors, addresses, strict=True)
        }
        simulated_bind(x["a"], x["b"], x["a_scales"], x["b_scales"], x["c"], self.config).run()  # type: ignore[arg-type]
        self.machine.broken(self.config, x["c"])


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Machine:
    made = Machine()
    monkeypatch.setenv("TILEPIPE_TUNED", str(tmp_path / "tuned.json"))
    monkeypatch.setattr(operands, "DEVICE", "cpu")
    monkeypatch.setattr(kernel, "bind", made.bind)
    monkeypatch.setattr(timing, "block", made.block)
    monkeypatch.setattr(timing, "IDLE_S", 0.0)
    monkeypatch.setattr(timing, "steady", lambda blocks: timing.burst(blocks, 3))
    monkeypatch.setattr(timing, "ROTATE_BYTES", 1e6)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    launches = operands.Operands.launches

    def known(self: Any, launcher: Any) -> Any:
        launch = launches(self, launcher)

        def call(i: int) -> object:
            return launch(i)

        call.config = launcher.config  # type: ignore[attr-defined]
        return call

    monkeypatch.setattr(operands.Operands, "launches", known)
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda: type("Stream", (), {"cuda_stream": 7})
    )
    return made


def one_element(config: GemmConfig, c: Any) -> None:
    c[-1, -1] += 3
