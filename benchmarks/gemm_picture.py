"""Draws how fast the GEMM is beside cuBLAS on the shapes of `gemm_shapes.py`: a dot for each shape,
with the configuration that the library chooses for it.

    PYTHONPATH=src python benchmarks/gemm_picture.py benchmarks/gemm_times.jsonl \
        docs/gemm-beside-cublas.svg
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from gemm_model import REGIMES, Measured, read
from gemm_shapes import judged
from tilepipe.bench.picture import Dot, Panel, drawn
from tilepipe.kernels.gemm.times_constants import H200


def picture(measured: Measured) -> str:
    """The SVG: a panel for each regime, one above the other."""
    picks, _ = measured.picks(H200)
    ratios = measured.cublas / measured.filled[:, picks]
    shapes = [t.shape for t in measured.times]
    held_out = np.array([judged(shape) for shape in shapes])
    panels = []
    for regime, mine in zip(REGIMES, ratios, strict=True):
        dots = []
        # those that were held out last: they count
        for i in np.argsort(held_out, kind="stable"):
            m, n, k = shapes[i]
            dots.append(Dot(f"{m}×{n}×{k}", 2.0 * m * n * k, float(mine[i]), int(held_out[i])))
        mean = float(np.exp(np.log(mine[held_out]).mean()))
        panels.append(Panel(regime, dots, f"geometric mean of those held out {mean:.3f}"))
    return drawn(panels, ("fitted", "held out: the fit has not seen it"), "cuBLAS")


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    given.picture.write_text(picture(Measured(read(given.file))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
