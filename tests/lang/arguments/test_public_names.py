"""Messages and reprs name public classes alone."""

from __future__ import annotations

import inspect
import re
from types import FunctionType

import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text

PUBLIC: set[type] = {
    x
    for name, x in vars(tp).items()
    if inspect.isclass(x) and not name.startswith("_") and x.__module__.startswith("tilepipe.")
}
PRIVATE = {
    base.__name__
    for cls in PUBLIC
    for base in cls.__mro__
    if base.__module__.startswith("tilepipe.") and base not in PUBLIC
}
TRACED = [c for c in PUBLIC if c.__module__.startswith(("tilepipe.lang", "tilepipe.pipelines"))]
BY_NAME = pytest.mark.parametrize("cls", sorted(TRACED, key=str), ids=str)


def test_there_are_base_classes_to_hide() -> None:
    assert {"FragmentReductions", "TransferMembers", "StageHandle", "OverRing"} <= PRIVATE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("f.sum(5)", "Fragment.sum: axis= takes"),
        ("(f + 1).max(axis=7)", "FragmentValue.max: axis= takes"),
        ("ctx.lane + ctx", "got Context: <Context>"),
    ],
)
def test_errors_of_arguments(text: str, words: str) -> None:
    with refused(tp.TraceError, words):
        role_from_text(f"f = ctx.fragment(shape=(64, 64))\nf.fill(0)\n{text}", warps="warpgroups=1")


@BY_NAME
def test_pythons_own_errors_about_arguments(cls: type) -> None:
    for base in cls.__mro__:
        for name, member in vars(base).items():
            function = getattr(member, "__func__", member)
            if isinstance(function, FunctionType) and not name.startswith("_"):
                words = re.split(r"\W", inspect.unwrap(function).__qualname__)
                unknown = set(words[:-1]) & PRIVATE
                assert not unknown or name in ("ir", "check_held", "refuse_twice"), (cls, name)


@BY_NAME
def test_no_object_shows_its_module_and_address(cls: type) -> None:
    assert any("__repr__" in vars(base) for base in cls.__mro__[:-1])
