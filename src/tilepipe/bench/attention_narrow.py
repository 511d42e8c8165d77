"""Attention on operands of float8_e4m3 beside our own kernel on the same numbers in bfloat16: no
peer of `tilepipe bench attention` takes them on Hopper.
"""

from __future__ import annotations

from typing import Any

import torch

import tilepipe as tp
from tilepipe.bench import attention, timing
from tilepipe.bench.beside import OURS
from tilepipe.bench.operands import in_turn
from tilepipe.kernels.attention import sm90_bind as kernel
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.heuristics import choose_sm90
from tilepipe.kernels.attention.validation import Extents
from tilepipe.kernels.attention.values import bind_turn, turned_shape
from tilepipe.ops.torch.tensors import TensorView

WIDE = "our bf16"


class NarrowOperands(attention.Operands):
    """Operands of float8_e4m3. The turning of v is part of each launch."""

    def __init__(self, found: Extents, causal: bool, seed: int, sets: int | None = None) -> None:
        super().__init__(found, causal, seed, sets)
        self.wide: list[list[torch.Tensor]] = []

    def ours(self, cfg: AttentionConfig, name: str = OURS) -> timing.Launch:
        found = self.found
        self._allocate(name)
        shape = turned_shape(found.batch, found.s_kv, found.kv_heads, found.d_v)
        values = [x.new_empty(shape) for x in self.v]
        several = {
            "v": [x.view(torch.uint8) for x in self.v],
            "out": [x.view(torch.uint32) for x in values],
        }
        turning = bind_turn(*(TensorView(x[0]) for x in several.values())).launcher()
        tensors = {"q": self.q, "k": self.k, "v": values, "out": self.results[name]}
        first, second = in_turn(turning, several), self._attending(cfg, tensors)

        def launch(i: int) -> None:
            first(i)
            second(i)

        return launch

    def _attending(self, cfg: AttentionConfig, tensors: dict[str, Any]) -> timing.Launch:
        counter, given = attention.counter_of(cfg, self.sets)
        q, k, v, out = (TensorView(x[0]) for x in tensors.values())
        options: dict[str, Any] = {"causal": self.causal, "counter": counter}
        launcher = kernel.bind(q, k, v, out, None, cfg, **options).launcher()
        return in_turn(launcher, tensors | given)

    def peers(self) -> tuple[dict[str, timing.Launch], dict[str, str]]:
        """Our kernel in bfloat16; and that the others take no float8_e4m3."""
        found = self.found
        self.wide = [[x.bfloat16() for x in several] for several in (self.q, self.k, self.v)]
        q, k, v = self.wide
        out = self.results[WIDE] = [torch.empty_like(x) for x in self.results[OURS]]
        extents = Extents(
            found.batch, found.s_q, found.s_kv, found.heads, found.kv_heads, found.d, found.d_v,
            tp.bfloat16, found.scale,
        )  # fmt: skip
        cfg = choose_sm90(extents, (False, self.causal))
        launch = self._attending(cfg, {"q": q, "k": k, "v": v, "out": out})
        missing = dict.fromkeys((*attention.PEERS, attention.FA4), f"takes no {found.dtype}")
        return {WIDE: launch}, missing
