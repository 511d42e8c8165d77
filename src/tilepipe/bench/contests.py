"""The benchmarks of kernels that are not one product, by the name of the kernel."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilepipe.ir.chip import Chip

if TYPE_CHECKING:
    from tilepipe.bench.beside import Contest

# Imported only when a benchmark is asked for: they import PyTorch.
MODULES = {"attention": "tilepipe.bench.attention", "gemm_grouped": "tilepipe.bench.grouped"}


def contests(
    kernel: str, given: Mapping[str, Any], texts: Sequence[str], chip: Chip, seed: int
) -> Sequence[Contest]:
    """What is measured of a kernel, with operands in the memory of device 0.

    Args:
        given: settings. texts: those of `--shapes`.

    Raises:
        BindError: settings or texts that name no problem.
    """
    found: Sequence[Contest] = importlib.import_module(MODULES[kernel]).contests(
        given, texts, chip, seed
    )
    return found
