"""What a compiled kernel leaves as test data: its PTX, and how to launch it."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "tests" / "ptx" / "foreign" / "data"


@dataclass(frozen=True)
class Recorded:
    """A kernel as a compiler left it.

    Attributes:
        name: of the record. compiler: with its version. source: file and function that were
            compiled. arch: "sm_90a" or "sm_100a". entry: name of the entry point. block, cluster:
            extents in threads and CTAs. smem: bytes of dynamic shared memory. parameters: one
            mapping for each parameter of the entry point, hidden ones included; its "kind" says
            what to pass. constants: what the kernel was compiled for. ptx: the text.
        grid: in CTAs, where the compiled host code says it. types: of the tensors' elements, where
            the parameters do not say them.
    """

    name: str
    compiler: str
    source: str
    arch: str
    entry: str
    block: list[int]
    cluster: list[int]
    smem: int
    parameters: list[dict[str, Any]]
    constants: dict[str, Any]
    ptx: str = field(repr=False)
    grid: list[int] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)


def kept(ptx: str) -> str:
    """PTX without what depends on where the source lay: names of files, and debug sections."""
    code = ptx.split("\t.section", 1)[0]
    return re.sub(r'"[^"]*(?=tools/foreign/)', '"', code)


def write(compiler: str, kernels: Iterable[Recorded], *, some: bool = False) -> None:
    """Writes NAME.ptx.gz for each kernel, and COMPILER.json, which has how to launch them.

    Args:
        some: these are some of the compiler's kernels; the others stay.
    """
    DATA.mkdir(parents=True, exist_ok=True)
    listing = DATA / f"{compiler}.json"
    launches: dict[str, Any] = {}
    if some and listing.exists():
        launches = json.loads(listing.read_text(encoding="utf-8"))
    for kernel in kernels:
        launch = asdict(kernel)
        ptx = launch.pop("ptx")
        name = launch.pop("name")
        text = f"// {kernel.source}, compiled by {kernel.compiler} for {kernel.arch}\n{kept(ptx)}"
        # No time in the file: compiling the same again changes nothing.
        (DATA / f"{name}.ptx.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        launches[name] = launch
    for path in DATA.glob(f"{compiler}_*.ptx.gz"):
        if path.name.removesuffix(".ptx.gz") not in launches:
            path.unlink()
    text = json.dumps(launches, indent=1, sort_keys=True)
    listing.write_text(text + "\n", encoding="utf-8")
