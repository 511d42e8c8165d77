"""The families of the shipped GEMM, small enough to be verified at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.testing import compare_matmul
from tools.snapshot.families import GEMM_SM90, tile_families

FAMILIES = tile_families(GEMM_SM90, GemmConfig)
SHAPE = 1000, 520, 776
OPERANDS = {
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
LINE = {2: 64, 4: 32, 1: 128}  # elements of a 128-byte line of K


@dataclass(frozen=True, eq=False)
class Product:
    """A GEMM with random operands; `c` is what it writes."""

    program: tp.Program
    a: Array
    b: Array
    c: Array

    def verify(self) -> None:
        """C is right: to the bit where the operands are small integers, else within the bound of
        its accumulation.
        """
        if self.a.dtype.itemsize == 2:
            result = compare_matmul(self.c, self.a, self.b.T)
            assert result.ok, result
            return
        np.testing.assert_array_equal(
            self.c, self.a.astype(np.float64) @ self.b.astype(np.float64).T
        )

    def bits(self) -> bytes:
        return self.c.tobytes()


def product(
    shape: tuple[int, int, int] = SHAPE,
    dtype: str = "bfloat16",
    out: str = "bfloat16",
    orders: str = "CC",
    seed: int = 0,
    **settings: Any,
) -> Product:
    """A product of random normal numbers, of small integers where the tensor core would round them
    (tf32, fp8).
    """
    (m, n, k), rng, kind = shape, np.random.default_rng(seed), np.dtype(OPERANDS[dtype])

    def operand(rows: int, order: str) -> Array:
        values = (
            rng.standard_normal((rows, k)) if kind.itemsize == 2 else rng.integers(-2, 3, (rows, k))
        )
        return np.asarray(values.astype(np.float32).astype(kind), order=order)  # type: ignore[call-overload, no-any-return]

    a, b, c = operand(m, orders[0]), operand(n, orders[1]), np.full((m, n), np.nan, OPERANDS[out])
    # a tile of K of as many bytes as the setting has in bfloat16
    settings["bk"] = settings.get("bk", 64) * LINE[kind.itemsize] // 64
    return Product(gemm.bind(a, b, c, GemmConfig(**settings)), a, b, c)
