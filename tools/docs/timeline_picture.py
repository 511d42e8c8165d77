"""Writes docs/how-to/timeline.png, the page of the GEMM's timeline with a wait and the arrow to it,
anew: `python -m tools.docs.timeline_picture`. It takes a Chromium on PATH.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tilepipe.registry.catalog import find
from tools.docs.readme import ROOT

PICTURE = ROOT / "docs" / "how-to" / "timeline.png"
SIZE = 1200, 560


def main() -> None:
    """Runs the kernel and draws the page."""
    spec = find("gemm")
    config, _ = spec.configure({}, None)
    timeline = spec.make(config, 0).program.run(timeline=1).timeline
    assert timeline is not None
    shown = next(
        i
        for i, e in enumerate(timeline.events)
        if e.begin_us > 3 and e.wait is not None and e.wait.on == "inputs.empty"
    )
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "gemm.html"
        timeline.save(page)
        done = subprocess.run(
            [
                "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                f"--window-size={SIZE[0]},{SIZE[1]}", f"--user-data-dir={folder}/profile",
                "--virtual-time-budget=3000", f"--screenshot={PICTURE}",
                f"file://{page}#from=2&to=6.5&event={shown}",
            ],
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)


if __name__ == "__main__":
    main()
