"""Measuring kernels on a GPU, beside what they compete with."""
