"""Lanes of a warp that wait for other lanes of it: legal since Volta, and not modelled; never told
as a deadlock, nor a deadlock so.

Told as a deadlock again with `monkeypatch.setattr(lane_deadlocks, "undecided", lambda *_: None)`.
"""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text
from tilepipe.sim import lane_deadlocks
from tilepipe.testing import CheckFailed, check


def role(text: str, count: int = 16, size: str = "warps=1", other: str = "") -> tp.Program:
    lines = textwrap.indent(textwrap.dedent(text).strip(), "    ")
    head = (
        f'bar = tp.SharedMemBarrier.allocate(ctx, {count}, "bar")\n'
        'back = tp.SharedMemBarrier.allocate(ctx, 1, "back")'
    )
    return from_text(
        f"{head}\n@ctx.role('one', {size})\ndef one():\n{lines}\n{textwrap.dedent(other).strip()}"
    ).bind(np.zeros(128, np.int32))


LOW, HIGH = "with ctx.when(ctx.lane < 16):\n", "with ctx.when(ctx.lane >= 16):\n"
WAIT, ARRIVE = "    bar.wait(0)\n", "    bar.arrive()\n"
OTHER = (
    "@ctx.role('other', warps=1)\n"
    "def other():\n"
    "    bar.wait(0)\n"
    "    with ctx.elect_one():\n"
    "        back.arrive()\n"
)
APART = {
    "the others behind": (LOW + WAIT + HIGH + ARRIVE, ""),
    "on the other side": (LOW + WAIT + "with ctx.otherwise():\n" + ARRIVE, ""),
    "by way of a role": (LOW + "    back.wait(0)\n" + HIGH + ARRIVE, OTHER),
    "lanes by data": (
        "with ctx.when(ctx.load(out[ctx.lane]) + ctx.lane < 16):\n" + WAIT + HIGH + ARRIVE,
        "",
    ),
}


@pytest.mark.parametrize(("text", "other"), APART.values(), ids=APART)
def test_lanes_that_wait_for_lanes_of_their_warp_are_not_decided(text: str, other: str) -> None:
    program = role(text, other=other)
    with pytest.raises(tp.NotModelledError) as caught:
        program.run()
    words = (
        "not modelled: role 'one'",
        "16 lanes",
        "other lanes of the same warp",
        "on their own until they converge",
        "use two roles",
    )
    assert [w for w in words if w not in str(caught.value)] == []
    assert "deadlock" not in str(caught.value)
    verdict = program.check()
    assert verdict.verdict == "undecided"
    assert verdict.bound.startswith("not modelled: role 'one'")
    with pytest.raises(CheckFailed) as failed:
        check(program)
    assert "not modelled: role 'one'" in str(failed.value)
    assert "allow more" not in str(failed.value)


def test_one_lane_that_waits_is_named_in_the_singular() -> None:
    text = "with ctx.when(ctx.lane < 1):\n" + WAIT + "with ctx.when(ctx.lane >= 1):\n" + ARRIVE
    with pytest.raises(tp.NotModelledError, match=" with 1 lane, and nothing else can act"):
        role(text, count=31).run()


def test_the_other_order_needs_nothing() -> None:
    assert role(HIGH + ARRIVE + LOW + WAIT).check().ok


DEADLOCKS = {
    "they meet first": LOW + WAIT + "ctx.syncwarp()\n" + HIGH + ARRIVE,
    "nobody arrives": LOW + WAIT + HIGH + "    ctx.store(out[ctx.lane], 1)\n",
    "the same lanes": LOW + WAIT + LOW + ARRIVE,
    "the lanes that wait": LOW + WAIT + ARRIVE,
    "the elected lane": "with ctx.elect_one():\n" + WAIT + "with ctx.elect_one():\n" + ARRIVE,
    "data": "with ctx.when(ctx.load(out[ctx.lane]) + ctx.lane < 16):\n" + WAIT + ARRIVE,
    "the whole warp": "bar.wait(0)\n" + HIGH + ARRIVE,
    "they meet in the loop": "for i in ctx.range(2):\n"
    + textwrap.indent(LOW + WAIT + "ctx.syncwarp()\n" + HIGH + ARRIVE, "    "),
}


@pytest.mark.parametrize("text", DEADLOCKS.values(), ids=DEADLOCKS)
def test_deadlocks_that_stay_deadlocks(text: str) -> None:
    verdict = role(text).check()
    assert [f.kind for f in verdict.faults] == ["DeadlockError"]


def test_in_a_loop_lanes_may_go_round() -> None:
    """The lanes that need not wait come to the top of the loop, and to the arrive there."""
    text = "for i in ctx.range(2):\n" + textwrap.indent(HIGH + ARRIVE + LOW + WAIT, "    ")
    verdict = role(text, count=32).check()
    assert verdict.verdict == "undecided"
    assert "not modelled" in verdict.bound


def test_without_the_look_it_is_told_as_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_deadlocks, "undecided", lambda *_: None)
    with pytest.raises(tp.DeadlockError):
        role(LOW + WAIT + HIGH + ARRIVE).run()
