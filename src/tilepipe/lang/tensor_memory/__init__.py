"""Tensor memory of Blackwell: matrices, addresses, scale factors, tcgen05 MMAs."""
