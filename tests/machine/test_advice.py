"""Repeated advice is one entry with a count."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from tests.machine.byte_program import Launch, Variant
from tilepipe.check import Verdict
from tilepipe.check.verdict import combine
from tilepipe.errors import BarrierError
from tilepipe.ir.location import Loc
from tilepipe.machine.advice import Advice, add, subject
from tilepipe.machine.rules import INIT_FENCE, LOADED_REGISTERS

COPY, INIT, OTHER = (Loc("kernel.cu", line) for line in (7, 3, 9))


def advice_of(*findings: tuple[str, Loc, Loc | None]) -> list[str]:
    """The advice of a run with these findings: text, line, line of the other op."""
    world = Launch(Variant()).world(None)
    for text, loc, first in findings:
        world.finding(INIT_FENCE, text, loc, "Fence it.", BarrierError, first=first)
    return world.advice


def test_findings_about_the_same_two_lines_are_one() -> None:
    texts = [f"warp 0 of CTA {n} copies" for n in range(3)]
    (said,) = advice_of(*((text, COPY, INIT) for text in texts), (texts[0], COPY, INIT))
    assert said == (
        'mbarrier-init fence (a fault with rules="strict"): warp 0 of CTA 0 copies. Fence it.'
        " (2 more like this at the same lines)"
    )


def test_a_single_line_is_called_a_line() -> None:
    (said,) = advice_of(("one", COPY, None), ("two", COPY, COPY), ("three", COPY, None))
    assert said.endswith("Fence it. (2 more like this at the same line)")


def test_other_lines_and_other_rules_are_apart() -> None:
    found = advice_of(("one", COPY, INIT), ("two", COPY, OTHER), ("three", COPY, None))
    assert [text.split(": ")[1] for text in found] == [
        "one. Fence it.", "two. Fence it.", "three. Fence it."
    ]  # fmt: skip
    world = Launch(Variant()).world(None)
    for rule in (INIT_FENCE, LOADED_REGISTERS):
        world.finding(rule, "same", COPY, "Fence it.", first=INIT)
    assert len(world.advice) == 2


def test_one_alone_has_no_count() -> None:
    assert advice_of(("one", COPY, INIT)) == [
        'mbarrier-init fence (a fault with rules="strict"): one. Fence it.'
    ]


def lines(*texts: str) -> Advice:
    return Advice("rule", ("a.cu:1", "a.cu:2"), texts)


def test_what_several_executions_say_is_joined() -> None:
    found: list[str] = ["plain"]
    add(found, [lines("one"), "plain", "other"])
    add(found, [lines("two", "one"), "other"])
    add(found, [lines("two"), lines("one", "two")])
    assert found == ["plain", "one (1 more like this at the same lines)", "other"]
    assert subject(found[1]) == subject(lines("any"))
    assert subject("plain") == "plain"


def test_a_process_can_send_it() -> None:
    given = lines("one", "two")
    again = pickle.loads(pickle.dumps(given))
    assert (again, again.texts, subject(again)) == (given, ("one", "two"), subject(given))


def test_instances_share_their_entries() -> None:
    one = Verdict("verified", "explored", "one", 1, 1, 0.0, advice=[lines("a", "b"), "plain"])
    combined = combine([one, replace(one, instance="two", advice=["plain", lines("b", "c")])])
    assert combined.advice == ["a (2 more like this at the same lines)", "plain"]
    assert one.advice == ["a (1 more like this at the same lines)", "plain"]


@pytest.mark.parametrize("texts", [("one",), ("one", "two")])
def test_it_is_a_text(texts: tuple[str, ...]) -> None:
    assert isinstance(lines(*texts), str)
    assert "one" in lines(*texts)
