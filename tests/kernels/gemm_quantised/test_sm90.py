"""The GEMM of quantised weights: every family in the simulator and from its PTX, its machine code,
its planted mistakes, and what it says of arguments that do not fit.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.kernels.gemm_quantised.families import FAMILIES
from tests.support.waits import around_the_wait
from tilepipe import cuda
from tilepipe.check.mutation.judging import judge, outputs
from tilepipe.check.mutation.mutants import mutants
from tilepipe.cuda.nvrtc import sass
from tilepipe.kernels.gemm_quantised import heuristics
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig
from tilepipe.kernels.gemm_quantised.layout import pack
from tilepipe.kernels.gemm_quantised.sm90 import bind
from tilepipe.registry.gemm_quantised import GEMM_QUANTISED as SPEC
from tilepipe.registry.spec import Case

SMALL: dict[str, Any] = {"m": 40, "n": 200, "k": 392}


def made(family: str, seed: int = 0, **given: Any) -> Case:
    settings, _ = SPEC.configure(SMALL | FAMILIES[family] | given, None)
    return SPEC.make(settings, seed)


def test_the_load_role_alone_waits_for_the_kernel_before() -> None:
    """The MMA role reads and writes global memory only with sums of what was loaded."""
    found = around_the_wait(made(next(iter(FAMILIES))).program)
    assert found == {"load": (set(), {"a", "words", "scales"})}


@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_right(family: str) -> None:
    case = made(family, seed=1)
    run = case.program.run(seed=1)
    found = case.verify()
    assert found.ok, found
    assert run.advice == []


@pytest.mark.slow
@pytest.mark.sampled(suite=12)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_printed_kernel_is_right(family: str) -> None:
    case = made(family, n=72, k=264)
    case.program.ptx("sm_90a").run(0)
    found = case.verify()
    assert found.ok, found


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_every_weight_is_exact(bits: int, dtype: Any) -> None:
    """A row of A picks one column of the weights; scales are powers of two."""
    half, n = 1 << (bits - 1), 256
    weights = (np.arange(n)[:, None] + 7 * np.arange(128)) % (2 * half) - half
    scales = np.full((1, n), 0.25, np.float32)
    a, c = np.eye(16, 128, k=40).astype(dtype), np.zeros((16, n), np.float32)
    cfg = QuantisedGemmConfig(bn=16, k_group_size=1)
    bind(a, pack(weights, bits), scales, c, cfg).run()
    assert np.array_equal(c, 0.25 * weights[:, 40:56].T)


def test_the_reference_notices_a_wrong_element() -> None:
    case = made("one consumer")
    case.program.run()
    assert case.verify().ok
    case.output[3, 5] += 1
    found = case.verify()
    assert (found.ok, found.worst_at) == (False, (3, 5))


@pytest.mark.slow
@pytest.mark.sampled(suite=100)
@pytest.mark.parametrize("family", FAMILIES)
def test_machine_code(family: str) -> None:
    """No spills, wgmma not serialised, and pairs of weights in one instruction."""
    case = made(family)
    cfg = SPEC.config(SPEC.configure(SMALL | FAMILIES[family], None)[0])
    compiled = cuda.compile(case.program.kernel)
    assert compiled.spill_bytes == compiled.stack_bytes == 0
    assert "C75" not in compiled.log
    loop = sass.loop_with(sass.disassemble(compiled.data), "HGMMA").count()
    blocks = cfg.rows // 64 * cfg.k_group_size  # of 64 rows and 128 of K
    assert loop["HGMMA"] == 8 * blocks
    if FAMILIES[family].get("bits", 4) == 4:
        assert loop["HADD2"] == 32 * blocks  # of 64 weights a thread
    assert loop["I2F"] == loop["CALL"] == 0


@pytest.mark.slow
def test_mutants_of_the_ring_are_found() -> None:
    """Waits, bytes and releases of a stage; the drain of a CTA without peers is redundant."""
    _, instances = SPEC.instances({"bm": 64, "bn": 16, "consumers": 1, "k_group_size": 1})
    launch = instances[1].make().launch_args
    before = outputs(launch)
    survivors, count = [], 0
    for mutant in mutants(launch.kernel, ["drop", "bytes", "release"]):
        if "inputs." in mutant.what or "tensor=" in mutant.what:
            count += 1
            if not judge(mutant, launch, before).caught:
                survivors.append(str(mutant))
    assert count >= 8
    assert all(
        "mbar_wait bar=inputs.empty[stage_" in text or "drain" in text for text in survivors
    ), survivors


def arrays(**changes: Any) -> dict[str, Any]:
    half = ml_dtypes.bfloat16
    good = {
        "a": np.zeros((16, 256), half),
        "words": pack(np.zeros((64, 256), np.int8)),
        "scales": np.ones((2, 64), np.float32),
        "c": np.zeros((16, 64), half),
        "cfg": QuantisedGemmConfig(),
    }
    return good | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"a": np.zeros((16, 256), np.float32)}, "a is float32; it may be bfloat16, float16"),
        ({"words": np.zeros((2, 64), np.int32)}, "words must have 3 dimensions"),
        ({"words": np.zeros((2, 64, 16), np.float32)}, "words is float32; it must be int32"),
        ({"words": np.zeros((2, 64, 8), np.int32)}, "as prepare_weights makes them; they have"),
        ({"words": np.zeros((3, 64, 16), np.int32)}, "⌈256 / 128⌉ = 2 blocks of K; the weights"),
        ({"scales": np.ones((64, 2), np.float32)}, "⌈k / group⌉, n) = (2, 64) for k = 256"),
        ({"group": 48}, "group must be 32, 64 or a multiple of 128"),
        ({"group": True}, "group must be 32, 64 or a multiple of 128"),
        ({"c": np.zeros((16, 32), np.float16)}, "C must be 16×64, it is 16×32"),
        ({"cfg": QuantisedGemmConfig(bm=384, bn=16, consumers=3)}, "bm=384 scales are one copy"),
        ({"cfg": 3}, "cfg is a QuantisedGemmConfig, got 3"),
    ],
)
def test_arguments_that_do_not_fit(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        bind(**arrays(**changes))
    assert "gemm_quantised" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bn": 24}, "bn must be a multiple of 16 up to 128"),
        ({"bn": 256}, "bn must be a multiple of 16 up to 128"),
        ({"split_k": 3}, "split_k must be 1, 2, 4 or 8"),
        ({"bn": 16, "split_k": 4}, "bn / split_k must be a multiple of 8"),
        ({"bm": 256, "bn": 128}, "(128 * 128 + 2 * 64 * 128 + 64 * 128) / 128 = 320 registers"),
        ({"consumers": 4}, "consumers must be 1, 2 or 3"),
        ({"activation": "swish"}, "activation must be one of none, relu, gelu, silu"),
    ],
)
def test_settings_that_there_cannot_be(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        QuantisedGemmConfig(**settings)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((64, 8192, 8192), (128, 64, 2)),
        ((16, 4096, 14336), (64, 16, 2)),
        ((16, 14336, 4096), (128, 16, 1)),
        ((300, 14336, 4096), (64, 64, 2)),
        ((1, 8, 16), (64, 16, 1)),
    ],
)
def test_what_is_chosen(shape: tuple[int, int, int], tile: tuple[int, int, int]) -> None:
    for bits in (4, 8):
        cfg = heuristics.best(heuristics.QuantisedProblem(*shape, bits))
        assert (cfg.bm, cfg.bn, cfg.split_k) == tile
        small = {"m": 8, "n": 64, "k": 1024, "bits": bits}
        kernel = SPEC.make(SPEC.settings | small | cfg.as_dict(), 0).program.kernel
        assert kernel.smem_bytes <= tp.H200.smem_per_cta


@pytest.mark.slow
@pytest.mark.sampled(suite=6)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_verified(family: str) -> None:
    """By one execution: nothing in it depends on who comes first."""
    _, instances = SPEC.instances(FAMILIES[family])
    verdicts = [x.make().check() for x in instances]
    assert [(v.verdict, v.method) for v in verdicts] == [("verified", "single-execution")] * 2
