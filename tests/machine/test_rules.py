"""The two rule sets: their names, and that docs/reference/rules.md has every rule that the machine
has.
"""

from __future__ import annotations

import re
from pathlib import Path

from tilepipe.machine.rules import ALL_RULES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rules.md"


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
