"""Kernels as text: lines with blocks under them, the roles that have them, and the program that
Python makes of the text.

A generated kernel is kept as lines and not as ops, so that a mistake is planted where a person
would make it, and what is found can be pasted into a file and run.
"""

from __future__ import annotations

import copy
import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tilepipe as tp


@dataclass
class Line:
    """A line of a kernel, and the block under it.

    Attributes:
        text: with {places} for `parts`. kind: what it is for, by which mistakes choose it: "wait",
            "arrive", "fence", ...
        certain: leaving it out is a fault in every order.
    """

    text: str
    kind: str = ""
    body: list[Line] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)
    certain: bool = False

    def __str__(self) -> str:
        return self.text.format(**self.parts)

    def printed(self, indent: int) -> Iterator[str]:
        text = str(self)
        yield "    " * indent + text
        if text.endswith(":") and not self.body:  # a mistake has taken out all that was under it
            yield "    " * (indent + 1) + "pass"
        for line in self.body:
            yield from line.printed(indent + 1)


def line(text: str, kind: str = "", *body: Line, certain: bool = False, **parts: object) -> Line:
    """A line; `parts` fill its places."""
    return Line(text, kind, list(body), {k: str(v) for k, v in parts.items()}, certain)


@dataclass
class Role:
    """A role of 1 or 4 warps, or of a warpgroup ("group")."""

    name: str
    size: str
    body: list[Line] = field(default_factory=list)

    @property
    def declared(self) -> str:
        return {"one": "warps=1", "four": "warps=4", "group": "warpgroups=1"}[self.size]

    @property
    def threads(self) -> int:
        return 32 if self.size == "one" else 128

    @property
    def one(self) -> str:
        """The block of one lane of the role."""
        return "with ctx.elect_one():" if self.size == "one" else 'with ctx.elect_one("role"):'

    @property
    def meet(self) -> str:
        """The barrier of all its threads."""
        return {
            "one": "ctx.syncwarp()",
            "four": "ctx.sync_role()",
            "group": "ctx.sync_warpgroup()",
        }[self.size]


@dataclass(frozen=True)
class Tensor:
    """An argument: int32 or float32, (rows, cols) or (n,), row r filled with 10 · r or all with 0,
    and the box of its TMA map.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "int32"
    filled: bool = False
    box: tuple[int, int] | None = None

    def array(self) -> np.ndarray[Any, Any]:
        made = np.zeros(self.shape, self.dtype)
        if self.filled:
            made += 10 * (np.arange(self.shape[0]) // (self.box[0] if self.box else 1)).astype(
                made.dtype
            ).reshape(-1, 1)
        return made


@dataclass
class Kernel:
    """A generated kernel.

    Attributes:
        mistake: what was planted, in words; "" where it is right by construction.
        expected: of a kernel with a mistake: "fault" where it is wrong in every order, "refused"
            where tracing must refuse it, else "".
    """

    features: frozenset[str]
    setup: list[Line]
    roles: list[Role]
    tensors: list[Tensor]
    cluster: int = 1
    mistake: str = ""
    expected: str = ""

    def copied(self) -> Kernel:
        return copy.deepcopy(self)

    def blocks(self) -> Iterator[tuple[Role | None, list[Line]]]:
        """Every block with the role it belongs to."""

        def under(role: Role | None, block: list[Line]) -> Iterator[tuple[Role | None, list[Line]]]:
            yield role, block
            for inner in block:
                if inner.body:
                    yield from under(role, inner.body)

        yield from under(None, self.setup)
        for role in self.roles:
            yield from under(role, role.body)

    def text(self) -> str:
        """The kernel's source."""
        names = ", ".join(["ctx", *(t.name for t in self.tensors)])
        size = f"grid={self.cluster}, cluster={self.cluster}" if self.cluster > 1 else ""
        out = [f"@tp.kernel({size})", f"def kernel({names}):"]
        for one in self.setup:
            out += one.printed(1)
        for role in self.roles:
            out += ["", f'    @ctx.role("{role.name}", {role.declared})', f"    def {role.name}():"]
            for one in role.body:
                out += one.printed(2)
        return "\n".join(out) + "\n"

    def arguments(self) -> list[Any]:
        """The tensors' arrays, or their maps, freshly filled."""
        arrays = [t.array() for t in self.tensors]
        return [
            tp.tensor_map(a, box=t.box, swizzle=0) if t.box else a
            for a, t in zip(arrays, self.tensors, strict=True)
        ]

    def script(self) -> str:
        """A file that runs and checks it."""
        made = []
        for t in self.tensors:
            array = f"np.zeros({t.shape}, np.{t.dtype})"
            if t.filled:
                rows = f" // {t.box[0]}" if t.box and t.box[0] > 1 else ""
                array = (
                    f"{array} + 10 *"
                    f" (np.arange({t.shape[0]}){rows}).astype(np.{t.dtype}).reshape(-1, 1)"
                )
            made.append(f"tp.tensor_map({array}, box={t.box}, swizzle=0)" if t.box else array)
        return (
            f"import numpy as np\n\nimport tilepipe as tp\n\n\n{self.text()}\n\nprogram ="
            f" kernel.bind({', '.join(made)})\n"
            "print(program.check().verdict)\n"
        )


FILE = "generated.py"  # the name under which Python knows the text of the kernel made last


def program(kernel: Kernel, **more: object) -> tp.Program:
    """Traces a kernel and binds it to fresh arguments. `more`: what else its text may name.

    Raises:
        TilepipeError: tracing refuses it.
    """
    text = kernel.text()
    linecache.cache[FILE] = (len(text), None, text.splitlines(True), FILE)
    scope: dict[str, Any] = {"tp": tp, **more}
    exec(compile(text, FILE, "exec"), scope)
    made: tp.Program = scope["kernel"].bind(*kernel.arguments())
    return made
