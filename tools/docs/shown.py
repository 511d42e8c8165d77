"""What pages show of the command line: `python -m tools.docs.shown` runs the commands and writes
what they print into the pages anew.

A fenced block `text` after a line `<!-- $ COMMAND -->` is the command's output, in a folder that
holds the page's files: the blocks `python` after a line `<!-- FILE.py -->`, and `cpp` after `<!--
FILE.cu -->`. A block after `<!-- $ COMMAND in FILE.py of MISTAKE -->` is of a folder in which a
mistake has been made in the file: `MISTAKES[MISTAKE]`, (old, new). Where `, before WORD` ends that
line, the block is what the output has before a line WORD; where `, from WORD` does, what it has
from the line that begins with `WORD: `. Commands of one page share the folder, so that one may
replay what another saved.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.docs import readme

PAGES = (
    readme.ROOT / "README.md",
    readme.ROOT / "docs" / "tutorial" / "gemm.md",
    readme.ROOT / "docs" / "concepts" / "checker.md",
    readme.ROOT / "docs" / "how-to" / "check-your-kernel.md",
    readme.ROOT / "docs" / "how-to" / "run-check-and-bench.md",
    readme.ROOT / "docs" / "how-to" / "split-k-and-flags.md",
    readme.ROOT / "docs" / "how-to" / "see-where-time-goes.md",
    readme.ROOT / "docs" / "how-to" / "tune.md",
    readme.ROOT / "docs" / "how-to" / "check-a-kernel-you-already-have.md",
)
WIDTH = "100"
TERMINAL = {"COLUMNS": WIDTH, "NO_COLOR": "1"}
# The words of a command after `tilepipe`, and the folder that it is run in.
Runner = Callable[[Sequence[str], Path], subprocess.CompletedProcess[str]]
FILE = re.compile(
    r"<!-- (\w+\.(?:py|cu)) -->\n\n```(?:python|cpp)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
SHOWN = re.compile(
    r"<!-- \$ (.+?)(?: in (\w+\.\w+) of (\w+))?(?:, (before|from) (\w+))? -->\n\n"
    r"```text\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
MISTAKES = {
    "early": readme.MISTAKES[readme.EARLY],
    "freed": readme.FREED,
    "arrives_first": readme.ARRIVES_FIRST,
    "past_the_group": readme.PAST_THE_GROUP,
    "unmet": readme.UNMET,
    "unreleased": readme.UNRELEASED,
    "forwards": readme.FORWARDS,
}


def files(page: str) -> dict[str, str]:
    """The files of a page."""
    return dict(FILE.findall(page))


def process(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The command of these words, in a process of its own."""
    env = {**os.environ, **TERMINAL, "PYTHONPATH": str(readme.ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-m", "tilepipe", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def output(command: str, folder: Path, run: Runner = process) -> str:
    """What a command prints in a folder, without the folder's name and colours; long lines in
    several. `run` carries it out.
    """
    program, *words = shlex.split(command)
    assert program == "tilepipe", command
    done = run(words, folder)
    assert done.stdout or done.stderr, command
    text = (done.stdout + done.stderr if done.returncode == 2 else done.stdout).replace(
        f"{folder.resolve()}/", ""
    )
    return "".join(
        f"{line}\n" for long in text.strip().splitlines() for line in _wrapped(long.rstrip())
    )


def _wrapped(line: str) -> list[str]:
    """A line, in several where it is long; what is not the first is indented."""
    if len(line) <= int(WIDTH):
        return [line]
    indent = len(line) - len(line.lstrip())
    return textwrap.wrap(
        line,
        int(WIDTH),
        subsequent_indent=" " * (indent + 4),
        break_long_words=False,
        break_on_hyphens=False,
    )


def shown(page: str, run: Runner = process) -> list[tuple[str, str, str]]:
    """Of each command of a page: the command, what the page shows, what it prints."""
    out = []
    with tempfile.TemporaryDirectory() as name:
        for command, file, mistake, part, word, text in SHOWN.findall(page):
            for path, code in files(page).items():
                if path == file:
                    old, new = MISTAKES[mistake]
                    assert code.count(old) == 1, f"{file} of {mistake}"
                    code = code.replace(old, new)
                (Path(name) / path).write_text(code, encoding="utf-8")
            printed = output(command, Path(name), run)
            if part == "before":
                printed, found, _ = printed.partition(f"\n{word}\n")
                assert found, f"{command} prints no line {word}"
            if part == "from":
                _, found, printed = printed.partition(f"\n{word}: ")
                assert found, f"{command} prints no line {word}: "
                printed = f"{word}: {printed}"
            out.append((command, text, printed))
    return out


def timeless(text: str) -> str:
    """Text without seconds, which differ from run to run, what was explored, which a better
    reduction lessens, and what another compiler may number anew: registers and lines of PTX.
    """
    text = re.sub(r"%([a-z]+)\d+(?:\+-?\d+)?", r"%\1", re.sub(r"PTX line \d+", "PTX line", text))
    explored = r"(│ explored │) +[\d,]+ │ +[\d,]+ │"
    return re.sub(explored, r"\1 0 │ 0 │", re.sub(r" *\b\d+\.\d{3}\b", " 0.000", text))


def written(page: str) -> str:
    """The page with what its commands print now; where only figures differ, as it is."""
    fresh = iter(shown(page))

    def replaced(match: re.Match[str]) -> str:
        _, before, now = next(fresh)
        whole = match.group(0)
        return (
            whole
            if timeless(before) == timeless(now)
            else f"{whole[: len(whole) - len(before) - 3]}{now}```"
        )

    return SHOWN.sub(replaced, page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
