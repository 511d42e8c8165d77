"""matmul of CPU tensors as if they were on a GPU: all of `tilepipe.ops`, with a launcher that
multiplies the memory at the addresses it is given. What TMA would refuse is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tests.support.ops.device import take_cpu_for_gpu
from tests.support.ops.memory import at, tma_takes
from tilepipe.ir.arrays import array_dtype, array_order
from tilepipe.kernels.gemm import heuristics, sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.k_parts import bound_workspace
from tilepipe.kernels.gemm.reference import activated

torch = pytest.importorskip("torch")

from tilepipe.ops.matmul import plan as torch_plan  # noqa: E402

Array = npt.NDArray[Any]


@dataclass
class Emulator:
    """What was bound and launched."""

    monkeypatch: pytest.MonkeyPatch
    bound: list[dict[str, Any]] = field(repr=False)
    launches: int = 0
    stream: int = 0
    tickets: list[int] = field(default_factory=list)  # addresses

    def bind(
        self,
        a: Any,
        b: Any,
        c: Any,
        cfg: Any,
        *,
        bias: Any = None,
        source: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        workspace: Any = None,
    ) -> Emulator:
        assert (workspace is None) == (cfg.k_parts == 1)
        bound_workspace(c, cfg, workspace)
        tma_takes(a)
        tma_takes(b)
        tma_takes(c, "row")
        assert b.shape[-1] == a.shape[-1]
        if source is not None and cfg.source_slots:
            tma_takes(source, "row")
            assert array_dtype(source) is array_dtype(c)
        batches = {x.shape[0] for x in (a, b) if len(x.shape) == 3}
        assert len(batches) < 2
        assert tuple(c.shape) == (*batches, a.shape[-2], b.shape[-2])
        if array_dtype(a).nbytes == 4:
            assert array_order(a) == array_order(b) == "row"
        tensors = {"a": a, "b": b, "c": c} | {
            n: x for n, x in (("bias", bias), ("source", source)) if x is not None
        }
        if workspace is not None:
            tensors |= dict(zip(("parts", "tickets"), workspace, strict=True))
        self.bound.append(tensors | {"cfg": cfg, "alpha": alpha, "beta": beta})
        return self

    def launcher(self) -> Any:
        return Launcher(self, self.bound[-1])


class Launcher:
    """As `Program.launcher()` gives it."""

    def __init__(self, emulator: Emulator, bound: dict[str, Any]) -> None:
        self.emulator = emulator
        self.bound = bound
        names = "tickets", "a", "b", "parts", "c", "bias", "source"
        self.tensors = tuple(n for n in names if n in bound)
        self.shapes = {n: tuple(bound[n].shape) for n in self.tensors}

    def __call__(self, addresses: tuple[int, ...], stream: int = 0) -> None:
        assert all(place % 16 == 0 for place in addresses)
        self.emulator.launches += 1
        self.emulator.stream = stream
        x: dict[str, Array] = {
            name: at(place, self.bound[name])
            for name, place in zip(self.tensors, addresses, strict=True)
        }
        if "parts" in x:
            assert not x["tickets"].any()
            x["parts"][...] = np.nan
            self.emulator.tickets.append(addresses[0])
        wide = np.float64 if self.bound["c"].dtype == torch.float64 else np.float32
        a, b = (np.asarray(x[n].astype(wide), dtype=wide) for n in "ab")
        z: Array = self.bound["alpha"] * np.matmul(a, b.swapaxes(-1, -2))
        if "source" in x:
            z = z + self.bound["beta"] * x["source"].astype(wide)
        if "bias" in x:
            z = z + x["bias"].astype(wide)
        cfg = self.bound["cfg"]
        activation = getattr(cfg, "activation", "none")
        x["c"][...] = activated(z, None if activation == "none" else activation).astype(
            x["c"].dtype
        )


def choose(
    m: int,
    n: int,
    k: int,
    dtype: Any,
    out_dtype: Any,
    *,
    batch: int = 1,
    a_order: str = "row",
    b_order: str = "row",
    extras: bool = False,
    source: bool = False,
    chip: tp.Chip = tp.H200,
) -> Any:
    assert min(m, n, k, batch) >= 1
    assert {a_order, b_order} <= {"row", "col"}
    assert isinstance(dtype, tp.DType)
    assert isinstance(out_dtype, tp.DType)
    assert extras or not source
    return GemmConfig(source_slots=2 if source else 0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """CPU tensors are taken for a GPU's."""
    emulator = Emulator(monkeypatch, [])
    monkeypatch.setattr(gemm, "bind", emulator.bind)
    monkeypatch.setattr(heuristics, "choose", choose)
    take_cpu_for_gpu(monkeypatch)
    torch_plan.plans.forget()
    return emulator
