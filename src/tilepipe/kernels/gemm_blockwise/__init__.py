"""The GEMM of fp8 operands with a scale for each block: `sm90` and `sm100`."""
