"""The conformance table: for each name of the API pages, what it is called here, the test that
fails without it, and the small kernel that uses it in the simulator, through NVRTC and on a GPU.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from dataclasses import dataclass
from typing import Any

import tilepipe as tp

HOPPER = ("sm_90a", "sm_100a")
BLACKWELL = ("sm_100a",)
ON_GPU = "gpu/test_conformance_gpu.py::test_the_gpu_gives_what_numpy_gives"


@dataclass(frozen=True)
class Row:
    """One name of a page.

    Attributes:
        name: as the page has it; a member of another type than the page's with that type:
            `ProducerStage.mbar`.
        test: node id below tests/.
        case: the kernel of `tests.conformance.cases` that uses it.
        ours: where it differs, its name below `tilepipe`: `Type.member`; `Type.member(argument=)`
            for what became an argument; `Type.member()` for an attribute of what a call gives.
        kept: why the mutation job leaves its body alone; empty: it replaces it.
    """

    name: str
    test: str
    case: str
    ours: str = ""
    kept: str = ""


@dataclass(frozen=True)
class Page:
    """A page: its rows, and the architectures that its kernels compile for; what compiles for
    Blackwell only has never run on a GPU.
    """

    name: str
    rows: tuple[Row, ...]
    archs: tuple[str, ...] = HOPPER

    def ours(self, row: Row) -> str:
        """The name of a row below `tilepipe`."""
        qualified = row.name[0].isupper() or self.name == "Base"
        return row.ours or (row.name if qualified else f"{self.name}.{row.name}")

    def on_gpu(self, row: Row) -> str:
        """The test that runs a row's kernel on a GPU, or why there is none."""
        return f"{ON_GPU}[{row.case}]" if "sm_90a" in self.archs else "– (Blackwell only)"


@dataclass(frozen=True)
class Target:
    """What a name of ours is. `kind`: type, function, method, property, attribute, alias (of a
    type), or argument.

    `owner`: the class or module that has it, `attr` the name there, `value` the function or class,
    None for attributes.
    """

    kind: str
    owner: Any
    attr: str
    value: Any = None


def resolve(ours: str) -> Target:
    """Finds a name below `tilepipe`.

    Raises:
        LookupError: there is no such name, or it has no such argument.
    """
    found = re.fullmatch(r"([\w.]+)(?:\((\w+)=\))?", ours)
    if found is None:
        raise LookupError(f"{ours!r} is not a name")
    path, argument = found.groups()
    target = _target(path)
    if argument is None:
        return target
    if argument not in inspect.signature(target.value).parameters:
        raise LookupError(f"{path} has no argument {argument!r}")
    return Target("argument", target.owner, argument, target.value)


def _target(path: str) -> Target:
    head, _, member = path.partition(".")
    if not hasattr(tp, head):
        raise LookupError(f"tilepipe has no {head!r}")
    owner = getattr(tp, head)
    if not member:
        return Target("type" if inspect.isclass(owner) else "function", tp, head, owner)
    raw = inspect.getattr_static(owner, member, None)
    if isinstance(raw, property):
        return Target("property", owner, member, raw.fget)
    if isinstance(raw, (staticmethod, classmethod)):
        return Target("method", owner, member, raw.__func__)
    if inspect.isfunction(raw):
        return Target("method", owner, member, raw)
    if inspect.isclass(raw):
        return Target("alias", owner, member, raw)
    if raw is not None or member in _attributes(owner):
        return Target("attribute", owner, member)
    raise LookupError(f"{head} has no {member!r}")


def _attributes(owner: type) -> set[str]:
    """Fields, and what `__init__` assigns."""
    found = (
        {f.name for f in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else set()
    )
    for base in owner.__mro__[:-1]:
        if "__init__" in vars(base) and not dataclasses.is_dataclass(base):
            tree = ast.parse(textwrap.dedent(inspect.getsource(vars(base)["__init__"])))
            stored = (
                node
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            )
            found |= {
                node.attr
                for node in stored
                if isinstance(node.value, ast.Name) and node.value.id == "self"
            }
    return found


def pages() -> list[Page]:
    """The pages that are done, in the order of the documentation."""
    from tests.conformance.pages import (
        base,
        block_scaled,
        input_tile_pipeline,
        output_tile_pipeline,
        producer_consumer_pipeline,
        producer_tiles,
        tma_producer_pipeline,
    )

    return [
        base.PAGE,
        block_scaled.TILES,
        producer_consumer_pipeline.PAGE,
        input_tile_pipeline.PAGE,
        producer_tiles.PAGE,
        output_tile_pipeline.PAGE,
        block_scaled.MEMORY_PAGE,
        tma_producer_pipeline.PAGE,
    ]


def rows() -> list[tuple[Page, Row]]:
    """Every row with its page."""
    return [(page, row) for page in pages() for row in page.rows]


def kernels() -> dict[str, tuple[str, ...]]:
    """The kernels that rows name, with the architectures that they compile for."""
    return {row.case: page.archs for page, row in rows()}
