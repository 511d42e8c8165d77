"""Dynamic work as CUDA C++: what is printed, for which GPU, and the machine code."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.grid import early
from tests.scenarios.support import refuses
from tests.support.cuda.grid_kernels import grid, launch_control
from tests.support.scheduler_orders import Dealt
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass

BUILDS: list[dict[str, Any]] = [{}, {"debug": True}, {"perturb": 1}, {"debug": True, "perturb": 1}]


def problem(kind: str, size: int = 2) -> tp.Program:
    return Dealt(kind, 1, 8, 8, 4, size, warpgroups=2).bind()


@pytest.mark.slow
@pytest.mark.sampled(suite=5)
@pytest.mark.parametrize("build", BUILDS, ids=str)
@pytest.mark.parametrize(
    ("kind", "arch"), [("clc", "sm_100a"), ("atomic", "sm_90a"), ("atomic", "sm_100a")]
)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_schedulers_compile(kind: str, arch: str, size: int, build: dict[str, Any]) -> None:
    compiled = cuda.compile(problem(kind, size).kernel, arch, **build)
    assert compiled.spill_bytes == compiled.stack_bytes == 0
    assert "warning" not in compiled.log


def test_cluster_launch_control_is_refused_for_hopper() -> None:
    words = (
        "uses cluster launch control, which sm_90a does not have",
        "compile for sm_100a, or take an AtomicScheduler",
        "scheduler_orders.py",
    )
    refuses(lambda: problem("clc").source("sm_90a"), tp.CompileError, *words)


def test_instructions_of_cluster_launch_control() -> None:
    ptx = cuda.compile(launch_control(), "sm_100a", "ptx").data.decode()
    one = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
    for text in (
        f"{one}.b128",
        f"{one}.multicast::cluster::all.b128",
        "query_cancel.is_canceled.pred.b128",
    ):
        assert ptx.count(text) == 1, text
    assert "query_cancel.get_first_ctaid::x.b32.b128" in ptx
    text = cuda.source(launch_control(), "sm_100a")
    assert re.search(r"const bool valid\d = first_cta != ~0u;", text)
    assert re.search(r"const i32 cluster\d = first_cta / 2;", text), (
        "the first CTA of a cluster of 2 -> the cluster"
    )


@pytest.mark.slow
def test_atomic_adds_are_one_instruction_each() -> None:
    """Relaxed: no fence beside them; and no loop over lanes."""
    ptx = cuda.compile(grid(), emit="ptx").data.decode()
    assert ptx.count("atom.relaxed.gpu.global.add.s32") == 1
    assert ptx.count("red.relaxed.gpu.global.add.u32") == 1, "its result is unused"
    code = sass.count(sass.disassemble(cuda.compile(grid()).data))
    assert code["ATOMG"] + code["ATOM"] + code["REDG"] + code["RED"] == 2
    assert code["MEMBAR"] == 0


def test_the_loop_of_a_role() -> None:
    """Tested before each iteration; in a debug build it ends when the launch is given up."""
    assert "while (more_work) {" in cuda.source(problem("atomic").kernel)
    debug = cuda.source(problem("atomic").kernel, debug=True)
    assert "while (more_work && !debug_aborted()) {" in debug
    assert "debug_aborted() ? 0 : atomic_add_relaxed_gpu_i32(" in debug
    assert "debug_aborted() ? ~0u : clc_first_cta(" in cuda.source(
        problem("clc").kernel, "sm_100a", debug=True
    )


def test_answers_from_another_cta_are_acquired_at_cluster_scope() -> None:
    text = cuda.source(problem("atomic").kernel)
    assert "wait_cluster(work_full(" in text
    assert "wait_cluster(work_empty(" in text
    assert "wait(work_throttle_full(" in text, "which stays within the CTA"


@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_a_kernel_that_waits_itself_gets_no_other_wait(build: dict[str, Any]) -> None:
    arrays = [
        np.zeros((2, 32), np.float32),
        np.zeros(32, np.float32),
        np.zeros((2, 32), np.float32),
    ]
    text = cuda.source(early.bind(*arrays).kernel, **build)
    assert text.count("grid_dependency_wait();") == 1
    role = text[text.index("void one(") : text.index('extern "C"')]
    assert (
        role.index("weights_data[") < role.index("grid_dependency_wait();") < role.index("x_data[")
    )


@pytest.mark.slow
def test_requests_are_issued_by_one_lane_without_a_loop_over_lanes() -> None:
    code = sass.disassemble(cuda.compile(problem("clc").kernel, "sm_100a").data)
    requests = [i for i in code if i.opcode.startswith("UGETNEXTWORKID")]
    assert len(requests) == 1, sorted({i.base for i in code})
    assert sass.count(code)["VOTE"] == 0
