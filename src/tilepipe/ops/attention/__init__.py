"""`ops.attention`: NumPy arrays on the simulated GPU, CUDA tensors of PyTorch on their GPU."""

from tilepipe.ops.attention.public import attention as attention
