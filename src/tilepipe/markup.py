"""HTML for notebooks and pages: tables and texts, of which nothing that a user wrote is markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_LIGHT = (
    "--tp-back:#fff;--tp-line:#d8dce2;--tp-text:#1b2129;--tp-soft:#5b6573;--tp-good:#1c7c43;"
    "--tp-bad:#b3262d;--tp-open:#8a5a00"
)
_DARK = (
    "--tp-back:#14171c;--tp-line:#343b46;--tp-text:#e4e8ee;--tp-soft:#98a3b3;--tp-good:#5fd08f;"
    "--tp-bad:#ff8a8f;--tp-open:#e6b450"
)
# JupyterLab says which theme it has; elsewhere the browser does
# A notebook's own rules for tables are beaten by naming the class three times.
_STYLE = f"""
.tilepipe {{{_LIGHT};background:var(--tp-back);color:var(--tp-text);padding:10px 14px;
  border-radius:6px;font:13px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;
  max-height:90vh;overflow:auto}}
@media (prefers-color-scheme:dark) {{.tilepipe {{{_DARK}}}}}
[data-jp-theme-light="true"] .tilepipe {{{_LIGHT}}}
[data-jp-theme-light="false"] .tilepipe {{{_DARK}}}
.tilepipe .beside {{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);gap:20px}}
.tilepipe .beside > div {{overflow:auto}}
.tilepipe .beside table {{font-size:11px;line-height:1.35}}
.tilepipe svg {{width:100%;height:auto;max-height:84vh}}
@media (max-width:900px) {{.tilepipe .beside {{grid-template-columns:minmax(0,1fr)}}}}
.tilepipe table {{border-collapse:collapse;margin:4px 0 12px}}
.tilepipe caption, .tilepipe h4 {{text-align:left;font-weight:600;font-size:13px;margin:8px 0 2px}}
.tilepipe.tilepipe.tilepipe tr {{background:none}}
.tilepipe.tilepipe.tilepipe th {{font-weight:600;color:var(--tp-soft)}}
.tilepipe.tilepipe.tilepipe :is(th,td) {{padding:1px 14px 1px 0;background:none;text-align:left;
  vertical-align:top;border:0;border-bottom:1px solid var(--tp-line)}}
.tilepipe.tilepipe pre {{margin:2px 0 8px;white-space:pre-wrap;color:inherit;background:none;
  font:12px/1.45 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}}
.tilepipe ul {{margin:2px 0 8px;padding-left:18px}}
.tilepipe .good {{color:var(--tp-good);font-weight:600}}
.tilepipe .bad {{color:var(--tp-bad);font-weight:600}}
.tilepipe .open {{color:var(--tp-open);font-weight:600}}
.tilepipe .soft {{color:var(--tp-soft)}}
"""


def part(*inside: str) -> str:
    """A part of a page with its own style. `inside`: markup."""
    return f'<div class="tilepipe"><style>{_STYLE}</style>{"".join(inside)}</div>'


def page(title: str, inside: str) -> str:
    """A whole page."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        "</title><style>:root{color-scheme:light dark}body{margin:12px}</style></head>"
        f"<body>{inside}</body></html>\n"
    )


def text(words: str, tag: str = "p", kind: str = "") -> str:
    """Words in an element. `kind`: "good", "bad", "open" or "soft", a colour."""
    return f"<{tag}{_class(kind)}>{escape(words)}</{tag}>"


def listed(heading: str, words: Iterable[str]) -> str:
    """Words below a heading; nothing where there are none."""
    items = "".join(text(one, "li") for one in words)
    return f"{text(heading, 'h4')}<ul>{items}</ul>" if items else ""


def table(
    caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]], kinds: Sequence[str] = ()
) -> str:
    """A table of texts; nothing where it has no rows. `kinds`: the colour of each row's last
    cell.
    """
    body = ""
    for i, row in enumerate(rows):
        kind = kinds[i] if i < len(kinds) else ""
        last = len(row) - 1
        cells = (text(cell, "td", kind if j == last else "") for j, cell in enumerate(row))
        body += f"<tr>{''.join(cells)}</tr>"
    head = "".join(text(heading, "th") for heading in headings)
    if not body:
        return ""
    title = text(caption, "caption") if caption else ""
    return f"<table>{title}<tr>{head}</tr>{body}</table>"


def _class(kind: str) -> str:
    return f' class="{escape(kind)}"' if kind else ""
