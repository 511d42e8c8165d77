"""Writes docs/generated/conformance.md from the table: `python -m tests.conformance.write`."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.equivalent import EQUIVALENT
from tests.conformance.names import TO_COME, names, to_come
from tests.conformance.table import Page, Row, pages

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "generated" / "conformance.md"
COMMAND = "python -m tests.conformance.write"

HEAD = """# Conformance

What the API pages name, and what it is here. `{command}` writes this page from the table in
`tests/conformance`.

A **test** fails when its member does nothing: `make conformance-mutants` takes the members out,
one by one; then it changes each a little (another barrier, one trip fewer, a step too many, an
argument ignored), and a test of its rows fails, but for [these](#changes-that-change-nothing).
A **kernel** of [cases.py](../../tests/conformance/cases.py) that uses the member gives NumPy's
numbers in the simulator, compiles with NVRTC for the architectures named, and is launched on an
H200 by [test_conformance_gpu.py](../../tests/gpu/test_conformance_gpu.py). "Blackwell only":
compiled for sm_100a and simulated; never run on a Blackwell GPU.

{counts}
"""


def text() -> str:
    """The file."""
    done = pages()
    total = sum(len(page.rows) for page in done)
    later = sum(to_come(page, name) for page in ORDER for name in names(page))
    launched = sum(len(page.rows) for page in done if "sm_90a" in page.archs)
    counts = (
        f"{total} names: {launched} that an H200 has run, {total - launched} for Blackwell only"
    )
    counts += f"; {later} [to come](#to-come)." if later else "."
    tables = [
        _page([page for page in done if page.name == name])
        for name in dict.fromkeys(page.name for page in done)
    ]
    parts = [
        HEAD.format(command=COMMAND, counts=counts),
        *tables,
        *([_to_come()] if TO_COME else []),
        _equivalent(),
    ]
    return "\n".join(parts)


def _page(parts: list[Page]) -> str:
    """The table of a page, which has a part for each set of architectures."""
    title = "What the pages are built on" if parts[0].name == "Base" else parts[0].name
    lines = [
        f"## {title}",
        "",
        "| name | here | test | simulated | compiled | run on H200 |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_row(page, row) for page in parts for row in page.rows), ""])


def _row(page: Page, row: Row) -> str:
    file, _, test = row.test.partition("::")
    ours = "the same" if page.ours(row) == row.name else f"`{page.ours(row)}`"
    link = f"[`{test}`](../../tests/{file})"
    gpu = "yes" if "sm_90a" in page.archs else "– (Blackwell only)"
    return (
        "| "
        + " | ".join(
            [f"`{row.name}`", ours, link, f"yes: `{row.case}`", ", ".join(page.archs), gpu]
        )
        + " |"
    )


def _equivalent() -> str:
    rows = [f"| `{name}` | {change} | {reason} |" for (name, change), reason in EQUIVALENT.items()]
    return "\n".join(
        [
            "## Changes that change nothing",
            "",
            "| member | change | why |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _to_come() -> str:
    lines = ["## To come", ""]
    for entry, reason in TO_COME.items():
        page, _, name = entry.partition(": ")
        missing = [name] if name else names(page)
        lines += [
            f"- {name or page} ({reason}): " + ", ".join(f"`{x}`" for x in missing)
            if not name
            else f"- `{name}` ({reason})"
        ]
    return "\n".join([*lines, ""])


ORDER = [
    "Base",
    "ProducerConsumerPipeline",
    "InputTilePipeline",
    "ProducerTiles",
    "OutputTilePipeline",
    "TMAProducerPipeline",
]

if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
