"""Kernels and programs: a function marked as a kernel, bound to arguments, and given to the
readers.
"""

from tilepipe.program.kernel_function import KernelFunction as KernelFunction, kernel as kernel
from tilepipe.program.program import Program as Program
