"""The mutants of a kernel: which there are, that each differs by what it says, and what becomes of
them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.support.check.copies import program
from tilepipe import sim
from tilepipe.check.mutation import rewriting
from tilepipe.check.mutation.judging import judge, outputs
from tilepipe.check.mutation.mutants import ALL, Mutant, mutants
from tilepipe.check.mutation.observations import Observations
from tilepipe.check.mutation.redundancy import explain
from tilepipe.check.verdict import Bounds
from tilepipe.ir import ops, printer
from tilepipe.ir.expressions import const
from tilepipe.ir.program import TensorArg

PROGRAM = program()
LAUNCH = PROGRAM.launch_args
REFERENCE = outputs(LAUNCH)


def the(operator: str, words: str) -> Mutant:
    """The one mutant of the operator whose words contain these."""
    found = [m for m in mutants(PROGRAM.kernel) if m.operator == operator and words in m.what]
    assert len(found) == 1, [str(m) for m in found]
    return found[0]


def test_every_mutant_is_another_kernel_and_the_kernel_stays_as_it_is() -> None:
    before = str(PROGRAM)
    found = list(mutants(PROGRAM.kernel))
    texts = [printer.text(m.kernel) for m in found]
    assert len(found) > 80
    assert str(PROGRAM) == before
    assert all(text != before for text in texts)
    assert all(m.loc.short.startswith("copies.py:") and m.what and m.operator for m in found)


@pytest.mark.slow
def test_the_order_of_mutants_is_fixed() -> None:
    first, again = (
        [(m.operator, str(m), printer.text(m.kernel)) for m in mutants(PROGRAM.kernel)]
        for _ in range(2)
    )
    assert first == again


def test_a_mutant_shares_what_it_does_not_change() -> None:
    mutant = the("drop fence", "fence_proxy_async")
    load, store = PROGRAM.kernel.roles
    assert mutant.kernel.roles[0].body is load.body
    assert mutant.kernel.roles[1].body is not store.body
    assert mutant.kernel.setup is PROGRAM.kernel.setup


def test_operators_are_chosen_by_name() -> None:
    kinds = {
        name: {m.operator.split(" ")[0] for m in mutants(PROGRAM.kernel, [name])} for name in ALL
    }
    assert kinds["drop"] == {"drop"}
    assert kinds["move"] == {"move"}
    assert kinds["counts"] == {"barrier", "arrive"}
    assert set().union(*kinds.values()) == {
        m.operator.split(" ")[0] for m in mutants(PROGRAM.kernel)
    }


WORDS = [
    ("drop wait", "dropped: mbar_wait bar=ring.full[stage] phase=phase of role 'store'"),
    ("duplicate arrive", "twice: mbar_arrive bar=ring.empty[stage]"),
    (
        "drop release",
        (
            "never released: the stage of step ring_consumer by 1 of role 'store', and mbar_arrive"
            " bar=ring.empty[stage]"
        ),
    ),
    (
        "drop drain",
        "the drain of role 'store', the waits at its end: tma_store_wait pending=0 read=False",
    ),
    (
        "expect bytes",
        "bytes -16: mbar_expect bar=ring.full[stage] nbytes=1024 arrive=True of role 'load'",
    ),
    ("barrier count", "count +1: mbar_init bar=ring.full[0] n=2 of set-up"),
    ("cursor stages", "stages -1: cursor ring_consumer: 2 stages, from phase 0 of role 'store'"),
    (
        "move expect",
        (
            "after tma_load tensor=a coords=(i * 8, 0) dst=tiles[stage] bar=ring.full[stage]"
            " (copies.py:28): mbar_expect"
        ),
    ),
    ("wait kind", "waits until read, not until written: tma_store_wait pending=0 read=False"),
]


@pytest.mark.parametrize(("operator", "words"), WORDS, ids=[operator for operator, _ in WORDS])
def test_a_mutant_says_what_it_changes_and_where(operator: str, words: str) -> None:
    mutant = the(operator, words)
    line = mutant.place.op.loc.line
    assert str(mutant).endswith(f" at copies.py:{line}")


FATES = [
    ("drop wait", "mbar_wait bar=ring.full", "PoisonError", "never written"),
    (
        "drop fence",
        "fence_proxy_async",
        "RaceError",
        "no fence.proxy.async of that memory stands between",
    ),
    ("drop fence", "setup_barrier", "BarrierError", "before it was initialised"),
    ("drop arrive", "mbar_arrive", "DeadlockError", "agents of CTA 0 wait"),
    ("duplicate arrive", "mbar_arrive", "BarrierError", "phases up to 1 are complete"),
    ("drop drain", "the waits at its end", "ExitError", "may still read result"),
    ("expect bytes", "bytes -16", "BarrierError", "1,008"),
    ("expect bytes", "bytes +16", "DeadlockError", "16 bytes"),
    ("cursor stages", "stages +1: cursor ring_producer", "SimFault", "out of range"),
    (
        "cursor first phase",
        "first phase +1: cursor ring_producer",
        "DeadlockError",
        "2 of 2 agents of CTA 0 wait",
    ),
]


@pytest.mark.parametrize(
    ("operator", "words", "kind", "said"), FATES, ids=[f"{o} {w}" for o, w, _, _ in FATES]
)
def test_a_mistake_is_a_fault(operator: str, words: str, kind: str, said: str) -> None:
    outcome = judge(the(operator, words), LAUNCH, REFERENCE)
    assert (outcome.fate, outcome.kind, outcome.caught) == ("fault", kind, True)
    assert said in outcome.message


def test_what_computes_something_else_is_caught_by_its_numbers() -> None:
    """None of this kernel's mutants: here every tile is loaded from the first rows."""
    place = next(p for p in rewriting.places(PROGRAM.kernel) if isinstance(p.op, ops.TmaLoad))
    assert isinstance(place.op, ops.TmaLoad)
    other = rewriting.with_op(PROGRAM.kernel, place, replace(place.op, coords=(const(0), const(0))))
    outcome = judge(Mutant("coords", "the first rows", place, other), LAUNCH, REFERENCE)
    assert (outcome.fate, outcome.message) == ("numbers", "no fault, but other values in out")


