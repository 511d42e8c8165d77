"""Deciding one launch: by a single execution whose causal order proves that every other execution
is equivalent to it; otherwise by exploring the executions that are not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tilepipe.check.choose_front_end import AnyLaunch, front_end_of
from tilepipe.check.counterexamples.shortening import shortened
from tilepipe.check.engine import state_search, tickets, why_explored
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.front_end import FrontEnd
from tilepipe.check.engine.race_reversal import BoundError, Explorer, Findings, Progress
from tilepipe.check.proofs.guards import Guards, NotAWaitError
from tilepipe.check.proofs.polling import Kind
from tilepipe.check.sizes import Completions, PostponedError, Size, at_once, most_completed
from tilepipe.check.unreached import Coverage
from tilepipe.check.verdict import (
    NOT_MODELLED,
    Bounds,
    Conclusion,
    Fault,
    Method,
    Reductions,
    Verdict,
    require_options,
)
from tilepipe.errors import SimFault
from tilepipe.ir.facts import Resource, Sync
from tilepipe.ir.program import WARP
from tilepipe.machine.advice import add
from tilepipe.machine.clusters import quiet_numbers
from tilepipe.machine.memory.outside import never_inside
from tilepipe.machine.rules import ELECTED_LANE, Rules

# executions of the state search, in a kernel that tests barriers, after which reversing races may
# need fewer
STATE_SEARCH_FIRST = 2000
_ARRIVALS = "arrival, expected transaction or copy", "arrivals, expected transactions and copies"
# instructions of PTX that are waits where a loop repeats them
_LOOPED_TESTS = ("mbarrier.try_wait", "mbarrier.test_wait")


def check(
    launch: AnyLaunch,
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
        launch: of a kernel of this project (`program.launch_args`), or of PTX
            (`tilepipe.ptx.Kernel.bind`).
        explore: explore even where a single execution decides.
        bounds: limits after which the verdict is "undecided".
        reductions: which reductions of the search to use.
        rules: "practice", what shipped compilers rely on, or "strict", the PTX ISA to the letter:
            docs/reference/rules.md.
        instance: the name of this launch in the verdict.
        progress: called with (executions done, executions known to be left).
        shorten: shorten the counterexample and list its steps; this takes about a hundred
            executions.

    The arrays of the arguments keep their values. A fault of the kernel is returned in the verdict
    and never raised.

    Raises:
        BindError: `launch` is no launch, an option has the wrong type, or the arguments of the
            launch do not fit the kernel.
    """
    require_options(explore, bounds, reductions, rules, instance, progress)
    explorer = Explorer(front_end_of(launch, rules), bounds, reductions, progress)
    return decide(explorer, explore, instance, shorten)


def decide(
    explorer: Explorer,
    explore: bool,
    instance: str,
    shorten: bool = True,
    may_explore: Callable[[Size], bool] = at_once,
) -> Verdict:
    """The verdict on the launch of an explorer. `may_explore`: asked before anything is explored,
    whether it may be.

    Raises:
        PostponedError: it may not be, and nothing else decides the launch.
    """
    front_end = explorer.front_end
    with quiet_numbers():
        attempt = _Attempt(instance, front_end.grid, may_explore)
        bound = ""
        front_end.guards = (
            Guards()
            if explore or not explorer.reductions.partial_order
            else front_end.possible_guards()
        )
        front_end.waits_for_flags = not explore and explorer.reductions.partial_order
        try:
            while not _decides(explorer, explore, attempt):
                pass
        except BoundError as hit:
            bound = str(hit)
            if not bound.startswith(NOT_MODELLED):
                bound += _of_fewer_clusters(front_end)
        found = explorer.found
        faults: list[Fault] = []
        if found.fault is not None:
            faults.append(
                shortened(front_end, found.fault, found.schedule, shorten, explorer.deadline)
            )
        explorer.note_requests()
        seconds = time.perf_counter() - explorer.started
        conclusion: Conclusion = "fault" if faults else "undecided" if bound else "verified"
        return Verdict(
            conclusion,
            attempt.method,
            instance,
            found.states,
            found.traces,
            seconds,
            faults,
            found.advice,
            attempt.facts,
            bound,
            attempt.completions,
            front_end.grid,
            front_end.coverage(explorer.unmade) if conclusion == "verified" else Coverage(),
            "" if explore or (attempt.method == "single-execution" and not bound) else attempt.why,
        )


def _of_fewer_clusters(front_end: FrontEnd) -> str:
    """What to add to a bound that was hit after all clusters at once had been decided: with fewer
    of them, which a cooperative launch rules out.
    """
    if front_end.resident == front_end.residents[0]:
        return ""
    return (
        f"; this was with {front_end.resident} of {front_end.clusters} clusters running at once."
        " Clusters may wait for each other, so every number of them is tried: check fewer, or say"
        " cooperative=True if the launch promises that all run"
    )


