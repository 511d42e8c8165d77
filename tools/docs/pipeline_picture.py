"""Writes docs/tutorial/gemm.svg, the pipelines of the tutorial's GEMM, anew: `python -m
tools.docs.pipeline_picture`. The page shows the command that draws it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tools.docs import shown
from tools.docs.readme import ROOT

PAGE = ROOT / "docs" / "tutorial" / "gemm.md"
PICTURE = ROOT / "docs" / "tutorial" / "gemm.svg"
COMMAND = "tilepipe show gemm.py:program -o gemm.svg"


def drawn() -> str:
    """The picture that the page's command draws of the page's file."""
    page = PAGE.read_text(encoding="utf-8")
    assert COMMAND in page
    with tempfile.TemporaryDirectory() as folder:
        for name, code in shown.files(page).items():
            (Path(folder) / name).write_text(code, encoding="utf-8")
        shown.output(COMMAND, Path(folder))
        return (Path(folder) / "gemm.svg").read_text(encoding="utf-8")


if __name__ == "__main__":
    PICTURE.write_text(drawn() + "\n", encoding="utf-8")
