"""`tilepipe ptx`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tilepipe.cli.common import Json, app, out, print_json

if TYPE_CHECKING:
    from tilepipe.ptx.listing import Entry

LINES_SHOWN = 20


@app.command()
def ptx(
    file: Annotated[Path, typer.Argument(help="A file of PTX.", metavar="FILE")],
    script_of: Annotated[
        str, typer.Option("--script", metavar="ENTRY", help="A Python program that runs this one.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Lists what a PTX file has: entry points, parameters, instructions, and what the reader does
    not model. Exits with 1 if there is anything of that.

    --script prints a Python program instead, which binds an entry point (a part of its name is
    enough) and runs it: the place to put its arguments in.
    """
    from tilepipe.ptx.listing import listing, script
    from tilepipe.ptx.loading import load

    found = listing(file)
    if script_of:
        name = load(file)[script_of].name
        print(script(file, next(e for e in found.entries if e.name == name)))
        return
    if as_json:
        print_json({"file": str(file), "modelled": found.modelled, **asdict(found)})
    else:
        out.print(f"{file}: PTX {found.version} for {found.target}")
        for entry in found.entries:
            _show(entry)
    if not found.modelled:
        raise typer.Exit(1)


def _show(entry: Entry) -> None:
    directives = ", ".join(
        f".{name} {', '.join(map(str, values))}".rstrip()
        for name, values in entry.directives.items()
    )
    dynamic = " and what the launch gives" if entry.dynamic else ""
    out.print(f"\nentry {entry.name}{f' ({directives})' if directives else ''}")
    if entry.readable != entry.name:
        out.print(f"  in C++: {entry.readable}")
    out.print(f"  shared memory: {entry.shared:,} bytes{dynamic}")
    table = Table.grid(padding=(0, 2))
    for p in entry.parameters:
        size = f"{p.nbytes} bytes at {p.offset}"
        table.add_row("  parameter", p.name, f".{p.type}", size, f"align {p.align}")
    out.print(table)
    opcodes: Counter[str] = Counter()
    for name, count in entry.instructions.items():
        opcodes[name.partition(".")[0]] += count
    total = sum(opcodes.values())
    out.print(f"  {total:,} instructions of {len(entry.instructions)} kinds:")
    out.print("  " + ", ".join(f"{name} {count}" for name, count in opcodes.most_common()))
    if not entry.missing:
        out.print("  all are modelled")
        return
    out.print(f"  {len(entry.missing):,} are not modelled:")
    for one in entry.missing[:LINES_SHOWN]:
        source = f" ({one.source})" if one.source else ""
        out.print(f"    line {one.line}{source}: {one.reason}")
    if len(entry.missing) > LINES_SHOWN:
        out.print(f"    and {len(entry.missing) - LINES_SHOWN:,} more; --json has them all")
