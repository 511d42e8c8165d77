"""What a launch of an exported kernel needs to know, as a JSON file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilepipe import _version, files
from tilepipe.errors import ExportError
from tilepipe.export.fields import Fields
from tilepipe.export.rules import CLUSTERS, Number, Rule, names_in, to_json
from tilepipe.ir.memory import ScalarParam, TensorParam

FORMAT = 2
KINDS = "map", "data", "stride", "shape", "scalar"  # of arguments of the machine code


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor parameter.

    Attributes:
        extents: outermost first, numbers where they are fixed, and names.
        memory: dimensions as they lie in memory, outermost first.
        strides: those that the exported program had, in elements; None where it had no gaps.
        written: the kernel writes it. zero: it must hold zeros when the kernel starts.
    """

    param: TensorParam
    extents: tuple[int | str, ...]
    memory: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    written: bool = False
    zero: bool = False

    def __str__(self) -> str:
        """What an array for it has to be: "float32 (m, 64), all 0 before the first launch"."""
        notes = [f"{self.param.dtype.name} ({', '.join(map(str, self.extents))})"]
        if self.memory != tuple(range(self.param.rank)):
            notes.append(f"in memory ({', '.join(str(self.extents[i]) for i in self.memory)})")
        if self.zero:
            notes.append("all 0 before the first launch")
        return ", ".join(notes)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A parameter passed by value. `value`: that of the exported program."""

    param: ScalarParam
    value: Number


@dataclass(frozen=True, slots=True)
class Passed:
    """An argument of the machine code: `cuda.codegen.parameters.Argument`, by name."""

    kind: str
    parameter: str
    axis: int = -1


@dataclass(frozen=True, slots=True)
class Condition:
    """What a launch must meet. `message` has a `{}` for each value of `shows`; `at`: FILE:LINE of
    the kernel.
    """

    holds: Rule
    message: str
    shows: tuple[Rule, ...]
    at: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """An exported kernel.

    Attributes:
        name: of its files. kernel: of the Python function. entry: of the `__global__` function.
        sms: multiprocessors that the grid counts on; 0: it does not depend on them.
        threads: of a CTA. cluster: CTAs of a cluster. smem_bytes: of dynamic shared memory.
        grid: CTAs. conditions: of each launch.
        cubin_sha256: of the machine code; source_sha256: of the CUDA that it was compiled from.
    """

    name: str
    kernel: str
    entry: str
    arch: str
    sms: int
    threads: int
    cluster: int
    smem_bytes: int
    cooperative: bool
    parameters: tuple[Tensor | Scalar, ...]
    arguments: tuple[Passed, ...]
    grid: Rule
    conditions: tuple[Condition, ...]
    cubin_bytes: int
    cubin_sha256: str
    source_sha256: str

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors among the parameters, in their order."""
        return tuple(x for x in self.parameters if isinstance(x, Tensor))

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The parameters passed by value, in their order."""
        return tuple(x for x in self.parameters if isinstance(x, Scalar))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the extents that are chosen at each launch, in the order of their first
        use.
        """
        names = (n for tensor in self.tensors for n in tensor.extents if isinstance(n, str))
        return tuple(dict.fromkeys(names))

    @property
    def cubin_file(self) -> str:
        """The name of the file with the machine code."""
        return f"{self.name}.cubin"

    @property
    def compute_capability(self) -> tuple[int, int, bool]:
        """(major, minor, whether later minor versions will do) of a GPU that runs it."""
        digits = self.arch.removeprefix("sm_")[:-1]
        return int(digits[:-1]), int(digits[-1]), self.arch.endswith("f")

    def runs_on(self, major: int, minor: int) -> bool:
        """Whether a GPU of this compute capability runs it."""
        home, least, family = self.compute_capability
        return major == home and (minor >= least if family else minor == least)

    def to_text(self) -> str:
        """The manifest as JSON, with a SHA-256 of all of it."""
        body = self._fields()
        return json.dumps(body | {"sha256": _digest(body)}, indent=1) + "\n"

    def _fields(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "tilepipe": _version.__version__,
            "name": self.name,
            "kernel": self.kernel,
            "entry": self.entry,
            "arch": self.arch,
            "sms": self.sms,
            "threads": self.threads,
            "cluster": self.cluster,
            "smem_bytes": self.smem_bytes,
            "cooperative": self.cooperative,
            "parameters": [parameter_fields(x) for x in self.parameters],
            "arguments": [
                {"kind": x.kind, "parameter": x.parameter}
                | ({} if x.axis < 0 else {"axis": x.axis})
                for x in self.arguments
            ],
            "grid": to_json(self.grid),
            "conditions": [
                {
                    "holds": to_json(x.holds),
                    "message": x.message,
                    "shows": [to_json(y) for y in x.shows],
                    "at": x.at,
                }
                for x in self.conditions
            ],
            "cubin": {
                "file": self.cubin_file,
                "bytes": self.cubin_bytes,
                "sha256": self.cubin_sha256,
            },
            "source_sha256": self.source_sha256,
        }


def parameter_fields(x: Tensor | Scalar) -> dict[str, Any]:
    """A parameter as the manifest has it."""
    if isinstance(x, Scalar):
        dtype = x.param.dtype.name
        return {"name": x.param.name, "kind": "scalar", "dtype": dtype, "value": x.value}
    p = x.param
    return {
        "name": p.name,
        "kind": "tensor",
        "dtype": p.dtype.name,
        "rank": p.rank,
        "extents": list(x.extents),
        "memory": list(x.memory),
        "strides": None if x.strides is None else list(x.strides),
        "order": p.order,
        "box": None if p.box is None else list(p.box),
        "swizzle": p.swizzle,
        "ragged": p.ragged,
        "loaded": p.loaded,
        "written": x.written,
        "zero": x.zero,
    }


