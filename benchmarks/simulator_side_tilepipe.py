"""One side of `simulator.py`: the matmul on tilepipe's simulated GPU, with every check on. Prints
one JSON object.
"""

from __future__ import annotations

from importlib.metadata import version

import ml_dtypes
import numpy as np
import numpy.typing as npt

import tilepipe as tp
from simulator_problem import Operands, worker

CONSUMERS = 1  # MMA warpgroups that share a tile; with 2 the simulator takes about a quarter longer


def side(operands: Operands) -> npt.NDArray[np.float32]:
    """C = A · Bᵀ as (n, n) float32."""
    a, b = (bits.view(ml_dtypes.bfloat16) for bits in (operands.a_bits, operands.b_bits))
    bm, bn, bk = operands.tile
    c = tp.ops.matmul(a, b.T, bm=bm, bn=bn, bk=bk, consumers=CONSUMERS)
    return np.asarray(c, dtype=np.float32)


if __name__ == "__main__":
    worker(side, {"tilepipe": version("tilepipe"), "numpy": version("numpy")})
