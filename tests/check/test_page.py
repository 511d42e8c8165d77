"""A verdict in a notebook: its line, and its part of a page."""

from __future__ import annotations

from html import unescape
from html.parser import HTMLParser

import pytest

import tilepipe as tp
from tests.timeline.kernels import copying
from tilepipe.check import Fault, Step, Verdict
from tilepipe.check.unreached import Coverage

EVIL = "<script>alert('x')</script>&\"'\n<b>"


class Cells(HTMLParser):
    """The texts of a page with their classes, and its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self._kind = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._kind = dict(attrs).get("class") or ""

    def handle_data(self, data: str) -> None:
        self.texts.append((data, self._kind))


def test_a_verified_program() -> None:
    verdict = copying().check(instance="two rows")
    assert repr(verdict) == "<Verdict verified of 'two rows': 1 execution>"
    page = verdict._repr_html_()
    found = Cells(page)
    assert ("verified", "good") in found.texts
    assert "two rows" in [text for text, _ in found.texts]
    assert all(fact in unescape(page) for fact in verdict.facts)
    assert "never other shapes" in page


def racing() -> Verdict:
    """The verdict on two warps that store to the same element."""
    import numpy as np

    @tp.kernel(grid=1)
    def race(ctx: tp.Context, out: tp.GlobalTensor) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.elect_one():
                ctx.store(out[0], 1)

        @ctx.role("two", warps=1)
        def two() -> None:
            with ctx.elect_one():
                ctx.store(out[0], 2)

    return race.bind(np.zeros(1, np.int32)).check()


def test_a_fault_with_its_counterexample() -> None:
    verdict = racing()
    (fault,) = verdict.faults
    assert repr(verdict) == f"<Verdict fault: 1 execution, RaceError at {fault.loc}>"
    page = verdict._repr_html_()
    found = Cells(page)
    assert ("fault", "bad") in found.texts
    assert ("RaceError", "bad") in found.texts
    assert fault.message in unescape(page)
    cells = [text for text, _ in found.texts]
    assert fault.steps
    for step in fault.steps:
        assert {step.agent, step.op, step.loc} <= set(cells)
    assert "never other shapes" not in page


@pytest.mark.parametrize(("conclusion", "kind"), [("undecided", "open"), ("fault", "bad")])
def test_nothing_of_a_user_is_markup(conclusion: str, kind: str) -> None:
    fault = Fault("RaceError", EVIL, EVIL, (), (Step(EVIL, EVIL, EVIL, EVIL),), 2)
    verdict = Verdict(
        conclusion, "explored", EVIL, 1, 1, 0.0, [fault], [EVIL], [EVIL], EVIL,  # type: ignore[arg-type]
        coverage=Coverage(), explored_because=EVIL,
    )  # fmt: skip
    found = Cells(verdict._repr_html_())
    assert not {"script", "b"} & set(found.tags)
    assert (f"{conclusion}: {EVIL}", kind) in found.texts
    assert "2 more steps do not affect the fault." in [text for text, _ in found.texts]
    assert len(repr(verdict).splitlines()) == 1
