"""The shipped kernels by name."""

from __future__ import annotations

from tilepipe.errors import BindError
from tilepipe.registry.attention import ATTENTION_FORWARD
from tilepipe.registry.gemm import BLACKWELL_GEMM, GEMM
from tilepipe.registry.gemm_block_scaled import BLOCK_SCALED_GEMM
from tilepipe.registry.gemm_blockwise import BLOCKWISE_FP8_GEMM
from tilepipe.registry.gemm_grouped import GROUPED_GEMM
from tilepipe.registry.instances import Instance as Instance
from tilepipe.registry.instances import Setting as Setting
from tilepipe.registry.spec import Case as Case
from tilepipe.registry.spec import GemmSpec as GemmSpec
from tilepipe.registry.spec import KernelSpec as KernelSpec

KERNELS: dict[str, KernelSpec] = {
    spec.name: spec
    for spec in (
        GEMM,
        BLACKWELL_GEMM,
        BLOCKWISE_FP8_GEMM,
        BLOCK_SCALED_GEMM,
        ATTENTION_FORWARD,
        GROUPED_GEMM,
    )
}


def find(name: str) -> KernelSpec:
    """The kernel of that name.

    Raises:
        BindError: there is none; the message lists those there are.
    """
    if name not in KERNELS:
        raise BindError(f"there is no kernel '{name}'; there are: {', '.join(KERNELS)}")
    return KERNELS[name]
