"""The two rule sets: docs/reference/rules.md has every rule that the machine has, code decides by
each of them, and by nothing else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tilepipe.machine import rules
from tilepipe.machine.rules import ALL_RULES, Rule

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "rules.md"
SOURCE = ROOT / "src" / "tilepipe"
DEFINED = SOURCE / "machine" / "rules.py"


def rows() -> dict[str, tuple[str, str]]:
    """Rule -> (what strict asks for, what practice does) of the page's table."""
    found = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| (advice|silent) \| [^|]+ \|$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return {name: (asks.replace("`", ""), practice) for name, asks, practice in found}


def test_the_page_has_every_rule() -> None:
    assert rows() == {rule.name: (rule.asks, rule.practice) for rule in ALL_RULES}


def test_the_list_has_every_rule() -> None:
    assert set(ALL_RULES) == {x for x in vars(rules).values() if isinstance(x, Rule)}


def parsed(words: Iterable[str]) -> list[tuple[Path, ast.AST]]:
    """The modules in which one of the words stands, but for the one that defines the rules."""
    word = re.compile("|".join(words))
    texts = [(x, x.read_text(encoding="utf-8")) for x in SOURCE.rglob("*.py") if x != DEFINED]
    return [(path, ast.parse(text)) for path, text in texts if word.search(text)]


@pytest.mark.slow
def test_code_decides_by_every_rule() -> None:
    names = {name for name, x in vars(rules).items() if isinstance(x, Rule)}
    used = set()
    for _, tree in parsed(names):
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                used.add(node.id)
            elif isinstance(node, ast.Attribute):
                used.add(node.attr)
    assert names <= used


@pytest.mark.slow
def test_code_decides_by_rules_alone() -> None:
    """No module compares a rule set with its name: a difference of the sets without a rule would
    have no row on the page.
    """
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in parsed(rules.RULE_SETS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for x in (node.left, *node.comparators)
        if isinstance(x, ast.Constant) and x.value in rules.RULE_SETS
    ]
    assert not found
