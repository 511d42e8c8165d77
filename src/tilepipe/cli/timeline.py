"""`tilepipe timeline`: when copies and MMAs of a run are in flight, and who waits for whom."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilepipe.cli.common import Device, Json, Settings, Source, What, app, err, out, print_json
from tilepipe.cli.more_stages import MoreStages, more_stages
from tilepipe.cli.time_spent import report, show
from tilepipe.errors import BindError, SimFault

ROOM = 4096  # notes of a warp


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
    device: Annotated[
        Device,
        typer.Option(help="Where to run the kernel: simulated, or on device 0, which is timed."),
    ] = Device.sim,
    source: Annotated[
        Source,
        typer.Option(
            "--from",
            help="What is simulated: the program itself, or the PTX that its printed CUDA compiles"
            " to, instruction by instruction.",
        ),
    ] = Source.program,
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
            help="A setting of the second one. The same kernel, which is meant where --beside is"
            " left out, has those of the first otherwise; another one has those of them that it"
            " takes, where none is given.",
        ),
    ] = None,
    beside_device: Annotated[
        Device | None,
        typer.Option(
            help="Where the second one runs; as the first unless given. Without --beside, the same"
            " kernel runs there, too."
        ),
    ] = None,
    ctas: Annotated[int, typer.Option(help="How many CTAs it has, from the first on.", min=1)] = 4,
    room: Annotated[
        int | None,
        typer.Option(
            help=f"On a GPU: notes that each warp has memory for; {ROOM} unless given.", min=1
        ),
    ] = None,
    one_more: Annotated[
        bool,
        typer.Option(
            "--more-stages",
            help="Simulate the whole kernel once more for each setting that says how many stages"
            " there are, with one stage more, and say what that would save.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the data and the interleaving.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Runs a kernel and writes when its copies and MMAs are in flight, and which waits block, on
    what and until whose arrival, as a page or as trace events: by the cost model, or measured.

    Exit 1: a run ends in a fault; the page shows what led to it, and who is stuck, and the other
    kernel beside it.
    """
    from tilepipe.cli import programs
    from tilepipe.cli.recording import Outcome, Recipe, Recorded, save_outcomes

    if beside is None and (beside_device is not None or beside_settings):
        beside = what
    _check_output(output, beside)
    if beside is not None and "=" in beside and not programs.names_file(beside):
        raise BindError(
            f"--beside takes a kernel, got {beside}. To have {what} with other settings beside it,"
            f" give --beside-set {beside}"
        )
    if source is Source.ptx and device is Device.cuda:
        raise BindError("--from ptx simulates: it goes with --device sim")
    if one_more and (device is Device.cuda or source is Source.ptx):
        raise BindError(
            "--more-stages simulates the program itself: leave out --device cuda and --from ptx"
        )
    if room is not None and Device.cuda not in (device, beside_device):
        raise BindError("--room is for what is measured: give --device cuda, or leave it out")
    wanted = Recipe(ctas, ROOM if room is None else room, seed, as_json)
    one = Outcome.of(what, lambda: wanted.recorded(what, settings or [], device, source))
    two = None
    if beside is not None and (one.recorded is not None or isinstance(one.error, SimFault)):
        same = beside == what and not beside_settings and not programs.names_file(what)
        as_chosen = one.recorded.config if same and one.recorded is not None else None

        def second(beside: str = beside) -> Recorded:
            return wanted.recorded(
                beside,
                _settings_beside(settings or [], beside_settings or [], what, beside),
                device if beside_device is None else beside_device,
                source if beside_device is not Device.cuda else Source.program,
                as_chosen,
            )

        two = Outcome.of(beside, second)
    outcomes = [one] if two is None else [one, two]
    for failed in (x.error for x in outcomes if x.error is not None):
        save_outcomes(output, *outcomes)
        raise failed
    first = one.recorded
    assert first is not None
    found, other = first.timeline, None if two is None else two.timeline
    found.save(output, beside=other)
    more: list[MoreStages] = []
    if one_more and found.simulated_us is not None:
        if not first.stages:
            err.print(f"--more-stages: no setting of {what} says how many stages there are")
        more = more_stages(first.make, first.stages, found.simulated_us, as_json)
    if as_json:
        about = {"kernel": what, "config": first.config, "output": str(output)}
        print_json({**about, **report(found), "more_stages": [x.report() for x in more]})
        return
    show(found)
    for change in more:
        out.print(str(change))
    if other is not None:
        out.print()
        show(other)
    count = len(found.events) + (len(other.events) if other is not None else 0)
    opens = "ui.perfetto.dev" if output.suffix.lower() == ".json" else "any browser"
    err.print(f"{output}: {count:,} events; {opens} opens it")


def _settings_beside(first: list[str], second: list[str], what: str, beside: str) -> list[str]:
    """The settings of the second kernel, `beside`, of which `second` are said."""
    from tilepipe.cli import programs

    if beside != what:
        return second or programs.taken(beside, first)
    if not second:
        return first
    changed = {setting.partition("=")[0] for setting in second}
    return [x for x in first if x.partition("=")[0] not in changed] + second


def _check_output(output: Path, beside: str | None) -> None:
    """Raises BindError before anything is run where the file has a wrong name."""
    from tilepipe.cli.recording import check_name

    if beside is not None and output.suffix.lower() == ".json":
        raise BindError(f"-o {output}: two timelines are a page; give -o {output.stem}.html")
    check_name(output)
