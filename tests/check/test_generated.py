"""Single-execution proofs, exploration, exploration without reductions and an independent model
agree on generated programs.

Of the blocks of 5 programs `make test` runs one or two; `make test-all` adds the others.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings

from tests.support.check import oracle
from tests.support.check.agreement import (
    EVERYTHING,
    disagreement,
    seeds_that_fail,
    three_ways,
    timeless,
    word_of,
)
from tests.support.check.families import FAMILIES
from tests.support.check.generated import (
    generate,
    generate_group,
    generate_plain,
    mutated,
    programs,
)
from tests.support.check.programs import Act, Part, Program, launch
from tilepipe import check, sim
from tilepipe.errors import SimFault

BLOCK = 5  # programs of one test


def block(number: int) -> range:
    return range(BLOCK * number, BLOCK * (number + 1))


@pytest.mark.sampled(suite=240)
@pytest.mark.slow
@pytest.mark.parametrize("number", range(240))
def test_the_three_ways_agree(number: int) -> None:
    differing = [
        f"seed {seed}: {why}: {p}"
        for seed in block(number)
        if (why := disagreement(p := generate(Random(seed))))
    ]
    assert not differing, "\n".join(differing)


@pytest.mark.slow
@pytest.mark.parametrize("examples", [4, pytest.param(60, marks=pytest.mark.thorough)])
def test_the_three_ways_agree_on_what_shrinks(examples: int) -> None:
    @settings(max_examples=examples)
    @given(programs())
    def agree(program: Program) -> None:
        assert not disagreement(program)

    agree()


@pytest.mark.sampled(suite=120)
@pytest.mark.slow
@pytest.mark.parametrize("number", range(120))
def test_an_exploration_finds_what_the_model_finds(number: int) -> None:
    for seed in block(number):
        program = generate_plain(Random(seed))
        want = oracle.outcomes(program)
        verdict = check.check(launch(program), explore=True, reductions=EVERYTHING)
        got = {word_of(f.kind, f.message) for f in verdict.faults} or {oracle.CLEAN}
        assert got <= want, f"seed {seed}: {got} is not among {want}: {program}"
        assert verdict.ok == (want == {oracle.CLEAN}), (
            f"seed {seed}: {verdict.verdict}, but {want}: {program}"
        )


@pytest.mark.sampled(suite=60)
@pytest.mark.slow
@pytest.mark.parametrize("number", range(120))
def test_the_warps_of_a_warpgroup_are_looked_at_apart(number: int) -> None:
    """The simulator performs a warpgroup as one; the model lets each of its warps go on by
    itself.
    """
    for seed in block(number):
        program = generate_group(Random(seed))
        want = oracle.outcomes(program)
        for explore in (False, True):
            verdict = check.check(launch(program), explore=explore)
            assert verdict.ok == (want == {oracle.CLEAN}), (
                f"seed {seed}: {verdict.verdict}, but {want}: {program}"
            )


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_what_a_simulated_run_ends_in_is_among_what_the_model_finds(number: int) -> None:
    for seed in block(500 + number):
        program = generate_plain(Random(seed))
        want = oracle.outcomes(program)
        for schedule in range(6):
            try:
                sim.run(launch(program), seed=schedule)
                got = oracle.CLEAN
            except SimFault as error:
                got = word_of(type(error).__name__, str(error))
            assert got in want, (
                f"seed {seed}, schedule {schedule}: {got} is not among {want}: {program}"
            )


@pytest.mark.sampled(suite=60)
@pytest.mark.slow
@pytest.mark.parametrize("number", range(60))
def test_no_seed_fails_what_is_verified(number: int) -> None:
    for seed in block(number):
        program = generate(Random(seed))
        if check.check(launch(program)).ok:
            failing = seeds_that_fail(program, range(30))
            assert not failing, f"{program}\n{failing[0]}"


@pytest.mark.slow
def test_the_same_program_has_the_same_verdict_and_counterexample() -> None:
    for seed in range(3):
        program = generate(Random(seed))
        first, again = three_ways(program), three_ways(program)
        assert [timeless(v) for v in first] == [timeless(v) for v in again], program


@pytest.mark.sampled(suite=15)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_each_family_has_right_programs_and_wrong_ones(family: object) -> None:
    assert callable(family)
    verdicts = Counter(
        check.check(launch(p)).verdict
        for p in (family(Random(seed)) for seed in range(30))
        if p.size < 2000
    )
    assert verdicts["verified"], verdicts
    wrong = Counter(
        check.check(launch(p)).verdict
        for p in (mutated(r, family(r)) for r in map(Random, range(40)))
        if p.size < 2000
    )
    assert wrong["fault"] > 3, wrong


# -- where one run is not enough -------------------------------------------------------

# A wait that can pass, until the next phase completes as well: the second arrive waits for r1, not
# for the waiter.
DISABLED_AGAIN = Program(
    (1, 1),
    (
        Part((Act("wait", 0, 0),)),
        Part((Act("arrive", 1, 1),)),
        Part((Act("arrive", 0, 1), Act("wait", 1, 0), Act("arrive", 0, 1))),
    ),
)
# Two arrivals complete a phase: one of each, or both of r1, which runs ahead; then r2 reads what r0
# has not written.
RUNNING_AHEAD = Program(
    (2, 1),
    (
        Part((Act("put", 0, 7), Act("arrive", 0, 1), Act("wait", 1, 0), Act("arrive", 0, 1))),
        Part((Act("arrive", 0, 1), Act("arrive", 0, 1))),
        Part((Act("wait", 0, 0), Act("get", 0), Act("arrive", 1, 1), Act("wait", 0, 1))),
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "kinds", "line", "words"),
    [
        (
            DISABLED_AGAIN,
            {"BarrierError"},
            "program:1",
            ("role 'r0'", "phase 0 of b0", "lapped", "count of 1"),
        ),
        (RUNNING_AHEAD, {"PoisonError", "RaceError"}, "program:202", ("role 'r2'", "slots[0]")),
    ],
    ids=["a wait is disabled again", "ABAB and AABB"],
)
def test_one_clean_run_proves_nothing(
    program: Program, kinds: set[str], line: str, words: tuple[str, ...]
) -> None:
    assert sim.run(launch(program)).completions["b0"] == [[2]], (
        "in the order of seed 0 nothing goes wrong"
    )
    assert not disagreement(program)
    for verdict in three_ways(program):
        assert verdict.verdict == "fault"
        told = [
            f
            for f in verdict.faults
            if f.kind in kinds and f.loc == line and all(word in f.message for word in words)
        ]
        assert told, [f.message for f in verdict.faults]


# The same two, with what was missing: each arrival of a phase is made by who knows that the phase
# before is over and was observed.
@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        Program(
            (1, 1),
            (
                Part((Act("wait", 0, 0), Act("arrive", 1, 1))),
                Part((Act("arrive", 0, 1), Act("wait", 1, 0), Act("arrive", 0, 1))),
            ),
        ),
        Program(
            (2, 2),
            (
                Part(
                    (Act("put", 0, 7), Act("arrive", 0, 1), Act("wait", 1, 0), Act("arrive", 0, 1))
                ),
                Part((Act("wait", 0, 0), Act("get", 0), Act("arrive", 1, 2), Act("wait", 0, 1))),
                Part((Act("arrive", 0, 1), Act("wait", 1, 0), Act("arrive", 0, 1))),
            ),
        ),
    ],
    ids=["the waiter answers", "both wait for the reader"],
)
def test_one_run_is_enough(program: Program) -> None:
    single, *explored = three_ways(program)
    assert single.ok
    assert (single.method, single.traces) == (
        "single-execution",
        1,
    ), "its facts show that one run stands for all"
    assert single.facts
    assert all(v.ok and v.method == "explored" for v in explored)
