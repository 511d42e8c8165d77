"""The grouped blockwise fp8 GEMM in the simulator: every family, every kind of offsets, rows that
follow each other and padded, and what it says of arguments that do not fit.
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
from tests.kernels.gemm_grouped_blockwise.families import FAMILIES, product
from tests.support.examples import share
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_grouped_blockwise import heuristics
from tilepipe.kernels.gemm_grouped_blockwise.heuristics import GroupedBlockwiseProblem
from tilepipe.kernels.gemm_grouped_blockwise.sm90 import bind
from tilepipe.registry.catalog import find

FORMS = pytest.mark.parametrize("padded", [False, True], ids=["rows", "padded"])


@FORMS
@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_right(family: str, padded: bool) -> None:
    offsets = [70, 0, 129, 1, 130] if padded else "ragged"
    p = product(offsets, m=130 if padded else 420, padded=padded, seed=1, **FAMILIES[family])
    run = p.program.run(seed=1)
    assert p.compare().ok
    assert run.advice == []


@pytest.mark.slow
@FORMS
@pytest.mark.sampled(suite=6, classes=lambda offsets, family, padded: [offsets, family, padded])
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("family", ["one consumer", "cluster"])
def test_offsets(offsets: str, family: str, padded: bool) -> None:
    """Padded, the same numbers count rows of each group: below 0 none, beyond the matrix all."""
    p = product(offsets, 72, 144, 150 if padded else 420, padded=padded, **FAMILIES[family])
    p.program.run(seed=1)
    assert p.compare().ok
    assert np.array_equal(p.c, p.before) == (offsets == "all empty")


@pytest.mark.slow
@pytest.mark.sampled(suite=3, classes=lambda family, seed: [family])
@pytest.mark.parametrize("family", ["default", "cluster", "cluster along n", "tall"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_one_cluster_that_goes_through_all_groups(family: str, seed: int) -> None:
    """Odd and even numbers of K blocks, which do not fit the ring; scales that begin at each of
    four places.
    """
    p = product("few rows each", 264, 144 + 128 * seed, seed=seed, **FAMILIES[family])
    size = BlockwiseGemmConfig(**FAMILIES[family]).cluster_size
    replace(p.program, launch_args=replace(p.program.launch_args, grid=size)).run(seed=seed)
    assert p.compare().ok


@pytest.mark.slow
@settings(max_examples=share(12))
@given(
    st.lists(st.integers(0, 150), min_size=1, max_size=7),
    st.integers(0, 9),
    st.booleans(),
    st.integers(0, 99),
)
def test_any_sizes(sizes: list[int], more: int, padded: bool, seed: int) -> None:
    rows = max(sizes) if padded else sum(sizes)
    if rows + more:
        ends = sizes if padded else np.cumsum(sizes).tolist()
        p = product(
            ends,
            40,
            144,
            rows + more,
            padded=padded,
            seed=seed,
            bm=64,
            consumers=1,
            bn=32,
            cluster=1 + seed % 2,
        )
        p.program.run(seed=seed)
        assert p.compare().ok


@pytest.mark.slow
@pytest.mark.parametrize("out", OUTPUTS)
def test_output_dtypes(out: str) -> None:
    p = product("empty ones", out=out)
    p.program.run()
    assert p.compare().ok


def test_values_of_other_groups_and_beyond_them_do_not_count() -> None:
    """A NaN in one row, or its scale, is in that row of C and in no other."""
    p = product("rows left over", 40, 144, bm=64, consumers=1, bn=32)
    p.x.a[2, 5] = np.nan
    p.x.a_scales[0, 4] = np.nan
    p.x.a_scales[:, 300:] = np.nan
    p.program.run()
    assert sorted(set(np.argwhere(np.isnan(p.c))[:, 0].tolist())) == [2, 4]


def test_the_reference_sees_a_wrong_row_and_a_touched_one() -> None:
    p = product([5, 70], 40, 144, 80, padded=True, bm=64, consumers=1, bn=32, out="float32")
    p.program.run()
    assert p.compare().ok
    p.c[1, 79, 3] = 0
    assert not p.compare().ok
    p.c[1, 79, 3] = p.before[1, 79, 3]
    p.c[1, 7] += 100
    assert p.compare().worst_at[0] == 7
    assert not p.compare().ok


def fp8(*shape: int) -> Any:
    return np.zeros(shape, tp.float8_e4m3.numpy)


def f32(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"a": None}, "a must be an array, got None"),
        ({"a": fp8(100)}, "a must be (m, k), rows of all groups, or (groups, m, k), a matrix for"),
        ({"a": np.zeros((100, 272), np.float16)}, "a is float16; it must be float8_e4m3"),
        ({"b": fp8(160, 272)}, "b must have 3 dimensions"),
        (
            {"b": fp8(3, 160, 256)},
            "A is 100×272 and B 3 times 160×256 (n, k); C must be 100×160 and both k equal",
        ),
        ({"c": np.zeros((3, 100, 160), np.float16)}, "c must be a matrix"),
        ({"offsets": np.zeros(2, np.int32)}, "offsets must have shape (3,), it has (2,)"),
        (
            {"b_scales": f32(3, 3, 2)},
            "b_scales must have shape (3, 2, 3), it has (3, 3, 2); B is 3 times 160×272",
        ),
        (
            {"a_scales": f32(100, 4)[:, :3]},
            "a_scales has shape (100, 3), its last dimension contiguous. It must be (3, 100) in row"
            " order or (100, 3) in column order",
        ),
        (
            {"a": fp8(2, 100, 272), "c": f32(3, 100, 160), "a_scales": f32(3, 3, 100)},
            "a must have shape (3, 100, 272), it has (2, 100, 272)",
        ),
        (
            {"a": fp8(3, 100, 272), "c": f32(3, 100, 160), "a_scales": f32(2, 3, 100)},
            "a_scales has shape (2, 3, 100), its last dimension contiguous. It must be (3, 3, 100)"
            " in row order or (3, 100, 3) in column order",
        ),
        (
            {"b": np.asfortranarray(fp8(3, 160, 272).T).T.swapaxes(1, 2).copy().swapaxes(1, 2)},
            "B must be contiguous along k; tensor cores do not transpose fp8. Pass a copy that is",
        ),
        ({"cfg": None}, "cfg is a BlockwiseGemmConfig, got None"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], words: str) -> None:
    fitting = {
        "a": fp8(100, 272),
        "b": fp8(3, 160, 272),
        "a_scales": f32(3, 100),
        "b_scales": f32(3, 2, 3),
        "c": f32(100, 160),
        "offsets": np.zeros(3, np.int32),
        "cfg": BlockwiseGemmConfig(),
    }
    with pytest.raises(tp.BindError, match=re.escape(words)) as caught:
        bind(**(fitting | arguments))
    assert str(caught.value).startswith("gemm_grouped_blockwise")


@FORMS
def test_scales_of_a_in_column_order(padded: bool) -> None:
    p = product([30, 20, 60], 40, 272, 60, padded=padded)
    turned, c = p.x.a_scales.swapaxes(-1, -2), p.before.copy()
    bind(p.x.a, p.x.b, turned, p.x.b_scales, c, p.offsets, BlockwiseGemmConfig()).run()
    p.program.run()
    assert np.array_equal(c, p.c)


@pytest.mark.sampled(suite=8)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_machine_code(family: str) -> None:
    """The main loop of the plain product: no spills, wgmma not serialised, one FFMA an element."""
    cfg = BlockwiseGemmConfig(**FAMILIES[family])
    compiled = cuda.compile(product(n=512, k=512, **FAMILIES[family]).program.kernel)
    assert compiled.spill_bytes == compiled.stack_bytes == 0
    assert "C75" not in compiled.log
    loop = sass.loop_with(sass.disassemble(compiled.data), "QGMMA").count()
    assert loop["QGMMA"] == 4 * cfg.pieces
    assert loop["FFMA"] == cfg.rows * cfg.bn // 128
    assert loop["FMUL"] == 2 * (cfg.rows // 64) * cfg.scale_blocks
    assert not {"FADD", "MEMBAR", "LDG", "LDL", "STL", "MUFU"} & set(loop)


@pytest.mark.parametrize("out", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    "shape",
    [(32768, 4096, 7168, 8), (100, 7168, 2048, 64), (8192, 64, 256, 3), (65536, 2048, 7168, 256)],
)
def test_what_is_chosen_fits(shape: tuple[int, int, int, int], out: str) -> None:
    chosen = heuristics.best(GroupedBlockwiseProblem(*shape, tp.dtype(out)))
    assert chosen.stages >= 3
    named: dict[str, Any] = dict(chosen.as_dict())
    assert product(out=out, **named).program.kernel.smem_bytes <= tp.H200.smem_per_cta
    if shape[0] // shape[3] <= 64:
        assert chosen.bm == 64


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        # padded groups of one height: 1024 rows are four tiles of 256, and 192 rows one of 192
        # rather than two of 128
        ((6144, 4096, 7168, 6), (256, 128)),
        ((6144, 4096, 7168, 32), (192, 128)),
        # rows that follow each other, in random groups
        ((32768, 4096, 7168, 4), (192, 128)),
        ((32768, 7168, 2048, 8), (192, 128)),
        ((8192, 4096, 7168, 64), (128, 256)),
        ((1024, 4096, 7168, 64), (64, 128)),
    ],
    ids=str,
)
def test_what_has_been_measured_to_be_fast_is_chosen(
    shape: tuple[int, int, int, int], tile: tuple[int, int]
) -> None:
    chosen = heuristics.best(GroupedBlockwiseProblem(*shape))
    assert (chosen.bm, chosen.bn) == tile


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"form": "masked"}, "setting form must be rows or padded, got 'masked'"),
        ({"out_dtype": "int32"}, "setting out_dtype must be one of bfloat16, float16, float32"),
        ({"experts": 0}, "setting experts must be at least 1, got 0"),
    ],
    ids=str,
)
def test_settings_that_state_no_problem(given: dict[str, Any], words: str) -> None:
    spec = find("gemm_grouped_blockwise")
    with pytest.raises(tp.BindError, match=re.escape(words)):
        spec.configure(given, tp.H200)
