"""How far results of attention are from float64, on a sample of their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tilepipe.bench.report import Check
from tilepipe.kernels.attention.reference import HeadRows


@dataclass
class SampledRows:
    """What the rows that were added say of a result."""

    _errors: float = 0.0
    _squares: float = 0.0
    _count: int = 0
    _largest: float = 0.0
    _worst: float = 0.0

    def add(self, got: torch.Tensor, want: HeadRows) -> None:
        """Rows of a head, (rows, d), beside those of float64."""
        error: Any = np.abs(got.double().cpu().numpy() - want.out)
        self._errors += float((error**2).sum())
        self._squares += float((want.out**2).sum())
        self._count += error.size
        ratio = np.where(np.isfinite(error), error / np.maximum(want.out_bound, 1e-300), np.inf)
        self._worst = max(self._worst, float(ratio.max()))
        self._largest = max(self._largest, float(error.max()))

    def check(self) -> Check:
        """Right where every element is within its bound."""
        size = float(np.sqrt(self._squares / self._count))
        relative = float(np.sqrt(self._errors / self._squares))
        return Check(relative, self._largest / size, self._worst <= 1.0)
