"""The GEMM: `sm90` and `sm100`."""
