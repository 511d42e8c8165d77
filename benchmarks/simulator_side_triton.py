"""One side of `simulator.py`: a tiled matmul in Triton's interpreter. Prints one JSON object.

Needs triton, torch (a CPU build is enough) and numpy.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"  # read by triton when it is imported

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from simulator_problem import Operands, worker


@triton.jit  # type: ignore[untyped-decorator]
def matmul_kernel(  # type: ignore[no-untyped-def]
    a, b, c, m, n, k, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr
):
    """C[m, n] = A[m, k] · B[n, k]ᵀ, all row-major, one output tile a program.

    The operands are cast before the dot because the interpreter keeps bfloat16 as uint16 and would
    multiply the bits.
    """
    rows = tl.program_id(0) * bm + tl.arange(0, bm)[:, None]
    cols = tl.program_id(1) * bn + tl.arange(0, bn)[None, :]
    acc = tl.zeros((bm, bn), dtype=tl.float32)
    for k0 in range(0, k, bk):
        a_k = k0 + tl.arange(0, bk)[None, :]
        b_k = k0 + tl.arange(0, bk)[:, None]
        a_tile = tl.load(a + rows * k + a_k, mask=(rows < m) & (a_k < k), other=0.0)
        b_tile = tl.load(b + cols * k + b_k, mask=(cols < n) & (b_k < k), other=0.0)
        acc = tl.dot(a_tile.to(tl.float32), b_tile.to(tl.float32), acc)
    tl.store(c + rows * n + cols, acc.to(tl.bfloat16), mask=(rows < m) & (cols < n))


def side(operands: Operands) -> npt.NDArray[np.float32]:
    """C = A · Bᵀ as (n, n) float32."""
    a, b = (
        torch.from_numpy(bits).view(torch.bfloat16) for bits in (operands.a_bits, operands.b_bits)
    )
    (m, k), (n, _) = a.shape, b.shape
    c = torch.empty((m, n), dtype=torch.bfloat16)
    bm, bn, bk = operands.tile
    matmul_kernel[(triton.cdiv(m, bm), triton.cdiv(n, bn))](a, b, c, m, n, k, bm, bn, bk)
    return np.asarray(c.float().numpy())


if __name__ == "__main__":
    worker(side, {"triton": triton.__version__, "torch": torch.__version__})