def _parameter(found: Fields) -> Tensor | Scalar:
    name, dtype = found.text("name"), found.dtype("dtype")
    if not name.isidentifier():
        raise found.wrong("name", name, "the name of a parameter")
    if found.text("kind", "scalar", "tensor") == "scalar":
        return Scalar(ScalarParam(name, dtype), found.number("value"))
    rank = found.integer("rank", 1)
    box, order = found.integers_or_null("box", rank, 1), found.text("order", "row", "col")
    swizzle, ragged, loaded = found.integer("swizzle"), found.flag("ragged"), found.flag("loaded")
    param = TensorParam(name, dtype, rank, order, box, swizzle, ragged, loaded)
    memory = found.integers("memory", rank)
    if sorted(memory) != list(range(rank)):
        raise found.wrong("memory", [*memory], f"the dimensions 0 to {rank - 1} in an order")
    strides = found.integers_or_null("strides", rank)
    extents = found.extents("extents", rank)
    return Tensor(param, extents, memory, strides, found.flag("written"), found.flag("zero"))


def _passed(found: Fields, parameters: tuple[Tensor | Scalar, ...]) -> Passed:
    name, kind = found.text("parameter"), found.text("kind", *KINDS)
    param = next((x.param for x in parameters if x.param.name == name), None)
    if param is None:
        names = ", ".join(x.param.name for x in parameters)
        raise found.wrong("parameter", name, f"the name of a parameter, {names or 'of none'}")
    axis = found.integer("axis") if kind in ("stride", "shape") else -1
    if isinstance(param, TensorParam) == (kind == "scalar"):
        raise found.wrong("kind", kind, f"what '{name}' is passed as")
    if isinstance(param, TensorParam) and axis >= param.rank:
        raise found.wrong("axis", axis, f"a dimension of '{name}', which has {param.rank}")
    return Passed(kind, name, axis)


def _condition(found: Fields, names: Collection[str]) -> Condition:
    made = Condition(
        found.rule("holds"), found.text("message"), found.rules("shows"), found.text("at")
    )
    for rule in (made.holds, *made.shows):
        _check_names(found, "holds", rule, names)
    try:
        made.message.format(*made.shows)
    except (AttributeError, LookupError, ValueError):
        wanted = f"a text with {{}} for each of {len(made.shows)} values"
        raise found.wrong("message", made.message, wanted) from None
    return made


def _check_names(found: Fields, name: str, rule: Rule, names: Collection[str]) -> None:
    unknown = [x for x in names_in(rule) if x not in names]
    if unknown:
        known = ", ".join(names) or "of none"
        raise found.wrong(name, to_json(rule), f"an expression over {known}")


def _digest(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read(path: Path) -> Manifest:
    """The manifest in a file.

    Raises:
        ExportError: there is no such file, it is none, of another format, or was changed.
    """
    try:
        return _read(path)
    except RecursionError:  # the text is parsed, but its parts are read one within the other
        raise ExportError(
            f"{path} is no manifest of an exported kernel: it is nested too deeply"
        ) from None


def _read(path: Path) -> Manifest:
    try:
        text = files.read(path)
    except OSError as error:
        raise ExportError(f"cannot read the manifest {path}: {error.strerror}") from None
    try:
        body = files.parsed_json(text)
        digest, version = body.pop("sha256"), body["format"]
    except (KeyError, AttributeError, TypeError):
        raise ExportError(f"{path} is no manifest of an exported kernel") from None
    except ValueError as error:
        raise ExportError(f"{path} is no manifest of an exported kernel: {error}") from None
    if version != FORMAT:
        raise ExportError(
            f"{path} is of format {version}, written by tilepipe {body.get('tilepipe')}; this is"
            f" tilepipe {_version.__version__}, which reads format {FORMAT}. Export it again."
        )
    if _digest(body) != digest:
        raise ExportError(
            f"{path} is not as it was exported: its SHA-256 is another. Export again, all files"
            " together."
        )
    return _manifest(Fields(path, body))


def _manifest(found: Fields) -> Manifest:
    name = found.text("name")
    if not name.isidentifier():  # or it could lead out of the folder
        raise ExportError(
            f"{found.path} names its files {name!r:.80}, which is no name that `export` gives"
        )
    arch = found.text("arch")
    if not re.fullmatch(r"sm_\d{2,3}[af]", arch):
        raise found.wrong("arch", arch, "a target such as sm_90a")
    parameters = tuple(map(_parameter, found.parts("parameters")))
    extents = (x for tensor in parameters if isinstance(tensor, Tensor) for x in tensor.extents)
    names = [x for x in extents if isinstance(x, str)]
    names += [x.param.name for x in parameters if isinstance(x, Scalar)]
    grid, known = found.rule("grid"), list(dict.fromkeys(names))
    _check_names(found, "grid", grid, known)
    cubin = found.part("cubin")
    return Manifest(
        name,
        found.text("kernel"),
        found.text("entry"),
        arch,
        found.integer("sms"),
        found.integer("threads", 1),
        found.integer("cluster", 1),
        found.integer("smem_bytes"),
        found.flag("cooperative"),
        parameters,
        tuple(_passed(x, parameters) for x in found.parts("arguments")),
        grid,
        tuple(_condition(x, [*known, CLUSTERS]) for x in found.parts("conditions")),
        cubin.integer("bytes"),
        cubin.text("sha256"),
        found.text("source_sha256"),
    )
