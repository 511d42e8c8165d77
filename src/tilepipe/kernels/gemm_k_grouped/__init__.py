"""The GEMM whose K is divided among groups: the weight gradients of a mixture of experts."""
