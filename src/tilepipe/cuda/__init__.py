"""Reads a kernel's IR and prints CUDA C++; compiles it with NVRTC.

Nothing here needs CUDA packages until something is compiled.
"""

from __future__ import annotations

from tilepipe.cuda.codegen.printer import source
from tilepipe.cuda.nvrtc.compiler import Compiled, compile

__all__ = ["Compiled", "compile", "source"]
