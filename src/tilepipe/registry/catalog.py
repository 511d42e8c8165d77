"""The shipped kernels by name."""

from __future__ import annotations

from tilepipe.errors import BindError
from tilepipe.host_arguments import question
from tilepipe.registry.append_kv import APPEND_KV
from tilepipe.registry.attention import ATTENTION
from tilepipe.registry.attention_backward import ATTENTION_BACKWARD
from tilepipe.registry.attention_decode import ATTENTION_DECODE
from tilepipe.registry.gemm import GEMM
from tilepipe.registry.gemm_block_scaled import GEMM_BLOCK_SCALED
from tilepipe.registry.gemm_blockwise import GEMM_BLOCKWISE
from tilepipe.registry.gemm_gated import GEMM_GATED
from tilepipe.registry.gemm_grouped import GEMM_GROUPED
from tilepipe.registry.gemm_grouped_blockwise import GEMM_GROUPED_BLOCKWISE
from tilepipe.registry.gemm_k_grouped import GEMM_K_GROUPED
from tilepipe.registry.gemm_k_grouped_blockwise import GEMM_K_GROUPED_BLOCKWISE
from tilepipe.registry.gemm_quantised import GEMM_QUANTISED
from tilepipe.registry.gemm_stream_k import GEMM_STREAM_K
from tilepipe.registry.instances import Instance as Instance
from tilepipe.registry.rows import CROSS_ENTROPY, LAYER_NORM, RMS_NORM, SOFTMAX
from tilepipe.registry.settings import Setting as Setting
from tilepipe.registry.spec import Case as Case, GemmSpec as GemmSpec, KernelSpec as KernelSpec

KERNELS: dict[str, KernelSpec] = {
    spec.name: spec
    for spec in (
        GEMM,
        GEMM_BLOCKWISE,
        GEMM_BLOCK_SCALED,
        GEMM_GROUPED,
        GEMM_GROUPED_BLOCKWISE,
        GEMM_K_GROUPED,
        GEMM_K_GROUPED_BLOCKWISE,
        GEMM_GATED,
        GEMM_QUANTISED,
        GEMM_STREAM_K,
        ATTENTION,
        ATTENTION_BACKWARD,
        ATTENTION_DECODE,
        APPEND_KV,
        RMS_NORM,
        LAYER_NORM,
        SOFTMAX,
        CROSS_ENTROPY,
    )
}


def find(name: str) -> KernelSpec:
    """The kernel of that name.

    Raises:
        BindError: there is none; the message lists those there are.
    """
    if name not in KERNELS:
        meant = question(name, KERNELS)
        raise BindError(f"there is no kernel '{name}'; there are: {', '.join(KERNELS)}{meant}")
    return KERNELS[name]
