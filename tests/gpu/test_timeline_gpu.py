"""On the GPU: timed builds compute the same bits, and their timelines have what the simulator's
have.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tilepipe.registry.catalog import Case, find
from tilepipe.timeline import Timeline

pytestmark = pytest.mark.gpu

KERNELS = {
    "gemm": ["m=512", "n=512", "k=1024"],
    "gemm cluster=2": ["m=512", "n=512", "k=1024", "cluster=2"],
    "gemm schedule=pingpong": ["m=512", "n=512", "k=1024", "bm=64", "schedule=pingpong"],
    "attention": ["s_q=512", "s_kv=512"],
    "attention_decode": [],
    "gemm_grouped": [],
    "gemm_blockwise": [],
}


def case_of(kernel: str) -> Case:
    spec = find(kernel.partition(" ")[0])
    config, _ = spec.configure(spec.parse(KERNELS[kernel]), None)
    return spec.make(config, 0)


def units(found: Timeline) -> Counter[tuple[object, ...]]:
    return Counter((e.cta, e.role, e.part, e.op, e.what) for e in found.events if e.wait is None)


def outputs(case: Case) -> dict[str, Any]:
    arrays = {n: getattr(x, "array", None) for n, x in case.program.launch_args.args.items()}
    return {n: x.copy() for n, x in arrays.items() if isinstance(x, np.ndarray)}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_timed_build_computes_the_same(kernel: str) -> None:
    case = case_of(kernel)
    case.program.launch()
    right = outputs(case)
    found = case.program.record(ctas=4, launches=1)
    after = outputs(case)
    assert all(np.array_equal(x.view(np.uint8), after[n].view(np.uint8)) for n, x in right.items())
    assert case.verify().ok
    where = found.measured
    assert where is not None
    assert where.lost == 0
    assert 0.5 < where.clock_ghz < 3
    assert 0 < max(e.end_us for e in found.events) < where.us * 1.5
    assert all(e.begin_us <= e.end_us for e in found.events)


@pytest.mark.parametrize("kernel", ["gemm", "gemm cluster=2"])
def test_it_has_the_copies_and_mmas_of_the_simulator(kernel: str) -> None:
    case = case_of(kernel)
    measured = case.program.record(ctas=2)
    simulated = case.program.run(timeline=2).timeline
    assert simulated is not None
    assert units(measured) == units(simulated)
    for e in measured.events:
        by = None if e.wait is None else e.wait.released_by
        if e.wait is not None and by is not None and e.wait.on == "inputs.full":
            assert (by.role, by.op) == ("load", "tma_load")


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_a_kernel_adds_up_is_added_once(deterministic: bool) -> None:
    spec = find("attention_backward")
    config, _ = spec.configure(spec.parse([f"deterministic={deterministic}"]), None)
    case = spec.make(config, 0)
    case.program.record(launches=3)
    assert case.verify().ok


def test_what_has_no_room_is_counted() -> None:
    found = case_of("gemm").program.record(ctas=1, room=16)
    assert found.measured is not None
    assert found.measured.lost > 0
