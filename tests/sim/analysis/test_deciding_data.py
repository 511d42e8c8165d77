# ruff: noqa: PT009 (ctx.assert_ is an op of the kernel)
"""Data that decides something later is part of a state's key, wherever it lies in between.

To put the holes back on purpose: `monkeypatch.setattr(DecidingData, "slot", ...)`, `"tensor"`,
`"fragment"` to return no contents, or `"leaves_out"` to name locals, of
`tilepipe.sim.analysis.data_flow`;
`monkeypatch.setattr(encoding, "digest", ...)` for keys that collide.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Callable
from types import NoneType
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases import (
    copies as copy_cases,
    fragments as fragment_cases,
    scalars as scalar_cases,
    synchronisation as sync_cases,
    tensor_memory as tmem_cases,
)
from tests.cases.tensor_memory import Handover
from tests.support.build import Builder, binary
from tests.support.case_classes import by_words
from tilepipe.check import Reductions, check, key_encoding as encoding
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.state_key import StateKeys
from tilepipe.check.key_encoding import digest, encoded
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Cast, Vary, const
from tilepipe.ir.facts import Facts
from tilepipe.ir.memory import Element, Tmem, TmemScales
from tilepipe.ir.ops.base import declares
from tilepipe.ir.program import walk
from tilepipe.machine.units.in_flight import MmaUnit, UnitQueue
from tilepipe.sim.analysis.data_flow import TENSOR_MEMORY, DecidingData, Flow
from tilepipe.sim.codegen.module import compile_kernel

PATHS = (
    "local",
    "variable",
    "fragment",
    "tile by fragment",
    "tile by element",
    "tile by copy",
    "global by element",
    "global by fragment",
    "global by copy",
    "tile by reduction",
    "trip count",
    "coordinate",
    "vote",
    "scale factor",
)
ROUNDS = 3
EVERY = Reductions(hashing=False)


@tp.kernel()
def answers(
    ctx: tp.Context, kept: Any, copied: Any, factors: Any, uneven: Any, *, by: str, refused: int
) -> None:
    """The answers of two tests, 0 to 3 as one number, are taken round by way of `by` and asserted
    not to be `refused`.
    """
    a = tp.SharedMemBarrier.allocate(ctx, 1, "a")
    b = tp.SharedMemBarrier.allocate(ctx, 1, "b")
    asked = tp.SharedMemBarrier.allocate(ctx, 1, "asked")
    taken = tp.SharedMemBarrier.allocate(ctx, 1, "taken")
    over = tp.SharedMemBarrier.allocate(ctx, 1, "over")
    done = tp.SharedMemBarrier.allocate(ctx, 1, "done")
    word = ctx.smem((1, 32), tp.int32, swizzle=0, name="word")[0]
    back = tp.SharedMemBarrier.allocate(ctx, 1, "back")
    c = tp.SharedMemBarrier.allocate(ctx, 1, "c")
    landed = tp.SharedMemBarrier.allocate(ctx, 1, "landed")
    rows = ctx.smem((64, 8), tp.float32, swizzle=0, name="rows")[0]
    back_again = ctx.smem((64, 8), tp.float32, swizzle=0, name="back_again")[0]
    last = ctx.smem((64, 8), tp.float32, swizzle=0, name="last")[0]
    sums = ctx.smem((64, 1), tp.float32, swizzle=0, name="sums")[0]
    if by in ("scale factor", "accumulate"):
        h = Handover(ctx, 128)
        operand = ctx.smem(factors.box, factors.dtype, swizzle=factors.swizzle, name="operand")[0]
        there = tp.SharedMemBarrier.allocate(ctx, 128, "there")
        before = tp.SharedMemBarrier.allocate(ctx, 1, "before")
        told = ctx.smem((1, 32), tp.int32, swizzle=0, name="told")[0]

        @ctx.role("mma", warps=1)
        def mma() -> None:
            h.allocate()
            with ctx.elect_one():
                landed.expect_bytes(operand.nbytes)
                ctx.tma_load(factors, (0, 0), operand, landed)
            landed.wait(0)
            there.wait(0)
            ctx.tcgen05_fence_after()
            acc, tiles = h.tmem.tensor((128, 32)), (operand, operand.rows(0, 32))
            if by == "scale factor":
                with ctx.elect_one():
                    left, right = (h.tmem.scales((rows, 4), col=64) for rows in (128, 32))
                    ctx.mma(acc, *tiles, accumulate=False, sfa=left, sfb=right)
                    ctx.mma_commit(h.done)
            else:
                number = ctx.load(told[0, 0])
                ctx.syncwarp()
                with ctx.elect_one():
                    ctx.mma(acc, *tiles, accumulate=False)
                    ctx.mma_commit(before)
                    # waits in the queue behind the commit
                    ctx.mma(acc, *tiles, accumulate=number == refused)
                    ctx.mma_commit(h.done)
                    ctx.store(told[0, 0], 0)
                done.wait(0)
                before.try_wait(0)  # here states are compared in which the commit is still to act
                before.wait(0)
            h.over.complete_dealloc(h.tmem)

    @ctx.role("first", warps=1)
    def first() -> None:
        for i in ctx.range(ROUNDS):
            with ctx.elect_one():
                a.arrive()
            back.wait(i % 2)

    @ctx.role("second", warps=1)
    def second() -> None:
        for i in ctx.range(ROUNDS):
            with ctx.elect_one():
                b.arrive()
            back.wait(i % 2)

    @ctx.role("third", warps=1)
    def third() -> None:
        with ctx.elect_one():
            c.arrive()

    @ctx.role("compare", warps=1)
    def compare() -> None:
        over.wait(0)
        c.try_wait(0)  # here states are compared: all but the answers is alike again
        c.wait(0)
        with ctx.elect_one():
            done.arrive()

    def wait() -> None:
        for i in ctx.range(ROUNDS):  # until the phases that were tested are long past
            a.wait(i % 2)
            b.wait(i % 2)
            ctx.sync_warpgroup()
            with ctx.elect_one("warpgroup"):
                back.arrive()
        with ctx.elect_one("warpgroup"):
            over.arrive()
        done.wait(0)

    def copy_back() -> None:
        with ctx.elect_one("warpgroup"):
            landed.expect_bytes(back_again.nbytes)
            ctx.tma_load(copied, (0, 0), back_again, landed)
        landed.wait(0)

    def copy_out() -> None:
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        with ctx.elect_one("warpgroup"):
            ctx.tma_store(copied, (0, 0), rows)
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)
        ctx.sync_warpgroup()

    @ctx.role("ask", warps=1)
    def ask() -> None:
        number = a.try_wait(0).to("int32") + 2 * b.try_wait(0).to("int32")
        with ctx.elect_one():
            ctx.store(word[0, 0], number)
            asked.arrive()
        taken.wait(0)
        with ctx.elect_one():
            ctx.store(word[0, 0], 0)  # the answers are now where the other role has put them

    @ctx.role("look", warpgroups=1)
    def look() -> None:
        asked.wait(0)
        number = ctx.let(ctx.load(word[0, 0]), "number")
        ctx.sync_warpgroup()
        with ctx.elect_one("warpgroup"):
            taken.arrive()
        value = ctx.fragment(shape=(64, 8), dtype="float32")
        value.fill(number.to("float32"))

        def held(again: Any) -> None:
            ctx.store(last, again)
            ctx.sync_warpgroup()
            ctx.assert_(ctx.load(last[0, 0]) != float(refused), "refused")

        match by:
            case "local":
                wait()
                ctx.assert_(number != refused, "refused")
            case "variable":
                var = ctx.var(0)
                var.set(number)
                wait()
                ctx.assert_(var.get() != refused, "refused")
            case "fragment":
                wait()
                held(value)
            case "vote":
                wait()
                with ctx.per_warp(), ctx.when((value == float(refused)).any()):
                    ctx.assert_(ctx.lane > 31, "refused")
            case "tile by fragment":
                ctx.store(rows, value)
                wait()
                again = ctx.fragment(shape=(64, 8), dtype="float32")
                again.load(rows)
                held(again)
            case "tile by element":
                ctx.store(rows, value)
                wait()
                ctx.assert_(ctx.load(rows[0, 0]) != float(refused), "refused")
            case "tile by copy":
                ctx.store(rows, value)
                copy_out()
                wait()
                copy_back()
                ctx.assert_(ctx.load(back_again[0, 0]) != float(refused), "refused")
            case "tile by reduction":
                ctx.store(rows, value)
                wait()
                again = ctx.fragment(shape=(64, 8), dtype="float32")
                again.load(rows)
                ctx.store(sums, again.sum())
                ctx.sync_warpgroup()
                ctx.assert_(ctx.load(sums[0, 0]) != 8.0 * refused, "refused")
            case "global by element":
                with ctx.elect_one("warpgroup"):
                    ctx.store(kept[0, 0], number.to("float32"))
                wait()
                ctx.assert_(ctx.load(kept[0, 0]) != float(refused), "refused")
            case "global by fragment":
                ctx.store_global(kept, (0, 0), value)
                wait()
                held(ctx.load_global(kept, (0, 0), (64, 8)))
            case "global by copy":
                ctx.store(rows, value)
                copy_out()
                wait()
                copy_back()
                again = ctx.fragment(shape=(64, 8), dtype="float32")
                again.load(back_again)
                held(again)
            # those of the groups of 32 lanes differ where the answers are the refused ones
            case "scale factor":
                h.find()
                rows_of = ctx.load_global(uneven, (0, 0), (128, 8), layout="tmem")
                h.tmem.tensor((128, 8), col=64).store(rows_of * (number == refused).to("float32"))
                ctx.tmem_wait_store()
                wait()
                ctx.tcgen05_fence_before()
                there.arrive()
                h.wait()
                h.over.signal_complete()
            case "accumulate":
                h.find()
                with ctx.elect_one("warpgroup"):
                    ctx.store(told[0, 0], number)
                there.arrive()
                wait()
                h.wait()
                product = h.tmem.tensor((128, 32)).load()
                ctx.tmem_wait_load()
                h.over.signal_complete()
                with ctx.per_warp(), ctx.when((product == 256.0).any()):
                    ctx.assert_(ctx.lane > 31, "refused")
            case "trip count":
                wait()
                for i in ctx.range(number):
                    ctx.assert_(i != refused - 1, "refused") if refused else None
            case "coordinate":
                wait()
                with ctx.elect_one("warpgroup"):
                    ctx.store(kept[number + 61 + (3 - refused), 0], 0.0)
            case _:
                raise AssertionError(by)


def told(by: str, refused: int) -> tp.Program:
    kept, copied = np.zeros((64, 8), np.float32), np.zeros((64, 8), np.float32)
    factors = tp.tensor_map(np.ones((128, 128), tp.float8_e4m3.numpy), box=(128, 128))
    uneven = np.repeat(np.arange(128, dtype=np.float32)[:, None], 8, 1)
    return answers.bind(
        kept, tp.tensor_map(copied, box=(64, 8), swizzle=0), factors, uneven, by=by, refused=refused
    )


@pytest.mark.slow
@pytest.mark.sampled(suite=10)
@pytest.mark.parametrize("by", PATHS)
@pytest.mark.parametrize("refused", range(4))
def test_answers_are_found_again_whatever_way_they_took(by: str, refused: int) -> None:
    made = told(by, refused).launch_args
    merged = check(made, shorten=False)
    assert merged.verdict == check(made, reductions=EVERY, shorten=False).verdict
    if by == "trip count" and refused == 0:
        return  # a loop that is not entered asserts nothing
    assert merged.verdict == "fault", f"the answers {refused} are lost on the way by {by}"
    assert "race" not in merged.faults[0].message


@pytest.mark.slow
def test_a_key_says_whether_a_queued_mma_accumulates(monkeypatch: pytest.MonkeyPatch) -> None:
    """That was decided when it was issued; behind a commit it waits, and nothing else of the state
    says it any more.
    """
    found: dict[bytes, set[tuple[bool, ...]]] = {}
    plain = StateKeys.of

    def of(self: StateKeys, execution: Execution, tensors: bool = True) -> bytes:
        key = plain(self, execution, tensors)
        queues = [f.unit.waiting for f in execution.in_flight if isinstance(f.unit, UnitQueue)]
        found.setdefault(key, set()).add(
            tuple(u.adds for queue in queues for u in queue if isinstance(u, MmaUnit))
        )
        return key

    monkeypatch.setattr(StateKeys, "of", of)
    assert check(told("accumulate", 1).launch_args, shorten=False).verdict == "fault"
    assert {(False,), (True,)} <= set().union(*found.values())
    assert [adds for adds in found.values() if len(adds) > 1] == []


def test_values_that_only_come_to_be_stored_are_no_part_of_a_key() -> None:
    """The accumulator of a product, and the tiles it is made of, decide nothing; what a branch
    takes does.
    """
    b = Builder()
    out = b.tensor("out", dtypes.float32)
    bar, flags, tile = (
        b.barriers("full"),
        b.smem("flags", 1, 32, 1, dtypes.int32),
        b.smem("tile", 1, 32, 1, dtypes.float32),
    )
    b.setup_done()
    with b.role("asks", warps=1):
        more = b.local("answer", dtypes.boolean)
        b.add(ops.MbarTryWait(b.kernel.loc, b.bar(bar), b.phase(0), more))
        flag = b.load(b.element(b.tile(flags), 0, 0))
        with b.when(binary("eq", flag, 1)):
            b.store(b.element(out, 0, 0), b.load(b.element(b.tile(tile), 0, 0)))
    kernel = b.finished()
    found = Flow(kernel).reached()
    assert flags in found
    assert flag in found
    assert not {more, tile, out} & found


def test_a_counter_of_rounds_decides_nothing_and_one_that_can_overflow_does() -> None:
    for step, decides in ((1, False), (1 << 20, True)):
        b = Builder()
        out = b.tensor("out", dtypes.int32)
        b.setup_done()
        with b.role("counts", warps=1):
            rounds = b.var(const(0))
            b.add(ops.Assign(b.kernel.loc, rounds, binary("add", b.read(rounds), step)))
            b.store(b.element(out, 0, 0), b.read(rounds))
        assert (rounds in Flow(b.finished()).reached()) == decides


@pytest.mark.parametrize(
    ("work", "decides"),
    [
        ("nothing", True),
        ("arithmetic", True),
        ("fence", False),
        ("branch", True),
        ("both branches", False),
        ("inner loop", True),
    ],
)
def test_a_counter_in_a_loop_without_steps_decides(work: str, decides: bool) -> None:
    """Rounds of pure arithmetic are no steps: in 2^13 times 2^13 of them a counter of 64 leaves
    int32.
    """
    b = Builder()
    out, flag = b.tensor("out", dtypes.int32), b.scalar("flag")
    b.setup_done()
    with b.role("counts", warps=1):
        rounds = b.var(const(0))
        with b.loop(1 << 13), b.loop(1 << 13):
            b.add(ops.Assign(b.kernel.loc, rounds, binary("add", b.read(rounds), 64)))
            match work:
                case "arithmetic":
                    b.let(binary("mul", flag, 2))
                case "fence":
                    b.add(ops.FenceProxyAsync(b.kernel.loc))
                case "branch" | "both branches":
                    with b.when(binary("eq", flag, 1)) as branch:
                        b.add(ops.FenceProxyAsync(b.kernel.loc))
                    if work == "both branches":
                        with b.into(branch.orelse):
                            b.add(ops.FenceProxyAsync(b.kernel.loc))
                case "inner loop":
                    with b.loop(flag):
                        b.add(ops.FenceProxyAsync(b.kernel.loc))
        b.store(b.element(out, 0, 0), b.read(rounds))
    assert (rounds in Flow(b.finished()).reached()) == decides


# Every op: those that move data, which the analysis must follow from where they come to where they
# go; those that fault on data that they read from memory or registers, which must be roots; and the
# rest, which decide with all that they name, or name nothing.
MOVES_DATA = {
    "Assign",
    "Atomic",
    "ClcQuery",
    "CursorRead",
    "CursorStep",
    "Define",
    "FragmentAny",
    "FragmentFind",
    "FragmentLoad",
    "FragmentLoadGlobal",
    "FragmentPack",
    "FragmentReduce",
    "FragmentReduceAll",
    "FragmentReduceColumns",
    "FragmentReduceGlobal",
    "FragmentScan",
    "FragmentSet",
    "FragmentStore",
    "FragmentStoreGlobal",
    "Let",
    "Load",
    "Read",
    "ReduceLanes",
    "Shuffle",
    "Store",
    "StrongLoad",
    "StrongStore",
    "Tcgen05Mma",
    "TmaLoad",
    "TmaReduce",
    "TmaStore",
    "TmemCopy",
    "TmemLoad",
    "TmemStore",
    "Vote",
    "Wgmma",
}
FAULTS_ON_DATA = {
    "Assert",  # its condition
    "ReduceLanes",  # a sum of signed integers that does not fit
    "Store",  # of different values by several threads to one element
    "StrongStore",
    "Tcgen05Mma",  # scale factors: negative, or not alike in the groups of lanes
}


def test_every_op_that_moves_data_is_followed_below() -> None:
    """An op that declares that it reads something, and writes or binds something."""
    moves = {
        op.__name__
        for op in ops.EVERY
        if any(use.reads for use in op.uses.values())
        and (op.bound or any(use.writes for use in op.uses.values()))
    }
    assert moves == MOVES_DATA, (
        "name the op in MOVES_DATA, and give _moved a case of it: a test sees that the analysis"
        " follows data through it"
    )
    assert {op.__name__ for op in ops.EVERY} >= FAULTS_ON_DATA


def _moved(op: str) -> tuple[Flow, Any, Any]:
    """A kernel with one op that moves data: the flow, where the data come from and where they go
    to.
    """
    b = Builder()
    source, target = (b.smem(name, 1, 64, 64, dtypes.bfloat16) for name in ("source", "target"))
    tensor = b.tensor("tensor", dtypes.bfloat16)
    bar = b.barriers("bar")
    b.setup_done()
    with b.role("r", warpgroups=1):
        loc, x, y, z = b.kernel.loc, b.tile(source), b.tile(target), b.scalar("z")
        fragment, var = b.fragment("fragment", 64, 64), b.var(const(0))
        cursor, one, zero = b.cursor(2), b.local("one"), const(0)
        made: Any
        ends: tuple[Any, Any]
        match op:
            case "Assign":
                ends, made = (one, var), ops.Assign(loc, var, one)
            case "Atomic":
                at = b.element(tensor, 0, 0)
                made = ops.Atomic(loc, one, at, "add", z, None, "relaxed", "gpu")
                ends = tensor, one
            case "StrongLoad":
                at = b.element(tensor, 0, 0)
                ends, made = (tensor, one), ops.StrongLoad(loc, one, at, "acquire", "gpu")
            case "StrongStore":
                at = b.element(tensor, 0, 0)
                ends, made = (one, tensor), ops.StrongStore(loc, at, one, "release", "gpu")
            case "ClcQuery":
                ends, made = (
                    (source, one),
                    ops.ClcQuery(loc, x, b.local("valid", dtypes.boolean), one),
                )
            case "CursorRead":
                ends, made = (
                    (cursor, one),
                    ops.CursorRead(loc, cursor, one, b.local("phase", dtypes.phase)),
                )
            case "CursorStep":
                ends, made = (one, cursor), ops.CursorStep(loc, cursor, one)
            case "Define":
                ends, made = (one, var), ops.Define(loc, var, one)
            case "FragmentAny":
                ends, made = (fragment, one), ops.FragmentAny(loc, one, b.value(fragment))
            case "FragmentFind":
                best, column = b.fragment("best", 64, 1), b.fragment("at", 64, 1, dtypes.int32)
                ends = fragment, column
                made = ops.FragmentFind(loc, best, column, b.value(fragment), "max")
            case "FragmentScan":
                sums = b.fragment("sums", 64, 64)
                ends, made = (fragment, sums), ops.FragmentScan(loc, sums, b.value(fragment))
            case "FragmentLoad":
                ends, made = (source, fragment), ops.FragmentLoad(loc, fragment, x)
            case "FragmentLoadGlobal":
                ends, made = (
                    (tensor, fragment),
                    ops.FragmentLoadGlobal(loc, fragment, tensor, (zero, zero)),
                )
            case "FragmentReduce":
                sums = b.fragment("sums", 64, 1)
                ends, made = (
                    (fragment, sums),
                    ops.FragmentReduce(loc, sums, b.value(fragment), "add"),
                )
            case "FragmentPack":
                other = b.fragment("other", 64, 64)
                ends, made = (fragment, other), ops.FragmentPack(loc, other, b.value(fragment), 0)
            case "FragmentReduceAll":
                value = b.value(fragment)
                ends, made = (fragment, one), ops.FragmentReduceAll(loc, one, value, "add", "wgmma")
            case "FragmentReduceColumns":
                sums, value = b.fragment("sums", 1, 64), b.value(fragment)
                made = ops.FragmentReduceColumns(loc, sums, value, "add", "wgmma")
                ends = fragment, sums
            case "FragmentSet":
                other = b.fragment("other", 64, 64)
                ends, made = (fragment, other), ops.FragmentSet(loc, other, b.value(fragment), 0)
            case "FragmentStore":
                ends, made = (fragment, target), ops.FragmentStore(loc, y, b.value(fragment))
            case "FragmentStoreGlobal":
                ends, made = (
                    (fragment, tensor),
                    ops.FragmentStoreGlobal(loc, tensor, (zero, zero), b.value(fragment)),
                )
            case "FragmentReduceGlobal":
                value = b.value(fragment)
                made = ops.FragmentReduceGlobal(loc, tensor, (zero, zero), value, "add")
                ends = fragment, tensor
            case "Let":
                two = b.local("two")
                ends, made = (one, two), ops.Let(loc, two, one)
            case "Load":
                ends, made = (source, one), ops.Load(loc, one, b.element(x, 0, 0))
            case "Read":
                ends, made = (var, one), ops.Read(loc, one, var)
            case "ReduceLanes":
                got = b.local("got", dtypes.uint32)
                ends, made = (one, got), ops.ReduceLanes(loc, got, one, "max")
            case "Vote":
                got = b.local("got", dtypes.boolean)
                ends, made = (one, got), ops.Vote(loc, got, one, "any")
            case "Shuffle":
                got = b.local("got", dtypes.int32)
                ends, made = (one, got), ops.Shuffle(loc, got, one, const(1), True)
            case "Store":
                ends, made = (one, target), ops.Store(loc, b.element(y, 0, 0), one)
            case "Tcgen05Mma":
                ends, made = (
                    (source, TENSOR_MEMORY),
                    ops.Tcgen05Mma(loc, Tmem(zero, 128, 64, dtypes.float32), x, x, const(True), 1),
                )
            case "TmaLoad":
                ends, made = (tensor, target), ops.TmaLoad(loc, tensor, (zero, zero), y, b.bar(bar))
            case "TmaReduce":
                made = ops.TmaReduce(loc, tensor, (zero, zero), x, "add")
                ends = source, tensor
            case "TmaStore":
                ends, made = (source, tensor), ops.TmaStore(loc, tensor, (zero, zero), x)
            case "TmemCopy":
                ends, made = (
                    (source, TENSOR_MEMORY),
                    ops.TmemCopy(loc, Tmem(zero, 128, 64, dtypes.float32), x, 1),
                )
            case "TmemLoad":
                ends, made = (
                    (TENSOR_MEMORY, fragment),
                    ops.TmemLoad(loc, fragment, Tmem(zero, 128, 64, dtypes.float32)),
                )
            case "TmemStore":
                ends, made = (
                    (fragment, TENSOR_MEMORY),
                    ops.TmemStore(loc, Tmem(zero, 128, 64, dtypes.float32), b.value(fragment)),
                )
            case "Wgmma":
                ends, made = (source, fragment), ops.Wgmma(loc, fragment, x, x)
            case _:
                raise AssertionError(op)
        b.add(made)
    return Flow(b.kernel), *ends


@pytest.mark.parametrize("op", sorted(MOVES_DATA))
def test_data_are_followed_through_every_op_that_moves_them(op: str) -> None:
    flow, source, target = _moved(op)
    assert source in flow.sources[target]
    assert source not in flow.reached()


@pytest.mark.parametrize("op", sorted(FAULTS_ON_DATA))
def test_data_that_an_op_faults_on_are_roots(op: str) -> None:
    b = Builder()
    tile, word = b.smem("tile", 1, 64, 64, dtypes.bfloat16), b.smem("word", 1, 1, 32, dtypes.int32)
    b.setup_done()
    with b.role("r", warps=1):
        loc, x, zero, data = (
            b.kernel.loc,
            b.tile(tile),
            const(0),
            b.local("data", dtypes.boolean, Vary.LANE),
        )
        number, total = b.local("number"), b.local("total")
        scales = [TmemScales(zero, rows, 4, dtypes.float8_e8m0, 4, zero) for rows in (128, 64)]
        made: dict[str, tuple[Any, ops.Op]] = {
            "Assert": (data, ops.Assert(loc, data, "no")),
            "ReduceLanes": (number, ops.ReduceLanes(loc, total, number, "add")),
            "Store": (data, ops.Store(loc, b.element(b.tile(word), 0, 0), data)),
            "StrongStore": (
                data,
                ops.StrongStore(
                    loc,
                    b.element(b.tensor("t", dtypes.boolean, 2), 0, 0),
                    data,
                    "release",
                    "gpu",
                ),
            ),
            "Tcgen05Mma": (
                TENSOR_MEMORY,
                ops.Tcgen05Mma(
                    loc, Tmem(zero, 128, 64, dtypes.float32), x, x, const(True), 1, *scales
                ),
            ),
        }
        thing, one = made[op]
        b.add(one)
    assert thing in Flow(b.kernel).roots


@pytest.mark.slow
def test_an_op_is_a_step_where_the_machine_performs_it() -> None:
    """What `_slow_counters` takes for a step is a `yield` of the generated code, which is what an
    execution counts.
    """
    yielded: set[type[ops.Op]] = set()
    written: set[type[ops.Op]] = set()
    cases: list[Any] = [
        *copy_cases.CASES,
        *sync_cases.CASES,
        *scalar_cases.CASES,
        *fragment_cases.CASES,
        *tmem_cases.CASES,
    ]
    for case in {tuple(by_words(case)[:2]): case for case in cases}.values():
        compiled = compile_kernel(case.make(np.random.default_rng(0))[0].kernel)
        for line in compiled.source.splitlines():
            for number in re.findall(r"\bS(\d+)\b", line):
                (yielded if "yield" in line else written).add(type(compiled.sites[int(number)].op))
    assert len(yielded) > 20
    assert not [op for op in yielded if not op.acts]
    assert not [op for op in written - yielded if op.acts]


def test_an_operand_of_which_nothing_is_declared_decides_with_all_that_it_names() -> None:
    b = Builder()
    tile = b.smem("tile", 1, 32, 1, dtypes.float32)
    b.setup_done()
    with b.role("r", warps=1):
        b.store(b.element(b.tile(tile), 0, 0), 1.0)
    kernel = b.finished()
    (store,) = [op for op in walk(kernel.roles[0].body) if isinstance(op, ops.Store)]
    assert tile not in Flow(kernel).reached()

    kernel.roles[0].body.ops[kernel.roles[0].body.ops.index(store)] = _Strange(store.loc, store.dst)
    assert tile in Flow(kernel).reached()


@declares(Facts())
class _Strange(ops.Op):
    """An op that does not say whether it reads or writes its operand."""

    place: Element


@pytest.mark.parametrize(
    ("x", "faults"),
    [
        (lambda a, f: binary("add", a, 1), True),
        (lambda a, f: binary("floordiv", 7, a), True),
        (lambda a, f: binary("floordiv", a, 4), False),
        (lambda a, f: binary("shr", a, a), False),
        (lambda a, f: Cast(dtypes.int32, a=f), False),
        (lambda a, f: binary("div", f, f), False),
    ],
    ids=["sum", "quotient", "constant divisor", "shift", "conversion", "float quotient"],
)
def test_what_arithmetic_can_fault_on_decides(x: Callable[[Any, Any], Any], faults: bool) -> None:
    """`ir.numbers` defines shifts and conversions from floating point for every operand."""
    b = Builder()
    ints, floats = (
        b.smem("ints", 1, 32, 1, dtypes.int32),
        b.smem("floats", 1, 32, 1, dtypes.float32),
    )
    b.setup_done()
    with b.role("r", warps=1):
        a, f = (b.load(b.element(b.tile(t), 0, 0)) for t in (ints, floats))
        b.let(x(a, f))
    assert bool({a, f} & Flow(b.kernel).reached()) == faults


def test_encodings_tell_values_apart_that_python_hashes_alike() -> None:
    for a, b in (
        ((-1,), (-2,)),
        (((0, -1), 5), ((0, -2), 5)),
        (1, True),
        (0, False),
        ("1", 1),
        (b"", ""),
        ((1, (2,)), ((1, 2),)),
    ):
        assert encoded(a) != encoded(b)
        assert digest(a) != digest(b)
    big = 1 << 500
    assert encoded((big, "x" * 40)) == encoded((1 << 500, "".join(["x"] * 40))), (
        "an encoding depends on which objects they are"
    )


@pytest.mark.slow
@pytest.mark.parametrize("part", ["slot", "tensor", "fragment"])
def test_a_key_without_contents_is_noticed(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above fail where contents are left out: each hole, put back on purpose, loses a
    fault.
    """
    nothing: Any = {"slot": b"", "tensor": b"", "fragment": False}[part]
    monkeypatch.setattr(DecidingData, part, lambda self, thing: nothing)
    by = {"slot": "tile by fragment", "tensor": "global by fragment", "fragment": "fragment"}[part]
    verdicts = (check(told(by, refused).launch_args, shorten=False).verdict for refused in range(4))
    assert "verified" in verdicts


@pytest.mark.slow
@pytest.mark.parametrize("by", ["global by element", "tile by copy", "vote", "accumulate"])
def test_keys_hold_plain_values_only(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`encoded` does not look: NumPy's values would become their bytes, without type and shape, and
    equal to those of others.
    """

    def plain(x: Any) -> None:
        if type(x) is tuple:
            for part in x:
                plain(part)
        else:
            assert type(x) in (int, str, bytes, bool, float, NoneType), f"{x!r} is part of a key"

    def dumps(key: Any, version: int) -> bytes:
        plain(key)
        return marshal.dumps(key, version)

    monkeypatch.setattr(encoding, "_dumps", dumps)
    assert check(told(by, 1).launch_args, shorten=False).verdict == "fault"
