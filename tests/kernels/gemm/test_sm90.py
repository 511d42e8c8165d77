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


def program(orders: str = "CC", **settings: Any) -> tp.Program:
    a, b = (np.zeros((512, 512), BF16, order=order) for order in orders)  # type: ignore[call-overload]
    return gemm.bind(a, b, np.zeros((512, 512), BF16), GemmConfig(**settings))


@pytest.mark.slow
@pytest.mark.sampled(suite=5)
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


@pytest.mark.sampled(suite=18)
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
    "config",
    [
        {},
        {"bn": 256, "cluster": 2},
        pytest.param({"k_group_size": 2, "stages": 2}, marks=pytest.mark.thorough),
    ],
    ids=str,
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


def half(*shape: int) -> Any:
    return np.zeros(shape, np.float16)


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


@pytest.mark.parametrize("parts", [3, 5, 6, 7])
def test_any_number_of_ctas_splits_k(parts: int) -> None:
    """Each stores as few as eight columns; the last has fewer steps of K, or none."""
    for settings in ({"bn": 8 * parts}, {"bn": 16 * parts, "swap": "ab"}):
        simulate(136, 200, 520, seed=parts, bm=64, consumers=1, split_k=parts, **settings)


@pytest.mark.parametrize("settings", [{"split_k": 2}, {"split_k": 4, "bn": 96}], ids=str)
def test_a_warp_sends_consecutive_bytes_of_its_sums(settings: dict[str, Any]) -> None:
    """Two floats of each lane, which are 32 bytes of each of eight rows: shared memory of another
    CTA takes them slowly where they lie apart.
    """
    a, b, c = (np.zeros(shape, BF16) for shape in ((128, 256), (128, 256), (128, 128)))
    code = gemm.bind(a, b, c, GemmConfig(**settings)).source()
    places = re.findall(r"= on_cta\(parts\(.*?\), \d\) \+ swizzle_32\((.*)\);", code)
    assert len(places) == settings["split_k"]
    for place in places:
        written = place.replace(" / ", " // ").replace("warp_in_group", "0")
        offsets = [eval(written, {"lane": lane}) for lane in range(32)]
        assert sorted(x ^ (x >> 3 & 16) for x in offsets) == list(range(0, 256, 8))


@pytest.mark.slow
@pytest.mark.parametrize("parts", [3, 5])
def test_any_number_of_ctas_that_split_k_is_decided(parts: int) -> None:
    a, b, c = (np.zeros(x, BF16) for x in ((128, 128), (8 * parts, 128), (128, 8 * parts)))
    config = GemmConfig(bm=64, bn=8 * parts, bk=32, consumers=1, stages=2, split_k=parts)
    program = gemm.bind(a, b, c, config)
    few = replace(program, launch_args=replace(program.launch_args, grid=parts))
    assert few.check().verdict == "verified"
