"""`tilepipe tune`: measures configurations on a GPU, and remembers the fastest."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer

import tilepipe as tp
from tilepipe.cli import completion
from tilepipe.cli.common import Json, Kernel, Regime, app, out, print_json, stepping
from tilepipe.cli.measure import Regimes, measuring, product
from tilepipe.cli.measuring import announce, show
from tilepipe.errors import BindError, UnavailableError
from tilepipe.ir.chip import Chip
from tilepipe.kernels.gemm import tuned
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem

OF_SIMULATE = {"kernel", "settings", "limit", "simulate", "as_json"}  # what it heeds
KernelSettings = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the kernel; repeatable. With --simulate, tiles have several values:"
        " NAME=VALUE,VALUE.",
        autocompletion=completion.settings,
    ),
]
DataSeed = Annotated[int, typer.Option(help="Seed of the data.", min=0)]


@app.command()
def tune(
    context: typer.Context,
    kernel: Kernel = "gemm",
    settings: KernelSettings = None,
    limit: Annotated[
        int, typer.Option(help="How many candidates to measure, the likeliest first.", min=1)
    ] = 48,
    regime: Regimes = Regime.burst,
    seed: DataSeed = 0,
    listing: Annotated[bool, typer.Option("--list", help="Only list what is remembered.")] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Forget the entry for -s m= n= k=, or every entry of this chip."
        ),
    ] = False,
    merge: Annotated[
        Path | None,
        typer.Option(
            "--merge",
            metavar="FILE",
            help="Take over the entries of another such file, as of another machine with this"
            " chip; those that are here already stay.",
        ),
    ] = None,
    chip_name: Annotated[
        str | None,
        typer.Option(
            "--chip",
            metavar="NAME",
            help="The chip whose entries --forget forgets; that of device 0 unless given.",
        ),
    ] = None,
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate",
            help="Rank choices of tiles by the time that the simulator predicts, without a GPU: -s"
            " bn=64,128 -s stages=3,4. Any shipped kernel; nothing is remembered.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Measures configurations for one shape on device 0, and remembers the fastest for later
    launches; or ranks them by simulating.
    """
    from tilepipe.registry.catalog import KERNELS, GemmSpec, find

    spec = find(kernel)
    if simulate:
        from tilepipe.cli.tune_simulated import rank_simulated

        _refuse_others(context)
        rank_simulated(spec, settings or [], limit, as_json)
        return
    searched = [name for name, x in KERNELS.items() if isinstance(x, GemmSpec) and x.searched]
    if not isinstance(spec, GemmSpec) or kernel not in searched:
        raise BindError(
            f"there is no search of configurations for '{kernel}'; there is one for:"
            f" {', '.join(searched)}"
        )
    given = spec.parse(settings or [])
    if (listing or forget or merge) and tuned.location() is None:
        raise BindError(
            "there is no file of tuned configurations: TILEPIPE_TUNED is off, or there is no home"
            " directory"
        )
    if sum((listing, forget, merge is not None)) > 1:
        raise BindError("tune takes one of --list, --forget and --merge")
    if listing:
        _list(as_json)
        return
    if merge is not None:
        if given:
            raise BindError("tune --merge takes all entries of the file; leave -s away")
        _merge(merge)
        return
    mine = [name for name in given if name in spec.tiles]
    if mine:
        raise BindError(f"tune searches {', '.join(mine)}; set the problem only")
    problem = product(spec, given)
    stated = {"m", "n", "k"} <= given.keys()
    if forget:
        if given and not stated:
            raise BindError(
                "tune --forget forgets one shape, -s m=M -s n=N -s k=K, or, without any -s, all of"
                " this chip"
            )
        chip = _whose(chip_name)
        count = tuned.forget(problem if stated else None, chip)
        out.print(
            f"forgot {count} {'entry' if count == 1 else 'entries'} of {chip.name} in"
            f" {tuned.location()}"
        )
        return
    if chip_name is not None:
        raise BindError(
            "--chip says whose entries --forget forgets; tune measures device 0, and --list lists"
            " all"
        )
    if not stated:
        raise BindError("tune needs the shape: -s m=M -s n=N -s k=K")
    chip = measuring(spec, given)
    _tune(problem, chip, limit, regime, seed, as_json)


