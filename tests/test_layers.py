"""Which package may import which, and that no modules import each other in a circle.

All imports count, those under TYPE_CHECKING and those inside functions included; only in the search
for circles are imports inside functions left out, since they are how `tilepipe.program` reaches the
readers when they are asked for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
API = "tilepipe"  # the public API: `import tilepipe as tp`
BASE = {"errors", "files", "host_arguments", "_version"}
# package (or module) of tilepipe -> the others that it may import
ALLOWED = {
    "errors": {"ir"},  # ir.location
    "files": {"errors"},
    "host_arguments": {"errors"},
    "_version": set(),
    "ir": BASE,
    "lang": BASE | {"ir"},
    "pipelines": BASE | {"ir", "lang"},
    "public_members": {"lang"},
    "machine": BASE | {"ir"},  # of which `LEAVES` alone
    "sim": BASE | {"ir", "machine"},
    "cuda": BASE | {"ir"},
    "check": BASE | {"ir", "machine", "sim"},
    "program": BASE | {"ir", "lang", "machine", "sim", "check", "cuda"},
    "kernels": BASE | {API},
    "ops": BASE | {API, "ir", "lang", "kernels", "cuda"},
    "testing": BASE | {API, "ir", "machine", "sim", "check", "program"},
    "registry": BASE | {API, "ir", "kernels", "testing"},
    "bench": BASE | {API, "ir", "cuda", "kernels", "ops", "registry", "testing"},
    "cli": BASE
    | {
        API,
        "ir",
        "lang",
        "machine",
        "sim",
        "check",
        "cuda",
        "kernels",
        "registry",
        "bench",
        "testing",
    },
    "__main__": {"cli"},
}
# the modules of `ir` that know no program
LEAVES = {
    "chip",
    "dtypes",
    "facts",
    "fragment",
    "layout",
    "location",
    "hardware.tensor_memory",
    "hardware.tma",
}


def modules() -> dict[str, Path]:
    found = {}
    for path in (SRC / "tilepipe").rglob("*.py"):
        name = ".".join(path.relative_to(SRC).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(tree: ast.AST, inside_functions: bool) -> Iterator[str]:
    """The modules of tilepipe that a module imports."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not inside_functions:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module
        yield from imports(node, inside_functions)


def package(module: str) -> str:
    return module.split(".")[1] if "." in module else API


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.AST]:
    return {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


@pytest.mark.slow
def test_packages_import_only_what_lies_below(trees: dict[str, ast.AST]) -> None:
    arrows = {
        (name, package(other))
        for name, tree in trees.items()
        if name != API
        for other in imports(tree, inside_functions=True)
        if package(other) != package(name)
    }
    wrong = {(name, other) for name, other in arrows if other not in ALLOWED[package(name)]}
    assert wrong == set()


def test_the_machine_knows_no_program(trees: dict[str, ast.AST]) -> None:
    known = {
        other.removeprefix("tilepipe.ir.")
        for name, tree in trees.items()
        if package(name) == "machine"
        for other in imports(tree, inside_functions=True)
        if package(other) == "ir"
    }
    assert known - {"tilepipe.ir"} <= LEAVES
    beyond = {
        other.removeprefix("tilepipe.ir.")
        for leaf in LEAVES
        for other in imports(trees[f"tilepipe.ir.{leaf}"], inside_functions=True)
        if package(other) == "ir"
    }
    assert beyond - {"tilepipe.ir"} <= LEAVES


def test_the_checker_sees_the_ir_through_one_door(trees: dict[str, ast.AST]) -> None:
    doors = {
        other
        for name, tree in trees.items()
        if package(name) == "check"
        for other in imports(tree, inside_functions=True)
        if package(other) == "sim"
    }
    assert doors == {
        "tilepipe.sim",
        "tilepipe.sim.front_end",
    }  # to run a launch, and to explore one


def test_no_modules_import_each_other_in_a_circle(trees: dict[str, ast.AST]) -> None:
    graph = {
        name: {o for o in imports(tree, inside_functions=False) if o not in (API, name)}
        for name, tree in trees.items()
    }
    assert [sorted(circle) for circle in circles(graph)] == []


@pytest.mark.parametrize("whole", ["sim", "check"])
def test_no_folders_of_a_package_import_each_other_in_a_circle(
    trees: dict[str, ast.AST], whole: str
) -> None:
    """A module that is in no folder of the package counts as a folder of its own."""
    graph: dict[str, set[str]] = {}
    for name, tree in trees.items():
        if name.startswith(f"tilepipe.{whole}."):
            folder = name.split(".")[2]
            inside = {o for o in imports(tree, True) if o.startswith(f"tilepipe.{whole}.")}
            graph.setdefault(folder, set()).update({o.split(".")[2] for o in inside} - {folder})
    assert [sorted(circle) for circle in circles(graph)] == []


def circles(graph: dict[str, set[str]]) -> Iterator[frozenset[str]]:
    """The sets of modules that reach each other."""
    reached = {name: closure(graph, name) for name in graph}
    for name in graph:
        circle = frozenset(o for o in reached[name] if name in reached[o])
        if circle and name == min(circle):
            yield circle


def closure(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found
