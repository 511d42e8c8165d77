"""grouped_matmul of CPU tensors as if they were on a GPU: all of `tilepipe.ops`, with a launcher
that multiplies the memory at the addresses it is given. What TMA would refuse is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.support.ops.device import take_cpu_for_gpu
from tests.support.ops.memory import at, tma_takes
from tilepipe.kernels.gemm_grouped import reference, sm90 as gemm_grouped
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.validation import check_arguments
from tilepipe.kernels.gemm_k_grouped import sm90 as gemm_k_grouped
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped.validation import check_arguments as check_k_arguments
from tilepipe.ops.grouped import gpu as torch_grouped


@dataclass
class Emulator:
    """What was bound and launched."""

    bound: list[dict[str, Any]] = field(default_factory=list)
    launches: int = 0

    def bind(self, a: Any, b: Any, c: Any, offsets: Any, cfg: GroupedGemmConfig) -> Emulator:
        check_arguments(a, b, c, offsets, None, None, cfg)
        tma_takes(a, "row")
        tma_takes(b)
        tma_takes(c, "row")
        self.bound.append({"a": a, "b": b, "c": c, "offsets": offsets, "cfg": cfg})
        return self

    def bind_k(self, a: Any, b: Any, c: Any, offsets: Any, cfg: KGroupedGemmConfig) -> Emulator:
        check_k_arguments(a, b, c, offsets)
        tma_takes(a, "col")
        tma_takes(b, "col")
        tma_takes(c, "row")
        self.bound.append({"a": a, "b": b, "c": c, "offsets": offsets, "cfg": cfg})
        return self

    def launcher(self) -> Any:
        views = {name: self.bound[-1][name] for name in self.tensors}
        along_k = isinstance(self.bound[-1]["cfg"], KGroupedGemmConfig)

        def launch(addresses: tuple[int, ...], stream: int) -> None:
            assert stream == 7
            self.launches += 1
            x = {
                name: at(place, views[name])
                for name, place in zip(self.tensors, addresses, strict=True)
            }
            extent = x["a"].shape[1 if along_k else 0]
            for group, (start, end) in enumerate(reference.bounds(x["offsets"], extent)):
                if along_k:
                    left, right = (x[name][:, start:end].astype(np.float32) for name in "ab")
                    x["c"][group] = (left @ right.T).astype(x["c"].dtype)
                    continue
                z = x["a"][start:end].astype(np.float32) @ x["b"][group].astype(np.float32).T
                x["c"][start:end] = z.astype(x["c"].dtype)

        launch.tensors = self.tensors  # type: ignore[attr-defined]
        return launch

    tensors = ("a", "b", "c", "offsets")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """CPU tensors are taken for a GPU's."""
    emulator = Emulator()
    monkeypatch.setattr(gemm_grouped, "bind", emulator.bind)
    monkeypatch.setattr(gemm_k_grouped, "bind", emulator.bind_k)
    take_cpu_for_gpu(monkeypatch)
    torch_grouped.plans.forget()
    yield emulator
    torch_grouped.plans.forget()  # CPU tensors of a later test would find them
