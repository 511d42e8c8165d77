"""The blockwise fp8 GEMM with groups along K in the simulator: every family, every kind of offsets,
and what it says of arguments that do not fit.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.kernels.gemm_grouped.families import OUTPUTS
from tests.kernels.gemm_k_grouped_blockwise.families import FAMILIES, OFFSETS, K, product
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.kernels.common.tiling import BLOCK_ROWS
from tilepipe.kernels.gemm_k_grouped_blockwise import heuristics
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise.heuristics import KGroupedBlockwiseProblem
from tilepipe.kernels.gemm_k_grouped_blockwise.reference import ends_of
from tilepipe.kernels.gemm_k_grouped_blockwise.sm90 import bind


@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_right(family: str) -> None:
    for seed, offsets in enumerate(("blocks", "blocks left over")):
        p = product(offsets, n=200, seed=seed, **FAMILIES[family])
        run = p.program.run(seed=seed)
        assert p.compare().ok
        assert run.advice == []


@pytest.mark.sampled(9, suite=3)
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("family", ["one consumer", "cluster"])
def test_offsets(offsets: str, family: str) -> None:
    p = product(offsets, 64, **FAMILIES[family])
    p.program.run(seed=1)
    assert p.compare().ok
    assert p.c.any() == (offsets != "all empty")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["default", "cluster", "cluster along n"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_one_cluster_that_goes_through_all_groups(family: str, seed: int) -> None:
    p = product(seed=seed, **FAMILIES[family])
    size = KGroupedBlockwiseGemmConfig(**FAMILIES[family]).cluster_size
    replace(p.program, launch_args=replace(p.program.launch_args, grid=size)).run(seed=seed)
    assert p.compare().ok


@pytest.mark.slow
@pytest.mark.parametrize("out", OUTPUTS)
def test_output_dtypes(out: str) -> None:
    p = product(out=out)
    p.program.run()
    assert p.compare().ok


def test_offsets_that_are_no_multiple_of_a_block() -> None:
    offsets = np.array([-3, 0, 127, 128, 255, K - 1, K, K + 1], np.int32)
    assert ends_of(offsets, K).tolist() == [0, 0, 0, 128, 128, 896, K, K]


def test_values_of_other_groups_do_not_count() -> None:
    """A NaN in a block of K is in the product of its group and in no other."""
    p = product(**FAMILIES["one consumer"])
    p.x.a[5, 500] = np.nan
    p.x.b_scales[7, 3] = np.nan
    p.program.run()
    found = [np.isnan(c).any() for c in p.c]
    assert found == [False, False, False, True, True]
    assert np.isnan(p.c[3]).sum() == p.c.shape[2]
    assert np.isnan(p.c[4]).sum() == p.c.shape[1]


@pytest.mark.slow
def test_the_reference_sees_a_wrong_element_and_one_that_should_be_zero() -> None:
    p = product(out="float32", **FAMILIES["one consumer"])
    p.program.run()
    assert p.compare().ok
    p.c[1, 5, 5] = 1
    assert not p.compare().ok
    p.c[1, 5, 5] = 0
    p.c[2] += 1
    assert not p.compare().ok


def fp8(*shape: int) -> Any:
    return np.zeros(shape, tp.float8_e4m3.numpy)


def f32(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"a": None}, "a must be an array, got None"),
        ({"b": np.zeros((40, 256), np.float16)}, "b is float16; it must be float8_e4m3"),
        (
            {"b": fp8(40, 272)},
            "A is 32×256, B 40×272 (n, k), and offsets has 3 elements; C must be 3×32×40",
        ),
        ({"c": f32(2, 32, 40)}, "C must be 3×32×40 and both k equal, C is 2×32×40"),
        ({"b": fp8(256, 48)[:, :40].T}, "B must be contiguous along k; tensor cores do not"),
        (
            {"b_scales": f32(2, 44)},
            "b_scales has shape (2, 44), its last dimension contiguous. It must be (2, 40) in row"
            " order or (40, 2) in column order, with N contiguous",
        ),
        ({"a_scales": f32(3, 32)}, "a_scales has shape (3, 32)"),
        ({"offsets": np.zeros(3, np.int64)}, "offsets is int64; it must be int32"),
        ({"cfg": None}, "cfg is a KGroupedBlockwiseGemmConfig, got None"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], words: str) -> None:
    fitting = {
        "a": fp8(32, 256),
        "b": fp8(40, 256),
        "a_scales": f32(2, 32),
        "b_scales": f32(2, 40),
        "c": f32(3, 32, 40),
        "offsets": np.zeros(3, np.int32),
        "cfg": KGroupedBlockwiseGemmConfig(),
    }
    with pytest.raises(tp.BindError, match=re.escape(words)) as caught:
        bind(**(fitting | arguments))
    assert str(caught.value).startswith("gemm_k_grouped_blockwise")


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (
            {"bn": 224},
            "totals of 64×224 and partial sums of 64×224 take (64 * 224 + 64 * 224) / 128 = 224"
            " registers of each thread; at most 200 leave room for the rest",
        ),
        ({"bn": 40}, "bn must be a multiple of 16 up to 256"),
    ],
    ids=str,
)
def test_settings_that_no_kernel_can_have(given: dict[str, Any], rule: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(rule)):
        KGroupedBlockwiseGemmConfig(**given)


@pytest.mark.sampled(suite=100)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_machine_code(family: str) -> None:
    """No spills, wgmma not serialised; scaling is one FMUL and one FFMA an element."""
    cfg = KGroupedBlockwiseGemmConfig(**FAMILIES[family])
    compiled = cuda.compile(product(n=200, **FAMILIES[family]).program.kernel)
    assert compiled.spill_bytes == compiled.stack_bytes == 0
    assert "C75" not in compiled.log
    loop = sass.loop_with(sass.disassemble(compiled.data), "QGMMA").count()
    blocks = cfg.rows // BLOCK_ROWS
    assert loop["QGMMA"] == 4 * blocks
    assert loop["FFMA"] == loop["FMUL"] == cfg.bn // 2 * blocks
    assert "LDG" not in loop  # no latency of global memory between two blocks
    assert not {"FADD", "LDL", "STL", "MUFU"} & set(loop)


@pytest.mark.parametrize("shape", [(4096, 7168, 32768, 4), (64, 64, 100, 3), (8, 8, 8, 1)])
def test_what_is_chosen_fits(shape: tuple[int, int, int, int]) -> None:
    chosen = heuristics.best(KGroupedBlockwiseProblem(*shape))
    assert chosen.stages >= 3
    named: dict[str, Any] = dict(chosen.as_dict())
    assert product("one", **named).program.kernel.smem_bytes <= tp.H200.smem_per_cta


def test_a_chip_without_room() -> None:
    tiny = replace(tp.H200, name="a chip", smem_per_cta=16384)
    with pytest.raises(tp.LimitError, match="groups along K fits a chip: 16,384 bytes"):
        heuristics.best(KGroupedBlockwiseProblem(64, 64, 64, 1), tiny)
