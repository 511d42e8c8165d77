"""Which package may import which, that no modules import each other in a circle, and which imports
are late: inside a function, or under TYPE_CHECKING.

All imports count, late ones included; only in the search for circles are imports inside functions
left out, since they are how `tilepipe.program` reaches the readers when they are asked for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
API = "tilepipe"  # the public API: `import tilepipe as tp`
BASE = {"errors", "files", "host_arguments", "markup", "_version"}
# package (or module) of tilepipe -> the others that it may import
ALLOWED = {
    "errors": {"ir"},  # ir.location
    "files": {"errors"},
    "host_arguments": {"errors"},
    "markup": set(),
    "_version": set(),
    "ir": BASE,
    "lang": BASE | {"ir"},
    "pipelines": BASE | {"ir", "lang"},
    "public_members": {"lang"},
    "description": BASE | {"ir"},
    "machine": BASE | {"ir"},  # of which `LEAVES` alone
    "timeline": BASE | {"ir", "machine"},
    "sim": BASE | {"ir", "machine", "timeline"},
    "cuda": BASE | {"ir"},
    # nothing of `cuda`: the reader checks what the printer prints
    "ptx": BASE | {"ir", "machine", "timeline", "check"},
    "check": BASE | {"ir", "machine", "ptx", "sim"},
    "export": BASE | {"ir", "cuda"},
    "program": BASE
    | {"ir", "lang", "machine", "timeline", "sim", "check", "cuda", "export", "ptx", "description"},
    "kernels": BASE | {API},
    "ops": BASE | {API, "ir", "lang", "kernels", "cuda"},
    "testing": BASE | {API, "ir", "machine", "sim", "check", "program", "ptx"},
    "registry": BASE | {API, "ir", "kernels", "testing"},
    "bench": BASE
    | {API, "ir", "cuda", "kernels", "ops", "registry", "testing", "description"},  # `svg` alone
    "cli": BASE
    | {
        API,
        "ir",
        "program",
        "machine",
        "sim",
        "check",
        "cuda",
        "ptx",
        "kernels",
        "registry",
        "bench",
        "testing",
        "timeline",
        "description",
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


# Late imports: package -> what it imports late, one of its own modules, of another package of
# tilepipe or of a library.
# - those that who imports the package does not pay for: nothing else loads what they name
LOADED_LATE = {
    "tilepipe": {"tilepipe.check", "tilepipe.ops", "tilepipe.testing"},
    "bench": {"tilepipe.cuda", "torch"},
    "check": {"distributed", "rich", "tilepipe.check", "tilepipe.ptx"},
    "cli": {
        "tilepipe.bench",
        "tilepipe.check",
        "tilepipe.cuda",
        "tilepipe.description",
        "tilepipe.machine",
        "tilepipe.markup",
        "tilepipe.ptx",
        "tilepipe.registry",
        "tilepipe.sim",
        "tilepipe.timeline",
        "torch",
    },
    "cuda": {"cuda"},
    "description": {"tilepipe.description"},
    "export": {"tilepipe.export"},
    "files": {"fcntl", "json", "tempfile"},
    "host_arguments": {"difflib"},
    "ir": {"torch"},
    "lang": {"difflib"},
    "kernels": {"json", "torch"},
    "ops": {"_typeshed", "tilepipe.cuda", "torch"},
    "program": {
        "pathlib",
        "tilepipe.check",
        "tilepipe.cuda",
        "tilepipe.description",
        "tilepipe.machine",
        "tilepipe.program",
        "tilepipe.ptx",
        "tilepipe.sim",
        "tilepipe.timeline",
    },
    "ptx": {"tilepipe.check", "tilepipe.timeline"},
    "sim": {"tilepipe.sim", "tilepipe.timeline"},
    "testing": {"tilepipe.check", "tilepipe.machine", "tilepipe.ptx", "tilepipe.sim"},
}
# - those of a module that imports the importer
CIRCULAR = {
    "bench": {"tilepipe.bench"},
    "cli": {"tilepipe.cli"},
    "lang": {"tilepipe.lang"},
    "ops": {"tilepipe.ops"},
}


def modules() -> dict[str, Path]:
    found = {}
    for path in (SRC / "tilepipe").rglob("*.py"):
        name = ".".join(path.relative_to(SRC).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()
Place = Literal["module", "types", "function"]


@dataclass(frozen=True, slots=True)
class Import:
    """A module that is imported, and where: when the importer is, under TYPE_CHECKING, or inside a
    function.
    """

    module: str
    place: Place
    line: int


def imports(node: ast.AST, place: Place = "module") -> Iterator[Import]:
    """The imports of a module, of libraries too."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        place = "function"
    elif isinstance(node, ast.Import):
        yield from (Import(alias.name, place, node.lineno) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.module is not None, "an import by a relative name"
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield Import(whole if whole in MODULES else node.module, place, node.lineno)
    types = (
        node.body
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        else []
    )
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from imports(child, "types" if child in types else place)


Imports = dict[str, list[Import]]


@pytest.fixture(scope="module")
def every() -> Imports:
    """The imports of each module."""
    return {name: list(imports(ast.parse(path.read_text()))) for name, path in MODULES.items()}


def of_tilepipe(found: Iterable[Import]) -> set[str]:
    return {one.module for one in found if one.module in MODULES}


def package(module: str) -> str:
    return module.split(".")[1] if "." in module else API


@pytest.mark.slow
def test_packages_import_only_what_lies_below(every: Imports) -> None:
    arrows = {
        (name, package(other))
        for name, found in every.items()
        if name != API
        for other in of_tilepipe(found)
        if package(other) != package(name)
    }
    wrong = {(name, other) for name, other in arrows if other not in ALLOWED[package(name)]}
    assert wrong == set()


def of_package(every: Imports, importer: str, imported: str) -> set[str]:
    """The modules of one package that another one imports."""
    return {
        other
        for name, found in every.items()
        if package(name) == importer
        for other in of_tilepipe(found)
        if package(other) == imported
    }


def test_the_machine_knows_no_program(every: Imports) -> None:
    leaves = {f"tilepipe.ir.{leaf}" for leaf in LEAVES}
    beyond = {o for leaf in leaves for o in of_tilepipe(every[leaf]) if package(o) == "ir"}
    assert (of_package(every, "machine", "ir") | beyond) - {"tilepipe.ir"} <= leaves


def test_the_checker_sees_the_ir_through_one_door(every: Imports) -> None:
    assert of_package(every, "check", "sim") == {
        "tilepipe.sim",
        "tilepipe.sim.front_end",
    }  # to run a launch, and to explore one


def test_no_modules_import_each_other_in_a_circle(every: Imports) -> None:
    graph = {
        name: of_tilepipe(one for one in found if one.place != "function") - {API, name}
        for name, found in every.items()
    }
    assert [sorted(circle) for circle in circles(graph)] == []


def test_definitions_of_ptx_instructions_know_neither_compiler_nor_execution(
    every: Imports,
) -> None:
    """They say what an instruction does; what runs it is behind `ptx.warp_protocol`."""
    definitions = ("tilepipe.ptx.isa", "tilepipe.ptx.definition", "tilepipe.ptx.warp_protocol")
    wrong = {
        (name, other)
        for name, found in every.items()
        if name.startswith(definitions)
        for other in of_tilepipe(found)
        if other.startswith(("tilepipe.ptx.compiler", "tilepipe.ptx.execution"))
        or other == "tilepipe.ptx.launch"
    }
    assert wrong == set()


@pytest.mark.parametrize("whole", ["sim", "check", "pipelines", "ptx"])
def test_no_folders_of_a_package_import_each_other_in_a_circle(every: Imports, whole: str) -> None:
    """A module that is in no folder of the package counts as a folder of its own."""
    graph: dict[str, set[str]] = {}
    for name, found in every.items():
        if name.startswith(f"tilepipe.{whole}."):
            folder = name.split(".")[2]
            inside = {o for o in of_tilepipe(found) if o.startswith(f"tilepipe.{whole}.")}
            graph.setdefault(folder, set()).update({o.split(".")[2] for o in inside} - {folder})
    assert [sorted(circle) for circle in circles(graph)] == []


@pytest.mark.slow
def test_a_late_import_spares_loading_or_breaks_a_circle(every: Imports) -> None:
    at_once = {
        name: {part for one in found if one.place == "module" for part in parts(one.module)}
        for name, found in every.items()
    }
    # a package is loaded before its modules; `tilepipe` itself reaches all, and closes no circle
    loads = at_once | {name: at_once[name] | parts(name) for name in MODULES}
    inside = {name: others - {API} for name, others in loads.items() if name != API}
    wrong, used = [], set()
    for name, found in every.items():
        spared, circular = LOADED_LATE.get(package(name), ()), CIRCULAR.get(package(name), ())
        loaded = closure(loads, name)
        for one in found:
            if one.place == "module":
                continue
            target = ".".join(one.module.split(".")[: 2 if one.module in MODULES else 1])
            used.add((package(name), target))
            if not (
                (target in spared and one.module not in loaded)
                or (target in circular and name in closure(inside, one.module))
            ):
                wrong.append(f"{name}, line {one.line}: {one.module}")
    assert wrong == [], "import these where the others are, or say above why not"
    listed = (LOADED_LATE, CIRCULAR)
    assert {(of, target) for table in listed for of in table for target in table[of]} == used


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading of the page on architecture, without its head."""
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.split(" | ")]
        for line in page.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
        if line.startswith("| ")
    ]
    assert len(rows) > 5
    return rows[1:]


def test_the_page_says_which_package_may_import_which() -> None:
    folders = {
        path.name for path in (SRC / "tilepipe").iterdir() if (path / "__init__.py").exists()
    }
    said = {
        package.strip("| `"): {
            *re.findall(r"`(\w+)`", knows),
            *([API] if "the public API" in knows else []),
        }
        for package, _, knows in table("Layers")
    }
    assert said == {name: ALLOWED[name] - BASE for name in folders}


def test_modules_of_the_machine_import_their_own_level_and_those_above(every: Imports) -> None:
    """The levels are those of the page on architecture."""
    level: dict[str, int] = {}
    for number, (_, modules, _) in enumerate(table("Inside the machine")):
        for text in re.findall(r"`(.+?)`", modules):
            folder, _, names = text.rpartition("/")
            for name in names.strip("{}").split(","):
                module = ".".join(["tilepipe", "machine", *folder.split("/"), name])
                assert level.setdefault(module.replace("..", "."), number) == number
    packages = {name for name, path in MODULES.items() if path.stem == "__init__"}
    assert {n for n in MODULES if n.startswith("tilepipe.machine.")} - packages == level.keys()
    wrong = {
        (name, other)
        for name, found in every.items()
        for other in of_tilepipe(found)
        if name in level and other in level and level[other] > level[name]
    }
    assert wrong == set(), (
        "move one of them, or correct the table of docs/internals/architecture.md"
    )


def parts(module: str) -> set[str]:
    """A module and the packages that it is in."""
    names = module.split(".")
    return {".".join(names[:n]) for n in range(1, len(names) + 1)}


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
            waiting += graph.get(name, ())
    return found
