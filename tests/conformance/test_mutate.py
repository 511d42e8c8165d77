"""The mutation job on a few members, so that it does not rot; `make conformance-mutants` runs it on all."""

from __future__ import annotations

import pytest

from tests.conformance import mutate
from tests.conformance.mutate import BODIES, Mutant, outcomes
from tests.conformance.replacing import replaced
from tests.conformance.table import resolve, rows

REAL = ["ProducerConsumerPipeline.wait_producer", "InputTilePipeline.payload", "ProducerTiles.__exit__"]
UNNOTICED = Mutant("unnoticed", "ProducerConsumerPipeline.drain_producer", "pipelines/test_barriers.py::test_expect_bytes_range")
MISPLACED = Mutant("misplaced", "ProducerConsumerPipeline.copy", "pipelines/test_barriers.py::test_no_such_thing")


def test_a_member_that_is_gone_is_noticed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Three members whose tests fail without them, and one that is given a test which has nothing to do with it."""
    todo = [*mutate.mutants(REAL), UNNOTICED]
    found = outcomes(todo, workers=1)
    assert [o.noticed for o in found] == [True, True, True, False]
    assert found[0].without == "AssertionError: assert [] == ['wait full']"
    monkeypatch.setattr(mutate, "mutants", lambda names: todo)
    monkeypatch.setattr(mutate, "outcomes", lambda todo, seen: found)
    assert mutate.main([]) == 1
    printed = capsys.readouterr().out
    assert "4 members taken out: 3 noticed by their tests, 1 not" in printed
    assert "unnoticed" in printed
    assert "passes" in printed
    assert "wait full" not in printed


@pytest.mark.slow
def test_a_test_that_is_not_there_is_not_a_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = outcomes([MISPLACED])
    assert not found.noticed
    assert "test_no_such_thing" in found.broken
    monkeypatch.setattr(mutate, "mutants", lambda names: [MISPLACED])
    monkeypatch.setattr(mutate, "outcomes", lambda todo, seen: [found])
    assert mutate.main(["--all"]) == 1
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
