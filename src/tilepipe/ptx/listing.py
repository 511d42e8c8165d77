"""What a PTX file has, and what of it is not modelled."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tilepipe.errors import PtxError
from tilepipe.ptx.compiler.definitions import findings
from tilepipe.ptx.compiler.segments import prepared
from tilepipe.ptx.loading import load
from tilepipe.ptx.syntax.nodes import Function, Variable


@dataclass(frozen=True)
class Parameter:
    """A parameter of an entry point: its type in PTX ("u64", "b8"), bytes, and alignment."""

    name: str
    type: str
    nbytes: int
    align: int


@dataclass(frozen=True)
class Missing:
    """An instruction that is not modelled: its line in the PTX text, the place in the source that
    `.loc` gives, or "", the instruction, and why.
    """

    line: int
    source: str
    instruction: str
    reason: str


@dataclass(frozen=True)
class Entry:
    """An entry point.

    Attributes:
        directives: "maxntid" -> (256, 1, 1). shared: static bytes of shared memory; dynamic:
            whether the launch gives it more. instructions: name -> how many, most frequent first.
        missing: what is not modelled, in the order of the text.
    """

    name: str
    parameters: tuple[Parameter, ...]
    directives: dict[str, tuple[int, ...]]
    shared: int
    dynamic: bool
    instructions: dict[str, int]
    missing: tuple[Missing, ...]


@dataclass(frozen=True)
class Listing:
    """A PTX file: the version of the PTX ISA, the target, the entry points."""

    version: str
    target: str
    entries: tuple[Entry, ...]

    @property
    def modelled(self) -> bool:
        """Whether every instruction is."""
        return not any(entry.missing for entry in self.entries)


def listing(source: str | Path) -> Listing:
    """What a PTX file, or text, has.

    Raises:
        PtxError: it cannot be read, or has no entry point.
    """
    kernels = load(source)
    if not kernels:
        raise PtxError(f"{source if isinstance(source, Path) else 'the text'}: no entry point")
    module = next(iter(kernels.values())).module
    entries = tuple(
        _entry(kernel.function, list(module.variables.values()), module.functions)
        for kernel in kernels.values()
    )
    return Listing(".".join(map(str, module.version)), ", ".join(module.targets), entries)


def _entry(function: Function, variables: list[Variable], functions: dict[str, Function]) -> Entry:
    shared = [v for v in (*variables, *function.variables) if v.space == "shared"]
    counts = Counter(instruction.name for instruction in function.instructions)
    try:
        missing = [
            Missing(i.line, str(i.position or ""), str(i), reason)
            for i, reason in findings(prepared(function, functions), functions)
        ]
    except PtxError as error:  # a call that cannot be followed
        missing = [Missing(function.line, "", f".entry {function.name}", str(error))]
    return Entry(
        function.name,
        tuple(Parameter(p.name, p.type, p.nbytes, p.align) for p in function.parameters),
        dict(function.directives),
        sum(v.nbytes for v in shared if not v.external),
        any(v.external for v in shared),
        dict(counts.most_common()),
        tuple(missing),
    )
