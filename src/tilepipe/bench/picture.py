"""How fast products are beside a peer, as a picture: a panel for each regime, with a dot for each
shape, the ratio of the times against the FLOP of the product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilepipe.bench.report import Line, flop, geometric_mean, shape_text
from tilepipe.bench.shapes import Suite
from tilepipe.description import svg

WIDTH, LEFT, RIGHT, TOP, HIGH, GAP, BOTTOM = 760, 52, 16, 44, 230, 34, 44
FLOP = 1e6, 1e13
RATIOS = 0.8, 1.7
LINES = 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7
NAMES = {"burst": "after a pause", "steady": "steady"}
COLOURS = "full-fill", "empty-fill", "plain-fill"


@dataclass(frozen=True)
class Dot:
    """A shape. `ratio`: the peer's time over ours; `group`: its place in the legend."""

    name: str
    flop: float
    ratio: float
    group: int


@dataclass(frozen=True)
class Panel:
    """The dots of a regime, later ones above earlier ones, and what is said of them."""

    regime: str
    dots: Sequence[Dot]
    note: str


def of_lines(suites: Sequence[Suite], lines: Sequence[Sequence[Line]], peer: str) -> str:
    """The SVG of what `tilepipe bench` has measured of each suite."""
    regimes = list(dict.fromkeys(line.regime for some in lines for line in some))
    panels = []
    for regime in regimes:
        dots = [
            Dot(shape_text(line.problem), flop(line.problem), line.ratio, group)
            for group, some in enumerate(lines)
            for line in some
            if line.regime == regime
        ]
        mean = geometric_mean(dot.ratio for dot in dots)
        panels.append(Panel(regime, dots, f"geometric mean {mean:.3f}"))
    return drawn(panels, [suite.title for suite in suites], peer)


def drawn(panels: Sequence[Panel], groups: Sequence[str], peer: str) -> str:
    """The SVG: the panels one below the other."""
    height = TOP + len(panels) * (HIGH + GAP) - GAP + BOTTOM
    parts = [
        svg.element("style", svg.style()),
        svg.rectangle(0, 0, WIDTH, height, "back"),
        *_legend(groups, peer),
        *(part for i, panel in enumerate(panels) for part in _panel(TOP + i * (HIGH + GAP), panel)),
        *_exponents(height - BOTTOM),
        svg.text(LEFT + (WIDTH - LEFT - RIGHT) / 2, height - 8, "FLOP of the product", "soft", 11,
                 anchor="middle"),
    ]  # fmt: skip
    return svg.element(
        "svg",
        "".join(parts),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height}",
        font_family=svg.FONT,
        role="img",
        aria_label=f"time of {peer} over ours, against the FLOP of the product",
    )


def _legend(groups: Sequence[str], peer: str) -> list[str]:
    found, x = [svg.text(LEFT, 20, f"{peer} time / ours", bold=True)], 220.0
    for group, word in enumerate(groups):
        found += [_dot(x, 16, _colour(group)), svg.text(x + 9, 20, word, "soft", 11)]
        x += 30 + svg.width(word, 11)
    return found


def _panel(top: float, panel: Panel) -> list[str]:
    found = [svg.rectangle(LEFT, top, WIDTH - LEFT - RIGHT, HIGH, "band")]
    for ratio in LINES:
        y = top + _down(ratio)
        strong = ratio == 1.0
        found += [
            svg.element("line", "", ("plain" if strong else "lane",), x1=LEFT, y1=y,
                        x2=WIDTH - RIGHT, y2=y, stroke_width="1.2" if strong else "0.6"),
            svg.text(LEFT - 6, y + 4, f"{ratio:.1f}", "soft", 11, anchor="end"),
        ]  # fmt: skip
    for dot in panel.dots:
        at = _across(dot.flop), top + _down(dot.ratio)
        found.append(_dot(*at, _colour(dot.group), f"{dot.name}: {dot.ratio:.3f}"))
    note = f"{NAMES[panel.regime]}: {panel.note}"
    return [*found, svg.text(WIDTH - RIGHT - 8, top + 16, note, size=11, anchor="end", on="band")]


def _exponents(y: float) -> list[str]:
    first, last = (round(math.log10(x)) for x in FLOP)
    return [
        svg.text(_across(10.0**power), y + 14, f"1e{power}", "soft", 11, anchor="middle")
        for power in range(first, last + 1)
    ]


def _dot(x: float, y: float, colour: str, title: str = "") -> str:
    inside = svg.element("title", title) if title else ""
    return svg.element("circle", inside, (colour,), cx=x, cy=y, r="2.6", fill_opacity="0.75")


def _colour(group: int) -> str:
    return COLOURS[group % len(COLOURS)]


def _across(flops: float) -> float:
    low, high = (math.log(x) for x in FLOP)
    share = (min(max(math.log(flops), low), high) - low) / (high - low)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _down(ratio: float) -> float:
    low, high = (math.log(x) for x in RATIOS)
    return HIGH * (high - min(max(math.log(ratio), low), high)) / (high - low)
