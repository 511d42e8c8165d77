"""The GEMM that loads weights before it waits for the kernel before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.sources import SOURCES, bound
from tests.support.waits import around_the_wait
from tilepipe import cuda
from tilepipe.check.mutation.judging import judge, outputs
from tilepipe.check.mutation.mutants import mutants
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.registry.catalog import find
from tilepipe.registry.settings import Setting
from tilepipe.testing import compare

FAMILIES: dict[str, dict[str, Any]] = {
    **SOURCES,
    "groups of K tiles": {"k_group_size": 2, "stages": 2},
    "cluster along n": {"cluster_n": 2, "stages": 3},
    "more CTAs than steps of K": {"split_k": 4, "bm": 64, "consumers": 1, "stages": 3},
    "source by TMA": {"source_slots": 2, "stages": 3},
}
SHAPE = 200, 392, 136
# What decides which copies are started before the wait, and which barriers they arrive on.
TOUCHED = {"swap", "cluster", "cluster_n", "split_k", "k_group_size", "source_slots"}


def classes(family: str) -> set[str]:
    """What of `TOUCHED` a family sets."""
    return TOUCHED & FAMILIES[family].keys()


@pytest.mark.slow
@pytest.mark.sampled(suite=2, classes=classes)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_bits_as_after_the_wait(family: str) -> None:
    """In the same order of steps: another one adds in another order, where gelu's zero shows it."""
    plain, want = bound(SHAPE, **FAMILIES[family])
    program, c = bound(SHAPE, early="b", **FAMILIES[family])
    for seed in range(2):
        want[...], c[...] = 1, 0
        plain.run(seed=seed)
        program.run(seed=seed)
        assert np.array_equal(c, want)


@pytest.mark.sampled(suite=100, classes=lambda family: {"swap", "split_k"} & classes(family))
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_compiles_without_spills_and_its_ptx_computes_the_same(family: str) -> None:
    program, c = bound((136, 200, 72), early="b", **FAMILIES[family])
    compiled = cuda.compile(program.kernel)
    assert (compiled.spill_bytes, compiled.stack_bytes) == (0, 0)
    program.run(seed=1)
    want = c.astype(np.float32)
    c[...] = np.nan
    program.ptx().run(seed=1)
    assert compare(c.astype(np.float32), want, rtol=2.0**-7, atol=1e-2).ok


@pytest.mark.parametrize("swap", ["none", "ab"])
@pytest.mark.parametrize("slots", [0, 2])
def test_only_the_weights_are_read_before_the_wait(swap: str, slots: int) -> None:
    """Which is all that speaks for it: no check sees what the kernel before this one writes."""
    reads: dict[str, tuple[set[str], set[str]]] = {"source": (set(), {"source"})} if slots else {}
    before: dict[str, set[str]] = {"b": {"b"}, "none": set()}
    for early, read in before.items():
        program, _ = bound(SHAPE, early=early, swap=swap, source_slots=slots, stages=2)
        assert around_the_wait(program) == {"load": (read, {"a", "b"}), **reads}


@pytest.mark.parametrize("early", ["none", "b"])
def test_the_mma_role_goes_on_without_a_wait(early: str) -> None:
    """It reads and writes global memory only with sums of what was loaded after the wait."""
    program, _ = bound(SHAPE, early=early, stages=2)
    code = program.source()
    assert code.count("grid_dependency_wait();") == 1
    mma = code[code.index("void mma(") : code.index("void load(")]
    assert "bulk_wait" in mma
    assert "grid_dependency_wait" not in mma


SMALL: dict[str, Setting] = {"bm": 64, "bn": 32, "bk": 32, "stages": 2, "consumers": 1}


@pytest.mark.slow
@pytest.mark.sampled(suite=3)
@pytest.mark.parametrize("given", [{}, {"cluster": 2}, {"swap": "ab", "split_k": 2}], ids=str)
def test_mistakes_about_the_stages_that_are_filled_twice(given: dict[str, Setting]) -> None:
    _, instances = find("gemm").instances({**SMALL, "early": "b", **given})
    for instance in instances:
        launch = instance.make().launch_args
        reference = outputs(launch)
        fates: dict[str, set[str]] = {}
        for mutant in mutants(launch.kernel):
            if "role 'load'" in mutant.what and "sm90.py" in mutant.loc.short:
                fates.setdefault(mutant.operator, set()).add(judge(mutant, launch, reference).fate)
        assert "undecided" not in set.union(*fates.values())
        assert fates["drop expect"] == fates["expect bytes"] == {"fault"}
        assert "fault" in fates["cursor first phase"]


def test_what_early_may_be() -> None:
    with pytest.raises(tp.BindError, match="early must be one of none, b"):
        GemmConfig(early="a")
