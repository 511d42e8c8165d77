"""Writes the pages of the API from signatures and docstrings.

A page for each subject; names stand where `tilepipe/__init__.py` or a module's `__all__` has them.
Docstrings are Markdown with sections (`Args:`, `Attributes:`, `Raises:`, `Returns:`).
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tilepipe as tp
from tilepipe import errors, ptx

SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
ITEM = re.compile(r"^(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*): (.*)$")


@dataclasses.dataclass(frozen=True)
class Page:
    """A page: its file, its title, what stands at its top, and its names."""

    file: str
    title: str
    about: str
    names: list[tuple[str, Any]]


def pages() -> list[Page]:
    """All pages, in the order of the site."""
    public = {
        name: value
        for name, value in vars(tp).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }

    def of(*modules: str) -> list[tuple[str, Any]]:
        chosen = {
            name: value
            for module in modules
            for name, value in public.items()
            if _module(value).startswith(f"tilepipe.{module}")
        }
        for name in chosen:
            del public[name]
        return [(f"tilepipe.{name}", value) for name, value in chosen.items()]

    found = [
        Page("errors", "Errors", "Every error is a `TilepipeError`.", of("errors")),
        Page("pipelines", "Rings and tiles", _OF_RINGS, of("pipelines.rings", "pipelines.state")),
        Page("barriers", "Barriers", "Barriers in shared memory.", of("pipelines.barriers")),
        Page("accumulators", "Accumulators", _OF_ACCUMULATORS, of("pipelines.accumulators")),
        Page("attention", "Rings of attention", _OF_STAGED, of("pipelines.attention")),
        Page("schedulers", "Schedulers", "Which tiles a CTA takes.", of("pipelines.schedulers")),
        Page("context", "The context of a kernel", _OF_CONTEXT, of("lang.context")),
    ]
    program = of("program", "lang.arguments", "ir", "export")
    rest = [(f"tilepipe.{name}", value) for name, value in public.items()]
    found.append(Page("values", "Values, tiles and fragments", _OF_VALUES, rest))
    modules = [
        Page("ops", "tilepipe.ops", _OF_OPS, _named(tp.ops)),
        Page("testing", "tilepipe.testing", "Assertions for tests of kernels.", _named(tp.testing)),
        Page("check", "tilepipe.check", "The checker from Python.", _named(tp.check)),
        Page("ptx", "tilepipe.ptx", "Kernels of other compilers, read from PTX.", _named(ptx)),
    ]
    return [
        Page("tilepipe", "Kernels and programs", _OF_PROGRAMS, program),
        *reversed(found),
        *modules,
    ]


_OF_PROGRAMS = "`@tp.kernel` marks a function, `bind` gives a `Program`: run, check, launch it."
_OF_CONTEXT = "The members of `ctx`, the first argument of a kernel: what its threads do."
_OF_VALUES = "What the members of `ctx` take and give."
_OF_RINGS = "Rings of stages between roles, and the tiles that travel through them."
_OF_ACCUMULATORS = "Accumulators in tensor memory, and the ring between MMAs and epilogue."
_OF_STAGED = "Rings whose stages hold K and V, or parts of them."
_OF_OPS = "Operations on NumPy arrays and PyTorch tensors."


def _module(value: Any) -> str:
    return str(getattr(value, "__module__", None) or type(value).__module__)


def _named(module: types.ModuleType) -> list[tuple[str, Any]]:
    """The public names that a module exports: those of `__all__`, or those it imports."""
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and _module(value).startswith("tilepipe")
    ]
    return [(f"{module.__name__}.{name}", getattr(module, name)) for name in names]


def write(folder: Path) -> None:
    """Writes all pages, and the page that lists them."""
    folder.mkdir(parents=True, exist_ok=True)
    all_pages = pages()
    for page in all_pages:
        (folder / f"{page.file}.md").write_text(text(page), encoding="utf-8")
    rows = "".join(f"| [{p.title}]({p.file}.md) | {p.about} |\n" for p in all_pages)
    files = "".join(f"{page.file}\n" for page in all_pages)
    (folder / "index.md").write_text(
        "# API\n\nEvery public name with its signature and docstring, written from the source. The"
        " pages of the reference\nsay how the members work together.\n\n| page | about |\n|---|---|"
        f"\n{rows}\n```{{toctree}}\n:hidden:\n:titlesonly:\n\n{files}```\n",
        encoding="utf-8",
    )


def text(page: Page) -> str:
    """A page."""
    parts = [f"# {page.title}\n\n{page.about}\n"]
    parts += [_entry(name, value) for name, value in page.names]
    return "\n".join(parts)


def _entry(name: str, value: Any) -> str:
    if isinstance(value, type):
        return _class(name, value)
    if inspect.isroutine(value):
        return _directive("function", name + _signature(value), _doc(value))
    if isinstance(value, tp.DType):
        return _directive(
            "data", name, f"{value.bits} bit{'s' * (value.bits > 1)}; of NumPy `{value.numpy}`."
        )
    return _directive("data", name, f"`{value!r}`")


def _class(name: str, cls: type) -> str:
    error = issubclass(cls, errors.TilepipeError)
    body = _doc(cls)
    for member, value in _members(cls):
        function = _function(value)
        if function is None:
            body += "\n" + _directive("property", member, _doc(value), 4)
        elif function.__doc__ or not error:
            kind = {classmethod: "classmethod", staticmethod: "staticmethod"}.get(
                type(value), "method"
            )
            head = member + _signature(function, bound=kind != "staticmethod")
            body += "\n" + _directive(kind, head, _doc(function), 4)
    constructed = "__init__" in vars(cls) or dataclasses.is_dataclass(cls)
    signature = _signature(cls) if constructed and not error else ""
    return _directive("class", name + signature, body, 6)


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public members with docstrings that a class defines or takes from its bases here."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("tilepipe"):
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            if isinstance(value, property) or _function(value) is not None:
                yield name, value


def _function(value: Any) -> Callable[..., object] | None:
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    return value if inspect.isfunction(value) else None


def _directive(kind: str, head: str, body: str, ticks: int = 3) -> str:
    fence = ":" * ticks
    return f"{fence}{{py:{kind}}} {head}\n{body.rstrip()}\n{fence}\n"


def _signature(value: Any, *, bound: bool = False) -> str:
    """The parameters with their types, as the source has them; long defaults are left out."""
    signature = inspect.signature(value)
    parameters = [
        x.replace(annotation=_type(x.annotation), default=_default(x.default))
        for x in list(signature.parameters.values())[1 if bound else 0 :]
    ]
    returned = signature.empty if isinstance(value, type) else signature.return_annotation
    return str(signature.replace(parameters=parameters, return_annotation=_type(returned)))


class _Text(str):
    """A text that a signature shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _type(annotation: object) -> object:
    if annotation is inspect.Signature.empty:
        return annotation
    if isinstance(annotation, type):
        return _Text(annotation.__name__)
    return _Text(str(annotation).replace("typing.", ""))


def _default(value: object) -> object:
    if value is inspect.Signature.empty:
        return value
    text = repr(value)
    if " at 0x" in text or len(text) > 40:
        return _Text("...")
    return _Text(f'"{value}"') if isinstance(value, str) else value


def _doc(value: Any) -> str:
    return markdown(inspect.getdoc(value) or "")


def markdown(docstring: str) -> str:
    """A docstring as Markdown: its sections as lists."""
    out: list[str] = []
    lines = docstring.splitlines()
    at = 0
    while at < len(lines):
        section = SECTION.match(lines[at])
        at += 1
        if section is None:
            out.append(lines[at - 1])
            continue
        body = []
        while at < len(lines) and (not lines[at] or lines[at].startswith(" ")):
            body.append(lines[at])
            at += 1
        items = _items(textwrap.dedent("\n".join(body)))
        name = {"Args": "Arguments"}.get(section[1], section[1])
        out += ["", f"**{name}**", "", *items, ""]
    return "\n".join(out)


def _items(body: str) -> list[str]:
    out: list[str] = []
    for line in body.strip().splitlines():
        item = ITEM.match(line)
        if item:
            out.append(f"- `{item[1]}`: {item[2]}")
        else:
            out.append(f"  {line.strip()}" if out else line)
    return out
