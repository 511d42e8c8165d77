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
from tilepipe.kernels.attention.block_mask import bind_lists
from tilepipe.kernels.attention.key_lists import HEAD
from tilepipe.kernels.attention.packed_reference import packed_attention
from tilepipe.kernels.attention.values import bind_turn, turned
from tilepipe.ops.attention import plan as torch_attention

bind = kernel.bind
FP8 = tp.float8_e4m3.numpy


@dataclass
class Emulator:
    """What was bound and launched."""

    bound: list[dict[str, Any]] = field(default_factory=list, repr=False)
    lists: int = 0  # launches that listed tiles of keys
    turns: int = 0  # launches that turned values
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

    def bind_lists(self, mask: Any, lists: Any, *rest: Any) -> ListEmulator:
        return ListEmulator(self, mask, lists, rest)

    def bind_turn(self, v: Any, out: Any) -> TurnEmulator:
        bind_turn(v, out)
        return TurnEmulator(self, v, out)


@dataclass
class TurnEmulator:
    """The program that turns values, as NumPy does it."""

    emulator: Emulator
    v: Any
    out: Any
    tensors: tuple[str, ...] = ("out", "v")

    def launcher(self) -> TurnEmulator:
        return self

    def __call__(self, addresses: tuple[int, ...], stream: int = 0) -> None:
        assert stream == 7
        self.emulator.turns += 1
        out, v = at(addresses[0], self.out), at(addresses[1], self.v)
        out[...] = turned(v).view(out.dtype)


@dataclass
class ListEmulator:
    """The program that lists tiles of keys, run in the simulator on the memory it is given."""

    emulator: Emulator
    mask: Any
    lists: Any
    rest: tuple[Any, ...]
    tensors: tuple[str, ...] = ("lists", "mask")

    def launcher(self) -> ListEmulator:
        return self

    def __call__(self, addresses: tuple[int, ...], stream: int = 0) -> None:
        assert stream == 7
        lists, mask = at(addresses[0], self.lists), at(addresses[1], self.mask)
        self.emulator.lists += 1
        bind_lists(mask, lists, *self.rest).run()


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
        names = (
            *("lse", "sinks", "k_bounds", "out", "v", "q", "counter", "key_lists", "slopes", "k"),
            *("q_bounds", "v_scales", "q_scales", "k_scales"),
        )
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
        names = ("slopes", "sinks", "q_scales", "k_scales", "v_scales")
        options |= {name: x.get(name) for name in names}
        if x["q"].dtype == FP8:
            x["v"] = turned_back(x["v"], x["k"].shape[1])
        function = self.bound["score"]
        if function is not None:
            options["score"] = lambda *arrays: function(numpy_context, *arrays)
        if "key_lists" in x:
            options |= _listed(x["key_lists"], self.bound["cfg"])
        rows: Any = ...
        if "q_bounds" in x:
            rows = slice(*x["q_bounds"][[0, -1]])  # those in a sequence
            bounds = x["q_bounds"], x["k_bounds"]
            out, lse = packed_attention(x["q"], x["k"], x["v"], *bounds, **options)
        else:
            out, lse = attention_reference.attention(x["q"], x["k"], x["v"], **options)
        x["out"][rows] = out.astype(x["out"].dtype)[rows]
        if "lse" in x:
            x["lse"][...] = lse.astype(np.float32)


def turned_back(v: Any, s_kv: int) -> Any:
    """The values of which turned ones are given."""
    sixteens = v.reshape(*v.shape[:3], -1, 16)[..., np.argsort(tp.FOURS_ORDER)]
    return sixteens.reshape(v.shape)[..., :s_kv].transpose(0, 3, 1, 2)


def _listed(lists: Any, cfg: Any) -> dict[str, Any]:
    """The block mask, of blocks as large as tiles, that has what lists have."""
    mask = np.zeros((*lists.shape[:3], lists.shape[3] - HEAD), np.bool_)
    for i in np.ndindex(lists.shape[:3]):
        row = lists[i]
        mask[i][row[HEAD : HEAD + row[0]]] = True
    return {"block_mask": mask, "block_size": (cfg.bm, cfg.bn)}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """CPU tensors are taken for a GPU's."""
    emulator = Emulator()
    monkeypatch.setattr(kernel, "bind", emulator.bind)
    monkeypatch.setattr(torch_attention, "bind_lists", emulator.bind_lists)
    monkeypatch.setattr(torch_attention, "bind_turn", emulator.bind_turn)
    take_cpu_for_gpu(monkeypatch)
    torch_attention.plans.forget()
    return emulator
