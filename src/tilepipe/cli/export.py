"""`tilepipe export`: a kernel as files to launch it from, without Python or a compiler."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tilepipe as tp
from tilepipe.cli.common import Json, Settings, What, app, out, print_json
from tilepipe.ir.chip import ARCHITECTURES, CHIPS

if TYPE_CHECKING:
    from tilepipe.cli.free_extents import Make


@app.command()
def export(
    what: What,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="Where the files go."),
    ],
    settings: Settings = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the files and functions; the kernel's unless given."),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(ARCHITECTURES),
            help="Target; unless given, the first that the kernel exists for with these settings.",
        ),
    ] = None,
    fixed: Annotated[
        bool,
        typer.Option("--fixed", help="All extents are those of the settings, at every launch."),
    ] = False,
    zero: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TENSOR", help="A tensor that holds zeros before the first launch; repeatable."
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Files of that name may be there, of another kernel or of none."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Exports a compiled kernel for serving: a cubin, a launcher in C, a manifest. Needs no GPU.

    Extents that follow a setting, such as m, are chosen at each launch, if the kernel stays the
    same when the setting changes.
    """
    from tilepipe.cli import programs
    from tilepipe.cli.free_extents import Extents, free_extents

    started = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):  # what a file prints
        if programs.names_file(what):
            found = programs.target(what, settings or [])
            program = programs.the_program(found)
            again: Make = found.instances[0].make
            config, target = found.config, arch
            zeros = zero or []
        else:
            program, config, again, target = _shipped(what, settings or [], arch)
            has = {x.name for x in program.kernel.params}
            known = (x for x in programs.shipped_kernel(what).zero if x in has)
            zeros = [*known, *(zero or [])]
        extents = Extents() if fixed else free_extents(program, again, config)
    path = program.export(
        output, name=name, extents=extents.of, zero=zeros, arch=target, replace=replace
    )
    seconds = time.perf_counter() - started
    manifest = tp.load_exported(path).manifest
    if as_json:
        print_json(
            {
                "kernel": what,
                "config": config,
                "arch": manifest.arch,
                "free": extents.free,
                "fixed": extents.fixed,
                "zero": [x.param.name for x in manifest.tensors if x.zero],
                "bytes": manifest.cubin_bytes,
                "seconds": seconds,
                "manifest": str(path),
            }
        )
        return
    words = (
        f"{', '.join(extents.free)} chosen at each launch" if extents.free else "every extent fixed"
    )
    out.print(
        f"{path}: '{manifest.kernel}' for {manifest.arch}, {manifest.cubin_bytes:,} bytes of"
        f" machine code; {words} ({seconds:.1f} s)"
    )
    for tensor in manifest.tensors:
        out.print(f"  {tensor.param.name}: {tensor}")
    for scalar in manifest.scalars:
        out.print(f"  {scalar.param.name}: {scalar.param.dtype}, {scalar.value} unless given")
    for setting, why in extents.fixed.items():
        out.print(f"  {setting} is fixed: {why}")


def _shipped(
    kernel: str, settings: list[str], arch: str | None
) -> tuple[tp.Program, dict[str, Any], Make, str]:
    """A shipped kernel: its program, what its problem is, what binds it again with a part of that
    changed, and the architecture to compile for.
    """
    from tilepipe.cli import programs

    spec = programs.shipped_kernel(kernel)
    given = spec.parse(settings)
    target = spec.target(given, arch)
    config, _ = spec.configure(given, CHIPS[target])

    def again(**changed: Any) -> tp.Program:
        return spec.case({**config, **changed}, 0).program

    problem = {n: value for n, value in config.items() if n in spec.work}
    return again(), problem, again, target
