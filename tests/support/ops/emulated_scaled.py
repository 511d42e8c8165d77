"""scaled_matmul of CPU tensors as if they were on a GPU: all of `tilepipe.ops`, with a launcher
that multiplies the memory at the addresses it is given. What TMA would refuse is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ops.device import take_cpu_for_gpu
from tests.support.ops.memory import at, tma_takes
from tilepipe.kernels.gemm import heuristics, sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.k_parts import bound_workspace
from tilepipe.kernels.gemm.validation import Extras, check_arguments as check_product
from tilepipe.kernels.gemm_blockwise import reference as blockwise, sm90 as gemm_blockwise
from tilepipe.kernels.gemm_blockwise.validation import check_arguments, scales_by_rows
from tilepipe.ops.scaled import gpu as torch_scaled


@dataclass
class Emulator:
    """What was bound and launched."""

    bound: list[dict[str, Any]] = field(default_factory=list)
    launches: int = 0

    def gemm(
        self,
        a: Any,
        b: Any,
        c: Any,
        cfg: Any,
        *,
        bias: Any = None,
        a_scale: Any = None,
        b_scale: Any = None,
        workspace: Any = None,
    ) -> Bound:
        bound_workspace(c, cfg, workspace)
        extras = Extras(bias, a_scale, b_scale)
        scales = extras.scales(*check_product(a, b, c, extras))
        tensors = {"a": a, "b": b, "c": c, "a_scale": a_scale, "b_scale": b_scale} | (
            {} if bias is None else {"bias": bias}
        )
        if workspace is not None:
            tensors |= dict(zip(("parts", "tickets"), workspace, strict=True))
        return self._bound(tensors, cfg, scales)

    def blockwise(self, a: Any, b: Any, a_scales: Any, b_scales: Any, c: Any, cfg: Any) -> Bound:
        check_arguments(a, b, a_scales, b_scales, c)
        m, k = a.shape
        assert scales_by_rows(a_scales, m, k) is a_scales
        tma_takes(a_scales, "row")
        return self._bound(
            {"a": a, "b": b, "a_scales": a_scales, "b_scales": b_scales, "c": c}, cfg, "block"
        )

    def _bound(self, tensors: dict[str, Any], cfg: Any, scales: str) -> Bound:
        for name in "abc":
            tma_takes(tensors[name], "row")
        self.bound.append(tensors | {"cfg": cfg, "scales": scales})
        return Bound(self, tensors, scales)


@dataclass
class Bound:
    """As a program and its launcher."""

    emulator: Emulator
    views: dict[str, Any]
    scales: str

    def launcher(self) -> Bound:
        return self

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(self.views)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(x.shape) for name, x in self.views.items()}

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        assert all(place % 16 == 0 for place in addresses)
        assert stream == 7
        self.emulator.launches += 1
        x = {
            name: at(place, self.views[name])
            for name, place in zip(self.tensors, addresses, strict=True)
        }
        if "parts" in x:
            assert not x["tickets"].any()
            x["parts"][...] = np.nan
        if self.scales == "block":
            z = (
                blockwise.scaled_rows(x["a"], x["a_scales"])
                @ blockwise.scaled_blocks(x["b"], x["b_scales"]).T
            )
        else:
            z = (x["a"].astype(np.float64) * x["a_scale"][:, None]) @ (
                x["b"].astype(np.float64) * x["b_scale"][:, None]
            ).T
        x["c"][...] = (z + x["bias"].astype(np.float64) if "bias" in x else z).astype(x["c"].dtype)


def choose(
    m: int, n: int, k: int, dtype: Any, out_dtype: Any, *, scales: str, extras: bool, chip: tp.Chip
) -> Any:
    assert (chip, scales in ("tensor", "row"), dtype.nbytes) == (tp.H200, True, 1)
    return GemmConfig(bk=128, bn=64 if extras else 128)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """CPU tensors are taken for a GPU's."""
    emulator = Emulator()
    monkeypatch.setattr(gemm, "bind", emulator.gemm)
    monkeypatch.setattr(heuristics, "choose", choose)
    monkeypatch.setattr(gemm_blockwise, "bind", emulator.blockwise)
    take_cpu_for_gpu(monkeypatch)
    torch_scaled.plans.forget()
    yield emulator
    torch_scaled.plans.forget()
