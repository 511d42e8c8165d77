"""gated_matmul of CPU tensors as if they were on a GPU: all of `tilepipe.ops`, with a launcher that
multiplies the memory at the addresses it is given. What TMA would refuse is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.support.ops.device import take_cpu_for_gpu
from tests.support.ops.memory import at, tma_takes
from tilepipe.kernels.gemm.reference import activated
from tilepipe.kernels.gemm_gated import sm90 as gemm_gated
from tilepipe.kernels.gemm_gated.config import GatedGemmConfig
from tilepipe.kernels.gemm_gated.validation import check_arguments, maps
from tilepipe.ops.gated import gpu as torch_gated


@dataclass
class Emulator:
    """What was bound and launched."""

    bound: list[dict[str, Any]] = field(default_factory=list)
    launches: int = 0

    def bind(self, a: Any, gate: Any, up: Any, c: Any, cfg: GatedGemmConfig) -> Emulator:
        check_arguments(a, gate, up, c)
        maps(a, gate, up, c, cfg)
        for x in (a, gate, up):
            tma_takes(x)
        tma_takes(c, "row")
        self.bound.append({"a": a, "gate": gate, "up": up, "c": c, "cfg": cfg})
        return self

    def launcher(self) -> Any:
        views = {name: self.bound[-1][name] for name in self.tensors}
        activation = self.bound[-1]["cfg"].activation

        def launch(addresses: tuple[int, ...], stream: int) -> None:
            assert stream == 7
            self.launches += 1
            x = {
                name: at(place, views[name])
                for name, place in zip(self.tensors, addresses, strict=True)
            }
            left, right = (
                x["a"].astype(np.float64) @ x[name].astype(np.float64).T for name in ("gate", "up")
            )
            x["c"][...] = (activated(left, activation) * right).astype(x["c"].dtype)

        launch.tensors = self.tensors  # type: ignore[attr-defined]
        return launch

    tensors = ("a", "gate", "up", "c")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """CPU tensors are taken for a GPU's."""
    emulator = Emulator()
    monkeypatch.setattr(gemm_gated, "bind", emulator.bind)
    take_cpu_for_gpu(monkeypatch)
    torch_gated.plans.forget()
    return emulator