@dataclass(eq=False, slots=True)
class _Attempt:
    """The facts that an attempt to decide a launch has established, apart from the explorer's
    findings. `why`: one execution does not decide it. `left`: what is to be explored was not.
    """

    instance: str
    grid: int
    may_explore: Callable[[Size], bool]
    method: Method = "single-execution"
    facts: list[str] = field(default_factory=list)
    why: str = ""
    completions: Completions = field(default_factory=dict)
    left: bool = False

    @property
    def size(self) -> Size:
        """The size of the launch, as far as its executions have shown it."""
        return Size(self.instance, self.completions, self.grid)


def _decides(explorer: Explorer, explore: bool, attempt: _Attempt) -> bool:
    """Performs one execution for each lane that may be elected, and each number of clusters that
    may run at once, and explores the executions that
    are not equivalent to it. Returns whether that decides the launch.

    It does not in three cases. After two of them, fewer tests are treated as waits: a test treated
    as the wait that it guards turned out to be none; or the kernel has a fault with waits in the
    place of its tests, since tests may establish more order than the waits do. The third: only
    executions with fewer clusters at once have shown that the launch is large enough to explore.
    """
    front_end = explorer.front_end
    attempt.method = "explored" if explore else "single-execution"
    attempt.why = why_explored.by_text(front_end)
    try:
        for lane in front_end.lanes:
            front_end.elected = lane
            residents = [*front_end.residents]
            while residents and explorer.found.fault is None:
                front_end.resident = residents.pop(0)
                if _decides_residents(explorer, explore, attempt):
                    _run_with_fewer(explorer, residents)
                    residents = []
        if len(front_end.lanes) > 1 and attempt.facts:
            attempt.facts.append(_fact_of_lanes(front_end.lanes))
    except NotAWaitError as error:
        front_end.guards = front_end.guards.without(error.site)
    else:
        if explorer.found.fault is None and not attempt.left:
            _advise_on_lanes(explorer)
            return True
        if explorer.found.fault is None:
            # asked again: with fewer clusters at once, a CTA may have completed more
            if not attempt.may_explore(attempt.size):
                raise PostponedError(attempt.size)
            attempt.may_explore = at_once
        elif not front_end.guards.tests:
            return True
        else:
            front_end.guards = Guards()
    attempt.completions, attempt.facts, attempt.left = {}, [], False
    explorer.restart()
    return False


def _decides_residents(explorer: Explorer, explore: bool, attempt: _Attempt) -> bool:
    """Performs one execution with the present number of clusters at once, and explores those that
    are not equivalent to it. Returns whether, of executions with fewer clusters at once, one for
    each number is enough.
    """
    front_end = explorer.front_end
    first = explorer.begin(range(front_end.clusters), 0)
    if explorer.perform(first, first.run_to_end) or explorer.has_fault_of_order(first):
        return False
    attempt.completions = most_completed(attempt.completions, first.phases_completed())
    order = first.causal_order
    advice = [*order.unobserved_phases(), *order.sums_in_any_order(), *never_inside(first.world)]
    add(explorer.found.advice, advice)
    explorer.found.states += len(order.steps)
    if _only_waits(explorer, first):
        if not explore:
            attempt.facts = _facts(first)
        return True
    if (
        front_end.shares_work
        or front_end.has_tests
        or order.races
        or not explorer.reductions.partial_order
    ):
        attempt.method = "explored"
        attempt.why = attempt.why or why_explored.by_order(first)
        if attempt.may_explore(attempt.size):
            attempt.may_explore = at_once
            _explore(explorer, first)
        else:
            attempt.left = True
    elif not explore:
        attempt.facts = _facts(first)
    return False


def _only_waits(explorer: Explorer, first: Execution) -> bool:
    """True if clusters only wait for each other, for values in memory, and the order of no two
    steps matters in an execution of all clusters at once: docs/decisions/0017-waits-for-flags.md.
    """
    front_end = explorer.front_end
    return (
        front_end.waits_for_flags
        and bool(front_end.flag_looks)
        and front_end.resident >= front_end.clusters
        and not front_end.has_tests
        and not any(site.facts.takes is Resource.CLUSTERS for site in front_end.sites)
        and not first.causal_order.races
    )


def _run_with_fewer(explorer: Explorer, residents: Sequence[int]) -> None:
    """Looks for a cluster that waits for one that never starts, where clusters only wait. With
    fewer of them at once no step can be performed that could not with more. So the fewest come
    first; if they do not wait for ever, no more do. If they do, the fault is reported of the
    largest number that does.
    """
    found = explorer.found
    for number, resident in enumerate((*residents[-1:], *residents)):
        explorer.front_end.resident = resident
        execution = explorer.begin(range(explorer.front_end.clusters), 0)
        stuck = explorer.perform(execution, execution.run_to_end)
        if stuck == (number > 0):
            return
        found.fault, found.schedule = None, ()


