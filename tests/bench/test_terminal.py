"""Tables on terminals of several widths: no line is wider, and every cell is there whole."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from tilepipe.bench.report import Table
from tilepipe.bench.terminal import fitted, text
from tilepipe.cli import measuring

PEERS = ("cuDNN", "FA2", "FA4")
FIGURES = ("µs", "TFLOP/s")
CONFIGS = [
    "128×160 s2 qk_stages=2 schedule=dynamic store=tile",
    "128×128 s2 schedule=dynamic store=tile group=16 q_stages=2",
    "192×128 s2 consumers=3 schedule=dynamic group=8 q_stages=2",
]


def attention(peers: tuple[str, ...] = PEERS, count: int = 12, last: str = "") -> Table:
    """As of `tilepipe bench attention`; every figure is another."""
    columns = ["problem", "config", "ours µs", "ours TFLOP/s", "error"]
    for peer in peers:
        columns += [f"{peer} µs", f"{peer} TFLOP/s", f"{peer} / ours"]
    rows = []
    for i in range(count):
        problem = f"D={64 + 64 * (i // 6)} causal S={16384 + 8 * i} {last}".rstrip()
        figures = [f"{1000 + 10 * i + j}.{j}" for j in range(2 + 3 * len(peers))]
        rows.append((problem, CONFIGS[i % 3], *figures[:2], f"{i}.0e-03", *figures[2:]))
    notes = ("spread: at most 1.0%",)
    return Table("burst", tuple(columns), tuple(rows), notes, 2, (3,) * (1 + len(peers)))


def printed(table: Table, width: int) -> str:
    return "\n".join(
        line for part in fitted(table, width) for line in (text(part, width), *part.notes)
    )


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 300])
@pytest.mark.parametrize("peers", [(), PEERS[:1], ("our bf16",), PEERS])
@pytest.mark.parametrize("last", ["", "float8_e4m3"])
def test_every_figure_is_shown_and_no_line_is_wider_than_the_terminal(
    width: int, peers: tuple[str, ...], last: str
) -> None:
    table = attention(peers, last=last)
    shown = printed(table, width)
    assert "…" not in shown
    words = shown.split()
    for row in table.rows:
        for cell in (*row[0].split(), *row[1].split(), *row[2:]):
            assert cell in words
    for name in table.columns[2:]:
        assert all(word in words for word in name.split())
    assert "spread: at most 1.0%" in shown
    for part in fitted(table, width):
        assert max(map(cell_len, text(part, width).splitlines())) <= width


def test_a_wide_terminal_has_one_table_as_it_is() -> None:
    table = attention()
    assert fitted(table, 300) == [table]
    head = text(table, 300).splitlines()[1]
    assert head.split("  ")[0] == "problem"
    assert "cuDNN TFLOP/s  cuDNN / ours" in head


def test_a_configuration_that_all_have_is_said_once() -> None:
    table = attention(("cuDNN",), count=1)
    (part,) = fitted(table, 80)
    assert "config" not in part.columns
    assert part.notes == (f"config: {CONFIGS[0]}", *table.notes)


def test_configurations_are_told_below_by_what_differs() -> None:
    parts = fitted(attention(("cuDNN",)), 80)
    assert len(parts) == 1
    assert [row[1] for row in parts[0].rows[:4]] == ["a", "b", "c", "a"]
    assert parts[0].notes[:4] == (
        "config, all: s2 schedule=dynamic",
        "config a: 128×160 qk_stages=2 store=tile",
        "config b: 128×128 store=tile group=16 q_stages=2",
        "config c: 192×128 consumers=3 group=8 q_stages=2",
    )


def test_words_of_all_problems_are_in_the_title() -> None:
    (part,) = fitted(attention(("our bf16",), last="float8_e4m3"), 80)
    assert part.title == "burst; all: causal float8_e4m3"
    assert part.rows[0][0] == "D=64 S=16384"


def test_what_belongs_together_is_not_parted() -> None:
    parts = fitted(attention(), 80)
    assert [part.title for part in parts] == ["burst; all: causal", "burst; all: causal, continued"]
    assert parts[0].columns[-3:] == ("cuDNN µs", "cuDNN TFLOP/s", "cuDNN / ours")
    assert parts[1].columns[0] == "problem"
    assert parts[1].columns[-3:] == ("FA4 µs", "FA4 TFLOP/s", "FA4 / ours")
    assert (parts[0].notes, parts[1].notes[-1]) == ((), "spread: at most 1.0%")


def test_figures_of_a_group_are_parted_where_it_is_too_wide() -> None:
    shown = [part.columns for part in fitted(attention(PEERS[:1], count=2), 32)]
    assert all(columns[0] == "problem" for columns in shown)
    assert sum(len(columns) - 1 for columns in shown) == len(attention(PEERS[:1]).columns) - 1


def test_the_first_column_and_one_figure_stay_whole_on_any_terminal() -> None:
    table = Table("t", ("problem", "µs"), (("a-problem-of-many-letters", "12345.6"),))
    (part,) = fitted(table, 10)
    assert text(part, 10).splitlines()[-1] == "a-problem-of-many-letters  12345.6"


def test_texts_stand_left_and_figures_right_under_headers_that_break() -> None:
    table = Table("", ("problem", "cuDNN / ours"), (("a", "1.0"), ("bcd", "10.0")))
    assert text(table, 16).splitlines() == [
        "          cuDNN",
        "problem  / ours",
        "───────────────",
        "a           1.0",
        "bcd        10.0",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_commands_print_tables_as_wide_as_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.StringIO()
    monkeypatch.setattr(measuring, "out", Console(file=file, width=width, soft_wrap=True))
    table = attention()
    measuring.show([table], markdown=False, head=[], legend="a legend")
    lines = file.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= width
    words = file.getvalue().split()
    assert all(cell in words for row in table.rows for cell in row[2:])
    assert "a legend" in lines
