"""What messages call the instructions that they advise: the PTX name, or what the front end
says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine.byte_program import Launch, Variant
from tilepipe import machine
from tilepipe.errors import RaceError
from tilepipe.machine.clusters import one_after_another
from tilepipe.machine.wording import PTX
from tilepipe.sim.wording import TRACER

TEXTS = {path: path.read_text("utf-8") for path in Path(machine.__path__[0]).rglob("*.py")}
ASKED = {
    name
    for text in TEXTS.values()
    for name in re.findall(r"""\bwords(?:\[|\.get\(\s*)['"]([^'"]+)['"]""", text)
}


def test_the_machine_advises_in_the_front_end_s_words() -> None:
    for path, text in TEXTS.items():
        assert "ctx." not in text, path


def _texts(path: Path) -> Iterator[str]:
    """The strings in a module that are no docstrings, parts of f-strings among them."""
    tree = ast.parse(TEXTS[path])
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    heads = [node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and node.body]
    docstrings = {id(head.value) for head in heads if isinstance(head, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield str(node.value)


@pytest.mark.slow
def test_the_machine_s_own_word_is_warp_where_this_project_s_is_role() -> None:
    """In messages of kernels of PTX there are no roles. Named agents are called by their role, and
    the text of a rule is for both.
    """
    assert (PTX["warp"], TRACER["warp"]) == ("warp", "role")
    found = {
        (path.name, text)
        for path in TEXTS
        for text in _texts(path)
        if re.search(r"\broles?\b", text) and text != "role"
    }
    assert {name for name, _ in found} == {"actors.py", "rules.py"}
    assert [text for name, text in found if name == "actors.py"] == ["role '"]


def test_every_name_has_a_word_in_this_project_s_language() -> None:
    assert TRACER.keys() >= ASKED
    everything = "".join(TEXTS.values())
    assert [name for name in TRACER if f'"{name}"' not in everything and name not in ASKED] == []


def test_a_name_without_a_word_is_that_of_the_ptx_isa() -> None:
    assert PTX["fence.proxy.async.shared::cta"] == "fence.proxy.async.shared::cta"
    launch = Launch(Variant(without=frozenset({"proxy fence"})))
    with pytest.raises(RaceError, match=r"must execute fence\.proxy\.async\.shared::cta after the"):
        one_after_another(launch.world(None), [0], None, lambda m: None)
