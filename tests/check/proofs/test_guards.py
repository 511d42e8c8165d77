"""Tests that count as the waits that they guard: which do, what is decided so, and what each
condition is needed for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest

from tests.check.guarded_campaign import NAMES, both_ways, differs, main
from tests.support.build import LANE, Builder, binary
from tests.support.check.guarded_rings import Do, Ring, launch
from tests.support.check.three_roles import Shape, program
from tilepipe.check import Bounds, check
from tilepipe.check.engine.traced_front_end import TracedFrontEnd
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Cast, Expr, Local, Select, Unary, Vary, const
from tilepipe.ir.program import Launch


@pytest.mark.parametrize(
    "cfg", [Shape(tries=True), Shape(tries=True, cluster=2), Shape(tries=True, tiles=8)], ids=str
)
def test_the_idiom_of_the_pages_takes_one_execution(cfg: Shape) -> None:
    verdict = check(program(cfg).launch_args)
    assert (verdict.verdict, verdict.method, verdict.traces) == ("verified", "single-execution", 1)
    tests = cfg.cluster * cfg.tiles * cfg.k_steps
    assert (
        verdict.facts[0]
        == "no op of the kernel depends on which agent comes first: no atomic add or request for"
        " work,"
        f" and each of {tests} tests (try_wait) only decides whether the wait for the phase that it"
        " tests is performed, and follows the completion of the phase before"
    )


# -- (b): what depends on an answer ----------------------------------------------------


def no(x: Expr) -> Expr:
    return Unary(dtypes.boolean, op="not", a=x)


class Asking:
    """A role that tests `full` and waits for it where `use` says so; another that fills it."""

    def __init__(self, use: Callable[[Asking, Local], None]) -> None:
        b = self.b = Builder()
        self.cell = b.element(b.tile(b.smem("cell", 1, 32, 1, dtypes.int32)), 0, LANE)
        self.full, self.other = (
            b.bar(b.barriers("full", count=1)),
            b.bar(b.barriers("other", count=1)),
        )
        b.setup_done()
        with b.role("use", warps=1):
            use(self, self.ask())
        with b.role("fill", warps=1), b.elect():
            b.arrive(self.full)
            b.arrive(self.other)
        self.launch = Launch(b.finished(), 1, {})

    def ask(self) -> Local:
        ready = self.b.local("ready", dtypes.boolean)
        self.b.do(ops.MbarTryWait, self.full, self.b.phase(0), ready)
        return ready

    def wait(self) -> None:
        self.b.wait(self.full, 0)

    def guard(self, ready: Expr) -> None:
        with self.b.when(no(ready)):
            self.wait()

    @property
    def counted(self) -> int:
        return len(TracedFrontEnd(self.launch, "practice").possible_guards().tests)


def directly(k: Asking, ready: Local) -> None:
    k.guard(ready)


def otherwise(k: Asking, ready: Local) -> None:
    with k.b.when(ready) as branch:
        pass
    with k.b.into(branch.orelse):
        k.wait()


def renamed(k: Asking, ready: Local) -> None:
    k.guard(k.b.let(ready))


def carried(k: Asking, ready: Local) -> None:
    var = k.b.var(const(False))
    k.b.do(ops.Assign, var, ready)
    with k.b.loop(1):
        k.guard(k.b.read(var))
        k.b.do(ops.Assign, var, const(True))


def computed_there(k: Asking, ready: Local) -> None:
    with k.b.when(no(ready)):
        k.b.let(binary("add", LANE, 1))
        k.wait()


def twice(k: Asking, ready: Local) -> None:
    k.guard(ready)
    k.guard(ready)


@pytest.mark.parametrize("use", [directly, otherwise, renamed, carried, computed_there, twice])
def test_what_guards_a_wait_and_nothing_else_counts(use: Callable[[Asking, Local], None]) -> None:
    made = Asking(use)
    assert made.counted == 1
    verdict = check(made.launch)
    assert (verdict.verdict, verdict.method, verdict.traces) == ("verified", "single-execution", 1)
    assert check(made.launch, explore=True).ok


def nothing(k: Asking, ready: Local) -> None:
    k.wait()


def stored(k: Asking, ready: Local) -> None:
    k.b.store(k.cell, Cast(dtypes.int32, a=ready))
    k.guard(ready)


def printed(k: Asking, ready: Local) -> None:
    k.b.do(ops.Print, "{}", (ready,))
    k.guard(ready)


def asserted(k: Asking, ready: Local) -> None:
    k.guard(ready)
    k.b.do(ops.Assert, ready, "not yet")


def selected(k: Asking, ready: Local) -> None:
    k.b.let(Select(dtypes.int32, cond=ready, a=const(1), b=const(2)))
    k.guard(ready)


def combined(k: Asking, ready: Local) -> None:
    k.guard(binary("and", ready, const(True)))


def inverted(k: Asking, ready: Local) -> None:
    with k.b.when(k.b.let(no(ready))):
        k.wait()


def trips(k: Asking, ready: Local) -> None:
    k.guard(ready)
    with k.b.loop(Cast(dtypes.int32, a=ready)):
        pass


def polled(k: Asking, ready: Local) -> None:
    k.guard(ready)
    more = k.b.var(const(True))
    k.b.do(ops.Assign, more, ready)
    body = ops.Block()
    k.b.do(ops.While, more, body)
    with k.b.into(body):
        k.b.do(ops.Assign, more, const(False))


def guards_more(k: Asking, ready: Local) -> None:
    with k.b.when(no(ready)):
        k.wait()
        k.b.do(ops.SyncWarp)


def guards_two(k: Asking, ready: Local) -> None:
    with k.b.when(no(ready)):
        k.b.wait(k.other, 0)
        k.wait()


def has_an_otherwise(k: Asking, ready: Local) -> None:
    with k.b.when(no(ready)) as branch:
        k.wait()
    with k.b.into(branch.orelse):
        k.b.do(ops.SyncWarp)


def guards_when_it_says_yes(k: Asking, ready: Local) -> None:
    with k.b.when(ready):
        k.wait()


def of_each_lane(k: Asking, ready: Local) -> None:
    var = k.b.var(const(False), Vary.LANE)
    k.b.do(ops.Assign, var, ready)
    k.guard(ready)


def defines_for_others(k: Asking, ready: Local) -> None:
    with k.b.when(no(ready)):
        place = k.b.let(const(0))
        k.wait()
    k.b.let(place)


def names_the_barrier(k: Asking, ready: Local) -> None:
    k.guard(ready)
    k.b.let(Cast(dtypes.int32, a=ready))


@pytest.mark.parametrize(
    "use",
    [
        nothing,
        stored,
        printed,
        asserted,
        selected,
        combined,
        inverted,
        trips,
        polled,
        guards_more,
        guards_two,
        has_an_otherwise,
        guards_when_it_says_yes,
        of_each_lane,
        defines_for_others,
        names_the_barrier,
    ],
)
def test_what_else_an_answer_decides_is_explored(use: Callable[[Asking, Local], None]) -> None:
    assert Asking(use).counted == 0


def test_answers_that_meet_in_a_variable_count_together() -> None:
    def meet(k: Asking, ready: Local) -> None:
        var = k.b.var(const(False))
        k.b.do(ops.Assign, var, ready)
        k.b.do(ops.Assign, var, k.ask())
        k.guard(k.b.read(var))

    def leak(k: Asking, ready: Local) -> None:
        meet(k, ready)
        k.b.do(ops.Print, "{}", (ready,))

    assert Asking(meet).counted == 2
    assert Asking(leak).counted == 0


def test_a_test_and_a_wait_have_the_same_attributes() -> None:
    """Where a wait gets a scope or semantics of its own, `guards` has to compare them with the
    test's.
    """
    assert {f.name for f in fields(ops.MbarWait)} == {"loc", "bar", "phase"}
    assert {f.name for f in fields(ops.MbarTryWait)} == {"loc", "bar", "phase", "result"}


# -- the other conditions --------------------------------------------------------------


def ring(*use: Do, fills: int = 2) -> Ring:
    """A ring of one slot, filled `fills` times by one lane."""
    fill: list[Do] = []
    for i in range(fills):
        fill += [Do("wait", 0, i - 1), Do("put", elected=True), Do("arrive", elected=True)]
    return Ring(1, "word", tuple(fill), use)


TAKE = (Do("get", elected=True), Do("arrive", elected=True))
LAST = Do("get", elected=True)
STALE = ring(
    Do("ask", 0, -1, parity=True),
    Do("wait", 0, 0, parity=True),
    *TAKE,
    Do("guarded", 0, 1, parity=True),
    LAST,
)
OLD = ring(Do("ask", 0, 0), Do("wait", 0, 0), *TAKE, Do("guarded", 0, 1), LAST)
ONE_LANE = Ring(
    1,
    "row",
    (Do("put"), Do("arrive")),
    (Do("ask", 0, 0, elected=True), Do("guarded", 0, 0), Do("get")),
)
MORE = ring(
    Do("ask", 0, 0),
    Do("guarded", 0, 0, more=(Do("get", elected=True), Do("arrive", elected=True))),
    Do("wait", 0, 1),
)
EARLY = ring(Do("ask", 0, 1), Do("wait", 0, 0), *TAKE, Do("guarded", 0, 1), LAST)


def test_a_stale_yes_to_a_test_by_parity_is_found() -> None:
    """Before phase 0 completes, a test of parity 1 says yes: it means the phase before the
    first.
    """
    quick, full = both_ways(STALE)
    assert quick.verdict == full.verdict == "fault"
    (fault,) = quick.faults
    assert fault.kind == "RaceError"
    assert "race on slots" in fault.message


@pytest.mark.parametrize(
    ("made", "condition", "kind"),
    [
        (OLD, "phases", "RaceError"),
        (MORE, "flow", "DeadlockError"),
        (ONE_LANE, "threads", "RaceError"),
        (EARLY, "before", "BarrierError"),
    ],
    ids=["another phase", "more than a wait", "one lane", "before the phase before"],
)
def test_each_condition_is_needed(made: Ring, condition: str, kind: str) -> None:
    quick, full = both_ways(made)
    assert [f.kind for f in quick.faults] == [f.kind for f in full.faults] == [kind]
    quick, full = both_ways(made, condition)
    assert (quick.verdict, quick.method, full.verdict) == ("verified", "single-execution", "fault")


@pytest.mark.parametrize(
    "made",
    [
        ring(
            Do("ask", 0, 0), Do("guarded", 0, 0), *TAKE, Do("ask", 0, 1), Do("guarded", 0, 1), LAST
        ),
        ring(Do("ask", 0, 0), Do("ask", 0, 0), Do("guarded", 0, 0), *TAKE, Do("wait", 0, 1), LAST),
        ring(
            Do("ask", 0, 0),
            Do("guarded", 0, 0),
            Do("ask", 0, 1, 1),
            *TAKE,
            Do("guarded", 0, 1, 1),
            LAST,
        ),
        ring(
            Do("wait", 0, 0),
            Do("ask", 0, 0),
            Do("guarded", 0, 0),
            *TAKE,
            Do("say"),
            Do("guarded", 0, 1),
            LAST,
        ),
    ],
    ids=["in place", "doubled", "asked ahead", "known to be yes, then a constant"],
)
def test_right_rings_take_one_execution(made: Ring) -> None:
    quick, full = both_ways(made)
    assert (quick.verdict, quick.method, quick.traces) == ("verified", "single-execution", 1)
    assert full.ok
    assert full.traces > 1


def test_a_test_that_nobody_waits_after_can_be_lapped() -> None:
    """The last answer is not used, and the phase after the one it asks about may be complete by
    then.
    """
    late = ring(
        Do("ask", 0, 0),
        Do("guarded", 0, 0),
        *TAKE,
        Do("wait", 0, 1),
        Do("arrive", elected=True),
        Do("ask", 0, 1),
        fills=3,
    )
    quick, full = both_ways(late)
    assert quick.verdict == full.verdict == "fault"
    assert "lapped" in quick.faults[0].message


# -- beside tests that decide something ------------------------------------------------


def mixed(items: int) -> Launch:
    """A ring whose consumer tests before it waits, and once does something else where a test says
    no.
    """
    b = Builder()
    full, empty, out = (
        b.bar(b.barriers("full")),
        b.bar(b.barriers("empty")),
        b.bar(b.barriers("out", count=1)),
    )
    b.setup_done()
    with b.role("producer", warps=1), b.elect():
        for i in range(items):
            b.wait(empty, i - 1)
            b.arrive(full)
        b.arrive(out)
    with b.role("consumer", warps=1):
        for i in range(items):
            ready = b.local("ready", dtypes.boolean)
            b.do(ops.MbarTryWait, full, b.phase(i), ready)
            with b.when(no(ready)):
                b.wait(full, i)
            with b.elect():
                b.arrive(empty)
        done = b.local("done", dtypes.boolean)
        b.do(ops.MbarTryWait, out, b.phase(0), done)
        with b.when(no(done)):
            b.do(ops.SyncWarp)
    return Launch(b.finished(), 1, {})


def test_only_the_other_tests_are_explored() -> None:
    verdict, full = check(mixed(6)), check(mixed(6), explore=True)
    assert verdict.ok
    assert full.ok
    assert (verdict.method, verdict.facts) == ("explored", [])
    assert verdict.traces < full.traces / 3


def test_bounds_are_those_of_the_whole_check() -> None:
    assert check(launch(EARLY), bounds=Bounds(traces=1)).bound == "1 execution"


# -- beside full exploration -----------------------------------------------------------


@pytest.mark.sampled(suite=8)
@pytest.mark.slow
@pytest.mark.parametrize("block", range(24))
def test_exploring_every_test_says_the_same(block: int) -> None:
    wrong = [what for seed in range(25 * block, 25 * (block + 1)) if (what := differs(seed))]
    assert not wrong, "\n".join(wrong)


# Seeds of rings that are verified where a condition is not asked for.
SEEDS = {"phases": 107, "flow": 265, "threads": 606, "before": 51}


@pytest.mark.parametrize("condition", NAMES)
def test_the_campaign_fails_without_a_condition(condition: str) -> None:
    seed = SEEDS[condition]
    assert differs(seed, condition) == f"seed {seed}: verified, but explored fault"
    assert not differs(seed)


def test_the_campaign_says_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    seed = str(SEEDS["flow"])
    assert main(["1", "--first", seed]) == 0
    assert "0 disagreements" in capsys.readouterr().out
    assert main(["1", "--first", seed, "--without", "flow"]) == 1
    assert f"seed {seed}: verified, but explored fault: Ring(" in capsys.readouterr().out
