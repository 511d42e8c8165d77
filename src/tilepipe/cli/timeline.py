"""`tilepipe timeline`: when the asynchronous units of a simulated run are busy."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

import tilepipe as tp
from tilepipe.cli.common import Json, Settings, What, app, counting, err, out, print_json
from tilepipe.errors import BindError

if TYPE_CHECKING:
    from tilepipe.machine.agents import Agent
    from tilepipe.machine.sites import Site


@dataclass(frozen=True)
class Event:
    """A copy or an MMA, from its issue to its completion in microseconds since its CTA started."""

    cta: int
    role: str
    kind: str
    what: str
    at: str
    start_us: float
    end_us: float


@app.command()
def timeline(
    what: What,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE.json", help="Where to write it.")
    ],
    settings: Settings = None,
    ctas: Annotated[int, typer.Option(help="How many CTAs it has, from the first on.", min=1)] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the data and the interleaving.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Simulates a kernel and writes when its copies and MMAs are in flight, by the cost model, as
    trace events: ui.perfetto.dev and chrome://tracing open them.
    """
    from tilepipe.cli import programs
    from tilepipe.cli.run_file import the_program

    with contextlib.redirect_stdout(sys.stderr):  # what a file prints
        if programs.names_file(what):
            found = programs.target(what, settings or [])
            program, config = the_program(found), found.config
        else:
            spec = programs.shipped_kernel(what)
            made, _ = spec.configure(spec.parse(settings or []), None)
            program, config = spec.make(made, seed).program, dict(made)
    with counting("simulating CTAs", as_json) as progress:
        events, us = recorded(program, ctas, seed, progress)
    try:
        output.write_text(json.dumps(trace(events), ensure_ascii=False), encoding="utf-8")
    except OSError as error:
        raise BindError(f"cannot write {output}: {error.strerror}") from None
    rows = units(events)
    if as_json:
        print_json(
            {
                "kernel": what,
                "config": config,
                "output": str(output),
                "ctas": len({e.cta for e in events}),
                "events": len(events),
                "simulated_us": us,
                "units": rows,
            }
        )
        return
    table = Table("op", title=f"{what}, modelled time {us:.1f} µs", title_justify="left")
    for column in ("count", "mean µs", "busy"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row["kind"], f"{row['count']:,}", f"{row['mean_us']:.2f}", f"{row['busy']:.0%}"
        )
    out.print(table, soft_wrap=False)
    out.print(
        "busy: the part of the time from a CTA's start to its last completion with one in flight"
    )
    err.print(f"{output}: {len(events):,} events; ui.perfetto.dev opens it")


def recorded(program: tp.Program, ctas: int, seed: int, progress: Any) -> tuple[list[Event], float]:
    """The events of the first CTAs of a run, and its modelled time in microseconds."""
    events: list[Event] = []
    per_us = program.launch_args.chip.clock_ghz * 1e3

    def record(agent: Agent, site: Site, start: float, end: float) -> None:
        cta = agent.cta.block_id
        if cta < ctas:
            at, role = site.loc.short, agent.role.name
            events.append(Event(cta, role, site.kind, site.what, at, start / per_us, end / per_us))

    run = program.run(seed=seed, progress=progress, on_event=record)
    return events, run.simulated_us


def trace(events: Sequence[Event]) -> dict[str, Any]:
    """The events in the Trace Event Format: a process for each CTA, a track for each role. Events
    of a track overlap, so that each has a beginning and an end with an id of their own.
    """
    roles = list(dict.fromkeys(e.role for e in events))
    found: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": cta, "args": {"name": f"CTA {cta}"}}
        for cta in sorted({e.cta for e in events})
    ]
    for cta, role in sorted({(e.cta, e.role) for e in events}):
        place = {"pid": cta, "tid": roles.index(role)}
        found.append({"ph": "M", "name": "thread_name", **place, "args": {"name": role}})
    for number, e in enumerate(events):
        common = {
            "cat": e.kind,
            "name": e.what,
            "id": number,
            "pid": e.cta,
            "tid": roles.index(e.role),
        }
        found.append({"ph": "b", "ts": e.start_us, **common, "args": {"at": e.at}})
        found.append({"ph": "e", "ts": e.end_us, **common})
    return {"traceEvents": found, "displayTimeUnit": "ns"}


def units(events: Sequence[Event]) -> list[dict[str, Any]]:
    """For each kind of op how many there were, how long one took, and the part of the CTAs' time in
    which one was in flight.
    """
    ends: dict[int, float] = {}
    for e in events:
        ends[e.cta] = max(ends.get(e.cta, 0.0), e.end_us)
    rows = []
    for kind in dict.fromkeys(e.kind for e in events):
        mine = [e for e in events if e.kind == kind]
        busy = sum(_covered([e for e in mine if e.cta == cta]) for cta in ends)
        rows.append(
            {
                "kind": kind,
                "count": len(mine),
                "mean_us": sum(e.end_us - e.start_us for e in mine) / len(mine),
                "busy": busy / sum(ends.values()) if any(ends.values()) else 0.0,
            }
        )
    return rows


def _covered(events: Sequence[Event]) -> float:
    """Microseconds in which at least one is in flight."""
    total = reached = 0.0
    for e in sorted(events, key=lambda e: e.start_us):
        total += max(0.0, e.end_us - max(e.start_us, reached))
        reached = max(reached, e.end_us)
    return total
