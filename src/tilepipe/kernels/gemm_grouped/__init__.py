"""The grouped GEMM, as a mixture of experts needs it: `sm90`."""
