"""The RMS norm: every width and dtype against the reference, compiled for both architectures,
checked; and what it refuses.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.fragments import matrix
from tests.support.tracing import refused
from tilepipe import cuda
from tilepipe.kernels.rms_norm import reference, sm90
from tilepipe.kernels.rows.config import RowConfig
from tilepipe.kernels.rows.heuristics import norm

EPS = 1e-5
# rows, columns, dtypes of x, weight and y
PROBLEMS = {
    "one": (1, 1, "float32", "float32", "float32"),
    "few columns": (70, 7, "float16", "float16", "float16"),
    "a thread's": (130, 16, "bfloat16", "bfloat16", "bfloat16"),
    "a warp's": (6, 500, "bfloat16", "bfloat16", "bfloat16"),
    "two warps'": (5, 1000, "bfloat16", "bfloat16", "bfloat16"),
    "four warps'": (5, 2040, "bfloat16", "float32", "bfloat16"),
    "odd": (5, 1031, "bfloat16", "bfloat16", "float32"),
    "no weight": (3, 4096, "float16", None, "float16"),
    "four rows a CTA": (6, 8192, "bfloat16", "bfloat16", "bfloat16"),
    "two warpgroups'": (2, 16384, "bfloat16", "bfloat16", "bfloat16"),
    "wide weights": (2, 9216, "bfloat16", "float32", "bfloat16"),
    "two warpgroups' of 32 bits": (2, 8192, "float32", "float32", "float32"),
    "a cluster's": (2, 40000, "bfloat16", "bfloat16", "bfloat16"),
}


def problem(name: str, **settings: int) -> tuple[tp.Program, Any]:
    """A program, and how to compare what it has written."""
    rows, columns, of_x, of_weight, of_y = PROBLEMS[name]
    rng = np.random.default_rng(1)
    x = matrix(rng, (rows, columns), of_x, pad=0 if columns % 2 else 8)
    weight = None if of_weight is None else matrix(rng, (columns,), of_weight)
    y = np.full((rows, columns), 7, tp.dtype(of_y).numpy)
    cfg = RowConfig(**settings) if settings else None
    program = sm90.bind(x, weight, y, cfg, eps=EPS)
    return program, lambda: reference.compare(y, x, weight, EPS)


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_simulated(name: str) -> None:
    program, compare = problem(name)
    assert not compare().ok
    assert program.run().advice == []
    assert compare().ok, compare()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("a warp's", {"threads": 8, "warpgroups": 1}),
        ("a warp's", {"threads": 32, "warpgroups": 2, "blocks": 2}),
        ("two warps'", {"threads": 64, "warpgroups": 1, "blocks": 3}),
        ("two warps'", {"threads": 128, "warpgroups": 8}),
        ("odd", {"threads": 32, "warpgroups": 2, "parts": 4}),
        ("odd", {"threads": 32, "warpgroups": 1, "parts": 4, "cluster": 2}),
        ("odd", {"threads": 32, "warpgroups": 1, "parts": 4, "cluster": 8}),
    ],
)
def test_settings(name: str, settings: dict[str, int]) -> None:
    program, compare = problem(name, **settings)
    program.run()
    assert compare().ok, compare()


@pytest.mark.slow
@pytest.mark.sampled(suite=12)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_print_compiles_and_is_right(name: str, arch: str) -> None:
    program, compare = problem(name)
    assert cuda.compile(program.kernel, arch=arch).spill_bytes == 0
    program.ptx(arch).run()
    assert compare().ok, compare()


@pytest.mark.parametrize("name", ["a thread's", "two warps'", "four warps'"])
def test_every_interleaving(name: str) -> None:
    assert problem(name)[0].check().verdict == "verified"


@pytest.mark.slow
def test_loads_are_vectors() -> None:
    program, _ = problem("two warpgroups'")
    ptx = cuda.compile(program.kernel, emit="ptx").data.decode()
    vectors = 16384 // 512 // 8  # of a thread
    assert len(re.findall(r"ld\.global\.v4\.\w32", ptx)) >= 2 * vectors  # of x, and of the weights
    assert len(re.findall(r"st\.global\.v4\.\w32", ptx)) >= vectors


def test_a_norm_without_eps_is_not_this_norm() -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((4, 64)) * 1e-3).astype(np.float32)
    y = np.zeros_like(x)
    sm90.bind(x, None, y, eps=1e-5).run()
    assert reference.compare(y, x, None, 1e-5).ok
    assert not reference.compare(y, x, None, 0.0).ok


@pytest.mark.parametrize("columns", [1, 16, 17, 512, 513, 1024, 1025, 8192, 8193, 16384])
@pytest.mark.parametrize("nbytes", [2, 4])
def test_what_is_chosen_holds_the_row(columns: int, nbytes: int) -> None:
    cfg = norm(columns, nbytes)
    assert cfg.width(columns) * cfg.members - columns < 8 * cfg.threads * cfg.members
    assert cfg.width(columns) // cfg.threads * nbytes <= 256


def test_refusals() -> None:
    x, w = np.zeros((4, 64), np.float32), np.zeros(64, np.float32)
    with refused(tp.BindError, "x is 4×64, y 4×63"):
        sm90.bind(x, w, np.zeros((4, 63), np.float32))
    with refused(tp.BindError, "64 columns, weight 63 elements"):
        sm90.bind(x, w[1:], x.copy())
    with refused(tp.BindError, "x is int32"):
        sm90.bind(x.astype(np.int32), w, x)
    long = np.zeros((1, 131073), np.float32)
    with refused(tp.BindError, "131073 columns of float32", "it may have 131072"):
        sm90.bind(long, None, long.copy())
    with refused(tp.BindError, "elements a thread; its registers have room for 64"):
        sm90.bind(x, w, x.copy(), RowConfig(threads=1, warpgroups=1, blocks=2))
    with refused(tp.BindError, "a row is shared by whole warps: threads=32", "not 64"):
        RowConfig(threads=64, parts=2)
    with refused(tp.BindError, "parts=32 must divide the 16 warps"):
        RowConfig(threads=32, parts=32)
    with refused(tp.BindError, "parts=3 must be a power of two"):
        RowConfig(threads=32, warpgroups=3, parts=3)
    with refused(tp.BindError, "parts=1 must be 16"):
        RowConfig(threads=32, cluster=2)
    with refused(tp.BindError, "blocks=2 must be 1"):
        RowConfig(threads=32, parts=16, blocks=2)
    with refused(tp.BindError, "threads=3 must be a power of two"):
        RowConfig(threads=3)
    with refused(tp.BindError, "a RowConfig"):
        sm90.bind(x, w, x.copy(), 3)  # type: ignore[arg-type]
