"""The mutation job on a few members, so that it does not rot; `make conformance-mutants` runs it on
all.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conformance import mutate, subtle
from tests.conformance.equivalent import ALSO, EQUIVALENT
from tests.conformance.mutate import BODIES, Mutant, outcomes
from tests.conformance.replacing import replaced
from tests.conformance.table import Target, resolve, rows

REAL = [
    "ProducerConsumerPipeline.wait_producer",
    "InputTilePipeline.payload",
    "ProducerTiles.__exit__",
]
UNNOTICED = Mutant(
    "unnoticed",
    "ProducerConsumerPipeline.drain_producer",
    "pipelines/barriers/test_mbarriers.py::test_expect_bytes_range",
)
MISPLACED = Mutant(
    "misplaced",
    "ProducerConsumerPipeline.copy",
    "pipelines/barriers/test_mbarriers.py::test_no_such_thing",
)


@pytest.mark.slow
def test_a_member_that_is_gone_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three members whose tests fail without them, and one that is given a test which has nothing
    to do with it.
    """
    todo = [*mutate.mutants(REAL), UNNOTICED]
    found = outcomes(todo, workers=1)
    assert [o.noticed for o in found] == [True, True, True, False]
    assert found[0].without == "AssertionError: assert [] == ['wait full']"
    monkeypatch.setattr(mutate, "mutants", lambda names: todo)
    monkeypatch.setattr(mutate, "outcomes", lambda todo, seen: found)
    assert mutate.main(["--only", "bodies"]) == 1
    printed = capsys.readouterr().out
    assert "4 members taken out, 0 small changes: 3 noticed by their tests, 1 not" in printed
    assert "unnoticed" in printed
    assert "passes" in printed
    assert "wait full" not in printed


@pytest.mark.slow
def test_a_test_that_is_not_there_is_not_a_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = outcomes([MISPLACED])
    assert not found.noticed
    assert "test_no_such_thing" in found.broken
    monkeypatch.setattr(mutate, "mutants", lambda names: [MISPLACED])
    monkeypatch.setattr(mutate, "outcomes", lambda todo, seen: [found])
    assert mutate.main(["--all", "--only", "bodies"]) == 1
    assert "fails anyway" in capsys.readouterr().out


def test_what_the_job_takes_out() -> None:
    """Every row but types, arguments, and what does nothing by definition."""
    named = {m.name for m in mutate.mutants()}
    kept = {f"{page.name}.{row.name}" for page, row in rows()} - named
    kinds = {f"{page.name}.{row.name}": resolve(page.ours(row)).kind for page, row in rows()}
    assert {name for name in kept if kinds[name] not in ("type", "argument")} == {
        f"{page.name}.{row.name}" for page, row in rows() if row.kept
    }
    chosen = {m.name for m in mutate.mutants(["ProducerTiles", "drain_producer"])}
    assert chosen > {"ProducerTiles.stage", "InputTilePipeline.drain_producer"}
    assert {name.split(".")[0] for name in chosen} == {"ProducerTiles", "InputTilePipeline"}
    with pytest.raises(SystemExit, match="is called nobody"):
        mutate.mutants(["nobody"])


def test_a_member_is_put_back() -> None:
    targets = [resolve(page.ours(row)) for page, row in rows()]
    for target in [t for t in targets if t.kind in BODIES]:
        before = dict(vars(target.owner))
        with replaced(target):
            assert dict(vars(target.owner)) != before
        assert dict(vars(target.owner)) == before


SMALL = ["ProducerConsumerPipeline.producer_step", "ProducerConsumerPipeline.consumer_mbar"]


@pytest.mark.slow
def test_small_changes_are_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of two members'; and one whose test has nothing to do with it is reported."""
    todo = mutate.subtle_mutants(SMALL)
    assert [m.change for m in todo] == [
        "the other side: 'self._empty'",
        "stage ignored",
        "the other side: 'self._producer'",
        "not stepped: 'self._producer.step()'",
        "stepped twice: 'self._producer.step()'",
    ]
    todo.append(
        replace(
            todo[-1],
            name="unrelated",
            test="pipelines/barriers/test_mbarriers.py::test_expect_bytes_range",
            more=(),
        )
    )
    found = outcomes(todo, workers=1)
    assert [o.noticed for o in found] == [True] * 5 + [False]
    monkeypatch.setattr(mutate, "subtle_mutants", lambda names: todo)
    monkeypatch.setattr(mutate, "outcomes", lambda todo, seen: found)
    assert mutate.main(["--only", "subtle"]) == 1
    assert (
        "0 members taken out, 6 small changes: 5 noticed by their tests, 1 not"
        in capsys.readouterr().out
    )


def test_the_rules_of_small_changes() -> None:
    """Each rule changes one thing, and the function still runs in its module."""

    def member(n: int, flag: bool = True) -> list[int]:
        """Says 3."""
        return [i + 1 for i in range(n) if flag]

    found = {
        m.operator: m.function for m in subtle.mutants(Target("function", None, "member", member))
    }
    assert {name: function(3) for name, function in found.items()} == {
        "number +1: '1'": [2, 3, 4],
        "number -1: '1'": [0, 1, 2],
        "another operation: 'i + 1'": [-1, 0, 1],
        "one trip fewer: 'range(n)'": [1, 2],
        "flag ignored": [1, 2, 3],
    }
    assert found["flag ignored"](3, False) == [1, 2, 3]


def test_what_is_said_of_small_changes_is_of_some() -> None:
    """Every change that is called equivalent is one, of a member that has a row; and so are the
    members with further tests.
    """
    ours = {page.ours(row) for page, row in rows()}
    for name, change in EQUIVALENT:
        assert name in ours
        assert change in {m.operator for m in subtle.mutants(resolve(name))}
    assert set(ALSO) - ours == set()


def test_a_changed_member_is_put_back() -> None:
    for name in (
        "ProducerStage.mbar",
        "StandardTilePayload.get_tile",
        "InputTilePipeline.init_barriers",
        "TmemAllocation.addr",
    ):
        target = resolve(name)
        where = vars(subtle.home(target))
        before = dict(where)
        for mutant in subtle.mutants(target):
            with replaced(target, mutant.operator):
                assert dict(where) != before
            assert dict(where) == before
