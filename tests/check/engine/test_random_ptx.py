"""The check of a kernel of PTX agrees with searches that take no short cut, on random kernels.

The short cuts are the single execution that decides, the independent steps of which one order is
tried, equal states, tests that are taken for waits, and the lanes of which none need be elected.
The other side tries each order of what agents can observe, and each lane; and runs, in orders that
seeds decide, know nothing of any of this. Either side may be undecided, where it takes long or
meets what is not modelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.check.engine.random_ptx_kernels import Program, program
from tilepipe.check import Bounds, Reductions, Verdict, check
from tilepipe.check.decide import decide
from tilepipe.check.engine.ptx_front_end import PtxFrontEnd
from tilepipe.check.engine.race_reversal import Explorer
from tilepipe.errors import SimFault, UnfinishedError
from tilepipe.machine.rules import Rules
from tilepipe.ptx.lanes import WARP


@dataclass(frozen=True)
class Effort:
    """How much is spent on a kernel.

    Attributes:
        executions: after which a search is undecided.
        lanes: elected in turn.
        runs: seeds of the runs of a kernel that is verified, or said to come to a deadlock.
    """

    executions: int
    lanes: Sequence[int]
    runs: int

    @property
    def bounds(self) -> Bounds:
        return Bounds(traces=self.executions, seconds=4.0)


QUICK = Effort(25, (0, 5, 21), 4)
FULL = Effort(400, range(WARP), 12)


def every_order(made: Program, rules: Rules, effort: Effort) -> Verdict:
    """The verdict of the search that takes no short cut; or, where that takes long, of the one that
    follows equal states once.
    """
    for hashing in (False, True):
        verdict = check(
            made.launch(),
            explore=True,
            reductions=Reductions(partial_order=False, hashing=hashing, symmetry=False),
            rules=rules,
            shorten=False,
            bounds=effort.bounds,
        )
        if verdict.verdict != "undecided":
            break
    return verdict


def of_lanes(made: Program, effort: Effort) -> str:
    """What the verdicts under the strict rules come to, if each lane in turn is elected."""
    found = set()
    for lane in effort.lanes:
        front_end = PtxFrontEnd(made.launch(), "strict")
        front_end.lanes = (lane,)
        front_end.elected = lane
        explorer = Explorer(front_end, effort.bounds, Reductions(), None)
        found.add(decide(explorer, False, "", shorten=False).verdict)
    return next(v for v in ("fault", "undecided", "verified") if v in found)


def run_faults(made: Program, effort: Effort) -> set[str]:
    """The kinds of faults that runs end in; "" of one that finishes."""
    found = set()
    for seed in range(effort.runs):
        try:
            made.launch().run(seed=seed, timeout=3.0)
            found.add("")
        except (SimFault, UnfinishedError) as fault:
            found.add(type(fault).__name__)
    return found


def disagreements(made: Program, effort: Effort, tally: Counter[str]) -> Iterator[str]:
    """How the check of a kernel, and what it is compared with, contradict each other."""
    elects = "elect.sync" in made.text
    rules: Rules = "strict" if elects else "practice"
    verdict = check(made.launch(), rules=rules, shorten=False, bounds=effort.bounds)
    said, kinds = verdict.verdict, [fault.kind for fault in verdict.faults]
    tally[f"check: {said}"] += 1
    if said == "undecided":
        return
    if elects:
        other = of_lanes(made, effort)
        tally[f"lanes: {said}, {other}"] += 1
        # of a few lanes, the one with the fault may be missing
        if other not in (said, "undecided") and (other == "fault" or len(effort.lanes) == WARP):
            yield f"{said} {kinds}, but {other} with lanes elected in turn"
    long = every_order(made, rules, effort)
    tally[f"orders: {said}, {long.verdict}"] += 1
    if long.verdict not in (said, "undecided"):
        yield f"{said} {kinds}, but {long.verdict} {[f.kind for f in long.faults]} in every order"
    if said == "verified" or kinds == ["DeadlockError"]:
        runs = run_faults(made, effort)
        tally[f"runs: {said}, {sorted(runs)}"] += 1
        if said == "verified" and runs != {""}:
            yield f"verified, but runs end in {sorted(runs)}"


def compare(seeds: range, effort: Effort) -> Counter[str]:
    """Compares the kernels of some seeds; fails with all contradictions."""
    tally: Counter[str] = Counter()
    found = [
        f"seed {seed}: {said}"
        for seed in seeds
        for said in disagreements(program(seed), effort, tally)
    ]
    assert not found, "\n".join(found)
    return tally


@pytest.mark.slow
def test_the_check_agrees_with_every_order_and_lane() -> None:
    tally = compare(range(24), QUICK)
    assert tally["check: verified"] >= 5
    assert tally["orders: verified, verified"] >= 2
    assert tally["orders: fault, fault"] >= 8
    assert sum(n for name, n in tally.items() if name.startswith("lanes: ")) >= 3


@pytest.mark.thorough
@pytest.mark.parametrize("hundred", range(30))
def test_the_check_agrees_on_thousands_of_kernels(hundred: int) -> None:
    tally = compare(range(100 * hundred, 100 * hundred + 100), FULL)
    assert tally["orders: verified, verified"] >= 5
    assert tally["orders: fault, fault"] >= 30