def _refuse_others(context: typer.Context) -> None:
    """Raises a BindError if the command line has an option that --simulate would ignore."""
    sources = {x: context.get_parameter_source(str(x.name)) for x in context.command.params}
    given = [
        option.opts[0]
        for option, source in sources.items()
        if option.name not in OF_SIMULATE
        and source is not None
        and source.name == "COMMANDLINE"  # by name: newer versions of typer have a copy of click
    ]
    if given:
        raise BindError(
            "--simulate predicts times without a GPU and remembers nothing: leave out"
            f" {', '.join(given)}"
        )


def _tune(
    problem: Problem, chip: Chip, limit: int, regime: Regime, seed: int, as_json: bool
) -> None:
    from tilepipe.bench import gemm, report, tune as tuning

    if not as_json:
        out.print(gemm.environment(chip))
    announce(tuning.seconds(limit, regime.names))
    with stepping("compiling", tuning.steps(limit, regime.names), as_json) as step:
        found = tuning.search(problem, chip, limit, regime.names, seed, step)
    best = found.trials[0]
    assert isinstance(best.config, GemmConfig)
    us = {name: round(value, 2) for name, value in best.us.items()}
    facts = {"us": us, "date": datetime.date.today().isoformat(), "tilepipe": tp.__version__}
    path = tuned.remember(problem, chip, best.config, facts)
    if as_json:
        trials = [
            {"config": t.config.as_dict(), "rank": t.rank, "us": dict(t.us)} for t in found.trials
        ]
        peer = dict(found.peer.us) if found.peer is not None else None
        print_json(
            {
                "problem": report.problem_json(problem),
                "chip": chip.name,
                "trials": trials,
                "cublas_us": peer,
                "file": str(path),
            }
        )
    else:
        show([tuning.result_table(found)], False, [], report.CONFIG_LEGEND)
        out.print(f"remembered {report.config_text(best.config)} in {path}")
    if found.wrong:
        raise typer.Exit(1)


def _merge(other: Path) -> None:
    taken, known, problems = tuned.merge(other)
    for problem in problems:
        out.print(problem, style="red", soft_wrap=True)
    what = "entry" if taken == 1 else "entries"
    stay = f"; {known} stood there already, and stay" if known else ""
    out.print(f"took {taken} {what} of {other} into {tuned.location()}{stay}")


def _list(as_json: bool) -> None:
    from tilepipe.bench import report

    entries = tuned.entries()
    if as_json:
        found = {
            name: facts | {"config": config.as_dict()} for name, (config, facts) in entries.items()
        }
        print_json({"file": str(tuned.location()), "entries": found})
        return
    if not entries:
        out.print(f"nothing is remembered in {tuned.location()}")
        return
    rows = tuple(
        (
            name,
            report.config_text(config),
            str(facts.get("us", "")).strip("{}").replace("'", ""),
            str(facts.get("date", "")),
        )
        for name, (config, facts) in entries.items()
    )
    out.print(f"in {tuned.location()}:")
    show(
        [report.Table("", ("problem", "config", "µs", "date"), rows, texts=4)],
        False,
        [],
        report.CONFIG_LEGEND,
    )


def _whose(name: str | None) -> Chip:
    """The chip whose entries are to go: the one that is named, or the GPU of this machine. No other
    is meant by saying nothing.
    """
    from tilepipe.cuda.runtime import driver

    if name is None:
        try:
            return driver.chip(0)
        except UnavailableError as error:
            raise UnavailableError(
                f"tune --forget is about the chip of this machine, and {error}. Name one with"
                f" --chip NAME: {_known()}"
            ) from None
    if name not in tuned.chips():
        raise BindError(f"nothing is remembered of a chip {name!r}; {_known()}")
    return Chip(name=name)


def _known() -> str:
    return f"{tuned.location()} has entries of: {', '.join(tuned.chips()) or 'none'}"
