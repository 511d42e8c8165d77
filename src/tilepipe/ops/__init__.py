"""What people call: array operations backed by the shipped kernels."""

from tilepipe.ops.attention import attention as attention
from tilepipe.ops.matmul import matmul as matmul
from tilepipe.ops.scaled_matmul import scaled_matmul as scaled_matmul

__all__ = ["attention", "matmul", "scaled_matmul"]
