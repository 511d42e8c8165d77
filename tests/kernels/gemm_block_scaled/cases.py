"""gemm_block_scaled on small problems: inputs of every kind, the program for so many clusters,
references.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tilepipe as tp
from tests.kernels.gemm.sm100_cases import few
from tilepipe.kernels.gemm_block_scaled import reference
from tilepipe.kernels.gemm_block_scaled.config import BlockScaledGemmConfig
from tilepipe.kernels.gemm_block_scaled.layout import KINDS, to_blocked
from tilepipe.kernels.gemm_block_scaled.sm100 import bind
from tilepipe.sim import Run
from tilepipe.testing import Comparison

BF16 = np.dtype(ml_dtypes.bfloat16)


def quantized(x: Any, kind: str, dtype: str | None = None) -> tuple[Any, Any]:
    """x as a kind's values and scales; of NVFP4 without the scale of the whole."""
    if kind == "nvfp4":
        return reference.quantize_nvfp4(x)[:2]
    return reference.quantize_mx(x, dtype or KINDS[kind].elements[0])


class Problem:
    """Random A and B of a kind, whose blocks are of very different size, a C that nothing has
    computed, and the program.
    """

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        *,
        kind: str = "mxfp8",
        dtypes: tuple[Any, Any] = (None, None),
        out: Any = BF16,
        clusters: int = 0,
        extras: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`dtypes`: of A and B, where the kind has several. `clusters`: see `few`; 0: as many as
        the chip has. `extras`: of `bind`.
        """
        rng = np.random.default_rng(m + n + k)
        (self.a, self.sfa), (self.b, self.sfb) = (
            quantized(self._uneven(rng, rows, k), kind, dtype)
            for rows, dtype in zip((m, n), dtypes, strict=True)
        )
        self.c = np.full((m, n), np.nan, out)
        self.cfg = BlockScaledGemmConfig(
            **{"kind": kind, "bk": 256 if "4" in kind else 128} | settings
        )
        self.extras = extras or {}
        self.program = self.bound()
        if clusters:
            self.program = few(self.program, clusters)

    def bound(self) -> tp.Program:
        return bind(
            padded(self.a),
            padded(self.b),
            to_blocked(self.sfa),
            to_blocked(self.sfb),
            self.c,
            self.cfg,
            **self.extras,
        )

    @staticmethod
    def _uneven(rng: np.random.Generator, rows: int, k: int) -> Any:
        sizes = np.exp2(rng.integers(-3, 4, (rows, -(-k // 16)))).repeat(16, 1)[:, :k]
        return (rng.standard_normal((rows, k)) * sizes).astype(np.float32)

    def compare(self, scale: Any = 1.0) -> Comparison:
        return reference.compare(self.c, self.a, self.sfa, self.b, self.sfb, scale)

    def right(self, seed: int = 0, scale: Any = 1.0) -> Run:
        """Runs it; C must be right, and nothing advised."""
        self.c[...] = np.nan
        run = self.program.run(seed=seed)
        comparison = self.compare(scale)
        assert comparison.ok, comparison
        assert not run.advice, run.advice
        return run


def padded(x: Any) -> Any:
    """The same with rows of a multiple of 16 bytes."""
    whole = np.zeros((x.shape[0], -(-x.shape[1] // 16) * 16), x.dtype)
    whole[:, : x.shape[1]] = x
    return whole[:, : x.shape[1]]


def simulate(m: int, n: int, k: int, seed: int = 0, **settings: Any) -> Run:
    """A problem computed once."""
    return Problem(m, n, k, **settings).right(seed)
