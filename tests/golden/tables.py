"""The tables of this directory (README.md) as rows by field name."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

LEADING = 0x3FFF << 16  # bits of the leading offset in a shared-memory descriptor


@cache
def table(name: str) -> dict[str, Any]:
    """One file, whole."""
    data: dict[str, Any] = json.loads(
        (Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8")
    )
    return data


def rows(name: str, which: str = "rows", columns: str = "columns") -> list[dict[str, Any]]:
    """The rows of a list of a file."""
    found = table(name)
    return [dict(zip(found[columns], row, strict=True)) for row in found[which]]


def significant(bits: int, ignored: int) -> int:
    """A shared-memory descriptor without its leading offset, where no instruction reads that."""
    return bits & ~LEADING if ignored else bits
