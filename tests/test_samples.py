"""Which cases of a test its samples take, and which are not even made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings

from tests import conftest
from tests.conftest import left_out, ranked
from tests.support.examples import share


def order(numbers: list[int], classes: int) -> list[int]:
    """The numbers as samples take them, in classes by their remainders."""
    taken, found = ranked(numbers, lambda n: [n % classes], lambda n: f"test.py::test[{n}]")
    assert found == classes
    return taken


def test_each_class_leads_with_its_first_case() -> None:
    assert order(list(range(20)), 4)[:4] == [0, 1, 2, 3]
    assert sorted(order(list(range(20)), 4)) == list(range(20))


def test_the_order_of_the_other_cases_does_not_matter() -> None:
    one = order([0, *range(1, 20)], 1)
    assert order([0, *range(19, 0, -1)], 1) == one
    assert one != sorted(one)
    assert [n for n in order(list(range(21)), 1) if n != 20] == one


@pytest.mark.parametrize(
    ("expression", "marks"),
    [
        ("", set()),
        ("not thorough", {"thorough"}),
        ("not slow and not thorough and not gpu", {"slow", "thorough", "gpu"}),
        ("thorough", set()),
        ("not slow or not thorough", set()),
        ("not (slow and gpu)", set()),
        ("not thorough and gpu", set()),
    ],
)
def test_only_marks_that_no_chosen_test_has_are_left_out(expression: str, marks: set[str]) -> None:
    assert left_out(expression) == marks


def made(expression: str, cases: int, *marks: pytest.MarkDecorator) -> list[tuple[int, set[str]]]:
    """The cases of a test with these marks that are made for `-m expression`: number and marks."""
    found = {decorator.mark.name: decorator.mark for decorator in marks}
    metafunc: Any = SimpleNamespace(
        definition=SimpleNamespace(nodeid="test.py::test", get_closest_marker=found.get),
        config=SimpleNamespace(option=SimpleNamespace(markexpr=expression)),
        _calls=[SimpleNamespace(id=str(n), params={"n": n}, marks=[]) for n in range(cases)],
    )
    assert list(conftest.pytest_generate_tests(metafunc)) == [None]
    return [(call.params["n"], {mark.name for mark in call.marks}) for call in metafunc._calls]


def test_a_sample_is_made_and_the_rest_is_not() -> None:
    sampled = pytest.mark.sampled(10, suite=4)
    everything = made("", 20, sampled)
    assert [n for n, _ in everything] == list(range(20))
    assert sum("slow" not in marks for _, marks in everything) == 2
    suite = [n for n, marks in everything if "thorough" not in marks]
    quick = [n for n, marks in everything if not marks]
    assert len(suite) == 5
    assert len(quick) == 2
    assert set(quick) < set(suite)
    assert [n for n, _ in made("not thorough", 20, sampled)] == suite
    assert [n for n, _ in made("not slow and not thorough", 20, sampled)] == quick


def test_a_slow_test_is_sampled_for_the_suite_alone() -> None:
    found = made("not thorough", 20, pytest.mark.slow, pytest.mark.sampled(suite=4))
    assert len(found) == 5
    with pytest.raises(pytest.UsageError, match=r"test.py::test is slow.*without 10"):
        made("not thorough", 20, pytest.mark.slow, pytest.mark.sampled(10, suite=4))


def test_of_an_unmarked_test_a_sixteenth_is_quick_and_two_cases_are_few() -> None:
    assert len(made("not slow", 33)) == 3
    assert len(made("not slow", 2)) == 2
    assert len(made("not thorough", 33)) == 33


def test_one_case_of_a_test_for_a_gpu_is_left_to_say_why_it_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conftest, "missing_gpu", lambda: "no driver")
    assert len(made("not thorough", 33, pytest.mark.gpu)) == 1
    monkeypatch.setattr(conftest, "missing_gpu", lambda: "")
    assert len(made("not thorough", 33, pytest.mark.gpu)) == 33


def test_make_test_tries_a_share_of_the_examples() -> None:
    def tried(expression: str) -> tuple[int, int]:
        config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=expression))
        conftest.pytest_configure(config)
        return settings().max_examples, share(60)

    before = settings().max_examples
    try:
        assert tried("not thorough") == (conftest.SHARE, 60 * conftest.SHARE // 100)
        assert tried("") == (100, 60)
    finally:
        settings.load_profile("suite" if before == conftest.SHARE else "every case")


def test_reports_are_sent_without_keywords() -> None:
    report: Any = None
    hook = conftest.pytest_report_to_serializable(report)
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send({"outcome": "passed", "keywords": {"slow": 1}})
    assert ended.value.value == {"outcome": "passed", "keywords": {}}
