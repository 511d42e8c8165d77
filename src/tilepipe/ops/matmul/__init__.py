"""`ops.matmul`: NumPy arrays on the simulated GPU, CUDA tensors of PyTorch on their GPU."""
