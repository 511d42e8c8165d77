"""The kernels of the table: for the simulator, for NVRTC, and, where Hopper has their ops, for a
GPU.
"""

from __future__ import annotations

from tests.conformance import (
    kernels_block_scaled,
    kernels_inputs,
    kernels_outputs,
    kernels_rings,
    kernels_staged,
)

# the same kernels with fewer items: name -> how they are made
SHORT = kernels_rings.SHORT | kernels_inputs.SHORT
CASES = [
    *kernels_rings.CASES,
    *kernels_inputs.CASES,
    *kernels_outputs.CASES,
    *kernels_staged.CASES,
    *kernels_block_scaled.CASES,
]
