"""gemm_block_scaled in the simulator: right for every kind, configuration and shape; refused where
it cannot be.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.kernels.gemm.sm100_cases import CLUSTERS, counts, shape_of
from tests.kernels.gemm_block_scaled.cases import BF16, Problem, simulate
from tests.support.ring_kernels import counts_of
from tilepipe.kernels.gemm.reference import activated
from tilepipe.kernels.gemm_block_scaled.config import BlockScaledGemmConfig
from tilepipe.kernels.gemm_block_scaled.layout import KINDS, to_blocked
from tilepipe.kernels.gemm_block_scaled.reference import dequantize, quantize_nvfp4
from tilepipe.kernels.gemm_block_scaled.sm100 import bind
from tilepipe.testing import compare_matmul

CONFIGS: list[dict[str, Any]] = [
    {},
    {"bn": 64},
    {"bn": 192, "stages": 2},
    {"bn": 192, "accumulators": 1},
    {"bn": 256, "accumulators": 1, "stages": 3},
    {"bk": 256, "stages": 2},
    {"bk": 128, "stages": 3},
    {"k_group_size": 2, "stages": 2, "bn": 64},
    {"accumulators": 1},
    {"accumulators": 3, "stages": 3},
    {"cta_group": 2, "cluster": 2, "bn": 256, "accumulators": 1},
    {"cta_group": 2, "cluster": 2, "bn": 64},
    {"cta_group": 2, "cluster": 2, "bn": 192, "k_group_size": 2, "stages": 2, "accumulators": 1},
    {"raster": "columns", "group": 2, "scheduler": "static"},
    {"store_slots": 4},
]


@pytest.mark.slow
@pytest.mark.sampled(suite=6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_setting(config: dict[str, Any], kind: str) -> None:
    simulate(264, 456, 352, kind=kind, clusters=2, seed=1, **config)


def test_nvfp4_with_a_tile_of_one_instruction() -> None:
    simulate(136, 136, 208, kind="nvfp4", bk=64)


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["clc", "static"])
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_clusters(cluster: tuple[int, int, int], scheduler: str) -> None:
    """Ragged at every edge, several tiles a cluster, scales multicast to all that need them, tiles
    that begin inside a piece.
    """
    for kind, bn in (("mxfp8", 128), ("nvfp4", 64)):
        simulate(
            392,
            296,
            544,
            kind=kind,
            bn=bn,
            seed=3,
            clusters=1,
            stages=3,
            scheduler=scheduler,
            **shape_of(cluster),
        )


@pytest.mark.sampled(suite=100, classes=lambda cluster, seed: [cluster[2]])
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_interleavings(cluster: tuple[int, int, int], seed: int) -> None:
    for kind, bn, accumulators, stages in (
        ("mxfp8", 192, 2, 2),
        ("mxfp4", 128, 1, 3),
        ("nvfp4", 64, 2, 3),
    ):
        settings: dict[str, Any] = {"accumulators": accumulators, "stages": stages, "bn": bn}
        if bn % (8 * cluster[0]) == 0:
            simulate(
                600, 424, 352, kind=kind, seed=seed, clusters=2, **settings, **shape_of(cluster)
            )


SHAPES = [
    (1, 8, 32),
    (8, 1, 64),
    (127, 120, 96),
    (128, 128, 128),
    (129, 136, 160),
    (1100, 64, 64),
    (64, 1100, 32),
    (65, 72, 1056),
]


@pytest.mark.sampled(suite=16, classes=lambda shape, group: [shape, group])
@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, int, int], group: int) -> None:
    """Smaller than a tile, one more than a tile, one dimension long, k that ends inside a piece of
    scales.
    """
    m, n, k = shape
    for kind in KINDS:
        problem = Problem(
            m, -(-n // 8) * 8, k, kind=kind, clusters=2, cta_group=group, cluster=group
        )
        problem.right(seed=2)


@pytest.mark.sampled(3, suite=10, classes=lambda steps, group: [steps, group])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("group", [1, 2])
def test_trip_counts(steps: int, group: int) -> None:
    """K shorter and longer than the ring of three; five tiles, so that phases go round."""
    problem = Problem(
        5 * 128 * group,
        64,
        steps * 128 - 32,
        bn=64,
        stages=3,
        cta_group=group,
        cluster=group,
        clusters=1,
    )
    run = problem.right(seed=4)
    assert sum(map(sum, run.completions["inputs.full"])) == 5 * steps
    assert sum(map(sum, run.completions["inputs.empty"])) == 5 * steps * group


@pytest.mark.slow
@pytest.mark.parametrize("out", [BF16, np.float16, np.float32], ids=str)
@pytest.mark.parametrize(
    "dtypes",
    [
        ("float8_e4m3", "float8_e5m2"),
        ("float8_e5m2", "float8_e5m2"),
        ("float8_e5m2", "float8_e4m3"),
    ],
)
def test_dtypes(dtypes: tuple[str, str], out: Any) -> None:
    simulate(136, 136, 224, dtypes=dtypes, out=out)


@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_arrivals_are_those_of_gemm(cluster: tuple[int, int, int]) -> None:
    """The pipelines are the same: two more tiles in a stage change no count."""
    program = Problem(512, 512, 256, **shape_of(cluster)).program
    assert counts_of(program) == counts(*cluster, clc=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_one_wrong_scale_is_seen(kind: str) -> None:
    """Each scale counts: changed after the reference was made, the result is wrong in that row
    only.
    """
    problem = Problem(136, 136, 352, kind=kind, out=np.float32)
    problem.sfa[130, 3] = 2 * problem.sfa[130, 3].astype(np.float32)
    problem.program = problem.bound()
    problem.right()
    problem.sfa[130, 3] = 0.5 * problem.sfa[130, 3].astype(np.float32)
    comparison = problem.compare()
    assert not comparison.ok
    assert comparison.worst_at[0] == 130


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["sfa", "sfb"])
def test_a_scale_that_is_no_number(kind: str, side: str) -> None:
    """Makes its row, or column, NaN; the block after the last of K, which is in the next row's
    piece, does not.
    """
    problem = Problem(264, 264, 160, kind=kind, out=np.float32)
    scales = getattr(problem, side)
    scales.view(np.uint8)[130, 1] = 0xFF if kind.startswith("mx") else 0x7F
    problem.program = problem.bound()
    problem.program.run(seed=1)
    bad = np.isnan(problem.c)
    assert bad[130].all() if side == "sfa" else bad[:, 130].all()
    assert bad.sum() == 264


def test_nvfp4_with_a_scale_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((rows, 96)).astype(np.float32) for rows in (100, 72))
    (a, sfa, a_scale), (b, sfb, b_scale) = quantize_nvfp4(x), quantize_nvfp4(y)
    c = np.zeros((100, 72), np.float32)
    wholes: dict[str, Any] = {"a_scale": np.array([a_scale]), "b_scale": np.array([b_scale])}
    bind(
        a,
        b,
        to_blocked(sfa),
        to_blocked(sfb),
        c,
        BlockScaledGemmConfig(kind="nvfp4", bk=256),
        **wholes,
    ).run()
    assert compare_matmul(c, dequantize(a, sfa, a_scale), dequantize(b, sfb, b_scale).T).ok
    exact = x.astype(np.float64) @ y.astype(np.float64).T
    assert np.linalg.norm(c - exact) < 0.2 * np.linalg.norm(exact)


def test_what_is_done_with_the_sums() -> None:
    m, n, rng = 200, 136, np.random.default_rng(3)
    bias, source = (
        rng.standard_normal(n).astype(np.float32),
        rng.standard_normal((m, n)).astype(BF16),
    )
    extras = {"alpha": -0.5, "bias": bias, "source": source, "beta": 0.75}
    problem = Problem(
        m, n, 160, out=np.float32, extras=extras, activation="relu", cta_group=2, cluster=2
    )
    problem.program.run(seed=2)
    product = dequantize(problem.a, problem.sfa) @ dequantize(problem.b, problem.sfb).T
    want = activated(-0.5 * product + bias + 0.75 * source.astype(np.float64), "relu")
    np.testing.assert_allclose(problem.c, want, rtol=2e-5, atol=1e-4)


def test_a_bias_of_rows() -> None:
    bias = np.random.default_rng(3).standard_normal((200, 1)).astype(np.float32)
    problem = Problem(200, 136, 160, out=np.float32, extras={"bias": bias})
    problem.program.run(seed=2)
    product = dequantize(problem.a, problem.sfa) @ dequantize(problem.b, problem.sfb).T
    np.testing.assert_allclose(problem.c, product + bias, rtol=2e-5, atol=1e-4)


def test_scales_in_any_shape() -> None:
    """As PyTorch has them: a vector, or a matrix of as many; or their bytes."""
    problem = Problem(136, 136, 160)
    sfa, sfb = (
        to_blocked(problem.sfa).reshape(-1),
        to_blocked(problem.sfb).view(np.uint8).reshape(256, -1),
    )
    bind(problem.a, problem.b, sfa, sfb, problem.c, problem.cfg).run()
    assert problem.compare().ok


# -- refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"kind": "mxfp6"},
            "kind must be one of mxfp8, mxfp4, nvfp4 (BlockScaledGemmConfig(kind='mxfp6'))",
        ),
        ({"bm": 64}, "bm must be 128: a block-scaled MMA has 128 rows in each CTA"),
        ({"bn": 96}, "bn must be a multiple of 64 in 64..256"),
        ({"bn": 320}, "bn must be a multiple of 64 in 64..256"),
        (
            {"bk": 64},
            (
                "bk must be a multiple of 128 in 128..256 of mxfp8: scales come for 4 blocks "
                "of K at once"
            ),
        ),
        ({"kind": "nvfp4", "bk": 96}, "bk must be a multiple of 64 in 64..256 of nvfp4"),
        ({"bk": 512}, "bk must be a multiple of 128 in 128..256"),
        (
            {"bn": 256},
            "2 accumulators of 256 columns and 12 columns of scales are 524; tensor memory has 512",
        ),
        (
            {
                "kind": "nvfp4",
                "bk": 256,
                "bn": 192,
                "accumulators": 2,
                "stages": 2,
                "k_group_size": 100,
            },
            "its mbarrier counts up to 1,048,575",
        ),
        ({"accumulators": 5}, "5 accumulators of 128 columns are 640; tensor memory has 512"),
        ({"cta_group": 2}, "cta_group 2 takes an even cluster"),
    ],
    ids=str,
)
def test_settings_that_no_kernel_can_have(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(words)):
        BlockScaledGemmConfig(**settings)


E4M3, E8M0 = tp.float8_e4m3.numpy, tp.float8_e8m0.numpy


def e4m3(*shape: int) -> Any:
    return np.zeros(shape, E4M3)


def e8m0(*shape: int) -> Any:
    return np.zeros(shape, E8M0)


PIECES = (1, 2, 32, 16)  # of 128 rows and k = 256
NVFP4 = BlockScaledGemmConfig(kind="nvfp4", bk=256)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"cfg": None}, "cfg is a BlockScaledGemmConfig, got None"),
        ({"a": None}, "a must be an array, got None"),
        ({"b": e4m3(2, 64, 256)}, "b must be a matrix, it has shape (2, 64, 256)"),
        (
            {"a": np.zeros((128, 256), np.float16)},
            "a is float16; mxfp8 has float8_e4m3 and float8_e5m2",
        ),
        ({"a": np.zeros((128, 256), np.uint8)}, "a is uint8; mxfp8 has float8_e4m3"),
        (
            {"cfg": NVFP4},
            (
                "a is float8_e4m3; nvfp4 has float4_e2m1, packed as uint8: two numbers to a "
                "byte along k"
            ),
        ),
        (
            {"a": np.asfortranarray(e4m3(128, 256))},
            "a: k must be the contiguous dimension; pass a copy that is",
        ),
        ({"a": e4m3(128, 264)[:, :256]}, "dimension 0 has a stride of 264 bytes"),
        ({"a": e4m3(128, 272)}, "a has k = 272; a scale of mxfp8 is of 32 elements along k"),
        ({"a": e4m3(128, 288)}, "A is 128×288 and B 64×256 (n, k)"),
        ({"c": np.zeros((64, 128), np.float32)}, "C must be 128×64 and both k equal, C is 64×128"),
        (
            {"c": e4m3(128, 64)},
            "gemm_block_scaled: c is float8_e4m3; it may be bfloat16, float16, float32",
        ),
        (
            {"sfa": e4m3(*PIECES)},
            "sfa is float8_e4m3; scales of mxfp8 are float8_e8m0, or its bytes as uint8",
        ),
        (
            {"sfb": e8m0(64, 8)},
            "sfb has shape (64, 8), 512 scales; those of 64×256 in pieces of 128 rows × 4 "
            "blocks of 32 are"
            " 1 · 2 · 32 · 16 = 1,024"
            " (tilepipe.kernels.gemm_block_scaled.layout.to_blocked makes them)",
        ),
        ({"sfa": e8m0(2, 1024)[:, ::2]}, "sfa: "),
        ({"bias": np.zeros(63, np.float32)}, "bias must have shape (64,), one value a column"),
        ({"a_scale": np.ones(1, np.float32)}, "a_scale and b_scale have shapes (1,) and None"),
    ],
    ids=lambda x: x[:40] if isinstance(x, str) else "",
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], words: str) -> None:
    fitting = {
        "a": e4m3(128, 256),
        "b": e4m3(64, 256),
        "sfa": e8m0(*PIECES),
        "sfb": e8m0(*PIECES),
        "c": np.zeros((128, 64), np.float32),
    }
    with pytest.raises(tp.BindError, match=re.escape(words)):
        bind(**({"cfg": BlockScaledGemmConfig()} | fitting | arguments))


def test_columns_that_do_not_fit() -> None:
    """The payload's and the allocation's own checks, for kernels that have no such
    configuration.
    """

    def kernel(ctx: tp.Context) -> None:
        payload = tp.BlockScaledTilePayload(
            a_type="float8_e4m3",
            b_type="float8_e4m3",
            a_shape=(128, 128),
            b_shape=(256, 128),
            sfa_type="float8_e8m0",
            sfb_type="float8_e8m0",
            sfa_shape=(128, 4),
            sfb_shape=(256, 4),
        )
        tp.BlockScaledTmem(ctx, tp.OutputPipelineConfig(2, 256), payload)

    with pytest.raises(
        tp.TraceError,
        match=r"2 accumulators × 256 columns \+ 4 of SFA \+ 8 of SFB = 524, but tensor memory "
        r"has 512",
    ):
        tp.kernel()(kernel).bind()
    with pytest.raises(tp.TraceError, match="at least 1 row and 1 block of K, got 128 and 0"):
        tp.scale_factor_k_major(128, 0)
    with pytest.raises(tp.TraceError, match="at least 1 row and 1 block of K, got -1 and 4"):
        tp.ScaleFactorLayout(-1, 4)
    layout = tp.scale_factor_k_major(200, 9)
    assert (layout.row_pieces, layout.k_pieces, layout.shape, layout.box) == (
        2,
        3,
        (12, 256),
        (1, 6, 256),
    )
