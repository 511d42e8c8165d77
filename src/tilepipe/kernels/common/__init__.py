"""What several kernels use."""
