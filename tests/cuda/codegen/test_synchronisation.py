"""Scopes of what is published between CTAs, and which lanes take part in what a warp does
together.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilepipe as tp
from tests.support.build import LANE, Builder, binary
from tests.support.stand_in_op import StandInVote
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.errors import BindError, CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Unary
from tilepipe.ir.program import Kernel


def code_of(kernel: Kernel, role: str = "one") -> str:
    """The function of a role."""
    text = cuda.source(kernel)
    return text[text.index(f"void {role}(") : text.index("__global__")]


def published(kind: str, where: str) -> str:
    """The wait for a barrier of CTA 0 that an op of another CTA, in set-up or in a role, arrives
    on.
    """
    b = Builder(cluster=2)
    bar = b.barriers("full")

    def signal() -> None:
        if kind.startswith("arrive"):
            b.arrive(b.bar(bar, 0, 0), sem="relaxed" if "relaxed" in kind else "release")
        else:
            b.expect(b.bar(bar, 0, 0), 0, arrive=kind == "arriving expect")

    if where == "set-up":
        with b.elect("role"):
            signal()
    b.setup_done()
    with b.role("one", warps=1):
        if where == "role":
            with b.elect():
                signal()
        b.wait(b.bar(bar), 0)
    return cuda.source(b.finished())


@pytest.mark.parametrize("where", ["set-up", "role"])
@pytest.mark.parametrize(
    ("kind", "cluster_scope"),
    [("arrive", True), ("arriving expect", True), ("arrive relaxed", False), ("expect", False)],
)
def test_a_wait_acquires_at_the_scope_of_the_release(
    kind: str, cluster_scope: bool, where: str
) -> None:
    code = published(kind, where)
    assert ("    wait_cluster(full(), 0);" in code) == cluster_scope
    assert ("    wait(full(), 0);" in code) != cluster_scope


def test_a_remote_arrive_with_bytes_releases_at_cluster_scope() -> None:
    assert "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64" in published(
        "arriving expect", "role"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "printed"),
    [
        ("shared", ["fence.proxy.async.shared::cta;"]),
        ("cluster", ["fence.proxy.async.shared::cluster;"]),
        ("global", ["fence.proxy.async.global;"]),
        ("all", ["fence.proxy.async;", "fence.proxy.async.global;"]),
    ],
)
def test_a_proxy_fence_names_the_memory_it_orders(space: str, printed: list[str]) -> None:
    """Beside the form for all memory stands that for global memory: ptxas 13 makes
    FENCE.VIEW.ASYNC.S of the former alone.
    """
    b = Builder()
    b.setup_done()
    with b.role("one", warps=1):
        b.do(ops.FenceProxyAsync, space)
    kernel = b.finished()
    text = cuda.source(kernel)
    assert sorted(re.findall(r'"(fence\.proxy\.async[^"]*)"', text)) == sorted(printed)
    found = {i.opcode for i in sass.disassemble(cuda.compile(kernel).data)}
    assert ("FENCE.VIEW.ASYNC.G" in found) == (space in ("global", "all"))
    assert ("FENCE.VIEW.ASYNC.S" in found) == (space != "global")
    assert ("MEMBAR.ALL.GPU" in found) == (space in ("cluster", "all"))


def test_try_wait_is_true_once_every_lane_has_acquired() -> None:
    b = Builder()
    bar = b.barriers("full")
    b.setup_done()
    with b.role("one", warps=1):
        ready = b.local("ready", dtypes.boolean)
        b.do(ops.MbarTryWait, b.bar(bar), b.phase(0), ready)
        with b.when(Unary(dtypes.boolean, op="not", a=ready)):
            b.wait(b.bar(bar), 0)
    code = code_of(b.finished())
    assert "const bool ready1 = __all_sync(0xffffffff, try_wait(full(), 0));" in code
    assert "__shfl" not in code


def test_a_new_op_gets_the_mask_of_the_active_lanes() -> None:
    """By its facts alone, in either branch and for the elected lane."""
    b = Builder()
    word = b.smem("word", 1, 4, dtype=dtypes.uint32)
    b.setup_done()

    def ballot(column: int) -> None:
        lanes = b.local("ballot", dtypes.uint32)
        b.do(StandInVote, lanes)
        b.store(b.element(b.tile(word), 0, column), lanes)

    with b.role("one", warps=1):
        ballot(0)
        with b.when(binary("lt", LANE, 16)) as branch:
            ballot(1)
        with b.into(branch.orelse):
            ballot(2)
        with b.elect():
            ballot(3)
    masks = re.findall(r"= __ballot_sync\((.*), true\);", code_of(b.finished()))
    assert masks == ["0xffffffff", "lanes", "0xffffffff & ~lanes", "1u << lane"]


def test_lanes_of_a_branch_synchronise_by_name() -> None:
    b = Builder()
    b.setup_done()
    with b.role("one", warps=1):
        b.do(ops.SyncWarp)
        with b.when(binary("lt", LANE, 16)) as branch:
            b.do(ops.SyncWarp)
            with b.when(binary("eq", binary("mod", LANE, 2), 0)):
                b.do(ops.SyncWarp)
        with b.into(branch.orelse):
            b.do(ops.SyncWarp)
            with b.elect():
                b.do(ops.SyncWarp)
    code = code_of(b.finished())
    assert "activemask" not in cuda.source(b.finished())
    lines = [
        line.split("//")[0].strip()
        for line in code.splitlines()
        if "sync" in line or "lanes" in line
    ]
    assert lines == [
        "__syncwarp();",
        "const u32 lanes = __ballot_sync(0xffffffff, lane < 16);",
        "__syncwarp(lanes);",
        "const u32 lanes_1 = __ballot_sync(lanes, lane % 2 == 0);",
        "__syncwarp(lanes_1);",
        "__syncwarp(0xffffffff & ~lanes);",
        "if (elect_of(0xffffffff & ~lanes)) {",
        "__syncwarp(1u << lane);",
    ]


def test_a_side_that_is_empty() -> None:
    b = Builder()
    b.setup_done()
    with b.role("one", warps=1), b.when(binary("lt", LANE, 16)) as branch, b.into(branch.orelse):
        b.do(ops.SyncWarp)
    code = code_of(b.finished())
    assert "__ballot_sync(0xffffffff, !(lane < 16))" in code
    assert "__syncwarp(lanes);" in code


def kernel_with(wgmma: bool) -> tp.Program:
    @tp.kernel()
    def k(ctx: tp.Context) -> None:
        tiles = ctx.smem((64, 64), "bfloat16")

        @ctx.role("one", warpgroups=1)
        def one() -> None:
            acc = ctx.accumulator((64, 64))
            acc.fill(0)
            if wgmma:
                ctx.mma(acc, tiles[0], tiles[0])
                ctx.wgmma_commit()
                ctx.wgmma_wait(0)

    return k.bind()


def test_source_is_for_an_architecture() -> None:
    assert "for sm_90a;" in kernel_with(True).source()
    assert "for sm_100a;" in kernel_with(False).source("sm_100a")
    with pytest.raises(CompileError, match="'one' of 'k' uses wgmma, which sm_100a does not have"):
        kernel_with(True).source("sm_100a")
    with pytest.raises(BindError, match="unknown architecture 'sm_75'"):
        kernel_with(False).source("sm_75")


@pytest.mark.parametrize(
    ("dtype", "registers", "per_column"), [(dtypes.float32, "r", 2), (dtypes.bfloat16, "q", 4)]
)
@pytest.mark.parametrize(("col", "rows_only"), [(0, False), (16, False), (48, False), (16, True)])
def test_a_scalar_or_a_value_a_row_fills_the_columns_from_there_on(
    dtype: dtypes.DType, registers: str, per_column: int, col: int, rows_only: bool
) -> None:
    b = Builder()
    b.setup_done()
    with b.role("one", warpgroups=1):
        acc = b.fragment("acc", 64, 64, dtype)
        value = b.value(b.fragment("row", 64, 1)) if rows_only else 5.0
        b.do(
            ops.FragmentSet,
            acc,
            binary("add", value, 0.0) if rows_only else binary("add", 5.0, 0.0),
            col,
        )
    code = code_of(b.finished())
    at = f"{registers} + {col // per_column}" if col else registers
    assert f"{registers} < {(64 - col) // per_column};" in code
    assert f"acc[0][{at}] = " in code


@pytest.mark.parametrize(("col", "cols"), [(8, 64), (60, 8), (-8, 8), (8, 12)])
def test_columns_outside_a_fragment_are_refused(col: int, cols: int) -> None:
    b = Builder()
    b.setup_done()
    with b.role("one", warpgroups=1):
        acc, other = b.fragment("acc", 64, 64), b.fragment("other", 64, 64)
        b.do(ops.FragmentSet, acc, b.value(other, 0, cols), col)
    with pytest.raises(CompileError, match=f"columns {col} to {col + cols} of 'acc', which has 64"):
        cuda.source(b.finished())


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16])
@pytest.mark.parametrize(
    ("source", "to", "cols", "copied"),
    [(0, 16, 32, True), (16, 0, 48, True), (0, 32, 32, False), (16, 16, 32, False)],
)
def test_columns_moved_within_a_fragment_are_read_before_they_are_written(
    dtype: dtypes.DType, source: int, to: int, cols: int, copied: bool
) -> None:
    b = Builder()
    b.setup_done()
    with b.role("one", warpgroups=1):
        acc = b.fragment("acc", 64, 64, dtype)
        b.do(ops.FragmentSet, acc, b.value(acc, source, cols), to)
    registers = 2 if dtype is dtypes.float32 else 4
    index = "r" if dtype is dtypes.float32 else "q"
    # Run what is printed, register by register.
    acc_, old = np.arange(64 // registers), np.zeros(cols // registers, int)
    for line in (x.split("//")[0].strip() for x in code_of(b.finished()).splitlines()):
        if " = " in line and "[0]" in line:
            target, value = line.rstrip(";").split(" = ")
            for i in range(cols // registers):
                names = {"acc": acc_[None], "old": old[None], index: i}
                exec(f"{target} = {value}".replace("][", ", "), {}, names)
    wanted = np.arange(64 // registers)
    wanted[to // registers : (to + cols) // registers] = np.arange(64 // registers)[
        source // registers : (source + cols) // registers
    ]
    np.testing.assert_array_equal(acc_, wanted)
    assert ("old[" in code_of(b.finished())) == copied
