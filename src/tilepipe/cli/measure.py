"""`tilepipe bench`: a kernel on a GPU, beside its peers."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilepipe.cli import completion
from tilepipe.cli.common import (
    Json,
    Regime,
    Settings,
    What,
    app,
    gpu,
    print_json,
    stepping,
    write_output,
)
from tilepipe.cli.measuring import Wanted, announce, require_torch, show
from tilepipe.errors import BindError
from tilepipe.ir.chip import HOPPER, Chip
from tilepipe.kernels.common import tuned
from tilepipe.kernels.gemm.heuristics import Problem

if TYPE_CHECKING:
    from tilepipe.bench.report import Table
    from tilepipe.bench.shapes import Choice
    from tilepipe.registry.catalog import GemmSpec, KernelSpec, Setting

Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shapes",
        metavar="NAME|M,N,K",
        help="What to measure: the name of a suite, or a shape; repeatable.",
    ),
]
Config = Annotated[
    str,
    typer.Option(
        "--config",
        metavar="chosen|tuned|best-of-N",
        help="How to pick the configuration: by the heuristic, from `tilepipe tune`, or the"
        " fastest of N.",
    ),
]
Regimes = Annotated[
    Regime,
    typer.Option(
        "--regime", help="When to time: after a pause (burst), without pauses (steady), or both."
    ),
]
DrawnSeed = Annotated[
    int | None,
    typer.Option(
        help="Seed of the data and the random shapes; drawn, and printed, unless given.", min=0
    ),
]
Repeats = Annotated[
    int, typer.Option(help="How many blocks of each kernel to time in a burst.", min=1)
]


Beside = Annotated[
    list[str] | None,
    typer.Option(
        "--against",
        metavar="FILE.py:NAME",
        help="What a program of a file is measured beside: another program, or a function of the"
        " arguments, which it takes by their names; repeatable.",
        autocompletion=completion.files,
    ),
]


@app.command()
def bench(
    what: What,
    settings: Settings = None,
    against: Beside = None,
    shapes: Shapes = None,
    regime: Regimes = Regime.both,
    seed: DrawnSeed = None,
    repeats: Repeats = 15,
    config: Config = "chosen",
    host: Annotated[
        bool,
        typer.Option(
            help="For a GEMM, also measure what a launch costs the host, and a cold start."
        ),
    ] = True,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the tables as Markdown.")
    ] = False,
    as_json: Json = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.svg",
            help="For a GEMM, also draw the ratios against the FLOP, a dot for each shape.",
        ),
    ] = None,
) -> None:
    """Measures a shipped kernel beside its peers (cuBLAS, cuDNN, PyTorch) on device 0, or a program
    of a file beside what --against names. Needs PyTorch.

    Exit 1: a wrong result.
    """
    from tilepipe.cli import programs
    from tilepipe.registry.catalog import KERNELS, GemmSpec

    wanted = Wanted(
        list(shapes or []),
        regime.names,
        secrets.randbelow(2**32) if seed is None else seed,
        repeats,
        markdown,
        as_json,
    )
    if picture is not None and picture.suffix.lower() != ".svg":
        raise BindError(f"--picture {picture}: it is drawn as SVG, --picture {picture.stem}.svg")
    if picture is not None and not picture.parent.is_dir():
        raise BindError(f"--picture {picture}: there is no folder {picture.parent}")
    if programs.names_file(what):
        from tilepipe.cli.bench_file import bench_file

        if shapes or config != "chosen" or picture:
            raise BindError(
                "--shapes, --config and --picture are for shipped kernels; the function of a file"
                " takes -s NAME=VALUE"
            )
        if not bench_file(what, settings or [], against or [], wanted):
            raise typer.Exit(1)
        return
    if against:
        raise BindError(f"'{what}' is measured beside its own peers; --against is for FILE.py:NAME")
    spec = programs.shipped_kernel(what)
    measured = [n for n, x in KERNELS.items() if isinstance(x, GemmSpec) or x.bench]
    if spec.name not in measured:
        raise BindError(
            f"there is no benchmark for '{what}'; there is one for: {', '.join(measured)}"
        )
    if picture and not isinstance(spec, GemmSpec):
        raise BindError(f"--picture is of products, and '{spec.name}' is none")
    given = spec.parse(settings or [])
    right = (
        _gemm(spec, given, config, host, wanted, picture)
        if isinstance(spec, GemmSpec)
        else _beside(spec, given, config, wanted)
    )
    if not right:
        raise typer.Exit(1)


def _gemm(
    spec: GemmSpec,
    given: Mapping[str, Setting],
    config: str,
    with_host: bool,
    wanted: Wanted,
    picture: Path | None,
) -> bool:
    choice = _choice(spec, given, config)
    base = product(spec, given)
    from tilepipe.bench import report, shapes as suites_

    texts = wanted.shapes + (
        [f"{base.m},{base.n},{base.k}"] if {"m", "n", "k"} & given.keys() else []
    )
    suites = suites_.suites(texts or [spec.shapes], base, wanted.seed)
    chip = measuring(spec, given)
    from tilepipe.bench import gemm

    regimes, repeats = wanted.regimes, wanted.repeats
    head = [gemm.environment(chip), gemm.REGIMES_TEXT, gemm.DATA_TEXT + f"; seed {wanted.seed}"]
    wanted.heading(head)
    announce(gemm.seconds(suites, choice, regimes, repeats) + (10 if with_host else 0))
    with stepping("choosing", gemm.steps(suites, choice, regimes), wanted.as_json) as step:
        measured = gemm.run(suites, choice, regimes, repeats, wanted.seed, chip, step)
    tables = [
        report.regime_table(suite, name, lines, gemm.peer(base))
        for suite, lines in zip(suites, measured, strict=True)
        for name in regimes
    ]
    figures = _host() if with_host else {}
    if wanted.as_json:
        found = [report.as_json(line) for lines in measured for line in lines]
        print_json(
            {"kernel": spec.name, "environment": head, "seed": wanted.seed, "results": found}
            | figures
        )
    else:
        show(
            [*tables, *(_host_tables(figures) if figures else [])],
            wanted.markdown,
            head,
            report.CONFIG_LEGEND,
        )
    if picture is not None:  # last: the figures took minutes, and a disk may be full
        from tilepipe.bench.picture import of_lines

        write_output(picture, of_lines(suites, measured, gemm.peer(base)) + "\n")
    return all(line.right for lines in measured for line in lines)


def _beside(spec: KernelSpec, given: Mapping[str, Setting], config: str, wanted: Wanted) -> bool:
    """A kernel that is no GEMM."""
    if config not in ("chosen", "tuned"):
        raise BindError(
            f"--config {config} is for GEMMs; '{spec.name}' takes chosen or tuned, or its tile"
            " settings with -s"
        )
    chip = measuring(spec, given)
    from tilepipe.bench import beside
    from tilepipe.bench.gemm import REGIMES_TEXT, environment

    with contextlib.nullcontext() if config == "tuned" else tuned.unused():
        found = beside.contests(spec, given, wanted.shapes, chip, wanted.seed)
    head = [environment(chip), REGIMES_TEXT, f"ratio: peer's time / ours; seed {wanted.seed}"]
    wanted.heading(head)
    announce(beside.seconds(len(found), 3, wanted.regimes, wanted.repeats))
    with stepping("compiling", len(found) * len(wanted.regimes), wanted.as_json) as step:
        lines = beside.run(found, wanted.regimes, wanted.repeats, step)
    if wanted.as_json:
        rows = [beside.as_json(line) for line in lines]
        print_json({"kernel": spec.name, "environment": head, "seed": wanted.seed, "results": rows})
    else:
        show([beside.table(lines, regime) for regime in wanted.regimes], wanted.markdown, head)
    return all(line.right for line in lines)


def product(spec: GemmSpec, given: Mapping[str, Setting]) -> Problem:
    """The product that settings state; fp8 has a scale for each row, unless the kernel says
    otherwise.
    """
    for name in ("activation", "bias"):
        if name in given:
            raise BindError(
                f"{name} is not measured: cuBLAS has no such product to stand beside it"
            )
    problem = spec.problem(spec.settings | dict(given))
    if problem.source and problem.dtype.bits == 8:
        raise BindError(
            f"source is not measured of {problem.dtype}: `scaled_mm`, which stands beside it, adds"
            " no matrix"
        )
    return (
        replace(problem, scales="row")
        if problem.dtype.bits == 8 and problem.scales == "none"
        else problem
    )


def _choice(spec: GemmSpec, given: Mapping[str, Setting], config: str) -> Choice:
    from tilepipe.bench.shapes import Choice

    choice = Choice.parse(config)
    tiles = {name: value for name, value in given.items() if name in spec.tiles}
    if not tiles:
        return choice
    if config != "chosen":
        raise BindError(
            f"--config {config} and {', '.join(f'{n}={v}' for n, v in tiles.items())} contradict"
            " each other; give one of them"
        )
    settings, _ = spec.configure(given, None)
    return Choice(
        "given",
        config=spec.config(
            settings
            | {name: spec.settings[name] for name in spec.settings if name not in spec.tiles}
        ),
    )


def measuring(spec: KernelSpec, given: Mapping[str, Setting]) -> Chip:
    """The GPU, where there is PyTorch as well. Kernels are measured on Hopper only."""
    if spec.target(given) != HOPPER:
        raise BindError(f"'{spec.name}' is measured on {HOPPER} only, got arch={given['arch']}")
    chip = gpu(spec, (HOPPER,))
    require_torch()
    return chip


def _host() -> dict[str, dict[str, float]]:
    from tilepipe.bench import host

    return {"host_us": host.overhead(), "cold_start_s": host.cold_start()}


def _host_tables(figures: Mapping[str, Mapping[str, float]]) -> list[Table]:
    from tilepipe.bench import host

    return [host.overhead_table(figures["host_us"]), host.cold_table(figures["cold_start_s"])]
