# ruff: noqa: PT009 (ctx.assert_ is an op of the kernel)
"""Data that decides something later is part of a state's key, wherever it lies in between.

To put the holes back on purpose: `monkeypatch.setattr(Decisive, "slot", ...)`, `"tensor"`, `"fragment"` to return no contents, or
`"leaves_out"` to name locals, of `tilepipe.check.decisive`; `monkeypatch.setattr(encoding, "digest", ...)` for keys that collide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.build import Builder, binary
from tilepipe.check import Reductions, check
from tilepipe.check.decisive import Decisive, Flow
from tilepipe.check.encoding import digest, encoded
from tilepipe.ir import dtypes, ops
from tilepipe.ir.exprs import const
from tilepipe.ir.memory import Element
from tilepipe.ir.program import walk

PATHS = ("local", "variable", "fragment", "tile by fragment", "tile by element", "tile by copy", "global by element", "global by fragment",
         "global by copy", "tile by reduction", "trip count", "coordinate", "vote")  # fmt: skip
ROUNDS = 3
EVERY = Reductions(hashing=False)


@tp.kernel()
def answers(ctx: tp.Context, kept: Any, copied: Any, *, by: str, refused: int) -> None:
    """The answers of two tests, 0 to 3 as one number, are taken round by way of `by` and asserted not to be `refused`."""
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
    return answers.bind(kept, tp.tensor_map(copied, box=(64, 8), swizzle=0), by=by, refused=refused)


@pytest.mark.parametrize("by", PATHS)
@pytest.mark.parametrize("refused", range(4))
def test_answers_are_found_again_whatever_way_they_took(by: str, refused: int) -> None:
    made = told(by, refused).launch_args
    merged = check(made, shorten=False)
    assert merged.verdict == check(made, reductions=EVERY, shorten=False).verdict
    if by == "trip count" and refused == 0:
        return  # a loop that is not entered asserts nothing
    assert merged.verdict == "fault", f"the answers {refused} are lost on the way by {by}"


def test_values_that_only_come_to_be_stored_are_no_part_of_a_key() -> None:
    """The accumulator of a product, and the tiles it is made of, decide nothing; what a branch takes does."""
    b = Builder()
    out = b.tensor("out", dtypes.float32)
    bar, flags, tile = b.barriers("full"), b.smem("flags", 1, 32, 1, dtypes.int32), b.smem("tile", 1, 32, 1, dtypes.float32)
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


def test_the_analysis_knows_every_op_that_moves_data() -> None:
    """An op that is added, and not taught to the analysis, decides with all that it names: nothing of it is lost."""
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


@dataclass(eq=False, slots=True)
class _Strange(ops.Op):
    """An op of a kind that the analysis does not know."""

    place: Element


def test_encodings_tell_values_apart_that_python_hashes_alike() -> None:
    for a, b in (((-1,), (-2,)), (((0, -1), 5), ((0, -2), 5)), (1, True), (0, False), ("1", 1), (b"", ""), ((1, (2,)), ((1, 2),))):
        assert encoded(a) != encoded(b)
        assert digest(a) != digest(b)
    big = 1 << 500
    assert encoded((big, "x" * 40)) == encoded((1 << 500, "".join(["x"] * 40))), "an encoding depends on which objects they are"


@pytest.mark.parametrize("part", ["slot", "tensor", "fragment"])
def test_a_key_without_contents_is_noticed(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above fail where contents are left out: each hole, put back on purpose, loses a fault."""
    nothing: Any = {"slot": b"", "tensor": b"", "fragment": False}[part]
    monkeypatch.setattr(Decisive, part, lambda self, thing: nothing)
    by = {"slot": "tile by fragment", "tensor": "global by fragment", "fragment": "fragment"}[part]
    verdicts = {check(told(by, refused).launch_args, shorten=False).verdict for refused in range(4)}
    assert "verified" in verdicts
