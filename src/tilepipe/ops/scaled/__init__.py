"""`ops.scaled_matmul`: NumPy arrays on the simulated GPU, CUDA tensors of PyTorch on their GPU."""

from tilepipe.ops.scaled.public import scaled_matmul as scaled_matmul
