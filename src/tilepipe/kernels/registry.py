"""The shipped kernels by name."""

from __future__ import annotations

from tilepipe.errors import BindError
from tilepipe.kernels.attention_spec import ATTENTION_FORWARD
from tilepipe.kernels.block_scaled_spec import BLOCK_SCALED_GEMM
from tilepipe.kernels.blockwise_fp8_spec import BLOCKWISE_FP8_GEMM
from tilepipe.kernels.gemm_spec import BLACKWELL_GEMM, GEMM
from tilepipe.kernels.grouped_gemm_spec import GROUPED_GEMM
from tilepipe.kernels.instances import Instance as Instance
from tilepipe.kernels.instances import Setting as Setting
from tilepipe.kernels.spec import Case as Case
from tilepipe.kernels.spec import GemmSpec as GemmSpec
from tilepipe.kernels.spec import KernelSpec as KernelSpec

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
