"""The families of the grouped GEMM, and offsets that are easy to get wrong, small enough to be
verified at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array
from tilepipe.kernels.gemm_grouped import reference
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.sm90 import bind
from tilepipe.testing import Comparison
from tools.snapshot.families import GROUPED, tile_families

FAMILIES = tile_families(GROUPED, GroupedGemmConfig)
M = 420
OFFSETS: dict[str, list[int]] = {
    "ragged": [70, 71, 199, 330, M],
    "aligned": [128, 256, 384, M],
    "one": [M],
    "one of many": [0, 0, 0, M, M, M],
    "empty ones": [0, 130, 130, 130, 131, M, M],
    "all empty": [0, 0, 0],
    "rows left over": [5, 200],
    "few rows each": list(range(3, 75, 3)),
    "beyond the end": [100, 1000, 2000],
    "falling": [300, 100, 200, 310],
    "negative": [-5, 64, -1, 65],
    "extreme": [-(2**31), 2**31 - 1, 0, 2**31 - 1],
}
OUTPUTS = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
FP8_ERROR = 2e-3  # of the tensor cores' own sums, which keep about 14 bits: relative (Frobenius)


@dataclass(frozen=True, eq=False)
class Product:
    """A grouped product with random operands; `c` is what it writes, `before` what was there."""

    program: tp.Program
    a: Array
    b: Array
    c: Array
    before: Array
    offsets: Array
    scales: tuple[Array, Array] | None

    def compare(self) -> Comparison:
        return reference.compare(
            self.c, self.before, self.a, self.b, self.offsets, *(self.scales or ())
        )

    def verify(self, hardware: bool = False) -> None:
        """`hardware`: fp8 sums are those of the tensor cores."""
        found = self.compare()
        if hardware and self.a.dtype.itemsize == 1 and np.isfinite(found.worst):
            assert found.rel_error <= FP8_ERROR + {4: 0.0, 2: 2.0**-9}[self.c.dtype.itemsize], found
        else:
            assert found.ok, found

    def reset(self) -> None:
        self.c[...] = self.before


def product(
    offsets: list[int] | str = "ragged",
    n: int = 136,
    k: int = 200,
    m: int = M,
    *,
    dtype: str = "bfloat16",
    out: str = "bfloat16",
    order: str = "row",
    scaled: bool = False,
    padded: bool = False,
    seed: int = 0,
    **settings: Any,
) -> Product:
    """A product whose C is full of marks that its rows must overwrite, and those of no group
    keep. `padded`: the offsets are the rows of each group, of m.
    """
    rng, t = np.random.default_rng(seed), tp.dtype(dtype).numpy
    ends = np.array(OFFSETS[offsets] if isinstance(offsets, str) else offsets, np.int32)
    batch = (len(ends),) if padded else ()
    a = rng.standard_normal((*batch, m, k)).astype(t)
    b = rng.standard_normal((len(ends), n, k)).astype(t)
    if order == "col":
        b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    before = (rng.standard_normal((*batch, m, n)) + 100).astype(OUTPUTS[out])
    c = before.copy()
    a_scale, b_scale = (
        np.exp2(rng.integers(-4, 5, shape)).astype(np.float32) for shape in ((m,), (len(ends), n))
    )
    scales = (a_scale, b_scale) if scaled else None
    named: dict[str, Any] = {} if scales is None else {"a_scale": scales[0], "b_scale": scales[1]}
    return Product(
        bind(a, b, c, ends, GroupedGemmConfig(**settings), **named), a, b, c, before, ends, scales
    )
