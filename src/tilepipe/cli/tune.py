"""`tilepipe tune`: measures configurations on a GPU, and remembers the fastest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilepipe.cli import completion
from tilepipe.cli.common import Json, Kernel, Regime, app
from tilepipe.cli.measure import Regimes
from tilepipe.errors import BindError

# By what is asked for: the parameters that it heeds, and why the others are refused.
MODES = {
    "simulate": (
        {"kernel", "settings", "limit", "simulate", "as_json"},
        "--simulate predicts times without a GPU and remembers nothing",
    ),
    "listing": (
        {"kernel", "listing", "as_json"},
        "--list lists what is remembered, and measures nothing",
    ),
    "merge": (
        {"merge", "as_json"},
        "--merge takes all entries of the file, and measures nothing",
    ),
    "forget": (
        {"kernel", "settings", "forget", "chip_name", "as_json"},
        "--forget removes entries, and measures nothing",
    ),
    "search": (
        {"kernel", "settings", "limit", "regime", "seed", "as_json"},
        "--chip says whose entries --forget forgets; tune measures device 0, and --list lists all",
    ),
}
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
        int,
        typer.Option(
            help="How many candidates to measure, the likeliest first; with --simulate, the most"
            " choices that may be named.",
            min=1,
        ),
    ] = 48,
    regime: Regimes = Regime.burst,
    seed: DataSeed = 0,
    listing: Annotated[
        bool, typer.Option("--list", help="Only list what is remembered, of one kernel or of all.")
    ] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Forget the entry for the problem that -s states, or every entry of the kernel,"
            " or, without one, of this chip.",
        ),
    ] = False,
    merge: Annotated[
        Path | None,
        typer.Option(
            "--merge",
            metavar="FILE",
            help="Take over the entries of another such file, as of another machine with this"
            " chip; those that are here already stay, if they can be used.",
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
            " bn=64,128 -s stages=3,4. Any shipped kernel that has tiles; nothing is remembered.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Measures configurations of a kernel for one problem on device 0, and remembers the fastest
    for later launches; or ranks them by simulating.
    """
    from tilepipe.cli.programs import names_file
    from tilepipe.registry.catalog import find

    if names_file(kernel):
        raise BindError(
            f"tune is for shipped kernels, which `tilepipe kernels` lists. To time {kernel} with"
            f" several settings, call tilepipe bench {kernel} -s NAME=VALUE for each"
        )
    spec = find(kernel)
    if not simulate and sum((listing, forget, merge is not None)) > 1:
        raise BindError("tune takes one of --list, --forget and --merge")
    asked = {"simulate": simulate, "listing": listing, "merge": merge, "forget": forget}
    _refuse_others(context, next((mode for mode, given in asked.items() if given), "search"))
    named = spec if _is_given(context, "kernel") else None
    if simulate:
        from tilepipe.cli.tune_simulated import rank_simulated

        rank_simulated(spec, settings or [], limit, as_json)
    elif listing or forget or merge is not None:
        from tilepipe.cli import tune_file

        tune_file.require_location()
        if listing:
            tune_file.show_entries(named, as_json)
        elif merge is not None:
            tune_file.take_over(merge, as_json)
        else:
            tune_file.forget(spec, named, spec.parse(settings or []), chip_name, as_json)
    else:
        from tilepipe.cli.tune_search import search

        if not search(spec, spec.parse(settings or []), limit, regime.names, seed, as_json):
            raise typer.Exit(1)


def _is_given(context: typer.Context, name: str) -> bool:
    """True if a parameter stands on the command line."""
    source = context.get_parameter_source(name)
    # by name: newer versions of typer have a copy of click
    return source is not None and source.name == "COMMANDLINE"


def _refuse_others(context: typer.Context, mode: str) -> None:
    """Raises a BindError if the command line has a parameter that a mode would ignore."""
    heeded, why = MODES[mode]
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name not in heeded and _is_given(context, str(option.name))
    ]
    if given:
        raise BindError(f"{why}: leave out {', '.join(given)}")
