"""The table has a row for every name, every row is true, and docs/generated/conformance.md is what
the table says.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tilepipe as tp
from tests.conformance import write
from tests.conformance.cases import CASES
from tests.conformance.names import NAMES, TO_COME, names, to_come
from tests.conformance.table import Page, Row, kernels, pages, resolve, rows

TESTS = Path(__file__).parents[1]
ROWS = rows()
IDS = [f"{page.name}-{row.name}" for page, row in ROWS]


@pytest.mark.parametrize("page", NAMES)
def test_every_name_has_a_row(page: str) -> None:
    wanted = [name for name in names(page) if not to_come(page, name)]
    present = [row.name for p in pages() for row in p.rows if p.name == page]
    assert sorted(set(wanted) - set(present)) == [], (
        "names of the page without a row, and not in names.TO_COME"
    )
    assert sorted(set(present) - set(wanted)) == [], (
        "rows for what the page does not name, or what names.TO_COME says is missing"
    )
    assert sorted(x for x in set(present) if present.count(x) > 1) == []


def test_what_is_to_come_is_named_and_not_there() -> None:
    """A type that has come since needs its rows."""
    for entry in TO_COME:
        page, _, name = entry.partition(": ")
        missing = [name] if name else [page, *names(page)]
        assert not name or name in names(page)
        assert [x for x in missing if x[0].isupper() and "." not in x and hasattr(tp, x)] == []


@pytest.mark.parametrize(("page", "row"), ROWS, ids=IDS)
def test_a_row_is_whole(page: Page, row: Row) -> None:
    """No empty cell; our name exists, and so does the kernel."""
    assert all((row.name, row.test, row.case, page.ours(row), page.archs, page.on_gpu(row)))
    assert resolve(page.ours(row)).kind
    assert row.case in {case.name for case in CASES}


def test_every_kernel_is_named() -> None:
    assert set(kernels()) == {case.name for case in CASES}


@pytest.mark.slow
def test_every_test_exists() -> None:
    """pytest finds each id of the table, those for a GPU as well."""
    wanted = {row.test for _, row in ROWS} | {
        page.on_gpu(row) for page, row in ROWS if "sm_90a" in page.archs
    }
    files = sorted({f"tests/{test.split('::')[0]}" for test in wanted})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *files,
    ]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)
    found = {line.removeprefix("tests/") for line in done.stdout.splitlines()}
    assert sorted(wanted - found - {test.split("[")[0] for test in found}) == [], done.stderr


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ("Pipeline", "tilepipe has no 'Pipeline'"),
        ("ProducerConsumerPipeline.wait", "has no 'wait'"),
        ("ProducerConsumerPipeline.allocate(stages=)", "has no argument 'stages'"),
        ("ProducerTiles.pipe_ptr", "ProducerTiles has no 'pipe_ptr'"),
        ("a b", "is not a name"),
    ],
)
def test_a_name_that_does_not_exist(ours: str, words: str) -> None:
    with pytest.raises(LookupError, match=re.escape(words)):
        resolve(ours)


def test_the_page_is_what_the_table_says() -> None:
    assert write.PAGE.read_text(encoding="utf-8") == write.text(), (
        f"docs/generated/conformance.md is stale: {write.COMMAND}"
    )
