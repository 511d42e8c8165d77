"""docs/reference/machine.md has a row for every op that orders accesses, with the form it is
printed as.
"""

from __future__ import annotations

import re
from pathlib import Path

from tilepipe.ir import ops

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "machine.md"
ORDER_NOTHING = {  # values, control flow, memory and registers: others order what these do
    "Assert",
    "Assign",
    "ClcQuery",
    "CursorDefine",
    "CursorRead",
    "CursorStep",
    "Define",
    "Elect",
    "For",
    "FragmentAny",
    "FragmentDefine",
    "FragmentLoad",
    "FragmentLoadGlobal",
    "FragmentReduce",
    "FragmentSet",
    "FragmentStore",
    "FragmentStoreGlobal",
    "If",
    "Let",
    "Load",
    "PerWarp",
    "Print",
    "Read",
    "Store",
    "Tcgen05Mma",
    "TmaStore",
    "TmemCopy",
    "TmemLoad",
    "TmemStore",
    "Wgmma",
    "While",
}


def test_every_op_is_in_the_table_or_orders_nothing() -> None:
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
    every = {
        name
        for name, c in vars(ops).items()
        if isinstance(c, type) and issubclass(c, ops.Op) and c is not ops.Op
    }
    assert rows & ORDER_NOTHING == set()
    assert rows | ORDER_NOTHING == every
