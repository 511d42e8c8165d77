"""What a remembered configuration is refused for: room, and parts that are no swizzle panels."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.gemm import heuristics as gemm, sm90
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise import heuristics as gemm_blockwise
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_gated import heuristics as gemm_gated
from tilepipe.kernels.gemm_gated.config import GatedGemmConfig
from tilepipe.kernels.gemm_grouped import heuristics as gemm_grouped
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_quantised import heuristics as gemm_quantised
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig

LIMIT = tp.H200.smem_per_cta
COLUMNS = Problem(256, 256, 256, dtype=tp.float16, out_dtype=tp.float16, b_order="col")
ROOM: dict[str, tuple[Any, Any, Any]] = {
    "gemm": (gemm, GemmConfig(stages=9), Problem(256, 256, 256)),
    "gemm_blockwise": (
        gemm_blockwise,
        BlockwiseGemmConfig(stages=9),
        Problem(256, 256, 256, dtype=tp.float8_e4m3),
    ),
    "gemm_gated": (gemm_gated, GatedGemmConfig(stages=9), Problem(256, 256, 256)),
    "gemm_quantised": (
        gemm_quantised,
        QuantisedGemmConfig(stages=90),
        gemm_quantised.QuantisedProblem(16, 256, 256),
    ),
}
GROUPS = gemm_grouped.GroupedProblem(256, 256, 256, 2, b_order="col")


@pytest.mark.parametrize("kernel", ROOM)
def test_more_shared_memory_than_a_cta_has(kernel: str) -> None:
    heuristics, cfg, problem = ROOM[kernel]
    with pytest.raises(tp.BindError) as found:
        heuristics.TUNABLE.check(cfg, problem, tp.H200)
    words = re.fullmatch(
        r"it needs ([\d,]+) bytes of shared memory, and a CTA of H200 has ([\d,]+): ([\d,]+) too"
        r" many; lower stages",
        str(found.value),
    )
    assert words, found.value
    needed, has, more = (int(x.replace(",", "")) for x in words.groups())
    assert has == LIMIT
    assert needed - has == more > 0


def test_parts_that_are_no_swizzle_panels() -> None:
    words = (
        "gate is not contiguous along k, and its tiles are loaded in parts of 96 rows, which"
        " must be a multiple of 64, a swizzle panel: 96 / 64 = 1.5; change bn and cluster, or pass"
        " gate contiguous along k"
    )
    with pytest.raises(tp.BindError, match=re.escape(words)):
        gemm_gated.TUNABLE.check(GatedGemmConfig(bn=192), COLUMNS, tp.H200)


def test_parts_that_are_no_lines_of_the_tensor_cores() -> None:
    words = (
        "B is contiguous along n, and its tiles of 96 along n are loaded in parts of 48, which must"
        " be a multiple of 32: change bn and cluster, or pass B contiguous along k"
    )
    with pytest.raises(tp.BindError, match=re.escape(words)):
        gemm.TUNABLE.check(GemmConfig(bn=96, cluster=2), COLUMNS, tp.H200)
    with pytest.raises(tp.BindError, match=re.escape(words)):
        gemm_grouped.TUNABLE.check(GroupedGemmConfig(bn=96, cluster=2), GROUPS, tp.H200)
    gemm_grouped.TUNABLE.check(GroupedGemmConfig(bn=96), GROUPS, tp.H200)


@pytest.mark.parametrize("bn", [48, 56, 80, 96, 160, 192])
@pytest.mark.parametrize("cluster", [1, 2, 4])
def test_what_can_be_bound_can_be_remembered(bn: int, cluster: int) -> None:
    a = np.zeros((256, 256), np.float16)
    cfg = GemmConfig(bn=bn, cluster=cluster, stages=2)
    said = []
    for ask in (
        lambda: sm90.bind(a, a.T, np.zeros_like(a), cfg),
        lambda: gemm.TUNABLE.check(cfg, COLUMNS, tp.H200),
    ):
        try:
            ask()
            said.append("")
        except tp.BindError as error:
            said.append(str(error))
    assert said[0] == said[1]


def test_of_a_transposed_product_bn_is_of_a() -> None:
    """And bm of B."""
    problem = Problem(256, 256, 256, a_order="col")
    with pytest.raises(tp.BindError, match=r"A is contiguous along m.* change bn and cluster, or"):
        gemm.check(GemmConfig(bn=96, swap="ab", cluster=2), problem, tp.H200)
    gemm.check(GemmConfig(bn=96, cluster=2), problem, tp.H200)
