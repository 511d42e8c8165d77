"""The GEMM of fp8 operands with scales whose K is divided among groups: `sm90`."""
