"""grouped_matmul of CPU tensors as if they were on a GPU: all of `tilepipe.ops`, with a launcher
that multiplies the memory at the addresses it is given. What TMA would refuse is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.cases.ops.grouped import dequantised
from tests.support.ops.device import take_cpu_for_gpu
from tests.support.ops.memory import at, tma_takes
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_grouped import reference, sm90 as gemm_grouped
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.validation import check_arguments
from tilepipe.kernels.gemm_grouped_blockwise import sm90 as gemm_grouped_blockwise
from tilepipe.kernels.gemm_grouped_blockwise.validation import (
    check_arguments as check_blockwise_arguments,
)
from tilepipe.kernels.gemm_k_grouped import sm90 as gemm_k_grouped
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped.validation import check_arguments as check_k_arguments
from tilepipe.kernels.gemm_k_grouped_blockwise import sm90 as gemm_k_grouped_blockwise
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise.validation import (
    check_arguments as check_k_blockwise_arguments,
)
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

    def bind_blockwise(
        self,
        a: Any,
        b: Any,
        a_scales: Any,
        b_scales: Any,
        c: Any,
        offsets: Any,
        cfg: BlockwiseGemmConfig,
    ) -> Emulator:
        check_blockwise_arguments(a, b, a_scales, b_scales, c, offsets)
        for x in (a, b, a_scales, c):
            tma_takes(x, "row")
        lines, width = b_scales.shape[-2:]
        assert tuple(b_scales.stride()) == (lines * width, width, 1)
        self.bound.append({"a": a, "b": b, "c": c, "offsets": offsets, "cfg": cfg})
        self.bound[-1] |= {"a_scales": a_scales, "b_scales": b_scales}
        return self

    def bind_k_blockwise(
        self,
        a: Any,
        b: Any,
        a_scales: Any,
        b_scales: Any,
        c: Any,
        offsets: Any,
        cfg: KGroupedBlockwiseGemmConfig,
    ) -> Emulator:
        check_k_blockwise_arguments(a, b, a_scales, b_scales, c, offsets)
        for x in (a, b, a_scales, b_scales, c):
            tma_takes(x, "row")
        self.bound.append({"a": a, "b": b, "c": c, "offsets": offsets, "cfg": cfg})
        self.bound[-1] |= {"a_scales": a_scales, "b_scales": b_scales}
        return self

    def launcher(self) -> Any:
        names = tuple(name for name in self.bound[-1] if name != "cfg")
        views = {name: self.bound[-1][name] for name in names}
        kinds = KGroupedGemmConfig, KGroupedBlockwiseGemmConfig
        along_k = isinstance(self.bound[-1]["cfg"], kinds)

        def launch(addresses: tuple[int, ...], stream: int) -> None:
            assert stream == 7
            self.launches += 1
            x = {name: at(place, views[name]) for name, place in zip(names, addresses, strict=True)}
            if "a_scales" in x:
                turned = {name: y.swapaxes(-1, -2) for name, y in x.items() if name != "offsets"}
                scales = x["b_scales"] if along_k else turned["b_scales"]
                x["a"], x["b"] = dequantised(x["a"], turned["b"], turned["a_scales"], scales)
                x["b"] = x["b"].swapaxes(-1, -2)
            if x["a"].ndim == 3:
                for group, start, end in reference.rows_of(x["c"], x["offsets"]):
                    z = x["a"][group, start:end].astype(np.float32)
                    x["c"][group, start:end] = z @ x["b"][group].astype(np.float32).T
                return
            extent = x["a"].shape[1 if along_k else 0]
            for group, (start, end) in enumerate(reference.bounds(x["offsets"], extent)):
                if along_k:
                    left, right = (x[name][:, start:end].astype(np.float32) for name in "ab")
                    x["c"][group] = (left @ right.T).astype(x["c"].dtype)
                    continue
                z = x["a"][start:end].astype(np.float32) @ x["b"][group].astype(np.float32).T
                x["c"][start:end] = z.astype(x["c"].dtype)

        launch.tensors = names  # type: ignore[attr-defined]
        return launch


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """CPU tensors are taken for a GPU's."""
    emulator = Emulator()
    monkeypatch.setattr(gemm_grouped, "bind", emulator.bind)
    monkeypatch.setattr(gemm_k_grouped, "bind", emulator.bind_k)
    monkeypatch.setattr(gemm_grouped_blockwise, "bind", emulator.bind_blockwise)
    monkeypatch.setattr(gemm_k_grouped_blockwise, "bind", emulator.bind_k_blockwise)
    take_cpu_for_gpu(monkeypatch)
    torch_grouped.plans.forget()
    yield emulator
    torch_grouped.plans.forget()  # CPU tensors of a later test would find them