def _advise_on_lanes(explorer: Explorer) -> None:
    """Adds advice on what happens where elect.sync elects a lane that practice does not expect. A
    fault counts if it is there with every test as what it is, too: none is taken for a wait.
    """
    front_end, found, guards = explorer.front_end, explorer.found, explorer.front_end.guards
    for lane in front_end.other_lanes:
        front_end.elected = lane
        fault: SimFault | None = None
        for given in (guards, Guards()) if guards.tests else (guards,):
            front_end.guards = given
            explorer.found = Findings(traces=found.traces)
            with suppress(BoundError, NotAWaitError):
                first = explorer.begin(range(front_end.clusters), 0)
                if not explorer.perform(first, first.run_to_end):
                    explorer.has_fault_of_order(first)
            fault = explorer.found.fault
            if fault is None:
                break
        if fault is not None:
            found.advice.append(
                f'{ELECTED_LANE.name} (a fault with rules="strict"): it matters which lane'
                f" elect.sync elects, and that is not specified. Where it is lane {lane}, not the"
                f" lowest: {' '.join(str(fault).split())} Let the elected lane do it all, or name"
                " the lane by its number everywhere."
            )
    explorer.found, front_end.guards, front_end.elected = found, guards, front_end.lanes[0]


def _explore(explorer: Explorer, first: Execution) -> None:
    """Explores the executions that are not equivalent to the first one.

    Clusters that share no work are explored one at a time, and only those in which there is a race.
    A kernel that tests barriers is first explored state by state; if that takes many executions,
    by reversing races, within twice as many; and then state by state to the end.
    """
    front_end, every = explorer.front_end, tuple(range(explorer.front_end.clusters))
    groups = [every] if front_end.shares_work else [(c,) for c in every]
    if explorer.reductions.partial_order and not (front_end.shares_work or front_end.has_tests):
        groups = [
            g for g in groups if any(r.second.agent_id[0] in g for r in first.causal_order.races)
        ]
    for group in groups:
        if explorer.found.fault is not None:
            return
        if not explorer.reductions.partial_order:
            state_search.explore(explorer, group, state_search.BranchOnVisible())
            continue
        again = first if len(every) == len(group) else None
        if explorer.reductions.hashing and again is not None and tickets.explore(explorer, first):
            continue
        if not ((front_end.has_tests or front_end.may_poll) and explorer.reductions.hashing):
            explorer.explore_executions(group, again)
            continue
        strong = [site for site, kind in enumerate(front_end.kinds) if kind is Kind.STRONG]
        steps = state_search.BranchOnTests(front_end.sites, front_end.guards.tests, strong)
        end = state_search.explore(explorer, group, steps, STATE_SEARCH_FIRST)
        if end == "many" and not explorer.explore_executions(group, again, 2 * STATE_SEARCH_FIRST):
            end = state_search.explore(explorer, group, steps)
        if end == "disorderly":
            explorer.explore_executions(group, again)


def _facts(first: Execution) -> list[str]:
    """The facts that the causal order of one execution proves for all executions; none about what
    the kernel does not do.
    """
    order = first.causal_order
    facts = [f"no op of the kernel depends on which agent comes first: no {_choices(first)}"]
    if order.flag_waits:
        facts = [
            "no op of the kernel depends on which agent comes first: strong accesses to one element"
            " of memory have one order",
            f"{_each(order.flag_waits, 'wait', 'waits')} for a value in memory cannot be over, in"
            " any order, before the step after which it was over here",
        ]
    if order.arrivals:
        facts.append(
            f"{_each(order.arrivals, *_ARRIVALS)} is made by a thread that knows the phase before"
            " to be complete"
        )
    if order.waits:
        facts.append(
            f"{_each(order.waits, 'wait', 'waits')} is over, in every order, before the phase after"
            " the awaited one can complete: no wait can be lapped"
        )
    return facts


def _choices(first: Execution) -> str:
    """The ops that a kernel has not, or whose outcome decides nothing."""
    tests, sites = first.front_end.guards.tests, first.front_end.sites
    # additions that nobody reads decide nothing, in whatever order they come
    adds = any(site.adds for site in sites)
    none = f"{'' if adds else 'atomic add or '}request for work"
    none += ", or atomic add whose result is used" if adds else ""
    if tests:
        return (
            f"{none}, and each of {first.causal_order.tests_as_waits:,} tests (try_wait) only"
            " decides whether the wait for the phase that it tests is performed, and follows the"
            " completion of the phase before"
        )
    if any(site.kind.startswith(_LOOPED_TESTS) for site in sites):
        return f"{none}, and each try_wait is repeated until its phase is complete: it is a wait"
    waits = any(Sync.WAIT in site.sync and not site.named for site in sites)
    return f"try_wait, {none}" if waits else none


def _each(count: int, one: str, several: str) -> str:
    """`each of 34 waits`, `the one wait`."""
    return f"each of {count:,} {several}" if count > 1 else f"the one {one}"


def _fact_of_lanes(lanes: Sequence[int]) -> str:
    tried = (
        f"each of the {WARP} lanes"
        if len(lanes) == WARP
        else (
            f"lanes {', '.join(map(str, lanes))}, and every other lane is equivalent to one of them"
        )
    )
    return f"the lane that elect.sync elects makes no difference: tried were {tried}"
