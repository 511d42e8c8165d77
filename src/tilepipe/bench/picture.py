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
FLOP = 1e6, 1e13  # what is shown at least
RATIOS = 0.8, 1.7
LINE, APART = 16, 14  # heights of a line of the legend, and between two lines of a panel at least
NAMES = {"burst": "after a pause", "steady": "steady"}
# as many as `shapes.suites` can give
COLOURS = "full-fill", "empty-fill", "plain-fill", "barriers", "text"


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


@dataclass(frozen=True)
class Scale:
    """The FLOP and the ratios, from and to, that all panels of a picture show."""

    flop: tuple[float, float]
    ratios: tuple[float, float]

    @classmethod
    def of(cls, dots: Sequence[Dot]) -> Scale:
        """A scale on which each dot has its place."""
        flop = [*FLOP, *(dot.flop for dot in dots)]
        ratios = [*RATIOS, *(dot.ratio for dot in dots)]
        return cls(
            (10.0 ** math.floor(math.log10(min(flop))), 10.0 ** math.ceil(math.log10(max(flop)))),
            (math.floor(min(ratios) * 10) / 10 or min(ratios), math.ceil(max(ratios) * 10) / 10),
        )

    @property
    def lines(self) -> list[float]:
        """The ratios at which there are lines: 1, and tenths that are far enough from the last."""
        low, high = self.ratios
        found = [1.0]
        for step in (1, -1):
            last = 1.0
            for tenth in range(10 + step, round(high * 10) + 1 if step > 0 else 0, step):
                ratio = tenth / 10
                if ratio >= low and abs(self.down(ratio) - self.down(last)) >= APART:
                    found.append(ratio)
                    last = ratio
        return sorted(found)

    def across(self, flop: float) -> float:
        """The place of a product on the axis of FLOP, in pixels."""
        return LEFT + (WIDTH - LEFT - RIGHT) * _share(flop, *self.flop)

    def down(self, ratio: float) -> float:
        """The place of a ratio below the top of its panel, in pixels."""
        return HIGH * (1 - _share(ratio, *self.ratios))


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
    scale = Scale.of([dot for panel in panels for dot in panel.dots])
    legend, below = _legend(groups, peer)
    top = TOP + below
    height = top + len(panels) * (HIGH + GAP) - GAP + BOTTOM
    parts = [
        svg.element("style", svg.style()),
        svg.rectangle(0, 0, WIDTH, height, "back"),
        *legend,
        *(
            part
            for i, panel in enumerate(panels)
            for part in _panel(top + i * (HIGH + GAP), panel, scale)
        ),
        *_exponents(height - BOTTOM, scale),
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


def _legend(groups: Sequence[str], peer: str) -> tuple[list[str], float]:
    """What the colours mean, and by how much it is higher than one line."""
    left = 220.0
    found, x, y = [svg.text(LEFT, 20, f"{peer} time / ours", bold=True)], left, 0.0
    for group, word in enumerate(groups):
        wide = 30 + svg.width(word, 11)
        if x > left and x + wide > WIDTH:
            x, y = left, y + LINE
        found += [_dot(x, y + 16, COLOURS[group]), svg.text(x + 9, y + 20, word, "soft", 11)]
        x += wide
    return found, y


def _panel(top: float, panel: Panel, scale: Scale) -> list[str]:
    found = [svg.rectangle(LEFT, top, WIDTH - LEFT - RIGHT, HIGH, "band")]
    for ratio in scale.lines:
        y = top + scale.down(ratio)
        strong = ratio == 1.0
        found += [
            svg.element("line", "", ("plain" if strong else "lane",), x1=LEFT, y1=y,
                        x2=WIDTH - RIGHT, y2=y, stroke_width="1.2" if strong else "0.6"),
            svg.text(LEFT - 6, y + 4, f"{ratio:.1f}", "soft", 11, anchor="end"),
        ]  # fmt: skip
    for dot in panel.dots:
        at = scale.across(dot.flop), top + scale.down(dot.ratio)
        found.append(_dot(*at, COLOURS[dot.group], f"{dot.name}: {dot.ratio:.3f}"))
    note = f"{NAMES[panel.regime]}: {panel.note}"
    return [*found, svg.text(WIDTH - RIGHT - 8, top + 16, note, size=11, anchor="end", on="band")]


def _exponents(y: float, scale: Scale) -> list[str]:
    first, last = (round(math.log10(x)) for x in scale.flop)
    return [
        svg.text(scale.across(10.0**power), y + 14, f"1e{power}", "soft", 11, anchor="middle")
        for power in range(first, last + 1)
    ]


def _dot(x: float, y: float, colour: str, title: str = "") -> str:
    inside = svg.element("title", title) if title else ""
    return svg.element("circle", inside, (colour,), cx=x, cy=y, r="2.6", fill_opacity="0.75")


def _share(x: float, low: float, high: float) -> float:
    """How far a figure is from the low end of a logarithmic scale, in 0..1."""
    return math.log(x / low) / math.log(high / low)
