"""The ways to check one program, and whether they say the same."""

from __future__ import annotations

from dataclasses import replace

from tests.support.check.programs import Program, launch
from tilepipe import check, sim
from tilepipe.check import Reductions, Verdict
from tilepipe.errors import SimFault

# all orders of all steps
EVERYTHING = Reductions(partial_order=False, hashing=True, symmetry=False)


def three_ways(program: Program) -> tuple[Verdict, Verdict, Verdict]:
    """By a single execution where that decides it, explored with reductions, explored without."""
    made = launch(program)
    return (
        check.check(made, instance="generated"),
        check.check(made, explore=True, instance="generated"),
        check.check(made, explore=True, reductions=EVERYTHING, instance="generated"),
    )


def disagreement(program: Program) -> str:
    """What the three ways differ in; empty where they agree and each counterexample replays."""
    verdicts = three_ways(program)
    words = [
        f"{v.method}{f', undecided: {v.bound}' if v.bound else ''}: {v.verdict}"
        f" {[(f.kind, f.loc) for f in v.faults]}"
        for v in verdicts
    ]
    if len({v.verdict for v in verdicts}) > 1 or "undecided" in {v.verdict for v in verdicts}:
        return "; ".join(words)
    made = launch(program)
    for verdict, word in zip(verdicts, words, strict=True):
        if (verdict.verdict == "fault") != bool(verdict.faults):
            return f"a verdict of {word}"
        for fault in verdict.faults:
            error = check.replay(made, fault.schedule)
            got = (
                type(error).__name__,
                error.loc.short if error is not None and error.loc is not None else "",
            )
            if got != (fault.kind, fault.loc):
                return f"{word}, but its replay ends in {got}"
    return ""


def timeless(verdict: Verdict) -> Verdict:
    """A verdict without how long it took."""
    return replace(verdict, seconds=0.0)


def seeds_that_fail(program: Program, seeds: range) -> list[str]:
    """The faults of simulated runs."""
    found = []
    for seed in seeds:
        try:
            sim.run(launch(program), seed=seed)
        except SimFault as error:
            found.append(f"seed {seed}: {error}")
    return found


def word_of(kind: str, message: str) -> str:
    """A fault in the oracle's word."""
    words = {"DeadlockError": ("deadlock",), "ExitError": ("exits",)}.get(
        kind, ("lapped", "skipped a phase", "over-arrival", "more bytes arrive", "still to come")
    )
    return next((word for word in words if word in message), f"{kind}: {message}")
