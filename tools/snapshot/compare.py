"""Two snapshots side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from tools.snapshot.normalise import source_line

Section = Mapping[str, Any]
SHOWN = 60  # differences of a section


def comparable(value: Any) -> Any:
    """An entry without what may change: the names in lines of source, and which test it came
    from.
    """
    if isinstance(value, Mapping):
        return {
            k: source_line(v) if k == "line" else comparable(v)
            for k, v in value.items()
            if k != "test"
        }
    if isinstance(value, list):
        return sorted((comparable(x) for x in value), key=repr)
    return value


def differences(old: Section, new: Section) -> list[tuple[str, str, str]]:
    """(key, before, after) of what has changed or is missing."""
    found = []
    for key, before in sorted(old.items()):
        after = new.get(key)
        if after is None:
            found.append((key, _text(before), "missing"))
        elif comparable(before) != comparable(after):
            found.append((key, _text(before), _text(after)))
    return found


def _text(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    return ", ".join(f"{k}={v}" for k, v in value.items())


def show(
    old: Mapping[str, Section], new: Mapping[str, Section], console: Console | None = None
) -> int:
    """Prints the differences of each section; 1 where there are any."""
    out = console or Console()
    total = 0
    for name, section in old.items():
        taken = new.get(name, {})
        found = differences(section, taken)
        added = len(taken.keys() - section.keys())
        total += len(found)
        said = f"{name}: {len(section):,} entries, {len(found):,} differ" + (
            f", {added:,} new" if added else ""
        )
        out.print(said, style="red" if found else "green", highlight=False)
        if found:
            table = Table("entry", "before", "after", show_lines=True)
            for row in found[:SHOWN]:
                table.add_row(*row)
            out.print(table, markup=False)
            if len(found) > SHOWN:
                out.print(f"... and {len(found) - SHOWN} more")
    return 1 if total else 0
