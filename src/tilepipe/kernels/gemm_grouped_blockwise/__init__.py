"""The grouped GEMM of fp8 operands with a scale for each block: `sm90`."""
