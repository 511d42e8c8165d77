"""Draws the pictures of pipelines that pages of the tutorial show anew: `python -m
tools.docs.pipeline_picture`. Each page shows the command that draws its picture.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from tools.docs import shown
from tools.docs.readme import ROOT

FOLDER = ROOT / "docs" / "tutorial"
PAGES = (FOLDER / "gemm.md", FOLDER / "ladder.md")
COMMAND = re.compile(r"tilepipe show \S+ -o (\w+\.svg)")


def pictures(run: shown.Runner = shown.process) -> dict[Path, str]:
    """Each picture that the pages show, and what its command draws of the page's files; `run`
    carries it out.
    """
    drawn = {}
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "examples").symlink_to(ROOT / "examples")
            for file, code in shown.files(page).items():
                (Path(name) / file).write_text(code, encoding="utf-8")
            for command in COMMAND.finditer(page):
                assert f"]({command[1]})" in page, f"{path.name} does not show {command[1]}"
                shown.output(command[0], Path(name), run)
                text = (Path(name) / command[1]).read_text(encoding="utf-8")
                drawn[path.with_name(command[1])] = f"{text}\n"
    return drawn


if __name__ == "__main__":
    for picture, text in pictures().items():
        picture.write_text(text, encoding="utf-8")
