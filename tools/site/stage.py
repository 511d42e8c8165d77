"""Lays out what Sphinx reads: the pages of docs/ and of the root, with their links turned to pages
of the site.

On a code host a page links to other files of the repository. In the site a link to a page leads to
that page, one to a folder to its README or to a list of what is in it, and one to any other file to
a page with its text. So no link leads out of the site, and it can be read offline.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Pages of the root -> their names in the site.
AT_ROOT = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
COPIED = (".svg", ".png")
LANGUAGES = {".py": "python", ".cu": "cuda", ".cuh": "cuda", ".toml": "toml"}
LINK = re.compile(r"(\]\()((?!\w+:)[^)#\s]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^(`{3,}).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_PART, _PAGE = r"\*\*(?P<part>[^*|]+)\*\*", r"\[(?P<title>[^]]+)\]\((?P<page>[^)]+)\)"
ROW = re.compile(rf"^\| (?:{_PART}|{_PAGE}) \|(?P<about>[^|\n]*)", re.MULTILINE)


class Stage:
    """A folder that is filled with the pages of the site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._wanted: list[Path] = []  # files and folders that are linked to and are no pages
        self._listed: set[Path] = set()

    def fill(self) -> None:
        """Writes all pages but those of the API."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for path in sorted(DOCS.rglob("*")):
            if path.suffix == ".md":
                self._page(path)
            elif path.suffix == ".ipynb":
                self._write(path, notebook(path.read_text(encoding="utf-8")))
            elif path.suffix in COPIED:
                target = self.folder / path.relative_to(DOCS)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        for name in AT_ROOT:
            self._page(ROOT / name)
        while self._wanted:
            path = self._wanted.pop()
            if path not in self._listed:
                self._listed.add(path)
                self._write(path, self._listing(path) if path.is_dir() else source(path))

    def _page(self, path: Path) -> None:
        text = self.with_links(path.read_text(encoding="utf-8"), path)
        if path == DOCS / "README.md":
            text += contents(text, last={"Reference": "api/index.md"})
        elif path.name == "README.md" and path.is_relative_to(DOCS):
            text += contents(text)
        self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        target = self.folder / self.place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def place(self, path: Path) -> Path:
        """Where the page of a file of the repository is in the site."""
        if path == DOCS / "README.md":
            return Path("index.md")
        if path.parent == ROOT and path.name in AT_ROOT:
            return Path(AT_ROOT[path.name])
        if path.is_dir():
            readme = path / "README.md"
            if readme.exists():
                return self.place(readme)
            return Path("source", path.relative_to(ROOT), "index.md")
        if path.is_relative_to(DOCS):
            inside = path.relative_to(DOCS)
            return inside.with_suffix(".md") if path.suffix == ".ipynb" else inside
        return Path("source", f"{path.relative_to(ROOT)}.md")

    def with_links(self, text: str, path: Path) -> str:
        """The text of a page with its links turned; code is left alone."""
        here = self.place(path).parent

        def turned(match: re.Match[str]) -> str:
            start, target, anchor, end = match.groups()
            file = Path(os.path.normpath(path.parent / target))
            if not file.exists():
                return match.group(0)  # a test says so
            place = self.place(file)
            if place.parts[0] == "source":
                self._wanted.append(file)
            return f"{start}{os.path.relpath(place, here)}{anchor or ''}{end}"

        parts, at = [], 0
        for fence in FENCE.finditer(text):
            parts += [LINK.sub(turned, text[at : fence.start()]), fence.group(0)]
            at = fence.end()
        return "".join([*parts, LINK.sub(turned, text[at:])])

    def _listing(self, folder: Path) -> str:
        name = folder.relative_to(ROOT)
        files = sorted(x for x in folder.iterdir() if x.suffix in (".md", *LANGUAGES))
        lines = [f"- [{x.name}]({x.name})" for x in files]
        text = f"---\norphan: true\nnosearch: true\n---\n\n# {name}/\n\n" + "\n".join(lines) + "\n"
        return self.with_links(text, folder / "README.md") if files else text


def source(path: Path) -> str:
    """A page with the text of a file."""
    text = path.read_text(encoding="utf-8")
    fence = "`" * max(4, 1 + max(map(len, re.findall("`+", text)), default=0))
    language = LANGUAGES.get(path.suffix, "text")
    title = f"---\norphan: true\nnosearch: true\n---\n\n# {path.relative_to(ROOT)}\n\n"
    return f"{title}{fence}{language}\n{text.rstrip()}\n{fence}\n"


def notebook(text: str) -> str:
    """The cells of a notebook as a page."""
    cells = []
    for cell in json.loads(text)["cells"]:
        body = "".join(cell["source"])
        cells.append(body if cell["cell_type"] == "markdown" else f"```python\n{body}\n```")
    return "\n\n".join(cells) + "\n"


def contents(index: str, last: dict[str, str] | None = None) -> str:
    """The tables of contents that the table of a page stands for: a part for each row in bold, with
    the pages of the rows below, and with the page that `last` has for the part.
    """
    parts: dict[str, list[str]] = {}
    part = ""
    for match in ROW.finditer(index):
        part = match["part"] or part
        if match["page"]:
            title = re.sub(r"[*`]", "", match["title"])
            numbered = f"{title}. {match['about'].strip()}" if title.isdigit() else title
            parts.setdefault(part, []).append(f"{numbered} <{match['page']}>")
    for name, page in (last or {}).items():
        parts[name].append(page)
    return "".join(
        "\n```{toctree}\n:hidden:\n:titlesonly:\n"
        + (f":caption: {part}\n" if part else "")
        + "\n"
        + "".join(f"{page}\n" for page in pages)
        + "```\n"
        for part, pages in parts.items()
    )
