"""The sm_100 attention on small problems: operands, programs, the comparison; and copies of the
kernel with a mistake in their text.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

import tilepipe as tp
from tilepipe.kernels.attention import sm100
from tilepipe.kernels.attention.reference import compare_attention
from tilepipe.sim import Run
from tilepipe.testing.numerics import Comparison

BF16 = ml_dtypes.bfloat16
Change = Callable[[Any, Any, Any], None]


class Problem:
    """Random q, k, v; an out and an lse that nothing has computed; and the program."""

    def __init__(
        self,
        s_q: int,
        s_kv: int,
        d: int = 128,
        *,
        batch: int = 1,
        heads: int = 1,
        kv_heads: int = 0,
        causal: bool = False,
        dtype: Any = BF16,
        lse: bool = True,
        scale: float | None = None,
        change: Change | None = None,
        module: ModuleType = sm100,
        **settings: int,
    ) -> None:
        """`change(q, k, v)`: changes the operands in place. `settings`: of the configuration, which
        is the default without any.
        """
        rng = np.random.default_rng(s_q + s_kv + d)
        shapes = ((batch, s_q, heads, d), *[(batch, s_kv, kv_heads or heads, d)] * 2)
        self.q, self.k, self.v = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
        if change is not None:
            change(self.q, self.k, self.v)
        self.out = np.full(self.q.shape, np.nan, dtype)
        self.lse = np.full((batch, heads, s_q), np.nan, np.float32) if lse else None
        self.causal, self.scale = causal, scale
        cfg = module.Sm100AttentionConfig(**settings) if settings else None
        self.program: tp.Program = module.bind(
            self.q, self.k, self.v, self.out, self.lse, cfg, causal=causal, scale=scale
        )

    def compared(self) -> Comparison:
        """What was computed beside float64."""
        return compare_attention(
            self.out,
            self.q,
            self.k,
            self.v,
            causal=self.causal,
            scale=self.scale,
            lse=self.lse,
            worst=True,
        )

    def right(self, seed: int = 0) -> Run:
        """Runs it; out and lse must be right, and nothing advised."""
        self.out[...] = np.nan
        run: Run = self.program.run(seed=seed)
        comparison = self.compared()
        assert comparison.ok, comparison
        assert not run.advice, run.advice
        return run


def simulate(s_q: int, s_kv: int, d: int = 128, seed: int = 0, **more: Any) -> Run:
    """A problem computed once."""
    return Problem(s_q, s_kv, d, **more).right(seed)


def blocks(s_q: int, s_kv: int, causal: bool, first: int, bn: int = 128) -> int:
    """Blocks of keys that a CTA goes through, whose first query is `first`."""
    last = min(first + 256, s_q) - 1
    seen = min(s_kv, max(last + 1 + s_kv - s_q, 1)) if causal else s_kv
    return -(-seen // bn)


def grown(factor: float) -> Change:
    """Keys of each 128 are larger than those before, so that the maxima of most rows grow from
    block to block.
    """

    def change(q: Any, k: Any, v: Any) -> None:
        for block, first in enumerate(range(0, k.shape[1], 128)):
            k[:, first : first + 128] = (
                k[:, first : first + 128].astype(np.float32) * factor**block
            ).astype(k.dtype)

    return change


def planted(folder: Path, old: str, new: str, again: dict[str, str] | None = None) -> ModuleType:
    """The kernel's module with `old`, which must occur exactly once, replaced by `new`; `again`:
    more of the same.
    """
    text = Path(sm100.__file__).read_text(encoding="utf-8")
    for before, after in {old: new, **(again or {})}.items():
        assert text.count(before) == 1, f"{before!r} occurs {text.count(before)} times"
        text = text.replace(before, after)
    path = folder / "planted_sm100.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("planted_attention", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def counts() -> dict[str, int]:
    """Arrivals of a phase of every mbarrier. P is told by the softmax, 128 threads; its first half
    also by the correction.
    """
    found = {
        "k.full": 1,
        "k.empty": 1,
        "v.full": 1,
        "v.empty": 1,
        "q1_full": 1,
        "tmem_dealloc": 3 * 128,
    }
    for i in range(2):
        found |= {f"s{i}.full": 1, f"s{i}.empty0": 2 * 128, f"s{i}.empty1": 128, f"o{i}.full": 1}
        found |= {f"factors{i}.full": 128, f"factors{i}.empty": 128}
    return found
