"""What each line of a kernel is for, and how few stages do."""

from __future__ import annotations

from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import tilepipe as tp
from tests.support.check.copies import program
from tilepipe.check import sensitivity
from tilepipe.check.sensitivity import Line, Sensitivity


@pytest.fixture(scope="module")
def report() -> Sensitivity:
    return sensitivity.report(program(), instance="5 tiles")


def line(of: Sensitivity, what: str) -> Line:
    """The one row about this op."""
    found = [x for x in of.lines if what in x.what]
    assert len(found) == 1, [x.what for x in of.lines]
    return found[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "kind", "said"),
    [
        (
            "mbar_wait bar=ring.full",
            "wait",
            "PoisonError at copies.py:38: role 'store' reads tiles[0]",
        ),
        (
            "mbar_wait bar=ring.empty",
            "wait",
            "BarrierError at copies.py:27: over-arrival on ring.full[0]",
        ),
        (
            "mbar_arrive bar=ring.empty",
            "arrive",
            "DeadlockError at copies.py:26: deadlock: 2 of 2 agents",
        ),
        (
            "fence_proxy_async",
            "fence",
            "RaceError at copies.py:46: race between proxies on result",
        ),
        (
            "tma_store_wait pending=0 read=True",
            "wait",
            "RaceError at copies.py:38: race on result",
        ),
        ("setup_barrier", "fence", "BarrierError at copies.py:36: mbar_wait ring.full[stage]"),
    ],
)
def test_load_bearing_lines_say_what_goes_wrong_without_them(
    what: str, kind: str, said: str, report: Sensitivity
) -> None:
    row = line(report, what)
    assert (row.answer, row.kind, row.count) == ("load-bearing", kind, 1)
    assert row.says.startswith(said)


def test_the_lines_are_those_of_the_user(report: Sensitivity) -> None:
    row = line(report, "fence_proxy_async")
    assert (row.loc.short, row.source, row.roles) == (
        "copies.py:43",
        "ctx.fence_proxy_async()",
        ("store",),
    )


@pytest.mark.slow
def test_ops_of_one_line_are_taken_out_together() -> None:
    """A Python loop makes two fences of one line: each alone is redundant, the line is not."""
    row = line(sensitivity.report(program(fences=2)), "fence_proxy_async")
    assert (row.answer, row.count) == ("load-bearing", 2)


@pytest.mark.slow
def test_a_syncwarp_behind_a_fence_is_for_strict_proxies(report: Sensitivity) -> None:
    """Without it the elected lane may issue its store before the other lanes have fenced; its own
    fence is accepted, with advice.
    """
    lax = [x for x in report.redundant if x.kind == "syncwarp"]
    assert [x.loc.short for x in lax] == ["copies.py:44"]
    assert "a fence on the reader's side instead, which is accepted with advice" in lax[0].says
    assert sensitivity.report(program(), rules="strict").redundant == []


def test_redundant_lines_say_why() -> None:
    twice = sensitivity.report(_two_waits())
    row = next(x for x in twice.redundant if x.loc.source.endswith("# again"))
    assert row.says == f"verified without it: {row.why}"
    assert "all that it orders is ordered already" in row.why


@tp.kernel()
def _waits(ctx: tp.Context, out: Any) -> None:
    cell = ctx.smem((1, 32), tp.int32, swizzle=0, name="cell")[0]
    ready = tp.SharedMemBarrier.allocate(ctx, 32, name="ready")

    @ctx.role("write", warps=1)
    def write() -> None:
        ctx.store(cell[0, ctx.lane], ctx.lane)
        ready.arrive()

    @ctx.role("read", warps=1)
    def read() -> None:
        ready.wait(0)
        ready.wait(0)  # again
        ctx.store(out[ctx.lane], ctx.load(cell[0, ctx.lane]))


def _two_waits() -> tp.Program:
    return _waits.bind(np.zeros(32, np.int32))


@pytest.mark.slow
def test_how_few_stages_verify() -> None:
    def rebind(name: str, n: int) -> tp.Program:
        assert name == "num_stages"
        return program(num_stages=n)

    found = sensitivity.report(program(), rebind=rebind, stages={"num_stages": 3}).stages
    assert [(s.name, s.now, s.fewest, s.below) for s in found] == [("num_stages", 3, 1, "")]


@pytest.mark.slow
def test_stages_that_are_refused_or_wrong_below_a_number() -> None:
    def rebind(name: str, n: int) -> tp.Program:
        if n == 1:
            raise tp.BindError("too few\nof them")
        return program(num_stages=n)

    found = sensitivity.report(program(), rebind=rebind, stages={"num_stages": 2}).stages[0]
    assert (found.fewest, found.below) == (2, "1 is refused: too few")
    found = sensitivity.report(
        program(), rebind=lambda name, n: program(fences=n - 1), stages={"depth": 3}
    ).stages[0]
    assert found.fewest == 2
    assert found.below.startswith("1: RaceError at copies.py:46: race between proxies on result")


def test_as_json_and_as_a_table(report: Sensitivity) -> None:
    told = report.report()
    assert told["kernel"] == "copies"
    assert told["instance"] == "5 tiles"
    row = next(x for x in told["lines"] if x["op"] == "fence_proxy_async")
    assert row["without"].startswith("RaceError at copies.py:46: race between proxies on result")
    assert {k: row[k] for k in ("at", "answer", "kind", "count", "roles")} == {
        "at": "copies.py:43",
        "answer": "load-bearing",
        "kind": "fence",
        "count": 1,
        "roles": ["store"],
    }
    out = StringIO()
    Console(file=out, width=200).print(report.table())
    assert "copies: what each line is for (5 tiles)" in out.getvalue()
    assert "fence_proxy_async (store)" in out.getvalue()


@pytest.mark.slow
def test_progress_counts_rows_and_settings() -> None:
    seen: list[tuple[int, int]] = []
    report = sensitivity.report(
        program(),
        rebind=lambda name, n: program(),
        stages={"n": 1},
        progress=lambda *x: seen.append(x),
    )
    total = len(report.lines) + 1
    assert seen == [(i, total) for i in range(total + 1)]
