"""The GEMM with groups along K in the simulator: every family, every kind of offsets, and what it
says of arguments that do not fit.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tilepipe as tp
from tests.kernels.gemm_grouped.families import OFFSETS, OUTPUTS
from tests.kernels.gemm_k_grouped.families import FAMILIES, product
from tests.support.examples import share
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.kernels.gemm_k_grouped import heuristics
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped.heuristics import KGroupedProblem
from tilepipe.kernels.gemm_k_grouped.sm90 import bind


@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_right(family: str) -> None:
    for seed, offsets in enumerate(("ragged", "empty ones")):
        p = product(offsets, seed=seed, **FAMILIES[family])
        run = p.program.run(seed=seed)
        assert p.compare().ok
        assert run.advice == []


@pytest.mark.sampled(9, suite=3)
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("family", ["one consumer", "cluster", "narrow, columns first"])
def test_offsets(offsets: str, family: str) -> None:
    p = product(offsets, 64, 72, **FAMILIES[family])
    p.program.run(seed=1)
    assert p.compare().ok
    assert p.c.any() == (offsets != "all empty")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["default", "cluster", "cluster along n"])
def test_one_cluster_that_goes_through_all_groups(family: str) -> None:
    p = product("few rows each", 200, 136, seed=2, **FAMILIES[family])
    size = KGroupedGemmConfig(**FAMILIES[family]).cluster_size
    replace(p.program, launch_args=replace(p.program.launch_args, grid=size)).run(seed=2)
    assert p.compare().ok


@pytest.mark.slow
@settings(max_examples=share(12))
@given(st.lists(st.integers(0, 90), min_size=1, max_size=7), st.integers(0, 40), st.integers(0, 99))
def test_any_sizes(sizes: list[int], more: int, seed: int) -> None:
    if sum(sizes) + more:
        ends, settings = np.cumsum(sizes).tolist(), FAMILIES["narrow, columns first"]
        p = product(ends, 40, 24, sum(sizes) + more, seed=seed, **settings)
        p.program.run(seed=seed)
        assert p.compare().ok


@pytest.mark.slow
@pytest.mark.parametrize("out", OUTPUTS)
def test_output_dtypes(out: str) -> None:
    p = product("empty ones", dtype="float16", out=out)
    p.program.run()
    assert p.compare().ok


def test_the_reference_sees_a_wrong_element_and_one_that_should_be_zero() -> None:
    p = product("empty ones", 64, 64, **FAMILIES["one consumer"])
    p.program.run()
    p.c[1, 7, 3] += 1
    assert p.compare().worst_at == (64 + 7, 3)
    p.program.run()
    p.c[2, 5, 5] = 1
    assert not p.compare().ok


def half(*shape: int) -> Any:
    return np.zeros(shape, np.float16)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"a": None}, "a must be an array, got None"),
        ({"b": half(3, 48, 100)}, "b must be a matrix, it has shape (3, 48, 100)"),
        ({"c": half(32, 48)}, "c must have 3 dimensions"),
        (
            {"b": half(104, 48).T},
            "A is 32×100, B 48×104 (n, k), and offsets has 3 elements; C must be 3×32×48 and both"
            " k equal, C is 3×32×48",
        ),
        ({"offsets": np.zeros(2, np.int32)}, "C must be 2×32×48 and both k equal"),
        ({"offsets": np.zeros(3, np.int64)}, "offsets is int64; it must be int32"),
        ({"a": np.zeros((100, 32), np.float32).T}, "a is float32; it may be bfloat16, float16"),
        (
            {"b": np.zeros((100, 48), tp.bfloat16.numpy).T},
            "the same for A and B; got float16 and bfloat16",
        ),
        (
            {"a": half(32, 104)[:, :100]},
            "A is contiguous along k. TMA copies from multiples of 16 bytes along the contiguous"
            " dimension, and groups begin at any element of k: pass a copy that is contiguous"
            " along m",
        ),
        ({"b": half(48, 104)[:, :100]}, "pass a copy that is contiguous along n"),
        ({"cfg": KGroupedGemmConfig(cluster=4)}, "change bn and cluster"),
        ({"cfg": None}, "cfg is a KGroupedGemmConfig, got None"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], words: str) -> None:
    fitting = {
        "a": half(100, 32).T,
        "b": half(100, 48).T,
        "c": half(3, 32, 48),
        "offsets": np.zeros(3, np.int32),
    }
    with pytest.raises(tp.BindError, match=re.escape(words)):
        bind(**({"cfg": KGroupedGemmConfig()} | fitting | arguments))


def test_settings_that_it_does_not_have() -> None:
    with pytest.raises(TypeError, match="schedule"):
        KGroupedGemmConfig(schedule="pingpong")  # type: ignore[call-arg]


@pytest.mark.sampled(suite=100)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_machine_code(family: str) -> None:
    """No spills, wgmma not serialised, and nothing of the groups in the loop over K."""
    cfg = KGroupedGemmConfig(**FAMILIES[family])
    compiled = cuda.compile(product(**FAMILIES[family]).program.kernel)
    assert compiled.spill_bytes == compiled.stack_bytes == 0
    assert "C75" not in compiled.log
    loop = sass.loop_with(sass.disassemble(compiled.data), "HGMMA").count()
    assert loop["HGMMA"] == cfg.rows // 64 * (cfg.bk // 16) * (cfg.bn // cfg.block_cols)
    assert not {"LDG", "STG", "LDL", "STL", "MUFU", "I2F"} & set(loop)


@pytest.mark.parametrize(
    "shape", [(4096, 7168, 8192, 8), (64, 64, 100, 3), (2048, 7168, 65536, 256), (8, 8, 8, 1)]
)
def test_what_is_chosen_fits(shape: tuple[int, int, int, int]) -> None:
    chosen = heuristics.best(KGroupedProblem(*shape))
    assert chosen.stages >= 3
    settings: dict[str, Any] = dict(chosen.as_dict())
    p = product([8], 64, 64, 8, **settings)
    assert p.program.kernel.smem_bytes <= tp.H200.smem_per_cta


def test_a_chip_without_room() -> None:
    tiny = replace(tp.H200, name="a chip", smem_per_cta=16384)
    with pytest.raises(tp.LimitError, match="groups along K fits a chip: 16,384 bytes"):
        heuristics.best(KGroupedProblem(64, 64, 64, 1), tiny)
