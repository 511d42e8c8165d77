"""Kernels that are compiled ahead: files to launch them from C, C++ or Python, without a compiler.

A manifest (`NAME.json`) says all that a launch needs; `NAME.cubin` is the machine code; `NAME.h`,
`NAME.c` and the files of `launch/` are a launcher in C99 that needs the CUDA driver alone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilepipe.export.loaded import ExportedKernel as ExportedKernel


def load_exported(path: str | os.PathLike[str]) -> ExportedKernel:
    """A kernel that `Program.export` or `tilepipe export` has written, ready to be launched. Needs
    cuda-bindings and a driver at the first launch; traces and compiles nothing.

    Args:
        path: the manifest, NAME.json, or its directory where that holds one kernel.

    Raises:
        BindError: the path is no str and no Path. ExportError: a file is missing, was changed, or
            was written by a version whose format this one does not read.
    """
    from tilepipe.export.loaded import ExportedKernel

    return ExportedKernel.of(path)
