"""The blockwise fp8 GEMM: right in the simulator in every configuration, and compiled to what a
hand-written one has.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.gpu.blockwise import FAMILIES, OUTPUTS, product
from tests.support.waits import around_the_wait
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise import heuristics as choice, reference
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.heuristics import filled, smem_bytes
from tilepipe.kernels.gemm_blockwise.sm90 import bind
from tilepipe.registry.catalog import GemmSpec, find

E4M3 = ml_dtypes.float8_e4m3fn
SHAPES = [
    (4, 8, 16),
    (1, 8, 128),
    (129, 136, 144),
    (128, 128, 128),
    (260, 64, 272),
    (64, 600, 256),
    (68, 72, 1040),
]


@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_right(family: str) -> None:
    for seed, shape in enumerate(((400, 424, 656), (200, 328, 144))):
        p = product(shape, seed=seed, **FAMILIES[family])
        run = p.program.run(seed=seed)
        p.verify()
        assert run.advice == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", ["default", "two scales of B", "tall"])
def test_shapes(shape: tuple[int, int, int], family: str) -> None:
    p = product(shape, **FAMILIES[family])
    p.program.run(seed=1)
    p.verify()


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        "default",
        "cluster",
        "cluster along n",
        "tall",
        "tall halves",
        "three of three",
        "turns along k",
        "turns along k in clusters",
    ],
)
@pytest.mark.parametrize("seed", range(1, 4))
def test_interleavings_of_several_tiles_a_cta(family: str, seed: int) -> None:
    """Odd and even numbers of K blocks, which do not fit the ring."""
    p = product((600, 712, 640 + 128 * seed), seed=seed, **FAMILIES[family])
    ctas = 2 * BlockwiseGemmConfig(**FAMILIES[family]).cluster_size
    replace(p.program, launch_args=replace(p.program.launch_args, grid=ctas)).run(seed=seed)
    p.verify()


@pytest.mark.parametrize("out", OUTPUTS)
def test_output_dtypes(out: str) -> None:
    p = product((136, 72, 272), out)
    p.program.run()
    p.verify()


def test_scales_of_a_in_column_order() -> None:
    p = product((136, 72, 272))
    c = np.full_like(p.c, np.nan)
    bind(p.a, p.b, np.asfortranarray(p.a_scales.T), p.b_scales, c, BlockwiseGemmConfig()).run()
    assert p.compare().ok is False  # not run yet
    p.program.run()
    assert np.array_equal(c, p.c)


def test_quantising_keeps_three_bits_and_zero_blocks() -> None:
    x = np.random.default_rng(0).standard_normal((200, 300)).astype(np.float32)
    x[:, 128:256] = 0
    for quantize, widen in (
        (reference.quantized_rows, reference.scaled_rows),
        (reference.quantized_blocks, reference.scaled_blocks),
    ):
        values, scales = quantize(x)
        assert np.abs(values.astype(np.float32)).max() == 448
        assert np.allclose(widen(values, scales), x, rtol=2.0**-4, atol=2.0**-9 * scales.max())
    assert reference.quantized_rows(x[:3])[1].strides == (16, 4)


def fp8(*shape: int) -> Any:
    return np.zeros(shape, E4M3)


def f32(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"a": None}, "a must be an array, got None"),
        ({"a": fp8(128)}, "a must be a matrix, it has shape (128,)"),
        ({"b": np.zeros((64, 256), np.float16)}, "b is float16; it must be float8_e4m3"),
        ({"a_scales": np.zeros((2, 128), np.float16)}, "a_scales is float16; it must be float32"),
        ({"c": np.zeros((128, 64), np.int32)}, "c is int32; it may be bfloat16, float16, float32"),
        (
            {"b": fp8(64, 272)},
            "A is 128×256 and B 64×272 (n, k); C must be 128×64 and both k equal, C is 128×64",
        ),
        ({"c": f32(64, 128)}, "C must be 128×64"),
        (
            {"b_scales": f32(2, 2)},
            "b_scales has shape (2, 2); B is 64×256, in blocks of 128×128 (1, 2)",
        ),
        (
            {"a_scales": f32(128, 2)},
            (
                "a_scales has shape (128, 2), its last dimension contiguous. It must be (2, "
                "128) in row order or (128, 2)"
            ),
        ),
        ({"a_scales": np.asfortranarray(f32(2, 128))}, "its first dimension contiguous"),
        ({"a_scales": f32(3, 128)}, "a_scales has shape (3, 128)"),
        ({"a": np.asfortranarray(fp8(128, 256))}, "A must be contiguous along k"),
        ({"a": fp8(128, 260)[:, :256]}, "a: an array of shape (128, 256)"),
        ({"cfg": {}}, "cfg is a BlockwiseGemmConfig, got {}"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], words: str) -> None:
    fitting = {
        "a": fp8(128, 256),
        "b": fp8(64, 256),
        "a_scales": f32(2, 128),
        "b_scales": f32(1, 2),
        "c": f32(128, 64),
    }
    with pytest.raises(tp.BindError, match=re.escape(words)):
        bind(**({"cfg": BlockwiseGemmConfig()} | fitting | arguments))


def test_rows_that_tma_cannot_take() -> None:
    with pytest.raises(tp.BindError, match=r"a_scales: .*dimension 0 has a stride of 520 bytes"):
        bind(
            fp8(130, 256), fp8(64, 256), f32(2, 130), f32(1, 2), f32(130, 64), BlockwiseGemmConfig()
        )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"splits": 0}, "splits must be at least 1"),
        ({"splits": True}, "splits must be an integer, got True"),
        ({"bn": 272}, "bn must be a multiple of 16"),
        ({"bn": 320}, "bn must be a multiple of 16 up to 256"),
        ({"bn": 96, "splits": 4}, "bn / splits must be a multiple of 16"),
        (
            {"bn": 224},
            (
                "totals of 64×224 and partial sums of 64×224 take (64 * 224 + 64 * 224) / 128 = 224"
                " registers of each thread; at most 200"
            ),
        ),
        ({"bm": 192, "consumers": 3, "bn": 144}, "= 144 registers of each thread; at most 128"),
        ({"cluster": 2, "cluster_n": 2}, "only one of cluster and cluster_n may be above 1"),
        ({"bm": 100}, "bm must be 64 or 128 rows"),
        ({"bm": 256, "takes": "k"}, "bm must be 64 or 128 rows for a tile of 1 warpgroup"),
        ({"takes": "columns"}, "takes must be one of rows, k"),
        ({"bm": 64, "consumers": 1, "takes": "k"}, 'takes "k" needs 2 consumers'),
        ({"unroll": 9}, "unroll must be at most 8"),
        ({"unroll": 0}, "unroll must be at least 1"),
        ({"bn": "64"}, "bn must be an integer, got '64'"),
        ({"stages": 2.5}, "stages must be an integer, got 2.5"),
    ],
    ids=str,
)
def test_settings_that_no_kernel_can_have(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(words)):
        BlockwiseGemmConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"consumers": 4}, "consumers must be 1, 2 or 3"),
        ({"stages": 1}, "stages must be at least 2: one is held by the MMAs in flight"),
        ({"bn": 24}, "bn must be a multiple of 16 up to 256"),
        ({"bn": 512}, "bn must be a multiple of 16 up to 256"),
        ({"splits": 3}, "bn / splits must be a multiple of 16"),
    ],
    ids=str,
)
def test_a_broken_rule_ends_in_the_settings_that_were_given(
    settings: dict[str, Any], rule: str
) -> None:
    """Those that the GEMM has in common are checked by its configuration, which nobody wrote."""
    named = {"bn": BlockwiseGemmConfig().bn} if "splits" in settings else {}
    given = ", ".join(f"{name}={value}" for name, value in (named | settings).items())
    with pytest.raises(tp.BindError) as caught:
        BlockwiseGemmConfig(**settings)
    assert str(caught.value) == f"{rule} (BlockwiseGemmConfig({given}))"


@pytest.mark.parametrize("family", ["default", "turns along k"])
def test_the_kernel_before_is_waited_for_in_both_roles(family: str) -> None:
    """Each reads global memory by itself: tiles and scales of A, and scales of B."""
    assert around_the_wait(product((136, 72, 272), **FAMILIES[family]).program) == {
        "load": (set(), {"a", "b", "a_scales"}),
        "mma": (set(), {"b_scales", "b_scales_slots"}),  # the latter in shared memory
    }


ROLLED = [family for family, settings in FAMILIES.items() if "unroll" not in settings]


@pytest.mark.sampled(suite=100)
@pytest.mark.slow
@pytest.mark.parametrize("family", ROLLED)
def test_machine_code(family: str) -> None:
    """No spills, wgmma not serialised; a product's scaling is one FFMA an element, and one FMUL a
    row and scale of B.
    """
    cfg = BlockwiseGemmConfig(**FAMILIES[family])
    compiled = cuda.compile(product((512, 512, 512), **FAMILIES[family]).program.kernel)
    assert compiled.spill_bytes == compiled.stack_bytes == 0
    assert "C75" not in compiled.log
    loop = sass.loop_with(sass.disassemble(compiled.data), "QGMMA").count()
    assert loop["QGMMA"] == 4 * cfg.pieces
    assert loop["FFMA"] == cfg.rows * cfg.bn // 128
    assert loop["FMUL"] == 2 * (cfg.rows // 64) * cfg.scale_blocks
    assert 0 < loop["LDS"] - 2 * (cfg.rows // 64) <= cfg.scale_blocks  # two neighbours may be one
    assert not {"FADD", "MEMBAR", "LDG", "LDL", "STL", "MUFU"} & set(loop)


@pytest.mark.slow
def test_an_unrolled_loop_tries_to_wait_before_the_sums_are_added() -> None:
    """Of the FFMA of a block, most stand between the test of the next block's barrier and the
    branch on it.
    """
    compiled = cuda.compile(product((512, 512, 1024), bn=128, unroll=4).program.kernel)
    assert compiled.spill_bytes == 0
    code = sass.disassemble(compiled.data)
    tests = [i for i, x in enumerate(code) if x.opcode.startswith("SYNCS.PHASECHK")]
    hidden = []
    for first in tests:
        branch = next(i for i in range(first, len(code)) if code[i].base == "BRA")
        hidden.append(sum(x.base == "FFMA" for x in code[first:branch]))
    assert sum(x >= 32 for x in hidden) >= 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((4096, 4096, 4096), {"bm": 256, "bn": 128, "cluster_n": 2, "store_slots": 4, "group": 16}),
        ((4096, 7168, 2048), {"bm": 256, "bn": 128, "cluster_n": 2, "store_slots": 4, "group": 16}),
        ((8192, 4096, 7168), {"bm": 256, "bn": 128, "cluster_n": 2, "unroll": 8, "group": 8}),
        ((4096, 4096, 7168), {"bm": 256, "bn": 128, "cluster_n": 2, "unroll": 8, "group": 8}),
        ((4096, 2112, 7168), {"bm": 128, "bn": 192, "consumers": 2, "group": 8}),
        ((1024, 2112, 7168), {"bm": 128, "consumers": 2, "cluster": 1, "cluster_n": 1}),
        ((512, 4096, 7168), {"bm": 128, "bn": 128, "cluster_n": 1}),
        ((128, 32768, 512), {"bm": 128, "bn": 128, "cluster_n": 1}),
        # so few rows that a block of K is not much work for one warpgroup
        ((128, 4096, 7168), {"bm": 64, "bn": 64, "takes": "k", "cluster": 2}),
        ((128, 2112, 7168), {"bm": 64, "bn": 32, "takes": "k"}),
        ((64, 4096, 7168), {"bm": 64, "bn": 32, "takes": "k", "cluster": 1, "cluster_n": 1}),
        # one wave: clusters only start later
        ((128, 7168, 2048), {"bm": 128, "bn": 64, "cluster": 1, "cluster_n": 1, "unroll": 4}),
    ],
    ids=str,
)
def test_what_has_been_measured_to_be_fast_is_chosen(
    shape: tuple[int, int, int], tile: dict[str, int | str]
) -> None:
    chosen = choice.best(Problem(*shape, dtype=tp.float8_e4m3, scales="block"))
    assert {name: getattr(chosen, name) for name in tile} == tile


@pytest.mark.parametrize("out", ["bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (100, 8192, 512), (8192, 64, 256)])
def test_what_is_chosen_fits(shape: tuple[int, int, int], out: str) -> None:
    problem = Problem(*shape, dtype=tp.float8_e4m3, out_dtype=tp.dtype(out), scales="block")
    found = choice.candidates(problem)
    assert choice.best(problem) == found[0]
    for cfg in found:
        assert smem_bytes(cfg, problem.out_dtype) <= tp.H200.smem_per_cta
        assert cfg.stages >= 3
    settings = {name: getattr(found[0], name) for name in found[0].names()}
    kernel = product((256, 512, 256), out, **settings).program.kernel
    assert kernel.smem_bytes <= smem_bytes(found[0], problem.out_dtype)


def test_a_configuration_that_no_chip_holds() -> None:
    tiny = replace(tp.H200, name="a chip", smem_per_cta=65536)
    words = r"two stages of 128×128 tiles take .* a CTA of a chip has 65,536"
    with pytest.raises(tp.LimitError, match=words):
        filled(BlockwiseGemmConfig(), tp.bfloat16, tiny)


@pytest.mark.parametrize("out", ["bfloat16", "float32"])
def test_the_registered_kernel(out: str) -> None:
    spec = find("gemm_blockwise")
    config, _ = spec.configure({"m": 200, "n": 136, "k": 272, "out_dtype": out}, None)
    case = spec.make(config, 3)
    case.program.run(seed=3)
    assert case.verify().ok
    assert case.tiles == 4
    case.output[:100] *= 1.02
    assert not case.verify().ok
    chosen, origin = spec.configure({}, tp.H200)
    assert origin == "chosen for the shape"
    assert isinstance(spec, GemmSpec)
    assert spec.config(chosen) == choice.best(spec.problem(chosen))
    with pytest.raises(tp.BindError, match="setting k must be at least 1"):
        spec.problem(config | {"k": 0})
