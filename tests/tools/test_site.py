"""The site of the documentation: where links lead, what is in the tables of contents, the pages of
the API. `make site` builds it; here Sphinx is not needed but for the last test.
"""

from __future__ import annotations

import importlib.util
import re
import types
from pathlib import Path

import pytest

import tilepipe as tp
from tools.site import api
from tools.site.__main__ import build
from tools.site.stage import DOCS, ROOT, Stage, contents, notebook, source


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    Stage(folder).fill()
    api.write(folder / "api")
    return folder


@pytest.mark.slow
def test_every_link_leads_to_a_page_of_the_site(pages: Path) -> None:
    found = 0
    for page in pages.rglob("*.md"):
        prose = re.sub(r"^(`{3,}).*?^\1$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\((?!\w+:)([^)#\s]+)(?:#[^)]*)?\)", prose):
            found += 1
            leads = (page.parent / target).resolve()
            assert leads.is_relative_to(pages.resolve()), f"{page.name}: {target}"
            assert leads.is_file(), f"{page.name}: {target}"
    assert found > 300


@pytest.mark.parametrize(
    ("page", "link", "turned"),
    [
        ("docs/tutorial/gemm.md", "../concepts/checker.md#x", "../concepts/checker.md#x"),
        ("docs/tutorial/gemm.md", "notebook.ipynb", "notebook.md"),
        ("docs/tutorial/gemm.md", "../../examples/02_ring.py", "../source/examples/02_ring.py.md"),
        ("docs/tutorial/gemm.md", "../../examples", "../source/examples/index.md"),
        ("docs/README.md", "decisions", "decisions/README.md"),
        ("docs/README.md", "../CONTRIBUTING.md", "contributing.md"),
        ("CONTRIBUTING.md", "docs/README.md", "index.md"),
        ("CONTRIBUTING.md", "docs/glossary.md", "glossary.md"),
        ("CONTRIBUTING.md", "https://example.org/a.md", "https://example.org/a.md"),
    ],
)
def test_where_a_link_leads(page: str, link: str, turned: str, tmp_path: Path) -> None:
    assert Stage(tmp_path).with_links(f"[x]({link})", ROOT / page) == f"[x]({turned})"


def test_code_is_left_alone(tmp_path: Path) -> None:
    text = "```py\nx[0](../README.md)\n```\n"
    assert Stage(tmp_path).with_links(text, DOCS / "tutorial" / "gemm.md") == text


def test_every_page_is_in_a_table_of_contents(pages: Path) -> None:
    listed: set[Path] = set()
    entries = 0
    for page in pages.rglob("*.md"):
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text("utf-8"), re.S):
            lines = [x for x in block.splitlines() if x and not x.startswith(":")]
            names = [re.sub(r".* <(.*)>", r"\1", x) for x in lines]
            entries += len(names)
            listed |= {(page.parent / name).with_suffix(".md").resolve() for name in names}
    assert entries == len(listed), "a page is listed twice"
    all_pages = {x.resolve() for x in pages.rglob("*.md") if "source" not in x.parts}
    assert all_pages - listed == {(pages / "index.md").resolve()}, (
        "a page has a row in docs/README.md, a decision in docs/decisions/README.md"
    )


def test_the_parts_of_the_contents() -> None:
    table = "| [*A*](a.md) | x |\n| **Part** | |\n| [1](b/c.md) | y |\n"
    assert re.findall(r"^(?!:hidden|:title)[^`\n]+$", contents(table, {"Part": "z.md"}), re.M) == [
        "A <a.md>", ":caption: Part", "1. y <b/c.md>", "z.md",
    ]  # fmt: skip


def test_every_public_name_is_on_a_page_of_the_api(pages: Path) -> None:
    text = "".join(x.read_text(encoding="utf-8") for x in (pages / "api").glob("*.md"))
    heads = set(re.findall(r"\{py:\w+\} ([\w.]+)", text))
    public = {
        name
        for name, value in vars(tp).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert {f"tilepipe.{name}" for name in public} - heads == set()
    assert {f"tilepipe.ops.{name}" for name in tp.ops.__all__} - heads == set()
    assert {name for name in vars(tp.Context) if not name.startswith("_")} - heads == set()


def test_a_docstring_as_markdown() -> None:
    said = "Loads.\n\nArgs:\n    a: the tile,\n        whole.\n    *b: more.\n\nRaises:\n    X: no."
    assert re.sub(r"\n+", "\n", api.markdown(said)) == (
        "Loads.\n**Arguments**\n- `a`: the tile,\n  whole.\n- `*b`: more.\n**Raises**\n- `X`: no.\n"
    )


@pytest.mark.slow
def test_a_signature_has_types_and_short_defaults(pages: Path) -> None:
    text = (pages / "api" / "tilepipe.md").read_text(encoding="utf-8")
    assert (
        "tilepipe.tensor_map(array: Any, box: tuple[int, ...] | None = None, swizzle: int | None ="
        " None, order: str | None = None, *, dtype: object = None, ragged: bool = False) ->"
        " TensorMap"
    ) in text


def test_a_file_with_fences_and_a_notebook() -> None:
    assert notebook('{"cells": [{"cell_type": "code", "source": ["x\\n", "y"]}]}') == (
        "```python\nx\ny\n```\n"
    )
    assert "`````python\n" in source(Path(__file__))  # this file has four in a row: ````


@pytest.mark.thorough
def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("Sphinx is not installed: pip install -e '.[docs]', or make site")
    assert build(tmp_path) == 0
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "api/index.html" in page
