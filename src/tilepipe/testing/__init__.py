"""Helpers for testing kernels: comparison against float64 references."""

from tilepipe.testing.numerics import Comparison as Comparison
from tilepipe.testing.numerics import compare_matmul as compare_matmul

__all__ = ["Comparison", "compare_matmul"]
