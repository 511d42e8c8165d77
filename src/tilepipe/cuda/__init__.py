"""Reads a kernel's IR and prints CUDA C++; compiles it with NVRTC.

Nothing here needs CUDA packages until something is compiled.
"""

from __future__ import annotations

from tilepipe.cuda.compiler import Compiled, compile
from tilepipe.cuda.printer import source

__all__ = ["Compiled", "compile", "source"]
