"""Array operations backed by the shipped kernels."""

from tilepipe.ops.attention import attention as attention
from tilepipe.ops.grouped import grouped_matmul as grouped_matmul
from tilepipe.ops.matmul import matmul as matmul
from tilepipe.ops.scaled import scaled_matmul as scaled_matmul

__all__ = ["attention", "grouped_matmul", "matmul", "scaled_matmul"]
