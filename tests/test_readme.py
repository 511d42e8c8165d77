"""The README and the tutorial run, and what they show is what is printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.command import tilepipe_in
from tilepipe.cli.tune_simulated import choices
from tilepipe.registry.catalog import GemmSpec, find
from tilepipe.testing import run as run_program
from tools.docs import shown
from tools.docs.readme import EARLY, MISTAKES, ROOT, SKIPPED, blocks, message, run, words

README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "gemm.md"


def kernel() -> str:
    """The kernel of the tutorial."""
    return blocks(TUTORIAL, "python")[0]


@pytest.mark.slow
def test_the_kernel_and_its_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(kernel(), tmp_path / "gemm.py")
    assert capsys.readouterr().out == blocks(TUTORIAL, "text")[0]


def test_the_first_kernel_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (first,) = blocks(README, "python")
    names = run(first, tmp_path / "first.py")
    assert "load: " in capsys.readouterr().out
    np.testing.assert_array_equal(names["out"], 2 * names["a"])


@pytest.mark.slow
@pytest.mark.parametrize(("number", "block"), [(0, 1), (2, 2)])
def test_the_messages_are_those_that_are_printed(number: int, block: int, tmp_path: Path) -> None:
    old, new = MISTAKES[number]
    assert kernel().count(old) == 1
    assert words(message(kernel().replace(old, new), tmp_path / "gemm.py")) == words(
        blocks(TUTORIAL, "text")[block]
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", shown.PAGES, ids=lambda page: page.stem)
def test_what_commands_print(page: Path) -> None:
    """Of a page's commands, output by output, but for the seconds: `python -m tools.docs.shown`
    writes them anew.
    """
    for command, before, now in shown.shown(page.read_text(encoding="utf-8"), tilepipe_in):
        assert shown.timeless(before) == shown.timeless(now), (
            f"{page.name}: {command}: python -m tools.docs.shown"
        )


@pytest.mark.slow
def test_the_instance_shows_that_a_giver_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stream_k` of the how-to on split K: with one giver a tile the numbers would be right."""
    page = (ROOT / "docs" / "how-to" / "split-k-and-flags.md").read_text(encoding="utf-8")
    files = shown.files(page)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "k_steps.py").write_text(files["k_steps.py"], encoding="utf-8")
    old, new = SKIPPED
    assert files["stream_k.py"].count(old) == 1
    names = run(files["stream_k.py"].replace(old, new), tmp_path / "stream_k.py")
    monkeypatch.delitem(sys.modules, "k_steps")

    def product(a: Any, b: Any) -> dict[str, Any]:
        return {"c": a.astype(np.float32) @ b.astype(np.float32).T}

    run_program(names["program"](shares=3), expect=product)  # one giver a tile
    with pytest.raises(AssertionError, match="'c'"):
        run_program(names["program"](), expect=product)


def test_no_message_is_left_unchecked() -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    commands = [(file, mistake) for _, file, mistake, *_ in shown.SHOWN.findall(text)]
    assert commands == [("", ""), ("gemm.py", "early")]
    assert len(blocks(TUTORIAL, "text")) == 1 + len(MISTAKES) - 1 + len(commands)
    assert shown.MISTAKES["early"] == MISTAKES[EARLY]


def test_the_lines_that_the_text_names() -> None:
    lines = kernel().splitlines()
    text = TUTORIAL.read_text(encoding="utf-8")
    named = [
        lines[int(n) - 1].strip() for n in re.findall(r"Line (\d+) (?:deleted|replaced)", text)
    ]
    assert named == [MISTAKES[0][0].strip(), MISTAKES[1][0].strip()]


@pytest.mark.parametrize(
    "page", [README, *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.stem
)
def test_commands_name_kernels_and_settings_that_there_are(page: Path) -> None:
    """Of every command shown: `tilepipe run gemm -s m=1000 ...`."""
    commands = re.findall(
        r"tilepipe (?:run|compile|bench|tune|check) ([a-z]\w*)(?![\w./])([^#`\n]*)",
        page.read_text(encoding="utf-8"),
    )
    assert commands or page != README
    for name, options in commands:
        spec = find(name)
        texts = re.findall(r"-s (\S+)", options)
        if "--simulate" in options:  # its tiles have several values
            texts = list(choices(spec, texts)[0])
        settings = spec.parse(texts)
        for arch in re.findall(r"--arch (\S+)", options):
            assert arch in spec.archs
        config, _ = spec.configure(settings, None)
        if isinstance(spec, GemmSpec):
            spec.config(config)
        else:
            most = 1024  # operands as large as those of a benchmark take seconds to draw
            small = {
                name: min(x, most) if name in spec.extents and isinstance(x, int) else x
                for name, x in config.items()
            }
            spec.make(small, 0)


def _prose(page: Path) -> str:
    return re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings: lower case, letters, digits and hyphens."""
    headings = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.slow
def test_links_lead_somewhere() -> None:
    for page in (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        without_code = re.sub(r"`[^`\n]*`", "", _prose(page))
        for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", without_code):
            if target.startswith("http"):
                continue
            leads = (page.parent / target).resolve() if target else page
            assert leads.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in _anchors(leads), f"{page.name}: {target}#{anchor}"
