"""`ops.grouped_matmul`: NumPy arrays on the simulated GPU, CUDA tensors of PyTorch on their GPU."""

from tilepipe.ops.grouped.public import grouped_matmul as grouped_matmul
