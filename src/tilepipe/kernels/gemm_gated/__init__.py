"""The gated GEMM, activation(A · gateᵀ) * (A · upᵀ) in one kernel: `sm90`."""
