"""What the order of a shipped kernel costs on a Blackwell GPU: no fence of the whole GPU in a loop,
and each acquire where it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.kernels.gemm import sm100
from tilepipe.kernels.gemm.config import Sm100GemmConfig
from tilepipe.kernels.gemm_blockwise import sm100 as blockwise_sm100
from tilepipe.kernels.gemm_blockwise.config import Sm100BlockwiseGemmConfig

GPU_FENCE = "MEMBAR.ALL.GPU"


def gemm() -> tp.Program:
    a, b = (np.zeros((512, 256), ml_dtypes.bfloat16) for _ in range(2))
    cfg = Sm100GemmConfig(cta_group=2, cluster=2, scheduler="clc")
    return sm100.bind(a, b, np.zeros((512, 512), ml_dtypes.bfloat16), cfg)


def blockwise(cta_group: int = 2) -> tp.Program:
    a, b = (np.zeros((512, 256), ml_dtypes.float8_e4m3fn) for _ in range(2))
    cfg = Sm100BlockwiseGemmConfig(cta_group=cta_group, cluster=2, bn=128, scheduler="clc")
    scales = np.zeros((2, 512), np.float32), np.zeros((4, 2), np.float32)
    return blockwise_sm100.bind(a, b, *scales, np.zeros((512, 512), ml_dtypes.bfloat16), cfg)


@pytest.mark.slow
@pytest.mark.parametrize("make", [gemm, blockwise])
def test_no_loop_fences_the_whole_gpu(make: Callable[[], tp.Program]) -> None:
    """Two such fences are left, outside all loops: the cluster barrier at the end of set-up, and
    the epilogue's last arrival, which lets a peer free tensor memory. Each answer of the scheduler
    and each step of K had one while their arrivals released at cluster scope.
    """
    compiled = cuda.compile(make().kernel)
    code = sass.disassemble(compiled.data)
    assert compiled.spill_bytes == 0
    assert [i.opcode for i in code].count(GPU_FENCE) == 2
    for opcode in ("LDTM", "UTCBAR"):  # the loops of the epilogue and of the MMA warp
        assert GPU_FENCE not in [i.opcode for i in sass.loop_with(code, opcode).instructions]


def role(text: str, name: str) -> str:
    """The function of a role."""
    start = text.index(f"void {name}(")
    return text[start : text.index("\n}\n", start)]


@pytest.mark.parametrize("cta_group", [1, 2])
def test_scales_that_came_over_the_leaders_barrier(cta_group: int) -> None:
    """In a pair the odd CTA's copies signal the even one's barrier; its MMA warp acquires them at
    cluster scope, and its commit tells the epilogue, which reads the scales. Without pairs each
    CTA's copies of them signal its own barrier.
    """
    text = cuda.source(blockwise(cta_group).kernel, "sm_100a")
    waits = set(re.findall(r"(wait\w*)\(inputs_full\(", role(text, "mma")))
    assert waits == ({"wait_cluster"} if cta_group == 2 else {"wait"})
    assert set(re.findall(r"(wait\w*)\(outputs_full\(", role(text, "epilogue"))) == (
        {"wait_cluster"} if cta_group == 2 else {"wait"}
    )


def test_a_response_is_acquired_at_cluster_scope() -> None:
    """It is written to every CTA by the request of one."""
    text = cuda.source(gemm().kernel, "sm_100a")
    assert set(re.findall(r"(wait\w*)\(work_full\(", text)) == {"wait_cluster"}
    assert "arrive_expect_tx_remote_relaxed(on_cta(work_full(" in text
    assert "arrive_remote_relaxed(on_cta(work_empty(" in text
