"""docs/reference/machine.md has a row for every op that orders accesses, with the form it is
printed as.
"""

from __future__ import annotations

import re
from pathlib import Path

from tilepipe.ir import ops

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "machine.md"


def orders(op: type[ops.Op]) -> bool:
    """Whether an op says that it synchronises, fences, closes or awaits a group, or takes turns
    with others; what the rest do is ordered by these.
    """
    facts = op.facts
    groups = facts.commits or facts.awaits
    return bool(op.sync or facts.orders or groups or facts.takes or facts.gives)


def test_the_table_has_a_row_for_every_op_that_orders() -> None:
    table = (
        PAGE.read_text(encoding="utf-8")
        .split("### What each ordering op is printed as")[1]
        .split("###")[0]
    )
    rows = {
        name
        for line in table.splitlines()
        for name in re.findall(r"`([A-Z]\w+)`", line.split("|")[1] if line[:1] == "|" else "")
    }
    assert rows == {op.__name__ for op in ops.EVERY if orders(op)}
