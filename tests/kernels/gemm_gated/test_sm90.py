"""The gated GEMM: every family in the simulator and from its PTX, its machine code, its planted
mistakes, and what it says of arguments that do not fit.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.kernels.gemm_gated.families import FAMILIES
from tests.support.waits import around_the_wait
from tilepipe import cuda
from tilepipe.check.mutation.judging import judge, outputs
from tilepipe.check.mutation.mutants import mutants
from tilepipe.cuda.nvrtc import sass
from tilepipe.kernels.gemm.model import Problem
from tilepipe.kernels.gemm_gated import heuristics, reference
from tilepipe.kernels.gemm_gated.config import GatedGemmConfig
from tilepipe.kernels.gemm_gated.sm90 import bind
from tilepipe.registry.gemm_gated import GEMM_GATED as SPEC
from tilepipe.registry.spec import Case

SMALL: dict[str, Any] = {"m": 200, "n": 136, "k": 200}


def made(family: str, seed: int = 0, **given: Any) -> Case:
    settings, _ = SPEC.configure(SMALL | FAMILIES[family] | given, None)
    return SPEC.make(settings, seed)


def test_the_load_role_alone_waits_for_the_kernel_before() -> None:
    """The MMA role reads and writes global memory only with sums of what was loaded."""
    found = around_the_wait(made(next(iter(FAMILIES))).program)
    assert found == {"load": (set(), {"a", "gate", "up"})}


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
@pytest.mark.sampled(suite=18)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_printed_kernel_is_right(family: str) -> None:
    case = made(family, m=136, n=72, k=72)
    case.program.ptx("sm_90a").run(0)
    found = case.verify()
    assert found.ok, found


def test_large_gates_do_not_overflow() -> None:
    """e^-x overflows where the gate is below -88."""
    a = np.full((64, 32), 8, ml_dtypes.bfloat16)
    gate, up = (np.full((16, 32), x, ml_dtypes.bfloat16) for x in (1, 1))
    gate[::2] = -1
    for activation in ("silu", "gelu"):
        c = np.full((64, 16), np.nan, np.float32)
        bind(a, gate, up, c, GatedGemmConfig(bn=32, stages=2, activation=activation)).run()
        assert (c[:, ::2] == 0).all()
        assert (c[:, 1::2] == 256.0 * 256.0).all()


def test_the_reference_notices_a_wrong_element() -> None:
    case = made("one consumer", k=40)
    case.program.run()
    assert case.verify().ok
    case.output[3, 5] *= 1.03
    found = case.verify()
    assert (found.ok, found.worst_at) == (False, (3, 5))


@pytest.mark.slow
@pytest.mark.sampled(suite=100)
@pytest.mark.parametrize("family", FAMILIES)
def test_machine_code(family: str) -> None:
    """No spills, wgmma not serialised, and one wgmma for gate and up."""
    case = made(family)
    cfg = SPEC.config(SPEC.configure(SMALL | FAMILIES[family], None)[0])
    compiled = cuda.compile(case.program.kernel)
    assert compiled.spill_bytes == compiled.stack_bytes == 0
    assert "C75" not in compiled.log
    code = sass.disassemble(compiled.data)
    loop = sass.loop_with(code, "HGMMA").count()
    assert loop["HGMMA"] == cfg.rows // 64 * (cfg.bk // 16) * cfg.k_group_size
    assert sass.count(code)["CALL"] == 0  # of a division


@pytest.mark.slow
def test_mutants_of_the_loads_are_found() -> None:
    """Bytes, waits and releases of a stage that two copies of B fill; the drain of a CTA without
    peers is redundant.
    """
    given = {"bm": 64, "bn": 32, "bk": 32, "stages": 2, "consumers": 1}
    _, instances = SPEC.instances(given)
    launch = instances[1].make().launch_args
    before = outputs(launch)
    survivors, count = [], 0
    for mutant in mutants(launch.kernel, ["drop", "bytes", "release"]):
        if "inputs." in mutant.what or "gate" in mutant.what or "tensor=up" in mutant.what:
            count += 1
            if not judge(mutant, launch, before).caught:
                survivors.append(str(mutant))
    assert count >= 10
    assert all(
        "mbar_wait bar=inputs.empty[stage_" in text or "drain" in text for text in survivors
    ), survivors


def test_a_copy_of_the_wrong_matrix_is_found() -> None:
    a, gate, up = (
        np.random.default_rng(i).standard_normal((64, 32)).astype(ml_dtypes.bfloat16)
        for i in range(3)
    )
    c = np.zeros((64, 64), np.float32)
    bind(a, up, gate, c, GatedGemmConfig(bn=64, stages=2)).run()
    assert not reference.compare(c, a, gate, up).ok


def arrays(**changes: Any) -> dict[str, Any]:
    half = ml_dtypes.bfloat16
    good = {name: np.zeros((64, 64), half) for name in ("a", "gate", "up", "c")}
    return good | {"cfg": GatedGemmConfig()} | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"up": np.zeros((32, 64), np.float16)}, "gate and up must have one shape (n, k)"),
        ({"up": np.zeros((64, 64), np.float16)}, "takes a, gate and up of one dtype; got bfloat16"),
        ({"a": np.zeros((64, 64), np.float32)}, "a is float32; it may be bfloat16, float16"),
        ({"c": np.zeros((64, 128), np.float32)}, "C must be 64×64 and both k equal, C is 64×128"),
        ({"gate": np.zeros(64, np.float16)}, "gate must be a matrix, it has shape (64,)"),
        (
            {"up": np.zeros((64, 64), ml_dtypes.bfloat16, order="F")},
            "gate is contiguous along k and up along n; one MMA reads both",
        ),
        (
            {
                "gate": np.zeros((64, 64), ml_dtypes.bfloat16, order="F"),
                "up": np.zeros((64, 64), ml_dtypes.bfloat16, order="F"),
                "cfg": GatedGemmConfig(bn=64),
            },
            "loaded in parts of bn / 2 / cluster = 64 / 2 / 1 = 32 along n, which must be a",
        ),
        ({"cfg": 3}, "cfg is a GatedGemmConfig, got 3"),
    ],
)
def test_arguments_that_do_not_fit(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        bind(**arrays(**changes))
    assert "gemm_gated" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bn": 48}, "bn must be a multiple of 32 in 32..256: halves of it"),
        ({"bn": 320}, "bn must be a multiple of 32 in 32..256: halves of it"),
        ({"bn": 32, "cluster": 4}, "bn / 2 / cluster must be a multiple of 8"),
        ({"activation": "swish"}, "activation must be one of none, relu, gelu, silu"),
    ],
)
def test_settings_that_there_cannot_be(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        GatedGemmConfig(**settings)
    assert words in str(caught.value)


@pytest.mark.parametrize("orders", [("row", "row"), ("col", "col")])
@pytest.mark.parametrize("shape", [(4096, 14336, 4096), (64, 2048, 512), (3, 8, 16)])
def test_what_is_chosen_is_the_best_candidate(
    shape: tuple[int, int, int], orders: tuple[str, str]
) -> None:
    problem = Problem(*shape, a_order=orders[0], b_order=orders[1])
    chosen = heuristics.best(problem)
    assert chosen == heuristics.candidates(problem)[0]
    assert chosen.schedule == "pingpong" or chosen.bn % 64 == 0


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((4096, 14336, 4096), (128, 192, "pingpong")),
        ((8192, 14336, 4096), (128, 192, "pingpong")),
        ((4096, 28672, 8192), (256, 192, "cooperative")),
        ((1024, 14336, 4096), (128, 160, "pingpong")),
        ((16384, 2048, 7168), (256, 192, "cooperative")),
    ],
)
def test_what_was_fastest_on_an_h200_is_chosen(
    shape: tuple[int, int, int], tile: tuple[int, int, str]
) -> None:
    """Or within 0.4 % of it: docs/performance/gemm-variants.md. An accumulator may take 192
    registers.
    """
    chosen = heuristics.best(Problem(*shape))
    assert (chosen.bm, chosen.bn, chosen.schedule) == tile


@pytest.mark.slow
@pytest.mark.sampled(suite=6)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_verified(family: str) -> None:
    """By one execution: nothing in it depends on who comes first."""
    _, instances = SPEC.instances(FAMILIES[family])
    verdicts = [x.make().check() for x in instances]
    assert [(v.verdict, v.method) for v in verdicts] == [("verified", "single-execution")] * 2
