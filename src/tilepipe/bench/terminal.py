"""Tables of a benchmark on a terminal: as wide as it is, with every cell whole.

A table that is too wide is changed step by step until it fits. Headers break into lines; words that
the problems of all rows have move into the title; long texts, such as configurations, move below
and leave a letter behind; and at last the table becomes several, each with the first column.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Sequence
from dataclasses import replace

from rich.cells import cell_len

from tilepipe.bench.report import Table

GAP = 2  # columns of the terminal between two of a table


def fitted(table: Table, width: int) -> list[Table]:
    """The table as one or more of at most `width` columns of a terminal, notes below the last. Only
    where a text of the first column and one cell beside it take more is one of them wider.
    """
    for change in (_unchanged, _without_common_words, _with_keys):
        table = change(table)
        if _total(_narrowest(table)) <= width:
            return [table]
    return _parts(table, width)


def text(table: Table, width: int) -> str:
    """A table without its notes. Headers break into lines where the terminal is too narrow."""
    widths = _widths(table, width)
    heads = [_broken(name, n) for name, n in zip(table.columns, widths, strict=True)]
    height = max(map(len, heads))
    above = zip(*([""] * (height - len(head)) + head for head in heads), strict=True)
    lines = [_line(row, widths, table.texts) for row in (*above, *table.rows)]
    lines.insert(height, "─" * _total(widths))
    return "\n".join([*([table.title] if table.title else []), *lines])


def _line(cells: Sequence[str], widths: Sequence[int], texts: int) -> str:
    """Texts to the left, figures to the right."""
    spaces = [" " * (n - cell_len(cell)) for cell, n in zip(cells, widths, strict=True)]
    padded = (
        cell + space if i < texts else space + cell
        for i, (cell, space) in enumerate(zip(cells, spaces, strict=True))
    )
    return (" " * GAP).join(padded).rstrip()


def _broken(name: str, width: int) -> list[str]:
    """The lines of a header, of which no word is wider."""
    lines: list[str] = []
    for word in _words(name):
        if lines and cell_len(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _words(name: str) -> list[str]:
    """Where a header may break; "/ ours" stays together."""
    return re.split("(?<!/) ", name)


def _unchanged(table: Table) -> Table:
    return table


def _columns(table: Table) -> list[tuple[str, ...]]:
    """The columns, each with its header first."""
    return list(zip(table.columns, *table.rows, strict=True))


def _narrowest(table: Table) -> list[int]:
    """The least width of each column: that of its cells, and of the longest word of its header."""
    return [
        max(*map(cell_len, column), *map(cell_len, _words(name)))
        for name, *column in _columns(table)
    ]


def _widths(table: Table, width: int) -> list[int]:
    """The widths of the columns. Of the headers that do not fit in one line, as many stay whole as
    there is room for, the first before others.
    """
    widths, room = _narrowest(table), width - _total(_narrowest(table))
    for i, name in enumerate(table.columns):
        more = max(cell_len(name) - widths[i], 0)
        if more <= room:
            widths[i] += more
            room -= more
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _without_common_words(table: Table) -> Table:
    """The words that all texts of the first column have move into the title."""
    texts = [row[0].split() for row in table.rows]
    common, shorter = _split_common(texts)
    if len(texts) < 2 or not common or not all(shorter):
        return table
    rows = ((" ".join(words), *row[1:]) for words, row in zip(shorter, table.rows, strict=True))
    return replace(table, title=f"{table.title}; all: {' '.join(common)}", rows=tuple(rows))


def _split_common(texts: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The words that all texts have, and the others of each."""
    first = texts[0] if texts else []
    common = [word for word in first if all(word in words for words in texts)]
    return common, [[word for word in words if word not in common] for words in texts]


def _with_keys(table: Table) -> Table:
    """Texts after the first column move into the notes, and leave a letter for each."""
    made = table
    for i in reversed(range(1, table.texts)):
        name = table.columns[i]
        texts = list(dict.fromkeys(row[i] for row in table.rows))
        if len(texts) == 1:
            made = _without_column(made, i)
            lines = [f"{name}: {texts[0]}"]
        else:
            keys = dict(zip(texts, _letters(), strict=False))
            if max(map(cell_len, texts), default=0) <= max(map(cell_len, keys.values()), default=0):
                continue
            made = replace(
                made,
                rows=tuple((*row[:i], keys[row[i]], *row[i + 1 :]) for row in made.rows),
            )
            common, rest = _split_common([text.split() for text in texts])
            lines = [f"{name}, all: {' '.join(common)}"] if common else []
            lines += [
                f"{name} {key}: {' '.join(words) or 'no more'}"
                for key, words in zip(keys.values(), rest, strict=True)
            ]
        made = replace(made, notes=(*lines, *made.notes))
    return made


def _letters() -> itertools.chain[str]:
    """a, b, ..., z, aa, ab, ..."""
    return itertools.chain.from_iterable(
        map("".join, itertools.product(string.ascii_lowercase, repeat=count)) for count in (1, 2)
    )


def _without_column(table: Table, i: int) -> Table:
    return replace(
        table,
        columns=(*table.columns[:i], *table.columns[i + 1 :]),
        rows=tuple((*row[:i], *row[i + 1 :]) for row in table.rows),
        texts=table.texts - 1,
    )


def _parts(table: Table, width: int) -> list[Table]:
    """Tables of the first column and as many groups of the others as fit."""
    widths = _narrowest(table)
    groups = [[i] for i in range(1, table.texts)]
    start = table.texts
    for count in table.groups or [1] * (len(table.columns) - start):
        groups.append(list(range(start, start + count)))
        start += count
    parts: list[list[int]] = [[0]]
    for group in groups:
        alone = not _fits(widths, [0, *group], width)
        for columns in [[i] for i in group] if alone else [group]:
            if len(parts[-1]) > 1 and not _fits(widths, [*parts[-1], *columns], width):
                parts.append([0])
            parts[-1] += columns
    made = []
    for n, columns in enumerate(parts):
        made.append(
            Table(
                table.title if n == 0 else f"{table.title}, continued",
                tuple(table.columns[i] for i in columns),
                tuple(tuple(row[i] for i in columns) for row in table.rows),
                table.notes if n == len(parts) - 1 else (),
                sum(i < table.texts for i in columns),
            )
        )
    return made


def _fits(widths: Sequence[int], columns: Sequence[int], width: int) -> bool:
    return _total([widths[i] for i in columns]) <= width
