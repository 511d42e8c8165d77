"""The sm_100 GEMM compiled for sm_100a: no spills, and the machine code has the instructions meant,
as often as meant.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.kernels.gemm.sm100_cases import BF16, CLUSTERS, E4M3, E5M2, Problem, shape_of
from tests.kernels.gemm.test_sm100 import CONFIGS
from tilepipe import cuda
from tilepipe.cuda.nvrtc.sass import disassemble, loop_with
from tilepipe.kernels.gemm.config import Sm100GemmConfig

FP8: dict[str, Any] = {"dtypes": (E4M3, E5M2), "out": np.float32, "bk": 128}


def compiled(**settings: Any) -> Any:
    return cuda.compile(Problem(512, 512, 512, **settings).program.kernel, arch="sm_100a")


def clean(code: Any) -> None:
    """Nothing in local memory, and no warning of the assembler about MMAs that it has
    serialised.
    """
    assert (code.spill_bytes, code.stack_bytes) == (0, 0)
    assert "C75" not in code.log


QUICK: list[dict[str, Any]] = [{}, FP8, {"cta_group": 2, "cluster": 2, "bn": 256}]
MORE: list[dict[str, Any]] = [
    {"cta_group": 2, "cluster": 4, "cluster_n": 2},
    {"cluster": 2, "cluster_n": 2, "scheduler": "static"},
    {"bm": 64, "out": np.float32},
    {"k_group_size": 2, "stages": 2},
    {"orders": "FF"},
    {"cta_group": 2, "cluster": 2, "orders": "CF"},
    {**FP8, "cta_group": 2, "cluster": 2},
]


@pytest.mark.sampled(suite=6)
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [*QUICK, *(pytest.param(more, marks=pytest.mark.slow) for more in MORE)], ids=str
)
def test_machine_code(settings: dict[str, Any]) -> None:
    """Of a K step: one MMA for each 32 bytes of K and one commit. Of a tile: one more commit, and
    the loads of the accumulator.
    """
    code = compiled(**settings)
    clean(code)
    cfg = Sm100GemmConfig(
        **{k: v for k, v in settings.items() if k not in ("dtypes", "out", "orders")}
    )
    instructions = disassemble(code.data)
    found = Counter(i.base for i in instructions)
    assert not {"LDL", "STL"} & found.keys()
    fp8 = "dtypes" in settings
    mma, other = ("UTCQMMA", "UTCHMMA") if fp8 else ("UTCHMMA", "UTCQMMA")
    per_step = cfg.bk * (1 if fp8 else 2) // 32 * cfg.k_group_size
    inner = loop_with(instructions, mma).count()
    assert (inner[mma], inner["UTCBAR"], inner["MEMBAR"], inner["LDTM"]) == (per_step, 1, 0, 0)
    assert (found[mma], found[other], found["UTCBAR"]) == (per_step, 0, 2)
    assert len(loop_with(instructions, mma).instructions) <= 40 + 8 * per_step
    # columns of a store, and of a load of 16 lanes
    width = min(128 // np.dtype(settings.get("out", BF16)).itemsize, cfg.bn)
    loads = Counter(i.opcode for i in instructions if i.base == "LDTM")
    assert loads == {f"LDTM.16dp256bit.x{width // 8}": cfg.bn // width * (cfg.bm // 64)}
    group = ".2CTA" if cfg.cta_group == 2 else ""
    assert {i.opcode for i in instructions if i.base == mma} == {mma + group}
    commits = {i.opcode for i in instructions if i.base == "UTCBAR"}
    assert commits == (
        {"UTCBAR.2CTA.MULTICAST"}
        if group
        else {"UTCBAR", "UTCBAR.MULTICAST"}
        if cfg.cluster_size > 1
        else {"UTCBAR"}
    )
    assert {"UTMALDG", "UTMASTG", "UTCATOMSWS", "SYNCS"} <= found.keys()
    assert ("UGETNEXTWORKID" in found) == (cfg.scheduler == "clc")


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_setting_compiles_without_spills(config: dict[str, Any]) -> None:
    clean(compiled(**config))


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "scheduler"), list(itertools.product(CLUSTERS, ("clc", "static"))), ids=str
)
def test_every_cluster_compiles_without_spills(
    cluster: tuple[int, int, int], scheduler: str
) -> None:
    clean(compiled(scheduler=scheduler, **shape_of(cluster)))


@pytest.mark.sampled(suite=8)
@pytest.mark.slow
@pytest.mark.parametrize("activation", ["none", "gelu"])
@pytest.mark.parametrize("out", [BF16, np.float32], ids=["bfloat16", "float32"])
@pytest.mark.parametrize("bn", [64, 128, 256])
def test_epilogues_compile_without_spills(bn: int, out: Any, activation: str) -> None:
    extras = {
        "bias": np.zeros(512, np.float32),
        "source": np.zeros((512, 512), BF16),
        "beta": 0.5,
        "alpha": 2.0,
    }
    extras |= {"a_scale": np.ones(512, np.float32), "b_scale": np.ones(512, np.float32)}
    clean(compiled(bn=bn, out=out, activation=activation, extras=extras))
