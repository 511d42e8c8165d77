"""The two ways to an answer: one execution whose facts say that it stands for all, and exploring
all that differ.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilepipe.check.counterexamples import shortest
from tilepipe.check.engine import state_search as states
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.explorer import BoundError, Explorer, Progress
from tilepipe.check.engine.launch_state import Scene
from tilepipe.check.proofs import tickets
from tilepipe.check.proofs.guards import Guards, NotAWaitError
from tilepipe.check.verdict import (
    Answer,
    Bounds,
    Fault,
    Method,
    Pick,
    Reductions,
    Verdict,
    require_options,
)
from tilepipe.errors import BindError, SimFault
from tilepipe.ir.launch import Launch
from tilepipe.ir.program import WARP
from tilepipe.machine.rules import Rules
from tilepipe.sim.run import quiet_numbers

# executions after which, where a kernel tests barriers, the other way of exploring may take fewer
MANY = 2000


def check(
    launch: Launch,
    *,
    explore: bool = False,
    bounds: Bounds = Bounds(),  # noqa: B008
    reductions: Reductions = Reductions(),  # noqa: B008
    rules: Rules = "practice",
    instance: str = "",
    progress: Progress | None = None,
    shorten: bool = True,
) -> Verdict:
    """Decides a launch over all its interleavings.

    Args:
        explore: explore even where one execution would do.
        bounds: when to give up, undecided. reductions: what an exploration may leave out.
        rules: "practice", what shipped compilers rely on, or "strict", the PTX ISA to the letter:
            docs/reference/rules.md.
        instance: what the verdict calls this launch.
        progress: called with (executions done, executions that are known to be left).
        shorten: look for the shortest story of a fault, and tell its steps; takes a hundred
            executions.

    The arrays of the arguments are left as they are. A fault of the kernel is in the verdict;
    nothing is raised for it.

    Raises:
        BindError: no launch; an argument that is not of its type; or those of the launch do not fit
            the kernel.
    """
    if not isinstance(launch, Launch):
        raise BindError(
            "check.check takes a launch, which a program has: program.check(), or"
            f" check(program.launch_args); got {launch!r:.80}"
        )
    require_options(explore, bounds, reductions, rules, instance, progress)
    return decide(
        Explorer(Scene(launch, rules), bounds, reductions, progress), explore, instance, shorten
    )


def decide(explorer: Explorer, explore: bool, instance: str, shorten: bool = True) -> Verdict:
    """The verdict that an explorer comes to."""
    scene = explorer.scene
    with quiet_numbers():
        looked = _Looked()
        bound = ""
        scene.guards = (
            Guards()
            if explore or not explorer.reductions.partial_order
            else scene.possible_guards()
        )
        try:
            while not _look(explorer, explore, looked):
                pass
        except BoundError as hit:
            bound = str(hit)
        found = explorer.found
        faults: list[Fault] = []
        if found.fault is not None:
            faults.append(
                shortest.tell(scene, found.fault, found.schedule, shorten, explorer.deadline)
            )
        seconds = time.perf_counter() - explorer.started
        answer: Answer = "fault" if faults else "undecided" if bound else "verified"
        return Verdict(
            answer,
            looked.method,
            instance,
            found.states,
            found.traces,
            seconds,
            faults,
            found.advice,
            looked.facts,
            bound,
            looked.completions,
            scene.launch.grid,
        )


@dataclass(eq=False, slots=True)
class _Looked:
    """What looking at a launch has come to, beside what the explorer has found."""

    method: Method = "greedy"
    facts: list[str] = field(default_factory=list)
    completions: dict[str, list[list[int]]] = field(default_factory=dict)


def _look(explorer: Explorer, explore: bool, looked: _Looked) -> bool:
    """Looks at one execution for each lane that may be elected, and at all that differ where it
    does not stand for them. Returns whether that decides the launch.

    It does not where some test that was taken for a wait is none, which then counts as a test; and
    where the kernel with waits in the place of tests has a fault: the tests may order more than the
    waits do.
    """
    scene = explorer.scene
    looked.method = "explored" if explore else "greedy"
    try:
        for lane in scene.lanes:
            scene.elected = lane
            first = explorer.begin(range(scene.clusters), 0)
            if explorer.perform(first, first.go_on) or explorer.sibling(first):
                break
            looked.completions = first.phases_completed()
            advice = explorer.found.advice
            advice.extend(a for a in first.causality.unobserved() if a not in advice)
            explorer.found.states += len(first.causality.nodes)
            races = first.causality.races
            if scene.chooses or races or not explorer.reductions.partial_order:
                looked.method = "explored"
                _explore(explorer, first)
                if explorer.found.fault is not None:
                    break
            elif not explore:
                looked.facts = _facts(first)
        if len(scene.lanes) > 1 and looked.facts:
            looked.facts.append(
                "which lane elect.sync elects makes no difference: tried were"
                f" {_tried(scene.lanes)}"
            )
    except NotAWaitError as error:
        scene.guards = scene.guards.without(error.site)
    else:
        if explorer.found.fault is None or not scene.guards.tests:
            return True
        scene.guards = Guards()
    looked.completions, looked.facts = {}, []
    explorer.forget()
    return False


def _explore(explorer: Explorer, first: Execution) -> None:
    """Explores what the first execution does not stand for."""
    scene, every = explorer.scene, tuple(range(explorer.scene.clusters))
    groups = [every] if scene.shares_work else [(c,) for c in every]
    if explorer.reductions.partial_order and not scene.chooses:
        groups = [g for g in groups if any(r.second.who[0] in g for r in first.causality.races)]
    for group in groups:
        if explorer.found.fault is not None:
            return
        if not explorer.reductions.partial_order:
            states.explore(explorer, group, states.AllSteps())
            continue
        again = first if len(every) == len(group) else None
        if explorer.reductions.hashing and again is not None and tickets.explore(explorer, first):
            continue
        if not ((scene.tests or scene.polls) and explorer.reductions.hashing):
            explorer.reduced(group, again)
            continue
        steps = states.StepsOfTests(scene.sites, scene.guards.tests)
        end = states.explore(explorer, group, steps, MANY)
        if end == "many" and not explorer.reduced(group, again, 2 * MANY):
            end = states.explore(explorer, group, steps)
        if end == "disorderly":
            explorer.reduced(group, again)


def _tried(lanes: Sequence[int]) -> str:
    """The lanes that were elected in turn, and what of the others."""
    if len(lanes) == WARP:
        return f"each of the {WARP}"
    return f"lanes {', '.join(map(str, lanes))}, and each other is like one of them"


def _facts(first: Execution) -> list[str]:
    """What one execution has established."""
    c = first.causality
    asks = "nothing in the kernel asks who came first: no try_wait, atomic add or request for work"
    if first.scene.guards.tests:
        asks = (
            "nothing in the kernel asks who came first: no atomic add or request for work, and"
            f" each of {c.asked:,} tests (try_wait) only decides whether the wait for the phase"
            " that it asks about is performed, and knows the phase before to be complete"
        )
    return [
        asks,
        f"each of {c.arrivals:,} arrivals, announcements and copies is made by a thread that knows the phase before to be complete",
        f"each of {c.waits:,} waits is known to be over to somebody without whom the next phase does not complete: none can be lapped",
    ]


def replay(
    launch: Launch, schedule: Sequence[Pick], *, rules: Rules = "practice"
) -> SimFault | None:
    """Executes a schedule on the simulated machine, and whatever is left after it in a fixed order:
    the fault it ends in, or None.
    """
    with quiet_numbers():
        scene = Scene(launch, rules)
        error, _ = shortest.replayed(scene, tuple(schedule))
        return error
