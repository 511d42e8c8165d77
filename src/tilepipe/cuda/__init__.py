"""Prints the IR of a kernel as CUDA C++, and compiles it with NVRTC.

Importing and printing need no CUDA packages; compiling and launching do.
"""

from __future__ import annotations

from tilepipe.cuda.codegen.printer import source
from tilepipe.cuda.nvrtc.compiler import Compiled, compile

__all__ = ["Compiled", "compile", "source"]
