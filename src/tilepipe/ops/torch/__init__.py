"""What the operations share on PyTorch tensors: checks, prepared launches, operators."""
