"""attention of CPU tensors as if they were on a GPU: all of `tilepipe.ops`, with a launcher that
attends to the memory at the addresses it is given. What TMA would refuse is refused here, by the
kernel's own `bind`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ops.device import take_cpu_for_gpu
from tests.support.ops.memory import at
from tilepipe.kernels.attention import reference as attention_reference, sm90_bind as kernel
from tilepipe.kernels.attention.packed_reference import packed_attention
from tilepipe.ops.attention import gpu as torch_attention
from tilepipe.program import kernel_function

bind = kernel.bind


@dataclass
class Emulator:
    """What was bound and launched."""

    bound: list[dict[str, Any]] = field(default_factory=list, repr=False)
    launches: int = 0
    stream: int = 0

    def bind(
        self, q: Any, k: Any, v: Any, out: Any, lse: Any, cfg: Any, **options: Any
    ) -> Emulator:
        """`options`: those of the kernel, of which a score function may be of fragments or, where
        this emulator is to compute with it, of arrays.
        """
        bind(q, k, v, out, lse, cfg, **options)
        self.bound.append({"q": q, "k": k, "v": v, "out": out, "lse": lse, "cfg": cfg, **options})
        return self

    def launcher(self) -> Launcher:
        return Launcher(self, self.bound[-1])


class NumpyContext:
    """What a score function of arrays finds in the place of `ctx`."""

    select = staticmethod(np.where)


numpy_context = NumpyContext()


class Launcher:
    """As `Program.launcher()` gives it; its tensors come in an order of their own."""

    def __init__(self, emulator: Emulator, bound: dict[str, Any]) -> None:
        self.emulator = emulator
        self.bound = bound
        self.bound |= {
            "q_bounds": bound["cu_seqlens_q"],
            "k_bounds": bound["cu_seqlens_k"],
        }
        names = ("lse", "sinks", "k_bounds", "out", "v", "q", "counter", "slopes", "k", "q_bounds")
        self.tensors = tuple(name for name in names if bound[name] is not None)

    def __call__(self, addresses: tuple[int, ...], stream: int = 0) -> None:
        assert all(place % 16 == 0 for place in addresses)
        self.emulator.launches += 1
        self.emulator.stream = stream
        x = {
            name: at(place, self.bound[name])
            for name, place in zip(self.tensors, addresses, strict=True)
        }
        options: dict[str, Any] = {
            name: self.bound[name] for name in ("causal", "window", "scale", "softcap", "align")
        }
        options |= {name: x.get(name) for name in ("slopes", "sinks")}
        function = self.bound["score"]
        if function is not None:
            options["score"] = lambda *arrays: function(numpy_context, *arrays)
        if "q_bounds" in x:
            bounds = x["q_bounds"], x["k_bounds"]
            out, lse = packed_attention(x["q"], x["k"], x["v"], *bounds, **options)
        else:
            out, lse = attention_reference.attention(x["q"], x["k"], x["v"], **options)
        x["out"][...] = out.astype(x["out"].dtype)
        if "lse" in x:
            x["lse"][...] = lse.astype(np.float32)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """CPU tensors are taken for a GPU's."""
    emulator = Emulator()
    monkeypatch.setattr(kernel, "bind", emulator.bind)
    # of what is bound, whose memory is no GPU's
    monkeypatch.setattr(kernel_function, "chip_of", lambda named: tp.H200)
    take_cpu_for_gpu(monkeypatch)
    torch_attention.plans.forget()
    return emulator