EXPLAINED = [
    ("duplicate wait", "twice: mbar_wait bar=ring.full", "the second of two waits for one phase"),
    ("move expect", "after tma_load", "bytes may arrive before they are expected"),
    (
        "wait kind",
        "until read, not until written",
        "what a grid wrote is visible after its end",
    ),
    ("wait kind", "until written, not only read", "it waits for more than necessary"),
]


@pytest.mark.parametrize(("operator", "words", "why"), EXPLAINED, ids=[w for _, w, _ in EXPLAINED])
def test_a_redundant_one_is_explored_and_explained(operator: str, words: str, why: str) -> None:
    mutant = the(operator, words)
    outcome = judge(mutant, LAUNCH, REFERENCE)
    assert (outcome.fate, outcome.caught) == ("redundant", False)
    assert outcome.states > 10
    assert why in explain(mutant, PROGRAM.kernel, Observations([LAUNCH]))


def test_arrays_stay_as_they_were() -> None:
    out = LAUNCH.args["out"]
    assert isinstance(out, TensorArg)
    assert REFERENCE["out"] != out.array.tobytes()
    assert not out.array.any()


def test_an_endless_loop_is_a_fault() -> None:
    """An execution that takes many times the kernel's steps."""
    mutant = the("duplicate wait", "twice: mbar_wait bar=ring.full")
    outcome = judge(mutant, LAUNCH, REFERENCE, bounds=Bounds(steps=10))
    assert (outcome.fate, outcome.kind, outcome.message) == (
        "fault",
        "Endless",
        "still running after 10 steps",
    )


def test_a_bound_that_is_hit_is_undecided() -> None:
    outcome = judge(
        the("duplicate wait", "twice: mbar_wait bar=ring.full"),
        LAUNCH,
        REFERENCE,
        bounds=Bounds(seconds=0.0),
    )
    assert (outcome.fate, outcome.caught) == ("undecided", False)
    assert "seconds" in outcome.message


def test_facts_are_those_of_the_run() -> None:
    observations = Observations([LAUNCH])
    by_kind = {type(p.op): observations.of(p.op) for p in rewriting.places(PROGRAM.kernel)}
    assert by_kind[ops.TmaLoad].runs == 5
    assert by_kind[ops.FenceProxyAsync].effects == 5
    assert by_kind[ops.CursorStep].runs == 0
    waits = [p.op for p in rewriting.places(PROGRAM.kernel) if isinstance(p.op, ops.MbarWait)]
    assert Counter(phase for op in waits for *_, phase in observations.of(op).phases) == {
        -1: 2,
        0: 4,
        1: 3,
        2: 1,
    }
    arrive = next(
        p.op for p in rewriting.places(PROGRAM.kernel) if isinstance(p.op, ops.MbarArrive)
    )
    assert observations.awaited(arrive)
    assert sim.run(LAUNCH).steps > 0
