"""What people call: array operations backed by the shipped kernels."""

from tilepipe.ops.matmul import matmul as matmul

__all__ = ["matmul"]
