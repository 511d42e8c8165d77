"""The shipped GEMM: right in the simulator in every configuration, and compiled to the instructions
a hand-written one has.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tilepipe import cuda
from tilepipe.cuda.nvrtc.sass import disassemble, loops
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.validation import check_stage_bytes
from tilepipe.testing import compare_matmul

BF16 = ml_dtypes.bfloat16


def simulate(
    m: int,
    n: int,
    k: int,
    seed: int = 0,
    dtype: Any = BF16,
    out: Any = BF16,
    orders: str = "CC",
    **settings: Any,
) -> Any:
    rng = np.random.default_rng(m + n + k)
    a = np.asarray(rng.standard_normal((m, k)).astype(dtype), order=orders[0])  # type: ignore[call-overload]
    b = np.asarray(rng.standard_normal((n, k)).astype(dtype), order=orders[1])  # type: ignore[call-overload]
    c = np.full((m, n), np.nan, out)
    run = gemm.bind(a, b, c, GemmConfig(**settings)).run(seed=seed)
    comparison = compare_matmul(c, a, b.T)
    assert comparison.ok, comparison
    return run


CONFIGS = [
    {},
    {"consumers": 1},
    {"consumers": 1, "bm": 64},
    {"bm": 256, "stages": 3},
    {"bn": 256},
    {"bk": 128, "stages": 2},
    {"k_group_size": 2, "stages": 2},
    {"k_group_size": 3, "stages": 2, "consumers": 1},
    {"cluster": 2},
    {"cluster": 2, "bn": 256, "raster": "columns"},
    {"cluster": 2, "k_group_size": 2, "stages": 2, "consumers": 1},
    {"stages": 2, "raster": "rows"},
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_configuration_is_right(config: dict[str, Any]) -> None:
    simulate(400, 328, 456, **config)


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("cluster", [1, 2])
def test_both_orders_of_both_operands(orders: str, cluster: int) -> None:
    simulate(264, 200, 136, orders=orders, cluster=cluster)


@pytest.mark.parametrize(
    ("dtype", "out"), list(itertools.product([BF16, np.float16], [BF16, np.float16, np.float32]))
)
def test_dtypes(dtype: Any, out: Any) -> None:
    simulate(136, 72, 200, dtype=dtype, out=out)


@pytest.mark.parametrize(
    "shape",
    [
        (1, 8, 8),
        (8, 8, 8),
        (129, 136, 8),
        (128, 128, 64),
        (2000, 64, 64),
        (64, 2000, 64),
        (65, 72, 2000),
    ],
)
def test_shapes(shape: tuple[int, int, int]) -> None:
    simulate(*shape)


@pytest.mark.parametrize("seed", range(1, 9))
def test_interleavings(seed: int) -> None:
    simulate(300, 200, 520, seed=seed, cluster=2, stages=3)


def on_two_ctas(program: tp.Program) -> tp.Program:
    """The program with a grid for two SMs."""
    return replace(program, launch_args=replace(program.launch_args, grid=2))


def test_several_tiles_a_cta_and_trip_counts_that_do_not_fit_the_ring() -> None:
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal((512, 200)).astype(BF16),
        rng.standard_normal((384, 200)).astype(BF16),
    )
    c = np.zeros((512, 384), BF16)
    config = GemmConfig(stages=3)
    run = on_two_ctas(gemm.bind(a, b, c, config)).run(seed=3)
    assert compare_matmul(c, a, b.T).ok
    per_stage = np.array(run.completions["inputs.full"])
    assert per_stage.shape == (2, 3)
    assert per_stage.sum() == 12 * 4  # 12 tiles of 4 k-steps
    assert (per_stage == np.array(run.completions["inputs.empty"])).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bn", [64, 128, 192, 256])
@pytest.mark.parametrize(
    "out", [BF16, np.float16, np.float32], ids=["bfloat16", "float16", "float32"]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_output_slots_of_consecutive_tiles(bn: int, out: Any, seed: int) -> None:
    """A CTA with several tiles writes a slot again only after its last store has read it, whatever
    the number of slices.
    """
    rng = np.random.default_rng(bn)
    a, b = (
        rng.standard_normal((512, 64)).astype(BF16),
        rng.standard_normal((2 * bn, 64)).astype(BF16),
    )
    c = np.zeros((512, 2 * bn), out)
    config = GemmConfig(bn=bn)
    on_two_ctas(gemm.bind(a, b, c, config)).run(seed=seed)
    assert compare_matmul(c, a, b.T).ok


def test_the_trace_does_not_depend_on_the_shapes() -> None:
    def text(m: int, n: int, k: int) -> str:
        gemm.gemm.forget()
        a, b, c = (np.zeros(shape, BF16) for shape in ((m, k), (n, k), (m, n)))
        return str(gemm.bind(a, b, c, GemmConfig()))

    assert text(256, 256, 256) == text(1000, 328, 776)


def test_operands_that_do_not_fit_together() -> None:
    with pytest.raises(tp.BindError, match="A is 64×64 and B 64×72"):
        gemm.bind(
            np.zeros((64, 64), BF16),
            np.zeros((64, 72), BF16),
            np.zeros((64, 64), BF16),
            GemmConfig(),
        )
    with pytest.raises(tp.BindError, match="C is 64×72"):
        gemm.bind(
            np.zeros((64, 64), BF16),
            np.zeros((64, 64), BF16),
            np.zeros((64, 72), BF16),
            GemmConfig(),
        )
    with pytest.raises(tp.BindError, match="the same for A and B"):
        gemm.bind(
            np.zeros((64, 64), BF16),
            np.zeros((64, 64), np.float16),
            np.zeros((64, 64), BF16),
            GemmConfig(),
        )
    with pytest.raises(tp.BindError, match="matrices"):
        gemm.bind(
            np.zeros(64, BF16),
            np.zeros((64, 64), BF16),
            np.zeros((64, 64), BF16),
            GemmConfig(),
        )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bn": "64"}, "bn must be an integer, got '64'"),
        ({"bk": None}, "bk must be an integer, got None"),
        ({"stages": 2.5}, "stages must be an integer, got 2.5"),
        ({"stages": True}, "stages must be an integer, got True"),
        ({"raster": 3}, "raster must be a string, got 3"),
        ({"raster": "zigzag"}, "raster must be one of grouped, rows, columns"),
        ({"k_group_size": "x"}, "k_group_size must be an integer, got 'x'"),
        ({"cluster": 0}, "cluster must be at least 1"),
        ({"consumers": 0}, "consumers must be at least 1"),
        (
            {"bm": 256, "bn": 256},
            (
                r"accumulator of 128×256 float32 takes? 128 \* 256 / 128 = 256 registers of "
                r"each thread; at most \d+"
            ),
        ),
        ({"bm": 128, "bn": 256, "consumers": 1}, "128×256 float32"),
    ],
    ids=str,
)
def test_settings_that_no_kernel_can_have(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match=words):
        GemmConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"consumers": 4}, "consumers must be 1, 2 or 3"),
        ({"consumers": 9, "bn": 20}, "consumers must be 1, 2 or 3"),
        ({"bn": 264}, "bn must be a multiple of 8 in 8..256, or of 32 in 256..512"),
        (
            {"bm": 512, "bn": 16},
            "bm must be 64, 128 or 192 rows for each of the 2 warpgroups of a tile",
        ),
        (
            {"consumers": 3, "bm": 192, "bn": 216},
            "bn above 200 must be a multiple of 16 where consumers is 3: two wgmmas have half of"
            " the columns each",
        ),
    ],
    ids=str,
)
def test_one_rule_that_is_broken_is_said_alone(settings: dict[str, Any], rule: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        GemmConfig(**settings)
    assert str(caught.value).startswith(f"{rule} (")
    assert all(f"{name}={value}" in str(caught.value) for name, value in settings.items())


def test_a_stage_of_more_bytes_than_its_barrier_counts() -> None:
    words = (
        "100 * (128 + 128) * 64 * 2 bytes = 3,276,800 bytes, and the stage's mbarrier counts "
        "up to 1,048,575"
    )
    with pytest.raises(
        tp.BindError,
        match=rf"k_group_size=100 makes .*{re.escape(words)}.* k_group_size may be 31 at most",
    ):
        program(k_group_size=100)
    with pytest.raises(tp.LimitError, match="shared memory"):
        program(k_group_size=31)
    check_stage_bytes(128, 128, 64, 31, tp.bfloat16)
    for a_and_b in ((128, 64, 64, 22, tp.bfloat16, 2), (256, 256, 128, 16, tp.float8_e4m3)):
        with pytest.raises(
            tp.BindError, match=r"1,\d{3},\d{3} bytes, and .* may be (21|15) at most"
        ):
            check_stage_bytes(*a_and_b)


def program(orders: str = "CC", **settings: Any) -> tp.Program:
    a, b = (np.zeros((512, 512), BF16, order=order) for order in orders)  # type: ignore[call-overload]
    return gemm.bind(a, b, np.zeros((512, 512), BF16), GemmConfig(**settings))


@pytest.mark.slow
@pytest.mark.sampled(suite=3)
@pytest.mark.parametrize(
    "config", [*CONFIGS, {"orders": "FF"}, {"orders": "FC", "cluster": 2}], ids=str
)
def test_compiles_without_spills_or_silent_losses(config: dict[str, Any]) -> None:
    compiled = cuda.compile(program(**config).kernel)
    assert compiled.spill_bytes == 0
    assert compiled.stack_bytes == 0
    for warning in ("C7508", "C7510", "C7514"):
        assert warning not in compiled.log


def legal(**settings: Any) -> bool:
    try:
        GemmConfig(**settings)
    except tp.BindError:
        return False
    return True


TILES = [
    {"bm": rows * consumers, "bn": bn, "consumers": consumers, "cluster": cluster, "stages": 2}
    for rows, bn, consumers, cluster in itertools.product(
        (64, 128), (64, 128, 192, 256), (1, 2), (1, 2)
    )
]


@pytest.mark.sampled(suite=9)
@pytest.mark.slow
@pytest.mark.parametrize("out", [BF16, np.float32], ids=["bfloat16", "float32"])
@pytest.mark.parametrize("config", [c for c in TILES if legal(**c)], ids=str)
def test_every_tile_that_the_rules_allow_compiles_without_spills(
    config: dict[str, Any], out: Any
) -> None:
    a = np.zeros((512, 512), BF16)
    compiled = cuda.compile(
        gemm.bind(a, a.copy(), np.zeros((512, 512), out), GemmConfig(**config)).kernel
    )
    assert (compiled.spill_bytes, compiled.stack_bytes) == (0, 0)


@pytest.mark.parametrize(
    "config", [{}, {"bn": 256, "cluster": 2}, {"k_group_size": 2, "stages": 2}], ids=str
)
@pytest.mark.slow
def test_the_k_loop_has_the_instructions_of_a_hand_written_one(config: dict[str, Any]) -> None:
    cfg = GemmConfig(**config)
    instructions = disassemble(cuda.compile(program(**config).kernel).data)
    opcodes = {i.base for i in instructions}
    assert {"HGMMA", "UTMALDG", "SYNCS", "UTMASTG", "USETMAXREG"} <= opcodes
    assert not {"LDL", "STL"} & opcodes
    inner = min(
        (loop for loop in loops(instructions) if loop.count()["HGMMA"]),
        key=lambda loop: len(loop.instructions),
    )
    assert inner.count()["HGMMA"] == cfg.rows // 64 * cfg.bk // 16 * cfg.k_group_size
    assert inner.count()["MEMBAR"] == 0
    assert len(inner.instructions) <= 150


def test_beta_without_a_source() -> None:
    a, b, c = np.zeros((64, 64), BF16), np.zeros((64, 64), BF16), np.zeros((64, 64), BF16)
    with pytest.raises(
        tp.BindError,
        match=r"beta=2.0 scales source, which is not given; to add to what C holds, pass it as "
        r"source",
    ):
        gemm.bind(a, b, c, GemmConfig(), beta=2.0)


def half(*shape: int) -> Any:
    return np.zeros(shape, np.float16)


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"cfg": None}, "cfg is a GemmConfig, got None"),
    ({"cfg": {}}, "cfg is a GemmConfig, got {}"),
    ({"a": None}, "a must be an array, got None"),
    ({"c": [[1.0]]}, "c must be an array, got [[1.0]]"),
    ({"bias": 3}, "bias must be an array, got 3"),
    ({"bias": np.zeros(128)}, "bias is float64; it may be bfloat16, float16, float32"),
    ({"source": 5.0, "beta": 1.0}, "source must be an array, got 5.0"),
    ({"source": np.zeros((128, 128), np.int8), "beta": 1.0}, "source is int8"),
    ({"a_scale": 1.0, "b_scale": 1.0}, "a_scale must be an array, got 1.0"),
    (
        {"a_scale": np.zeros(1, np.int32), "b_scale": np.zeros(1, np.int32)},
        "a_scale is int32; it may be float32",
    ),
    ({"bias": half(256)[::2]}, "gemm: bias: an array of shape (128,) with strides (4,)"),
    ({"alpha": "x"}, "alpha must be a number, got 'x'"),
    ({"alpha": None}, "alpha must be a number, got None"),
    ({"alpha": 2j}, "alpha must be a number"),
    ({"source": half(128, 128), "beta": "1"}, "beta must be a number, got '1'"),
]


@pytest.mark.slow
@pytest.mark.parametrize("swap", ["none", "ab"])
def test_a_bias_of_rows(swap: str) -> None:
    """Right in the simulator and from its own PTX, and safe in every interleaving."""
    a, b, bias = half(136, 64), half(128, 64), half(136, 1)
    a[:], b[:], bias[:] = 0.25, 0.5, np.arange(136)[:, None]
    want = np.broadcast_to(8 + bias, (136, 128))
    c = half(136, 128)
    made = gemm.bind(a, b, c, GemmConfig(swap=swap), bias=bias)
    made.run()
    assert np.array_equal(c, want)
    assert made.check().ok
    c[:] = 0
    made.ptx().run()
    assert np.array_equal(c, want)


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS, ids=[words for _, words in BAD_OPTIONS])
def test_arguments_of_the_wrong_kind(options: dict[str, Any], words: str) -> None:
    arguments = {
        "a": half(128, 64),
        "b": half(128, 64),
        "c": half(128, 128),
        "cfg": GemmConfig(),
    } | options
    with pytest.raises(tp.BindError, match=re.escape(words)):
        gemm.bind(**arguments)


@pytest.mark.parametrize(
    ("dtype", "settings", "words"),
    [
        (
            "float32",
            {"bk": 32},
            "A is contiguous along m; tensor cores transpose 16-bit elements only",
        ),
        (
            "float16",
            {"cluster_n": 4},
            (
                "tiles of 128 along m are loaded in parts of 32, which must be a multiple of "
                "64: change bm"
            ),
        ),
        (
            "float16",
            {"swap": "ab", "cluster": 8},
            "loaded in parts of 16, which must be a multiple of 64: change bn and cluster",
        ),
        (
            "float16",
            {"swap": "ab", "bn": 320, "bm": 64, "consumers": 1, "stages": 2},
            "tiles of 320 along m are loaded in parts of 160",
        ),
        (
            "float16",
            {"swap": "ab", "bn": 56, "split_k": 7},
            "A is contiguous along m, and its tiles have 56 along m; tensor cores read them in"
            " lines of 16, 32 or 64, and 56 / 16 = 3.5: change bn, or pass A contiguous along k",
        ),
        (
            "float16",
            {"swap": "ab", "bn": 168},
            "168 / 16 = 10.5: change bn",
        ),
    ],
)
def test_operands_that_are_not_contiguous_along_k(
    dtype: str, settings: dict[str, Any], words: str
) -> None:
    a, b = np.zeros((64, 128), dtype).T, np.zeros((128, 64), dtype)
    with pytest.raises(tp.BindError, match=re.escape(words)):
        gemm.bind(a, b, half(128, 128), GemmConfig(**settings))


def test_split_k_does_not_go_with_ping_pong() -> None:
    with pytest.raises(tp.BindError, match="split_k above 1 takes schedule cooperative"):
        GemmConfig(bm=64, schedule="pingpong", split_k=2)


@pytest.mark.parametrize("bn", [320, 448])
def test_an_accumulator_block_is_split_evenly(bn: int) -> None:
    """Above 256 columns there are two blocks, and each is split."""
    with pytest.raises(tp.BindError, match="multiple of 8, of 16 where bn is above 256"):
        GemmConfig(bm=64, consumers=1, bn=bn, split_k=3, stages=2)


ONE_OF_THREE = (
    "only one of cluster, cluster_n and split_k may be above 1, and that is 2, 4 or 8, of split_k 2"
    " to 8"
)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"split_k": 9, "bn": 144}, ONE_OF_THREE),
        ({"split_k": 2, "cluster": 2}, ONE_OF_THREE),
        ({"cluster": 4, "cluster_n": 4}, ONE_OF_THREE),
        ({"cluster": 3}, ONE_OF_THREE),
        (
            {"bn": 16, "cluster": 4},
            "each CTA of a cluster loads 8 rows of the B tiles of a stage, or more; bn *"
            " k_group_size = 16 are less than 8 * cluster = 32",
        ),
    ],
    ids=str,
)
def test_rules_of_clusters(settings: dict[str, Any], rule: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(rule)):
        GemmConfig(**settings)


@pytest.mark.parametrize("parts", [3, 5, 6, 7])
def test_any_number_of_ctas_splits_k(parts: int) -> None:
    """Each stores as few as eight columns; the last has fewer steps of K, or none."""
    for settings in ({"bn": 8 * parts}, {"bn": 16 * parts, "swap": "ab"}):
        simulate(136, 200, 520, seed=parts, bm=64, consumers=1, split_k=parts, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [3, 5])
def test_any_number_of_ctas_that_split_k_is_decided(parts: int) -> None:
    a, b, c = (np.zeros(x, BF16) for x in ((128, 128), (8 * parts, 128), (128, 8 * parts)))
    config = GemmConfig(bm=64, bn=8 * parts, bk=32, consumers=1, stages=2, split_k=parts)
    program = gemm.bind(a, b, c, config)
    few = replace(program, launch_args=replace(program.launch_args, grid=parts))
    assert few.check().verdict == "verified"
