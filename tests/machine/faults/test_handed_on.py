"""Why a flag, or a ticket, did not hand on what a CTA had written for another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.check import check


@tp.kernel(grid=2)
def handed(
    ctx: tp.Context, parts: Any, flags: Any, out: Any, *, given: str, taken: str, ends: str
) -> None:
    """CTA 0 writes `parts` and raises a flag; CTA 1 waits for it and reads them. `given`, `taken`:
    where the threads of each meet.
    """

    def meet(how: str) -> None:
        if how == "all":
            ctx.sync_warpgroup()
        elif how == "warp":
            ctx.syncwarp()

    @ctx.role("both", warpgroups=1)
    def both() -> None:
        mine = ctx.fragment(shape=(64, 32))
        with ctx.when(ctx.block_id == 0):
            mine.fill(1.0)
            if given == "early":
                with ctx.elect_one("warpgroup"):
                    ctx.store(flags[0], 1, order="release")
            ctx.store_global(parts, (0, 0), mine)
            meet(given)
            if given != "early":
                with ctx.elect_one("warpgroup"):
                    ctx.store(flags[0], 1, order="release")
        with ctx.otherwise():
            with ctx.elect_one("warpgroup"):
                ctx.wait_until(flags[0], lambda flag: flag == 1 if ends == "one" else flag >= 0)
            meet(taken)
            ctx.store_global(out, (0, 0), ctx.load_global(parts, (0, 0), (64, 32)))


def message(given: str = "all", taken: str = "all", ends: str = "one", flag: int = 0) -> str:
    parts, out = np.zeros((64, 32), np.float32), np.zeros((64, 32), np.float32)
    flags = np.full(1, flag, np.int32)
    program = handed.bind(parts, flags, out, given=given, taken=taken, ends=ends)
    found = check(program.launch_args).faults
    return found[0].message if found else ""


def test_a_flag_hands_on_what_the_threads_have_met_about() -> None:
    assert message() == ""


@pytest.mark.parametrize(
    ("given", "whose"), [("none", "the other 127 threads"), ("warp", "warps 1..3")]
)
def test_the_thread_that_releases_has_not_met_the_others(given: str, whose: str) -> None:
    said = message(given=given)
    assert (
        "  the flag 'flags[0]' is released at test_handed_on.py:40 by one thread of role 'both' of"
        f" CTA 0, which does not know of the writes of {whose}: put ctx.sync_warpgroup() before it."
        in said
    )
    assert "must release a flag" not in said


@pytest.mark.parametrize(
    ("taken", "whose"), [("none", "the other 127 threads"), ("warp", "warps 1..3")]
)
def test_the_thread_that_acquires_has_not_met_the_others(taken: str, whose: str) -> None:
    assert (
        "  the flag 'flags[0]' is acquired at test_handed_on.py:43 by one thread of role 'both' of"
        f" CTA 1, of which {whose} do not know: put ctx.sync_warpgroup() between it and the second"
        " access." in message(taken=taken)
    )


def test_a_flag_that_is_released_before_the_access_is_no_matter_of_meeting() -> None:
    said = message(given="early")
    assert "After it, a thread that knows of the first access must release a flag" in said
    assert "sync_warpgroup" not in said


@pytest.mark.parametrize(("ends", "flag"), [("one", 1), ("any", 0)])
def test_a_wait_that_was_over_at_launch(ends: str, flag: int) -> None:
    assert (
        f"  the wait at test_handed_on.py:43 was over with {flag}, the value that 'flags[0]' held"
        " at launch, so that it followed no release (store_release flags[0], at"
        " test_handed_on.py:40). Let the flag begin with a value that does not end the wait, and"
        " wait for the one that is released.\n" in message(ends=ends, flag=flag)
    )


@tp.kernel(grid=2)
def ordinary(ctx: tp.Context, flags: Any, out: Any, *, store: bool) -> None:
    """CTA 0 raises a flag for which CTA 1 waits; one of the two does so by an ordinary access."""

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            with ctx.when(ctx.block_id == 0):
                if store:
                    ctx.store(flags[0], 1)
                else:
                    ctx.store(flags[0], 1, order="release")
            with ctx.otherwise():
                if store:
                    ctx.wait_until(flags[0], lambda flag: flag == 1)
                else:
                    ctx.store(out[0], ctx.load(flags[0]))


@pytest.mark.parametrize("store", [True, False])
def test_an_ordinary_access_to_a_flag(store: bool) -> None:
    flags, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    (fault,) = check(ordinary.bind(flags, out, store=store).launch_args).faults
    strong, order, weak = (
        ("load_acquire", "release", "store") if store else ("store_release", "acquire", "load")
    )
    assert (
        f"  'flags' is also accessed by {strong} flags[0], at test_handed_on.py:" in fault.message
    )
    assert f", and the {weak} at test_handed_on.py:" in fault.message
    assert f' is an ordinary one: write order="{order}" and scope="gpu" there.\n' in fault.message
    assert "must release a flag" not in fault.message


@tp.kernel(grid=2)
def counted(ctx: tp.Context, parts: Any, tickets: Any, out: Any, *, order: str) -> None:
    """The CTA that draws the second number adds up what both have written."""
    drawn = ctx.smem((1, 4), tp.int32, swizzle=0, name="drawn")[0]

    @ctx.role("both", warpgroups=1)
    def both() -> None:
        mine = ctx.fragment(shape=(64, 32))
        mine.fill(1.0)
        ctx.store_global(parts, (ctx.block_id, 0, 0), mine)
        ctx.sync_warpgroup()
        with ctx.elect_one("warpgroup"):
            ctx.store(drawn[0, 0], ctx.atomic_add(tickets[0], 1, order=order))
        ctx.sync_warpgroup()
        with ctx.when(ctx.load(drawn[0, 0]) == 1):
            for other in range(2):
                ctx.store_global(
                    out, (other, 0, 0), ctx.load_global(parts, (other, 0, 0), (64, 32))
                )


def test_a_relaxed_ticket_is_named() -> None:
    def made(order: str) -> Any:
        parts, out = np.zeros((2, 64, 32), np.float32), np.zeros((2, 64, 32), np.float32)
        return counted.bind(parts, np.zeros(1, np.int32), out, order=order).launch_args

    assert check(made("acq_rel")).ok
    (fault,) = check(made("relaxed")).faults
    assert (
        "  atomic_add tickets[0], at test_handed_on.py:146, is relaxed, so that a CTA which draws a"
        " number knows nothing of what others did before they drew theirs: write"
        ' order="acq_rel" and scope="gpu".\n' in fault.message
    )
    assert "Nothing in this kernel orders CTAs" not in fault.message
