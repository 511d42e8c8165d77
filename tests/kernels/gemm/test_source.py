"""The matrix that the GEMM adds to its sums, brought by TMA through a ring while it multiplies."""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.mutation.cases import Case
from tests.mutation.run import Subject, result_of
from tests.support.sources import SOURCES, bound
from tilepipe import cuda
from tilepipe.check.mutation.mutants import mutants
from tilepipe.kernels.gemm import heuristics, sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.model import smem_bytes
from tilepipe.registry.catalog import find
from tilepipe.registry.settings import Setting
from tilepipe.testing import compare

BF16 = ml_dtypes.bfloat16


@pytest.mark.slow
@pytest.mark.sampled(suite=6, classes=lambda family, out, slots: [family, out, slots])
@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("out", [BF16, np.float32], ids=["bfloat16", "float32"])
@pytest.mark.parametrize("family", SOURCES)
def test_the_same_bits_as_by_ordinary_loads(family: str, out: Any, slots: int) -> None:
    """On ragged tiles, several of them a CTA."""
    stages = {"stages": 2} if out is np.float32 else {}
    settings = SOURCES[family] | stages
    program, c = bound((200, 392, 136), out, slots, source_slots=slots, **settings)
    program.run(seed=slots)
    plain, want = bound((200, 392, 136), out, slots, **settings)
    plain.run(seed=slots)
    assert np.array_equal(c, want)
    assert np.isfinite(want.astype(np.float32)).all()


@pytest.mark.slow
def test_a_batch_and_float16() -> None:
    for slots in (0, 2):
        program, c = bound((2, 72, 136, 64), np.float16, source_slots=slots)
        program.run(seed=3)
        if slots == 0:
            want = c.copy()
    assert np.array_equal(c, want)


@pytest.mark.sampled(suite=13)
@pytest.mark.slow
@pytest.mark.parametrize("family", SOURCES)
def test_compiles_without_spills_and_its_ptx_computes_the_same(family: str) -> None:
    program, c = bound((136, 200, 72), source_slots=2, **SOURCES[family])
    compiled = cuda.compile(program.kernel)
    assert (compiled.spill_bytes, compiled.stack_bytes) == (0, 0)
    program.run(seed=1)
    want = c.astype(np.float32)
    c[...] = np.nan
    program.ptx().run(seed=1)
    assert compare(c.astype(np.float32), want, rtol=2.0**-7, atol=1e-2).ok


@pytest.mark.parametrize("swap", ["none", "ab"])
def test_a_source_of_one_element_has_any_order(swap: str) -> None:
    a, b, c, source = (np.full((1, 1), x, BF16) for x in (2, 3, 0, 5))
    cfg = GemmConfig(bm=64, bn=64, consumers=1, source_slots=1, swap=swap)
    gemm.bind(a, b, c, cfg, source=source, beta=1.0).run()
    assert c.item() == 2 * 3 + 5


def test_no_source_no_ring() -> None:
    a = np.zeros((64, 64), BF16)
    given: list[tuple[int, dict[str, Any]]] = [
        (0, {}),
        (4, {}),
        (4, {"source": a.copy(), "beta": 0.0}),
        (4, {"source": a.copy(), "beta": 1.0}),
    ]
    made = [
        gemm.bind(a, a.copy(), a.copy(), GemmConfig(bn=64, source_slots=slots), **more).kernel
        for slots, more in given
    ]
    assert [[role.name for role in kernel.roles] for kernel in made] == [
        ["load", "mma"],
        ["load", "mma"],
        ["load", "mma"],
        ["load", "source", "mma"],
    ]
    assert made[0].smem_bytes == made[1].smem_bytes == made[2].smem_bytes
    assert made[3].smem_bytes == made[0].smem_bytes + 4 * (2 * 64 * 64 * 2 + 16)


