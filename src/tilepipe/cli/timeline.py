"""`tilepipe timeline`: when copies and MMAs of a simulated run are in flight, and who waits for
whom.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

import tilepipe as tp
from tilepipe.cli.common import Json, Settings, What, app, counting, err, out, print_json
from tilepipe.errors import BindError

if TYPE_CHECKING:
    from tilepipe.timeline import Timeline

_SHOWN = 4  # things that a role waits for, in the terminal


@app.command()
def timeline(
    what: What,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Where to write it: .html, a page to look at; .json, for ui.perfetto.dev.",
        ),
    ],
    settings: Settings = None,
    beside: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT", help="A second kernel, or FILE.py:NAME, on the same page (.html)."
        ),
    ] = None,
    beside_settings: Annotated[
        list[str] | None,
        typer.Option(
            "--beside-set",
            metavar="NAME=VALUE",
            help="A setting of the second one; those of the first where none is given.",
        ),
    ] = None,
    ctas: Annotated[int, typer.Option(help="How many CTAs it has, from the first on.", min=1)] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the data and the interleaving.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Simulates a kernel and writes when its copies and MMAs are in flight, and which waits block,
    on what and until whose arrival, by the cost model, as a page or as trace events.
    """
    _check_output(output, beside)
    if beside is None and beside_settings:
        raise BindError("--beside-set is about the kernel of --beside, and there is none")
    found, config = _recorded(what, settings, ctas, seed, as_json)
    other = None
    if beside is not None:
        given = settings if beside_settings is None else beside_settings
        other, _ = _recorded(beside, given, ctas, seed, as_json)
    found.save(output, beside=other)
    if as_json:
        print_json(
            {
                "kernel": what,
                "config": config,
                "output": str(output),
                "ctas": found.ctas,
                "events": len(found.events),
                "simulated_us": found.simulated_us,
                "units": [
                    {"kind": x.op, "count": x.count, "mean_us": x.mean_us, "busy": x.busy}
                    for x in found.units()
                ],
                "roles": [
                    {
                        "role": x.role,
                        "agents": x.agents,
                        "busy": x.busy,
                        "waiting": x.waiting,
                        "waits": [
                            {"on": w.on, "own": w.own, "count": w.count, "us": w.us, "part": w.part}
                            for w in x.waits
                        ],
                    }
                    for x in found.roles()
                ],
            }
        )
        return
    for one in (found, other):
        if one is not None:
            _print(one)
    out.print(
        "in flight, waiting: parts of the agents' time, from a CTA's start to its last completion,"
        " by the cost model,\nwhich counts copies and MMAs and not arithmetic in registers"
    )
    count = len(found.events) + (len(other.events) if other is not None else 0)
    opens = "ui.perfetto.dev" if output.suffix == ".json" else "any browser"
    err.print(f"{output}: {count:,} events; {opens} opens it")


def _check_output(output: Path, beside: str | None) -> None:
    """Raises BindError before anything is simulated where the file has a wrong name."""
    if output.suffix not in (".html", ".json"):
        raise BindError(
            f"-o {output}: a timeline is a page, -o {output.stem or 't'}.html, or trace events for"
            f" ui.perfetto.dev, -o {output.stem or 't'}.json"
        )
    if beside is not None and output.suffix != ".html":
        raise BindError(f"-o {output}: two timelines are a page; give -o {output.stem}.html")
    if not output.parent.is_dir():
        raise BindError(f"cannot write {output}: No such file or directory")


def _recorded(
    what: str, settings: list[str] | None, ctas: int, seed: int, quiet: bool
) -> tuple[Timeline, dict[str, Any]]:
    """The timeline of a kernel's first CTAs, and the settings that it has run with."""
    from tilepipe.cli import programs

    program: tp.Program
    with contextlib.redirect_stdout(sys.stderr):  # what a file prints
        if programs.names_file(what):
            target = programs.target(what, settings or [])
            program, config = programs.the_program(target), target.config
        else:
            spec = programs.shipped_kernel(what)
            made, _ = spec.configure(spec.parse(settings or []), None)
            program, config = spec.make(made, seed).program, dict(made)
    with counting("simulating CTAs", quiet) as progress:
        found = program.run(seed=seed, progress=progress, timeline=ctas).timeline
    assert found is not None
    return replace(found, name=" ".join([what, *(settings or [])])), dict(config)


def _print(found: Timeline) -> None:
    """A row for each role: how long it waits, and for what, longest first."""
    title = f"{found.name}, {found.ctas:,} of {found.grid:,} CTAs"
    title += f", modelled time {found.simulated_us:.1f} µs"
    table = Table("role", title=title, title_justify="left")
    for column in ("in flight", "waiting"):
        table.add_column(column, justify="right")
    table.add_column("on what")
    for role in found.roles():
        waits = [f"{'its own ' if w.own else ''}{w.on} {w.part:.0%}" for w in role.waits[:_SHOWN]]
        more = len(role.waits) - _SHOWN
        name = role.role + (f" × {role.agents}" if role.agents > 1 else "")
        table.add_row(
            name,
            f"{role.busy:.0%}",
            f"{role.waiting:.0%}",
            ", ".join([*waits, *([f"{more} more"] if more > 0 else [])]),
        )
    out.print(table, soft_wrap=False)
    busy = found.utilisation()
    if busy:
        tensor, tma = (sum(x) / len(busy) for x in zip(*map(_busy, busy), strict=True))
        kinds = ", ".join(f"{x.count:,} {x.op} of {x.mean_us:.2f} µs" for x in found.units())
        out.print(f"tensor core {tensor:.0%}, TMA {tma:.0%} occupied; {kinds}")


def _busy(x: Any) -> tuple[float, float]:
    return x.tensor_busy, x.tma_busy
