"""`tilepipe show`: the roles of a kernel, its rings and barriers, its shared memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from tilepipe.cli.common import Json, Settings, What, app, err, out, print_json, write_output
from tilepipe.errors import BindError

if TYPE_CHECKING:
    from tilepipe.description import Description


@app.command()
def show(
    what: What,
    settings: Settings = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Where to draw it: .svg, the graph of the pipelines; .html, tables beside it.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Shows what a kernel is made of: roles with their warps and registers, who fills and who
    drains each ring and barrier, and in which lines, and where shared memory goes.
    """
    from tilepipe.cli import programs

    if output is not None:
        _check_output(output)
    program, _, config = programs.one_program(what, settings or [])
    found = program.describe()
    if output is not None:
        _write(found, output)
    if as_json:
        print_json(
            {
                "kernel": what,
                "config": config,
                "output": None if output is None else str(output),
                "program": found.report(),
            }
        )
    elif output is None:
        _print(found)
    else:
        roles, rings = len(found.roles), len(found.rings)
        err.print(
            f"{output}: {roles} role{'' if roles == 1 else 's'}, {rings}"
            f" ring{'' if rings == 1 else 's'}"
        )


def _check_output(output: Path) -> None:
    if output.suffix.lower() not in (".svg", ".html"):
        raise BindError(
            f"-o {output}: a kernel is drawn as a picture, -o {output.stem or 'k'}.svg, or a page,"
            f" -o {output.stem or 'k'}.html"
        )


def _write(found: Description, output: Path) -> None:
    from tilepipe import markup

    svg = output.suffix.lower() == ".svg"
    text = found.svg() if svg else markup.page(found.name, found.html())
    write_output(output, text)


def _print(d: Description) -> None:
    out.print(f"{d.name}: {d.launch}\n")
    roles = Table("role", "threads", title="Roles", title_justify="left")
    roles.add_column("registers", justify="right")
    roles.add_column("does")
    for role in d.roles:
        registers = "" if role.registers is None else str(role.registers)
        roles.add_row(*map(Text, (role.name, role.threads, registers, ", ".join(role.does))))
    out.print(roles, soft_wrap=False)
    for ring in d.rings:
        out.print(f"{ring.name}: {ring.about}")
    rings = Table("barrier", "a phase takes", title="Barriers", title_justify="left")
    rings.add_column("who, and in which lines", overflow="fold")
    for barrier in d.every_barrier:
        lines = (f"{d.roles[a.role].name} {a.does} {', '.join(a.at)}" for a in barrier.actions)
        rings.add_row(*map(Text, (barrier.name, barrier.needs, "\n".join(lines))))
    if rings.row_count:
        out.print(rings, soft_wrap=False)
    memory = Table(title="Shared memory", title_justify="left")
    memory.add_column("offset", justify="right")
    memory.add_column("name")
    memory.add_column("bytes", justify="right")
    memory.add_column("what")
    for part in d.memory:
        name = part.name or part.kind
        memory.add_row(f"{part.offset:,}", Text(name), f"{part.nbytes:,}", Text(part.what))
    if any(part.kind != "free" for part in d.memory):
        out.print(memory, soft_wrap=False)
    arguments = Table("argument", "value", "type", "use", title="Arguments", title_justify="left")
    for x in d.arguments:
        arguments.add_row(*map(Text, (x.name, x.value, x.what, x.use)))
    if d.arguments:
        out.print(arguments, soft_wrap=False)
