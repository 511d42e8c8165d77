"""What pages quote of the kernels and examples: `python -m tools.docs.excerpts` writes it into them
anew.

A quotation is a fenced block `py` after a line `<!-- FILE: WHAT -->`, FILE in src/tilepipe/kernels,
or examples/NAME.py. WHAT is `function NAME`, `role NAME`, `method CLASS.NAME`, or `set NAME ...
NAME`, the assignments to these names from the first to the last. A block `text` behind `<!-- $
python examples/NAME.py -->` has what an example prints. Behind `<!-- diff ONE OTHER -->` a
block `diff` has what differs between two kernels.
"""

from __future__ import annotations

import ast
import difflib
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "blackwell.md"
KERNELS_PAGE = ROOT / "docs" / "concepts" / "blackwell-kernels.md"
LADDER = ROOT / "docs" / "tutorial" / "ladder.md"
PAGES = (PAGE, ROOT / "docs" / "concepts" / "block-scaled.md", KERNELS_PAGE, LADDER)
KERNELS = ROOT / "src" / "tilepipe" / "kernels"
PRINTED = re.compile(
    r"<!-- \$ python examples/(\w+)\.py -->\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
QUOTED = re.compile(r"<!-- (\S+): (\w+) (.+?) -->\n\n```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DIFFED = re.compile(r"<!-- diff (\S+) (\S+) -->\n\n```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def excerpt(file: str, kind: str, name: str) -> str:
    """Lines of a kernel's file, unindented."""
    folder = ROOT if file.startswith("examples/") else KERNELS
    text = (folder / file).read_text(encoding="utf-8")
    tree = ast.parse(text)
    places = tree.body if kind == "function" else ast.walk(tree)
    nodes = [node for node in places if isinstance(node, ast.stmt) and _is(node, kind, name)]
    if kind == "method":
        owner, method = name.split(".")
        bodies = [
            node.body
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ClassDef) and node.name == owner
        ]
        nodes = [
            node for node in bodies[0] if isinstance(node, ast.FunctionDef) and node.name == method
        ]
    assert nodes, f"{file} has no {kind} {name}"
    first, last = nodes[0], nodes[-1]
    start = (
        first.decorator_list[0].lineno
        if isinstance(first, ast.FunctionDef) and first.decorator_list
        else first.lineno
    )
    return textwrap.dedent("\n".join(text.splitlines()[start - 1 : last.end_lineno])) + "\n"


def _is(node: ast.stmt, kind: str, name: str) -> bool:
    if kind == "function":
        return isinstance(node, ast.FunctionDef) and node.name == name
    if kind == "role":
        return isinstance(node, ast.FunctionDef) and any(
            ast.unparse(x).startswith(f"ctx.role('{name}'") for x in node.decorator_list
        )
    return (
        kind == "set"
        and isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) in name.split(" ... ")
    )


def kernel_lines(name: str) -> list[str]:
    """The lines of a kernel: from its decorator to `bind`, with the functions that are its
    roles.
    """
    text = (KERNELS / f"{name}.py").read_text(encoding="utf-8")
    functions = {x.name: x for x in ast.parse(text).body if isinstance(x, ast.FunctionDef)}
    first = min(
        x.decorator_list[0].lineno
        for x in functions.values()
        if x.decorator_list and "tp.kernel" in ast.unparse(x.decorator_list[0])
    )
    return (
        "\n".join(text.splitlines()[first - 1 : functions["bind"].lineno - 1]).rstrip().split("\n")
    )


def difference(one: str, other: str) -> str:
    """What differs between the text of two kernels, with a line on either side."""
    found = list(difflib.unified_diff(kernel_lines(one), kernel_lines(other), n=1, lineterm=""))[2:]
    return "".join(f"{'@@' if line.startswith('@@') else line.rstrip()}\n" for line in found)


def written(page: str) -> str:
    """The page with its quotations and differences as they are now."""

    def quoted(match: re.Match[str]) -> str:
        file, kind, name, _ = match.groups()
        return f"<!-- {file}: {kind} {name} -->\n\n```py\n{excerpt(file, kind, name)}```"

    def diffed(match: re.Match[str]) -> str:
        one, other, _ = match.groups()
        return f"<!-- diff {one} {other} -->\n\n```diff\n{difference(one, other)}```"

    def printed(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- $ python examples/{name}.py -->\n\n```text\n{example_output(name)}```"

    return PRINTED.sub(printed, DIFFED.sub(diffed, QUOTED.sub(quoted, page)))


def example_output(name: str) -> str:
    """What an example prints."""
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
