"""The grouped GEMM in the simulator: every family, every kind of offsets, and what it says of
arguments that do not fit.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tilepipe as tp
from tests.kernels.gemm_grouped.families import FAMILIES, OFFSETS, OUTPUTS, M, product
from tests.support.examples import share
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.kernels.gemm.model import smem_bytes
from tilepipe.kernels.gemm_grouped import heuristics, reference
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.heuristics import GroupedProblem
from tilepipe.kernels.gemm_grouped.sm90 import bind
from tilepipe.registry.catalog import find


@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_right(family: str) -> None:
    for seed, offsets in enumerate(("ragged", "empty ones")):
        p = product(offsets, seed=seed, **FAMILIES[family])
        run = p.program.run(seed=seed)
        p.verify()
        assert run.advice == []


@pytest.mark.slow
@pytest.mark.sampled(suite=5)
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("family", ["one consumer", "cluster", "ping-pong"])
def test_offsets(offsets: str, family: str) -> None:
    p = product(offsets, 72, 40, **FAMILIES[family])
    p.program.run(seed=1)
    p.verify()
    assert np.array_equal(p.c, p.before) == (offsets == "all empty")


@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("offsets", OFFSETS)
def test_padded_groups(offsets: str) -> None:
    """The same numbers count rows of each group: below 0 none, beyond the matrix all."""
    for family in ("cluster", "ping-pong"):
        p = product(offsets, 72, 40, 150, padded=True, **FAMILIES[family])
        p.program.run(seed=1)
        p.verify()
        assert np.array_equal(p.c, p.before) == (offsets == "all empty")


@pytest.mark.sampled(suite=3, classes=lambda family, seed: [family, seed])
@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    ["default", "cluster", "cluster along n", "ping-pong", "ping-pong cluster", "four along m"],
)
@pytest.mark.parametrize("seed", range(1, 4))
def test_interleavings_of_several_tiles_a_cluster(family: str, seed: int) -> None:
    """Few clusters: each goes through many groups, and through its ring by trip counts that do not
    fit it.
    """
    p = product(
        "few rows each" if seed == 2 else "ragged",
        200,
        72 + 64 * seed,
        seed=seed,
        **FAMILIES[family],
    )
    clusters = 3 if seed == 3 else 1
    size = GroupedGemmConfig(**FAMILIES[family]).cluster_size
    replace(p.program, launch_args=replace(p.program.launch_args, grid=clusters * size)).run(
        seed=seed
    )
    p.verify()


ANY_SIZES = given(
    st.lists(st.integers(0, 150), min_size=1, max_size=9), st.integers(0, 40), st.integers(0, 2**16)
)


@pytest.mark.slow
@settings(max_examples=share(12))
@ANY_SIZES
def test_any_sizes(sizes: list[int], more: int, seed: int) -> None:
    grouped_product(sizes, more, seed)


@pytest.mark.thorough
@settings(max_examples=share(150))
@ANY_SIZES
def test_many_more_sizes(sizes: list[int], more: int, seed: int) -> None:
    grouped_product(sizes, more, seed)


def grouped_product(sizes: list[int], more: int, seed: int) -> None:
    """Runs and verifies groups of those many rows, and `more` rows that are of no group."""
    rows = sum(sizes) + more
    if rows == 0:
        return
    p = product(
        np.cumsum(sizes).tolist(),
        40,
        32,
        rows,
        bm=64,
        consumers=1,
        bn=32,
        bk=32,
        cluster=1 + seed % 2,
        seed=seed,
    )
    p.program.run(seed=seed)
    p.verify()


@pytest.mark.slow
@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("order", ["row", "col"])
def test_output_dtypes_and_orders(out: str, order: str) -> None:
    p = product("ragged", 136, 104, dtype="float16", out=out, order=order)
    p.program.run()
    p.verify()


@pytest.mark.slow
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", ["float8_e4m3", "bfloat16"])
def test_scales(dtype: str, scaled: bool) -> None:
    bk = 128 if dtype.startswith("float8") else 64
    p = product("empty ones", 104, 272, dtype=dtype, out="float32", scaled=scaled, bk=bk, stages=3)
    p.program.run()
    p.verify()


@pytest.mark.slow
def test_more_groups_than_a_warp_has_lanes() -> None:
    ends = np.sort(np.random.default_rng(0).integers(0, 300, 257)).tolist()
    p = product(ends, 24, 32, 300, bm=64, consumers=1, bn=32, bk=32)
    replace(p.program, launch_args=replace(p.program.launch_args, grid=7)).run(seed=1)
    p.verify()


def test_the_bounds_of_groups() -> None:
    def of(*offsets: int) -> list[tuple[int, int]]:
        return reference.bounds(np.array(offsets, np.int32), 10)

    assert of(3, 3, 10) == [(0, 3), (3, 3), (3, 10)]
    assert of(-4, 12, 5) == [(0, 0), (0, 10), (10, 10)]
    assert of(6, 2, 8) == [(0, 6), (6, 6), (6, 8)]


@pytest.mark.parametrize("split", reference.SPLITS)
@pytest.mark.parametrize("groups", [1, 2, 7, 64])
def test_splits_share_all_rows(split: str, groups: int) -> None:
    ends = reference.split_rows(np.random.default_rng(1), 100, groups, split)
    assert ends.dtype == np.int32
    assert ends.shape == (groups,)
    assert ends[-1] == 100
    assert (np.diff(ends, prepend=0) >= 0).all()
    if split == "even":
        assert np.ptp(np.diff(ends, prepend=0)) <= 1


def test_a_split_that_there_is_not() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(
        tp.BindError, match="skewed, one, or the rows of each group as 129,0,255, got 'odd'"
    ):
        reference.split_rows(rng, 1, 1, "odd")
    with pytest.raises(tp.BindError, match="split gives the rows of 2 groups; experts=3"):
        reference.split_rows(rng, 9, 3, "4,5")
    with pytest.raises(tp.BindError, match=re.escape("split gives 4 + 5 = 9 rows; m=8")):
        reference.split_rows(rng, 8, 2, "4,5")


def test_a_split_of_given_rows() -> None:
    assert reference.split_rows(np.random.default_rng(0), 9, 4, "4,0,1,3").tolist() == [4, 4, 5, 8]


def test_the_reference_sees_a_wrong_row_and_a_touched_one() -> None:
    p = product("rows left over", 16, 16, bm=64, consumers=1, bn=32)
    p.program.run()
    p.verify()
    p.c[7, 3] += 1
    assert p.compare().worst_at == (7, 3)
    p.reset()
    p.program.run()
    p.c[M - 1, 15] = 0
    found = p.compare()
    assert not found.ok
    assert found.worst_at == (M - 1, 15)


def half(*shape: int) -> Any:
    return np.zeros(shape, np.float16)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"a": None}, "a must be an array, got None"),
        ({"a": half(64)}, "a must be (m, k), rows of all groups, or (groups, m, k), a matrix for"),
        (
            {"a": half(2, 100, 48), "c": half(3, 100, 32)},
            "a must have shape (3, 100, 48), it has (2, 100, 48)",
        ),
        (
            {
                "a": half(3, 100, 48),
                "c": half(3, 100, 32),
                "a_scale": np.zeros(100, np.float32),
                "b_scale": np.zeros((3, 32), np.float32),
            },
            "a (3, 100, 48) is a matrix for each group; scales of rows are for the rows of all",
        ),
        ({"b": half(32, 48)}, "b must have 3 dimensions"),
        (
            {"b": half(3, 32, 56)},
            (
                "A is 100×48 and B 3 times 32×56 (n, k); C must be 100×32 and both k equal, "
                "C is 100×32"
            ),
        ),
        ({"c": half(100, 40)}, "C must be 100×32"),
        ({"c": np.zeros((100, 32), np.int32)}, "c is int32; it may be bfloat16, float16, float32"),
        ({"offsets": np.zeros(3, np.float32)}, "offsets is float32; it must be int32"),
        ({"offsets": np.zeros(2, np.int32)}, "offsets must have shape (3,), it has (2,)"),
        (
            {"offsets": np.zeros((3, 1), np.int32)},
            "offsets must have 1 dimension, it has shape (3, 1)",
        ),
        (
            {"a": np.zeros((100, 48), np.float32)},
            "a is float32; it may be bfloat16, float16, float8_e4m3, float8_e5m2",
        ),
        (
            {"b": np.zeros((3, 32, 48), tp.bfloat16.numpy)},
            "the same for A and B, or fp8; got float16 and bfloat16",
        ),
        (
            {"a": np.asfortranarray(half(104, 48))[:100]},
            "A is contiguous along m. TMA copies from multiples of 16 bytes",
        ),
        ({"a": half(100, 52)[:, :48]}, "a: an array of shape (100, 48)"),
        ({"c": np.asfortranarray(half(104, 32))[:100]}, "c: an array of shape (100, 32)"),
        (
            {"b_scale": np.zeros((3, 32), np.float32)},
            "a_scale and b_scale come together; a_scale is not given",
        ),
        (
            {"a_scale": half(100), "b_scale": np.zeros((3, 32), np.float32)},
            "a_scale is float16; it must be float32",
        ),
        (
            {"a_scale": np.zeros(100, np.float32), "b_scale": np.zeros((32, 3), np.float32)},
            "b_scale must have shape (3, 32), it has (32, 3)",
        ),
        ({"cfg": None}, "cfg is a GroupedGemmConfig, got None"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], words: str) -> None:
    fitting = {
        "a": half(100, 48),
        "b": half(3, 32, 48),
        "c": half(100, 32),
        "offsets": np.zeros(3, np.int32),
    }
    with pytest.raises(tp.BindError, match=re.escape(words)) as caught:
        bind(**({"cfg": GroupedGemmConfig()} | fitting | arguments))
    assert str(caught.value).startswith("gemm_grouped")


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"cluster": 0}, "cluster must be at least 1"),
        (
            {"bm": 100},
            "bm must be 64 or 128 rows for each of the 2 warpgroups of a tile: 128 or 256",
        ),
        (
            {"schedule": "pingpong", "consumers": 3, "bm": 192},
            "schedule pingpong takes 2 consumers",
        ),
        ({"cluster": 2, "cluster_n": 2}, "only one of cluster and cluster_n may be above 1"),
        ({"raster": "spiral"}, "raster must be one of grouped, rows, columns"),
    ],
    ids=str,
)
def test_settings_that_no_kernel_can_have(given: dict[str, Any], rule: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(rule)) as caught:
        GroupedGemmConfig(**given)
    said = str(caught.value)
    assert all(f"{name}={value!r}" in said for name, value in given.items())
    assert "stages=" not in said, "at its default, and no rule names it"


@pytest.mark.sampled(suite=100)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_machine_code(family: str) -> None:
    """No spills, wgmma not serialised, and nothing of the schedule in the loop over K."""
    cfg = GroupedGemmConfig(**FAMILIES[family])
    compiled = cuda.compile(product(**FAMILIES[family]).program.kernel)
    assert compiled.spill_bytes == compiled.stack_bytes == 0
    assert "C75" not in compiled.log
    loop = sass.loop_with(sass.disassemble(compiled.data), "HGMMA").count()
    assert loop["HGMMA"] == cfg.rows // 64 * (cfg.bk // 16) * (cfg.bn // cfg.block_cols)
    assert not {"LDG", "STG", "LDL", "STL", "MUFU", "I2F"} & set(loop)


@pytest.mark.parametrize("out", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    "shape",
    [(4096, 4096, 4096, 8), (100, 8192, 512, 64), (8192, 64, 256, 3), (65536, 2048, 7168, 256)],
)
def test_what_is_chosen_fits(shape: tuple[int, int, int, int], out: str) -> None:
    problem = GroupedProblem(*shape, out_dtype=tp.dtype(out))
    chosen = heuristics.best(problem)
    assert chosen == heuristics.candidates(problem)[0]
    assert chosen.stages >= 3
    assert smem_bytes(chosen, tp.bfloat16) <= tp.H200.smem_per_cta
    settings = {name: getattr(chosen, name) for name in chosen.names()}
    assert product(out=out, **settings).program.kernel.smem_bytes <= tp.H200.smem_per_cta
    if shape[0] // shape[3] <= 64:
        assert chosen.bm == 64


def test_a_chip_without_room() -> None:
    tiny = replace(tp.H200, name="a chip", smem_per_cta=16384)
    with pytest.raises(
        tp.LimitError, match="no configuration of the grouped GEMM fits a chip: 16,384 bytes"
    ):
        heuristics.best(GroupedProblem(64, 64, 64, 1), tiny)


def test_what_b_in_column_order_allows() -> None:
    assert all(
        cfg.bn // cfg.cluster % 64 == 0
        for cfg in heuristics.candidates(GroupedProblem(512, 512, 512, 2, b_order="col"))
    )
    with pytest.raises(tp.BindError, match="loaded in parts of 48, which must be a multiple of"):
        product("one", 96, 64, order="col", bn=96, cluster=2)


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((8192, 4096, 7168, 64), {"bm": 64, "bn": 256}),
        ((8192, 28672, 4096, 8), {"bm": 128, "bn": 256}),
        ((1024, 4096, 7168, 64), {"bm": 64, "bn": 256}),
    ],
    ids=str,
)
def test_what_has_been_measured_to_be_fast_is_chosen(
    shape: tuple[int, int, int, int], tile: dict[str, int]
) -> None:
    chosen = heuristics.best(GroupedProblem(*shape))
    assert {name: getattr(chosen, name) for name in tile} == tile


@pytest.mark.sampled(2)
@pytest.mark.parametrize("split", reference.SPLITS)
def test_the_registered_kernel(split: str) -> None:
    spec = find("gemm_grouped")
    settings_, origin = spec.configure(
        {"m": 200, "n": 72, "k": 40, "experts": 5, "split": split, "b_order": "col"}, None
    )
    assert "defaults" in origin
    case = spec.make(settings_, 3)
    case.program.run(seed=3)
    assert case.verify().ok
    assert case.tiles >= 2
    case.output[:100] *= 1.02
    assert not case.verify().ok


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"experts": 0}, "setting experts must be at least 1, got 0"),
        ({"m": 2**20, "k": 2**12}, "an operand of 4,294,967,296 elements is more than a run takes"),
        ({"b_order": "odd"}, "setting b_order must be row or col, got 'odd'"),
        ({"dtype": "float32"}, "setting dtype must be bfloat16 or float16, got float32"),
    ],
    ids=str,
)
def test_settings_that_state_no_product(given: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(words)):
        find("gemm_grouped").configure(given, tp.H200)
