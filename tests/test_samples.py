"""Which cases of a test its samples take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.conftest import ranked


def cases(numbers: list[int]) -> list[Any]:
    return [
        SimpleNamespace(nodeid=f"test.py::test[{n}]", callspec=SimpleNamespace(params={"n": n}))
        for n in numbers
    ]


def order(numbers: list[int], classes: int) -> list[int]:
    """The numbers as samples take them, in classes by their remainders."""
    taken, found = ranked(cases(numbers), lambda n: [n % classes])
    assert found == classes
    return [int(case.nodeid.split("[")[1].rstrip("]")) for case in taken]


def test_each_class_leads_with_its_first_case() -> None:
    assert order(list(range(20)), 4)[:4] == [0, 1, 2, 3]
    assert sorted(order(list(range(20)), 4)) == list(range(20))


def test_the_order_of_the_other_cases_does_not_matter() -> None:
    one = order([0, *range(1, 20)], 1)
    assert order([0, *range(19, 0, -1)], 1) == one
    assert one != sorted(one)
    assert [n for n in order(list(range(21)), 1) if n != 20] == one