@pytest.mark.parametrize(
    ("cfg", "source", "error", "words"),
    [
        (
            GemmConfig(source_slots=2),
            np.zeros((128, 128), np.float32),
            tp.BindError,
            "source is float32, contiguous along its rows, and C bfloat16, along its rows",
        ),
        (
            GemmConfig(source_slots=2),
            np.zeros((128, 128), BF16).T,
            tp.BindError,
            "source is bfloat16, contiguous along its columns, and C bfloat16, along its rows;"
            " with source_slots above 0 TMA reads it as it writes C: pass a copy like C, or"
            " source_slots=0",
        ),
        (
            GemmConfig(source_slots=2),
            np.zeros((128, 129), BF16)[:, :128],
            tp.BindError,
            "gemm: source: ",
        ),
        (
            GemmConfig(source_slots=9),
            np.zeros((128, 128), BF16),
            tp.LimitError,
            "source_tiles: 9 × 128×64 bfloat16 = 147,456",
        ),
    ],
    ids=["dtype", "order", "strides", "room"],
)
def test_a_source_that_tma_cannot_bring(
    cfg: GemmConfig, source: Any, error: type[Exception], words: str
) -> None:
    a = np.zeros((128, 128), BF16)
    with pytest.raises(error, match=re.escape(words)):
        gemm.bind(a, a.copy(), a.copy(), cfg, source=source, beta=1.0)
    if error is tp.BindError:  # ordinary loads take it
        plain = cfg.changed(source_slots=0)
        assert gemm.bind(a, a.copy(), a.copy(), plain, source=source, beta=1.0)


@pytest.mark.parametrize("slots", [-1, 129])
def test_slots_that_there_cannot_be(slots: int) -> None:
    with pytest.raises(tp.BindError, match=r"source_slots must be at (least 0|most 128)"):
        GemmConfig(source_slots=slots)


@pytest.mark.slow
def test_the_heuristic_takes_the_ring_where_it_costs_no_stage_that_counts() -> None:
    taken = Counter[int]()
    for m, n, k in ((4096, 4096, 4096), (8192, 8192, 512), (128, 4096, 4096), (1000, 3000, 1024)):
        options: dict[str, Any] = {"extras": True}
        plain = heuristics.choose(m, n, k, tp.bfloat16, tp.bfloat16, **options)
        chosen = heuristics.choose(m, n, k, tp.bfloat16, tp.bfloat16, source=True, **options)
        taken[chosen.source_slots] += 1
        assert plain.source_slots == 0
        assert smem_bytes(chosen, tp.bfloat16) <= tp.H200.smem_per_cta
        assert min(chosen.stages, 5) == min(plain.stages, 5)
    assert set(taken) == {0, 2}


SMALL: dict[str, Setting] = {"bm": 64, "bn": 32, "bk": 32, "stages": 2, "consumers": 1}
RING: dict[str, Setting] = {"source": True, "source_slots": 2}
CHECKED: dict[str, dict[str, Setting]] = {
    "ping-pong": SMALL | {"consumers": 2, "schedule": "pingpong"},
    "one consumer": SMALL,
    "two consumers": SMALL | {"bm": 128, "consumers": 2, "bn": 64},
}


@pytest.mark.slow
@pytest.mark.sampled(suite=3)
@pytest.mark.parametrize("family", CHECKED)
def test_every_mistake_in_the_ring_is_caught_or_explained(family: str) -> None:
    """A missing release, wait or arming of a stage is a fault."""
    _, instances = find("gemm").instances(CHECKED[family] | RING)
    subject = Subject.of(
        Case("gemm", family, functools.partial(list, [x.make().launch_args for x in instances]))
    )
    ours = [m for m in mutants(subject.kernel) if "source_tiles.py" in m.loc.short]
    found = [result_of(subject, mutant) for mutant in ours]
    assert [r for r in found if r.fate == "undecided"] == []
    assert [r for r in found if r.fate == "redundant" and not r.reason] == []
    fates = Counter((r.operator, r.fate) for r in found)
    for operator in ("drop expect", "drop wait", "drop arrive", "drop release", "expect bytes"):
        assert fates[operator, "fault"], operator
        assert not fates[operator, "redundant"], operator
    faults = {r.operator: r.message for r in found if r.fate == "fault"}
    assert "deadlock" in faults["drop arrive"]
