"""gemm_block_scaled compiled for sm_100a: no spills, and the machine code has the block-scaled
instructions, as often as meant.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.kernels.gemm.sm100_cases import CLUSTERS, shape_of
from tests.kernels.gemm.test_sm100_code import clean
from tests.kernels.gemm_block_scaled.cases import BF16, Problem
from tests.kernels.gemm_block_scaled.test_sm100 import CONFIGS
from tilepipe import cuda
from tilepipe.cuda.nvrtc.sass import disassemble, loop_with
from tilepipe.kernels.gemm_block_scaled.layout import KINDS

MMA = {"mxfp8": "UTCQMMA", "mxfp4": "UTCOMMA", "nvfp4": "UTCOMMA"}
QUICK: list[dict[str, Any]] = [
    {"kind": "mxfp8"},
    {"kind": "nvfp4", "cta_group": 2, "cluster": 2, "bn": 64},
]
MORE: list[dict[str, Any]] = [
    {"kind": "mxfp4"},
    {"kind": "mxfp4", "cluster": 2, "cluster_n": 2, "scheduler": "static", "out": np.float32},
    {"kind": "nvfp4", "bn": 192, "accumulators": 1},
    {"kind": "mxfp8", "k_group_size": 2, "stages": 2},
    {"kind": "mxfp8", "cta_group": 2, "cluster": 4, "cluster_n": 2, "bn": 256, "accumulators": 1},
]


def compiled(**settings: Any) -> Any:
    return cuda.compile(Problem(512, 512, 512, **settings).program.kernel, arch="sm_100a")


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [*QUICK, *(pytest.param(more, marks=pytest.mark.slow) for more in MORE)], ids=str
)
def test_machine_code(settings: dict[str, Any]) -> None:
    """Of a K step: one copy for each piece of scales, one MMA for each 32 bytes of K, one commit;
    no loop over lanes.
    """
    problem = Problem(512, 512, 512, **settings)
    code = cuda.compile(problem.program.kernel, arch="sm_100a")
    clean(code)
    cfg, kind = problem.cfg, problem.cfg.format
    instructions = disassemble(code.data)
    inner = loop_with(instructions, MMA[kind.name]).count()
    fp4 = kind.name != "mxfp8"
    mmas = cfg.bk // (64 if fp4 else 32) * cfg.k_group_size
    copies = cfg.scale_columns // 4 * cfg.k_group_size
    assert (inner[MMA[kind.name]], inner["UTCCP"], inner["UTCBAR"], inner["MEMBAR"]) == (
        mmas,
        copies,
        1,
        0,
    )
    found = Counter(i.opcode for i in instructions)
    pair = ".2CTA" if cfg.cta_group == 2 else ""
    vector = {"mxfp8": "", "mxfp4": "", "nvfp4": ".4X"}[kind.name]
    assert found[f"{MMA[kind.name]}{pair}{vector}"] == mmas
    assert found[f"UTCCP.T.S{pair}.4x32dp128bit"] == copies
    assert not {"LDL", "STL"} & {i.base for i in instructions}


@pytest.mark.sampled(suite=10)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_setting_compiles_without_spills(config: dict[str, Any], kind: str) -> None:
    clean(compiled(kind=kind, **config))


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_every_cluster_compiles_without_spills(cluster: tuple[int, int, int]) -> None:
    clean(compiled(kind="nvfp4", **shape_of(cluster)))


@pytest.mark.sampled(suite=2)
@pytest.mark.slow
@pytest.mark.parametrize("out", [BF16, np.float32], ids=["bfloat16", "float32"])
def test_epilogues_compile_without_spills(out: Any) -> None:
    extras = {
        "bias": np.zeros(512, np.float32),
        "source": np.zeros((512, 512), BF16),
        "beta": 0.5,
        "alpha": 2.0,
    }
    extras |= {"a_scale": np.ones(512, np.float32), "b_scale": np.ones(512, np.float32)}
    clean(compiled(out=out, activation="gelu", extras=extras))
