"""The GEMM of weights of 4 or 8 bits, A · (scales · W)ᵀ, by 16-bit activations: `sm90`."""
