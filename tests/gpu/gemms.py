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

FAMILIES: dict[str, dict[str, Any]] = {
    "default": {},
    "one consumer": {"consumers": 1},
    "short tiles": {"consumers": 1, "bm": 64},
    "tall tiles": {"bm": 256, "stages": 3},
    "wide tiles": {"bn": 256},
    "two wgmma wide": {"bn": 320, "stages": 3},
    "long k": {"bk": 128, "stages": 2},
    "k groups": {"k_group_size": 2, "stages": 2},
    "three k tiles": {"k_group_size": 3, "stages": 2, "consumers": 1},
    "one store slot": {"store_slots": 1},
    "by rows": {"stages": 2, "raster": "rows"},
    "cluster": {"cluster": 2},
    "cluster of four": {"cluster": 4, "bn": 256, "raster": "columns"},
    "cluster along n": {"cluster_n": 2},
    "four along n": {"cluster_n": 4, "group": 3},
    "cluster and k groups": {"cluster": 2, "k_group_size": 2, "stages": 2, "consumers": 1},
    "ping-pong": {"schedule": "pingpong", "bm": 64, "bn": 256},
    "tall ping-pong": {"schedule": "pingpong", "bm": 128, "bn": 128, "stages": 3},
    "ping-pong in clusters": {"schedule": "pingpong", "bm": 64, "bn": 128, "cluster": 2},
    "ping-pong along n": {"schedule": "pingpong", "bm": 64, "bn": 192, "cluster_n": 2},
    "half of k": {"split_k": 2},
    "a quarter of k": {"split_k": 4, "bm": 64, "consumers": 1},
    "an eighth of k": {"split_k": 8, "bm": 64, "consumers": 1},
    "promoted": {"accumulate": "promote"},
    "three consumers": {"consumers": 3, "bm": 192},
    "three of three": {"consumers": 3, "bm": 192, "bn": 160, "cluster": 2, "stages": 3},
    "transposed": {"swap": "ab"},
    "narrow transposed": {"swap": "ab", "bn": 16, "cluster": 2, "split_k": 1},
    "half of k transposed": {"swap": "ab", "bn": 32, "split_k": 2},
}
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
