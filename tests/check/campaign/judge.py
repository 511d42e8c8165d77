"""What a check says of a kernel, beside what simulated runs of many seeds end in, and beside what
is known of the mistake in it.

A verdict is wrong, a *violation*, where
- a kernel is verified and some seed of `run` ends in a fault, or never ends;
- a kernel is verified with a mistake that is one in every order, or tracing takes what it must
refuse;
- a kernel that is right by construction is refused or called faulty;
- a counterexample does not lead to its fault again;
- a check raises, goes on beyond its bounds, or says something else with other reductions.
A fault that no seed shows is none: the checker looks further than 300 runs.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from unittest.mock import patch

import numpy as np

import tilepipe as tp
from tests.check.campaign.lines import Kernel, program
from tests.support.time_limit import TimeLimitExceeded, time_limit
from tilepipe.check import Bounds, Fault, Reductions
from tilepipe.ir.program import TensorArg
from tilepipe.machine.clusters import quiet_numbers

BOUNDS = Bounds(traces=600, seconds=60.0)
RUN_LIMIT = 10.0  # seconds of one simulated run: longer, and it never ends
# seconds that a check may take beyond its bound, on a machine that has other things to do
GRACE = 5.0


@dataclass(frozen=True)
class Judged:
    """One kernel's outcome.

    Attributes:
        verdict: of the check: "verified", "fault", "undecided"; "refused": by tracing; "raised":
            the check raised an error.
        kind: class of the fault, or of the error. failing: the first seed that ends in a fault,
            None where none does, or none was run.
        seed_kind: the class of that fault. seeds: how many were run.
        compared: whether it was checked with other reductions, too. violation: what must not be; ""
            where all is well.
    """

    features: frozenset[str]
    mistake: str
    expected: str
    verdict: str
    kind: str = ""
    message: str = ""
    traces: int = 0
    seconds: float = 0.0
    failing: int | None = None
    seed_kind: str = ""
    seeds: int = 0
    violation: str = ""
    compared: bool = False
    text: str = field(default="", repr=False)


def first_failing(made: tp.Program, seeds: Iterable[int]) -> tuple[int | None, str, int]:
    """The first seed whose run ends in a fault, what it is, and how many were run. Arguments are as
    given before each.
    """
    arrays = [
        a.array
        for a in made.launch_args.args.values()
        if isinstance(a, TensorArg) and isinstance(a.array, np.ndarray)
    ]
    given = [a.copy() for a in arrays]
    done = 0
    # The number of BLAS threads is limited once for all runs: to ask the process for it costs as
    # much as a small kernel does.
    with (
        quiet_numbers(),
        patch.object(importlib.import_module("tilepipe.sim.run"), "quiet_numbers", nullcontext),
    ):
        for seed in seeds:
            for array, kept in zip(arrays, given, strict=True):
                np.copyto(array, kept)
            done += 1
            try:
                with time_limit(RUN_LIMIT):
                    made.run(seed=seed)
            except tp.SimFault as error:
                return seed, f"{type(error).__name__}: {error}", done
            except TimeLimitExceeded as late:
                return seed, str(late), done
            finally:
                for array, kept in zip(arrays, given, strict=True):
                    np.copyto(array, kept)
    return None, "", done


KEPT: list[tp.Context] = []


@tp.kernel()
def _other(ctx: tp.Context) -> None:
    @ctx.role("all", warps=1)
    def everyone() -> None:
        KEPT[:] = [ctx]


def traced(kernel: Kernel) -> tp.Program | tp.TilepipeError:
    """The kernel's program, or why tracing refuses it."""
    more: dict[str, object] = {}
    if "other." in kernel.text():
        _other.bind()
        _other._traces.clear()  # so that the next kernel finds a ctx of its own, too
        more["other"] = KEPT[0]
    try:
        return program(kernel, **more)
    except tp.TilepipeError as error:
        return error


OTHERS = (  # each with its bounds: without reductions there is more to explore
    Reductions(hashing=False),
    Reductions(partial_order=False),
    Reductions(symmetry=False),
)


def compared(made: tp.Program, answer: str) -> str:
    """Which reductions change a verdict; "" where none does. Undecided counts as no answer."""
    for reductions in OTHERS:
        other = made.check(bounds=BOUNDS, reductions=reductions).verdict
        if "undecided" not in (other, answer) and other != answer:
            return f"{answer}, and {other} with {reductions}"
    return ""


def judge(
    kernel: Kernel,
    seeds: Iterable[int] = range(300),
    made: tp.Program | tp.TilepipeError | None = None,
    bounds: Bounds = BOUNDS,
    compare: bool = False,
) -> Judged:
    """Checks a kernel and runs it. `made`: it, traced already. `compare`: with what other
    reductions say.
    """
    made = traced(kernel) if made is None else made
    outcome = _judged(kernel, seeds, made, bounds)
    if (
        compare
        and isinstance(made, tp.Program)
        and outcome.verdict in ("verified", "fault")
        and not outcome.violation
    ):
        outcome = replace(outcome, compared=True, violation=compared(made, outcome.verdict))
    return outcome


def _judged(
    kernel: Kernel, seeds: Iterable[int], made: tp.Program | tp.TilepipeError, bounds: Bounds
) -> Judged:
    base = Judged(kernel.features, kernel.mistake, kernel.expected, "refused", text=kernel.script())
    if isinstance(made, tp.TilepipeError):
        bad = "" if kernel.mistake else f"tracing refuses a right kernel: {made}"
        return replace(base, kind=type(made).__name__, message=str(made), violation=bad)
    start = time.perf_counter()
    try:
        with time_limit(3 * bounds.seconds):
            verdict = made.check(bounds=bounds)
    except TimeLimitExceeded:
        late = (
            f"the check goes on after {3 * bounds.seconds:g} seconds, bound to {bounds.seconds:g}"
        )
        return replace(base, verdict="undecided", seconds=3 * bounds.seconds, violation=late)
    except Exception as error:
        return replace(
            base,
            verdict="raised",
            kind=type(error).__name__,
            message=str(error),
            violation=f"the check raises {error!r}",
        )
    seconds = time.perf_counter() - start
    failing, seed_kind, done = (
        (None, "", 0) if verdict.verdict == "undecided" else first_failing(made, seeds)
    )
    found = verdict.faults[0] if verdict.faults else None
    outcome = replace(
        base,
        verdict=verdict.verdict,
        kind=found.kind if found else "",
        message=found.message if found else "",
        traces=verdict.traces,
        seconds=seconds,
        failing=failing,
        seed_kind=seed_kind,
        seeds=done,
    )
    return replace(outcome, violation=_violation(kernel, made, outcome, found, bounds))


def _violation(
    kernel: Kernel, made: tp.Program, o: Judged, found: Fault | None, bounds: Bounds
) -> str:
    """What must not be: see the module."""
    if found is not None:
        again = made.replay(found)
        told = "no fault" if again is None else f"{type(again).__name__}: {again}"
        if told != f"{found.kind}: {found.message}":
            return f"the replay of {found.kind} ends in {told}"
        if not kernel.mistake:
            return f"a right kernel is called faulty: {found.kind}: {found.message}"
    if o.verdict == "verified" and o.failing is not None:
        return f"verified, and seed {o.failing} fails: {o.seed_kind}"
    if o.verdict == "verified" and kernel.expected == "fault":
        return "verified, and wrong in every order"
    if kernel.expected == "refused":
        return f"not refused, but {o.verdict}"
    if o.seconds > bounds.seconds + GRACE:
        return f"the check took {o.seconds:.1f} seconds, bound to {bounds.seconds:g}"
    return ""
