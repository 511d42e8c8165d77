"""Draws how fast the GEMM is beside cuBLAS on the shapes of `gemm_shapes.py`: a dot for each shape,
with the configuration that the library chooses for it.

    PYTHONPATH=src python benchmarks/gemm_picture.py benchmarks/gemm_times.jsonl \
        docs/gemm-beside-cublas.svg
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gemm_model import REGIMES, Measured, Times, read
from gemm_shapes import judged
from tilepipe.description import svg
from tilepipe.kernels.gemm.times import Floats
from tilepipe.kernels.gemm.times_constants import H200

WIDTH, LEFT, RIGHT, TOP, HIGH, GAP, BOTTOM = 760, 52, 16, 44, 230, 34, 44
FLOP = 1e6, 1e13
RATIOS = 0.8, 1.7
LINES = 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7
NAMES = {"burst": "after a pause", "steady": "steady"}


def picture(measured: Measured) -> str:
    """The SVG: a panel for each regime, one above the other."""
    picks, _ = measured.picks(H200)
    ratios = measured.cublas / measured.filled[:, picks]
    height = TOP + 2 * HIGH + GAP + BOTTOM
    parts = [
        svg.element("style", svg.style()),
        svg.rectangle(0, 0, WIDTH, height, "back"),
        *_legend(),
        *(
            part
            for i, regime in enumerate(REGIMES)
            for part in _panel(TOP + i * (HIGH + GAP), NAMES[regime], measured.times, ratios[i])
        ),
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
        aria_label="time of cuBLAS over that of the GEMM, against the FLOP of the product",
    )


def _legend() -> list[str]:
    words = (("full-fill", "fitted"), ("empty-fill", "held out: the fit has not seen it"))
    found, x = [svg.text(LEFT, 20, "cuBLAS time / ours", bold=True)], 220.0
    for colour, word in words:
        found += [_dot(x, 16, colour), svg.text(x + 9, 20, word, "soft", 11)]
        x += 30 + svg.width(word, 11)
    return found


def _panel(top: float, title: str, times: Sequence[Times], ratios: Floats) -> list[str]:
    found = [svg.rectangle(LEFT, top, WIDTH - LEFT - RIGHT, HIGH, "band")]
    for ratio in LINES:
        y = top + _down(ratio)
        strong = ratio == 1.0
        found += [
            svg.element("line", "", ("plain" if strong else "lane",), x1=LEFT, y1=y,
                        x2=WIDTH - RIGHT, y2=y, stroke_width="1.2" if strong else "0.6"),
            svg.text(LEFT - 6, y + 4, f"{ratio:.1f}", "soft", 11, anchor="end"),
        ]  # fmt: skip
    # those that were held out last: they count
    for i in sorted(range(len(times)), key=lambda i: judged(times[i].shape)):
        m, n, k = times[i].shape
        dot = _dot(
            _across(2.0 * m * n * k),
            top + _down(float(ratios[i])),
            "empty-fill" if judged(times[i].shape) else "full-fill",
            f"{m}×{n}×{k}: {ratios[i]:.3f}",
        )
        found.append(dot)
    mean = float(np.exp(np.log(ratios[[judged(t.shape) for t in times]]).mean()))
    note = f"{title}: geometric mean of those held out {mean:.3f}"
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


def _across(flop: float) -> float:
    low, high = (math.log(x) for x in FLOP)
    share = (min(max(math.log(flop), low), high) - low) / (high - low)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _down(ratio: float) -> float:
    low, high = (math.log(x) for x in RATIOS)
    return HIGH * (high - min(max(math.log(ratio), low), high)) / (high - low)


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    given.picture.write_text(picture(Measured(read(given.file))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
