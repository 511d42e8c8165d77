"""Shared memory as a bar, to scale, with a line for each part."""

from __future__ import annotations

from html import escape

from tilepipe.description.description import Description, Memory
from tilepipe.description.svg import clipped, element, rectangle, text, width

_BAR = 24.0
_ROW = 16.0
_SHADES = 4


def memory_map(d: Description, x: float, y: float, wide: float) -> tuple[list[str], float]:
    """The map from (x, y) on, and its height."""
    used = d.smem_bytes / d.smem_limit
    heading = f"shared memory: {d.smem_bytes:,} of {d.smem_limit:,} bytes, {used:.0%}"
    parts = [text(x, y + 14, heading, size=13, bold=True)]
    if not d.smem_bytes:
        return [text(x, y + 14, "no shared memory", size=13, bold=True)], 20
    tiles = [part for part in d.memory if part.kind == "tiles"]
    barriers = [part for part in d.memory if part.kind == "barriers"]
    shades = {part.offset: f"tiles{i % _SHADES}" for i, part in enumerate(tiles)}
    scale = wide / d.smem_limit
    for part in d.memory:
        colour = shades.get(part.offset, part.kind) if part.kind == "tiles" else part.kind
        parts.append(_segment(part, x, y + 22, scale, colour))
    rows = [(shades[p.offset], p.offset, p.name, p.nbytes, _what(p)) for p in tiles]
    if barriers:
        count = sum(part.nbytes for part in barriers) // 8
        nbytes = sum(part.nbytes for part in barriers)
        rows.append(("barriers", barriers[0].offset, "barriers", nbytes, f"{count} mbarriers"))
    top = y + 22 + _BAR + 18
    name_width = max(width(clipped(name, 220)) for _, _, name, _, _ in rows) + 16
    for i, (colour, offset, name, nbytes, what) in enumerate(rows):
        line = top + _ROW * i
        parts += [
            rectangle(x, line - 9, 10, 10, colour),
            text(x + 68, line, f"{offset:,}", "soft", 11, "end"),
            text(x + 82, line, clipped(name, 220)),
            text(x + 82 + name_width + 50, line, f"{nbytes:,}", "soft", 11, "end"),
            text(
                x + 96 + name_width + 50, line,
                clipped(what, wide - 96 - name_width - 50, 11), "soft", 11,
            ),
        ]  # fmt: skip
    return parts, 22 + _BAR + 18 + _ROW * (len(rows) - 1) + 4


def _segment(part: Memory, x: float, y: float, scale: float, colour: str) -> str:
    left, wide = x + part.offset * scale, max(part.nbytes * scale, 1.0)
    name = part.name or "free"
    said = f"{name}: {part.nbytes:,} bytes from {part.offset:,}"
    inside = element("title", escape(said)) + rectangle(left, y, wide, _BAR, colour, "back-line")
    if width(name, 11) < wide - 6:
        inside += text(left + wide / 2, y + 16, name, size=11, anchor="middle")
    return element("g", inside)


def _what(part: Memory) -> str:
    return part.what + (f"; also {', '.join(part.views)}" if part.views else "")
