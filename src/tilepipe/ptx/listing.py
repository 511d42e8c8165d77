"""The contents of a PTX file, and the instructions that are not modelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilepipe.errors import PtxError
from tilepipe.ptx.compiler.compiled_function import prepared
from tilepipe.ptx.compiler.undefined_operands import findings
from tilepipe.ptx.limits import wrong_target
from tilepipe.ptx.loading import load
from tilepipe.ptx.names import readable_name
from tilepipe.ptx.syntax.nodes import TYPE_BYTES, Function, Module


@dataclass(frozen=True)
class Parameter:
    """A parameter of an entry point: its type in PTX ("u64", "b8"), bytes, alignment, and the
    offset among the parameters.
    """

    name: str
    type: str
    nbytes: int
    align: int
    offset: int


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
        readable: the name without what C++ adds to it. directives: "maxntid" -> (256, 1, 1).
        shared: static bytes of shared memory; dynamic: whether the launch gives it more.
        instructions: name -> how many, most frequent first.
        missing: what is not modelled, in the order of the text.
    """

    name: str
    readable: str
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
        """True if every instruction is."""
        return not any(entry.missing for entry in self.entries)


def listing(source: str | Path) -> Listing:
    """The contents of a PTX file, or text.

    Raises:
        PtxError: it cannot be read, or has no entry point.
    """
    kernels = load(source)
    if not kernels:
        raise PtxError(f"{source if isinstance(source, Path) else 'the text'}: no entry point")
    module = next(iter(kernels.values())).module
    entries = tuple(_entry(kernel.function, module) for kernel in kernels.values())
    return Listing(".".join(map(str, module.version)), ", ".join(module.targets), entries)


def _entry(function: Function, module: Module) -> Entry:
    functions, targets = module.functions, module.targets
    variables = (*module.variables.values(), *function.variables)
    shared = [v for v in variables if v.space == "shared"]
    counts = Counter(instruction.name for instruction in function.instructions)
    try:
        missing = [
            Missing(i.line, str(i.position or ""), str(i), reason)
            for i, reason in findings(prepared(function, functions), functions)
        ]
        for i in function.instructions:
            if reason := wrong_target(i.opcode, targets):
                missing.append(
                    Missing(i.line, str(i.position or ""), str(i), f"{i.name}: {reason}")
                )
        missing.sort(key=lambda one: one.line)
    except PtxError as error:  # a call that cannot be followed
        missing = [Missing(function.line, "", f".entry {function.name}", str(error))]
    return Entry(
        function.name,
        readable_name(function.name),
        tuple(_parameters(function)),
        dict(function.directives),
        sum(v.nbytes for v in shared if not v.external),
        any(v.external for v in shared),
        dict(counts.most_common()),
        tuple(missing),
    )


def _parameters(function: Function) -> Iterator[Parameter]:
    offset = 0
    for p in function.parameters:
        offset = -(-offset // p.align) * p.align
        yield Parameter(p.name, p.type, p.nbytes, p.align, offset)
        offset += p.nbytes


def script(file: Path, entry: Entry) -> str:
    """A Python program that binds an entry point and runs it, with places for its arguments."""
    arguments = [f"    {_placeholder(p)},  # {p.name}" for p in entry.parameters]
    block = entry.directives.get("reqntid") or entry.directives.get("maxntid") or (128,)
    cluster = entry.directives.get("reqnctapercluster")
    extents = [f"block={tuple(block)}", *([f"cluster={tuple(cluster)}"] if cluster else [])]
    if entry.dynamic:
        extents.append("smem=0")
    return "\n".join(
        [
            "import numpy as np",
            "",
            "from tilepipe import ptx",
            "",
            f"kernel = ptx.load({str(file)!r})[{entry.name!r}]",
            "arguments = [",
            *arguments,
            "]",
            f"launch = kernel.bind(arguments, grid={tuple(cluster or (1,))}, {', '.join(extents)})",
            "launch.run(seed=0)",
            "print(*launch.printed, *launch.advice, sep='\\n')",
        ]
    )


def _placeholder(parameter: Parameter) -> str:
    """A value for a parameter, to be replaced: where a number of 8 bytes may be a pointer, one."""
    if parameter.nbytes != TYPE_BYTES[parameter.type] or parameter.type == "b8":
        return f"ptx.Struct({parameter.nbytes}, {{}})"
    if parameter.type in ("u64", "b64"):
        return "np.zeros(1 << 16, np.float32)"
    return "0.0" if parameter.type[0] == "f" else "0"
