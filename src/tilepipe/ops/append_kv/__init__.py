"""`ops.append_kv`: NumPy arrays, and tensors of PyTorch on the CPU, on the simulated GPU; CUDA
tensors on their GPU.
"""
