"""Exported kernels on the GPU: the same bits from a C++ program, from `tp.load_exported` and from
the program; other GPUs and changed files are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.support.export.program import missing, serve
from tilepipe.cuda.runtime import driver
from tilepipe.kernels.attention import sm90_bind as attention
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(missing()), reason=missing() or "everything is there"),
]
Arrays = dict[str, np.ndarray[Any, Any]]
Q = ("batch", 8, "s_q", 64)


def numbers(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    found = np.random.default_rng(seed).standard_normal(shape).astype(ml_dtypes.bfloat16)
    return found


def a_gemm(m: int, n: int, k: int) -> tp.Program:
    c = np.zeros((m, n), ml_dtypes.bfloat16)
    return gemm.bind(numbers(1, m, k), numbers(2, n, k), c, GemmConfig(cluster=2), alpha=0.5)


def an_attention(batch: int, s_q: int, s_kv: int) -> tp.Program:
    out = np.zeros((batch, s_q, 8, 64), ml_dtypes.bfloat16)
    k, v = numbers(2, batch, s_kv, 2, 64), numbers(3, batch, s_kv, 2, 64)
    cfg = AttentionConfig(schedule="dynamic")
    return attention.bind(numbers(1, batch, s_q, 8, 64), k, v, out, cfg=cfg, causal=True)


CASES: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "gemm": (
        a_gemm,
        (512, 512, 512),
        (1000, 1336, 776),
        {"a": ("m", "k"), "b": ("n", "k"), "c": ("m", "n")},
    ),
    "attention": (
        an_attention,
        (1, 512, 512),
        (2, 700, 900),
        {
            "q": Q,
            "k": ("batch", 2, "s_kv", 64),
            "v": ("batch", 2, 64, "s_kv"),
            "out": Q,
        },
    ),
}


def arrays_of(program: tp.Program) -> Arrays:
    args = program.launch_args.args
    return {n: arg.array for n, arg in args.items() if not isinstance(arg, int | float)}


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_same_bits(name: str, tmp_path: Path) -> None:
    if driver.chip(0).arch != "sm_90a":
        pytest.skip("the kernels are for sm_90a")
    make, exported, launched, extents = CASES[name]
    path = make(*exported).export(tmp_path, extents=extents)
    program = make(*launched)
    by_cpp, _ = serve(path, arrays_of(program))
    program.launch()
    expected = {n: x.copy() for n, x in arrays_of(program).items()}

    again = make(*launched)
    tp.load_exported(path).launch(**arrays_of(again))
    memory = {x.param.name: x.memory for x in tp.load_exported(path).manifest.tensors}
    assert set(by_cpp) == ({"c"} if name == "gemm" else {"out", "counter"})
    for tensor, found in by_cpp.items():
        wanted = expected[tensor].transpose(memory[tensor])
        assert wanted.tobytes() == found, tensor
        np.testing.assert_array_equal(
            arrays_of(again)[tensor].view(np.uint8), expected[tensor].view(np.uint8)
        )
    assert any(np.asarray(x, np.float32).any() for n, x in expected.items() if n in by_cpp)
