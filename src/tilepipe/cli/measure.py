"""`tilepipe bench` and `tilepipe tune`: on a GPU, beside cuBLAS or PyTorch."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tilepipe.cli.common import Json, Kernel, Regime, Settings, app, err, gpu, out, stepping
from tilepipe.errors import BindError, TilepipeError, UnavailableError

if TYPE_CHECKING:
    from tilepipe.bench.choice import Choice
    from tilepipe.bench.report import Table
    from tilepipe.ir.chip import Chip
    from tilepipe.kernels.gemm_choice import Problem
    from tilepipe.kernels.registry import KernelSpec, Setting

MEASURED = {"gemm": "standard", "blockwise_fp8_gemm": "fp8"}  # and the shapes that are measured unless others are asked for
TUNED = ("gemm",)

Shapes = Annotated[list[str] | None, typer.Option("--shapes", metavar="standard|random|fp8|M,N,K", help="What to measure; repeatable.")]
Config = Annotated[str, typer.Option("--config", metavar="chosen|tuned|best-of-N", help="The heuristic's, or a measured one.")]
Regimes = Annotated[Regime, typer.Option("--regime", help="After a pause, all the time, or both.")]
DrawnSeed = Annotated[int | None, typer.Option(help="Of the data and of the random shapes; drawn, and printed, unless given.", min=0)]
DataSeed = Annotated[int, typer.Option(help="Of the data.", min=0)]
Repeats = Annotated[int, typer.Option(help="Blocks of each kernel in a burst.", min=1)]


@app.command()
def bench(
    kernel: Kernel, settings: Settings = None, shapes: Shapes = None, regime: Regimes = Regime.both, seed: DrawnSeed = None,
    repeats: Repeats = 15, config: Config = "chosen",
    host: Annotated[bool, typer.Option(help="Also what a launch costs the host, and a cold start.")] = True,
    markdown: Annotated[bool, typer.Option("--markdown", help="Tables as Markdown.")] = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Measures a kernel beside cuBLAS, or PyTorch's scaled_mm, on device 0. Needs PyTorch."""
    spec = _spec(kernel, "benchmark", tuple(MEASURED))
    given = spec.parse(settings or [])
    choice = _choice(spec, given, config)
    base = _problem(spec, given)
    from tilepipe.bench import report
    from tilepipe.bench import shapes as suites_

    texts = list(shapes or [])
    if {"m", "n", "k"} & given.keys():
        texts.append(f"{base.m},{base.n},{base.k}")
    seed = secrets.randbelow(2**32) if seed is None else seed
    suites = suites_.suites(texts or [MEASURED[kernel]], base, seed)
    chip = _measuring(spec)
    from tilepipe.bench import gemm

    head = [gemm.environment(chip), gemm.REGIMES_TEXT, gemm.DATA_TEXT + f"; seed {seed}"]
    quiet = as_json or markdown
    if not quiet:
        for line in head:
            out.print(line)
    _announce(gemm.seconds(suites, choice, regime.names, repeats) + (10 if host else 0))
    with stepping("choosing", gemm.steps(suites, choice, regime.names), as_json) as step:
        measured = gemm.run(suites, choice, regime.names, repeats, seed, chip, step)
    tables = [
        report.regime_table(suite, name, lines, gemm.peer(base))
        for suite, lines in zip(suites, measured, strict=True)
        for name in regime.names
    ]
    figures = _host() if host else {}
    if as_json:
        found = [report.as_json(line) for lines in measured for line in lines]
        print(json.dumps({"kernel": kernel, "environment": head, "seed": seed, "results": found} | figures))
    else:
        _show([*tables, *_host_tables(figures)], markdown, head, report.CONFIG_LEGEND)
    if not all(line.right for lines in measured for line in lines):
        raise typer.Exit(1)


@app.command()
def tune(
    kernel: Kernel = "gemm", settings: Settings = None,
    limit: Annotated[int, typer.Option(help="Candidates to measure, the likeliest first.", min=1)] = 48,
    regime: Regimes = Regime.burst, seed: DataSeed = 0,
    listing: Annotated[bool, typer.Option("--list", help="Only list what is remembered.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Forget the entry for -s m= n= k=, or all of this chip.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Measures configurations for one shape on device 0, and remembers the fastest for later launches."""
    spec = _spec(kernel, "search of configurations", TUNED)
    given = spec.parse(settings or [])
    from tilepipe.kernels import tuned

    if (listing or forget) and tuned.location() is None:
        raise BindError("there is no file of tuned configurations: TILEPIPE_TUNED is off, or there is no home directory")
    if listing:
        if forget:
            raise BindError("tune takes --list or --forget, not both")
        _list(as_json)
        return
    searched = [name for name in given if name in spec.tiles]
    if searched:
        raise BindError(f"tune searches {', '.join(searched)}; set the problem only")
    problem = _problem(spec, given)
    stated = {"m", "n", "k"} <= given.keys()
    if forget:
        if given and not stated:
            raise BindError("tune --forget forgets one shape, -s m=M -s n=N -s k=K, or, without any -s, all of this chip")
        chip = _chip_or_h200()
        count = tuned.forget(problem if stated else None, chip)
        out.print(f"forgot {count} {'entry' if count == 1 else 'entries'} of {chip.name} in {tuned.location()}")
        return
    if not stated:
        raise BindError("tune needs the shape: -s m=M -s n=N -s k=K")
    chip = _measuring(spec)
    _tune(problem, chip, limit, regime, seed, as_json)


def _tune(problem: Problem, chip: Chip, limit: int, regime: Regime, seed: int, as_json: bool) -> None:
    import datetime

    import tilepipe as tp
    from tilepipe.bench import gemm, report
    from tilepipe.bench import tune as tuning
    from tilepipe.kernels import tuned
    from tilepipe.kernels.gemm_config import GemmConfig

    if not as_json:
        out.print(gemm.environment(chip))
    _announce(tuning.seconds(limit, regime.names))
    with stepping("compiling", tuning.steps(limit, regime.names), as_json) as step:
        found = tuning.search(problem, chip, limit, regime.names, seed, step)
    best = found.trials[0]
    assert isinstance(best.config, GemmConfig)
    us = {name: round(value, 2) for name, value in best.us.items()}
    facts = {"us": us, "date": datetime.date.today().isoformat(), "tilepipe": tp.__version__}
    path = tuned.remember(problem, chip, best.config, facts)
    if as_json:
        trials = [{"config": asdict(t.config), "rank": t.rank, "us": dict(t.us)} for t in found.trials]
        peer = dict(found.peer.us) if found.peer is not None else None
        print(
            json.dumps({"problem": report.problem_json(problem), "chip": chip.name, "trials": trials, "cublas_us": peer, "file": str(path)})
        )
    else:
        _show([tuning.result_table(found)], False, [], report.CONFIG_LEGEND)
        out.print(f"remembered {report.config_text(best.config)} in {path}")
    if found.wrong:
        raise typer.Exit(1)


def _list(as_json: bool) -> None:
    from tilepipe.bench import report
    from tilepipe.kernels import tuned

    entries = tuned.entries()
    if as_json:
        found = {name: facts | {"config": asdict(config)} for name, (config, facts) in entries.items()}
        print(json.dumps({"file": str(tuned.location()), "entries": found}))
        return
    if not entries:
        out.print(f"nothing is remembered in {tuned.location()}")
        return
    rows = tuple(
        (name, report.config_text(config), str(facts.get("us", "")).strip("{}").replace("'", ""), str(facts.get("date", "")))
        for name, (config, facts) in entries.items()
    )
    out.print(f"in {tuned.location()}:")
    _show([report.Table("", ("problem", "config", "µs", "date"), rows, texts=4)], False, [], report.CONFIG_LEGEND)


def _spec(kernel: str, what: str, known: tuple[str, ...]) -> KernelSpec:
    from tilepipe.kernels.registry import find

    spec = find(kernel)
    if kernel not in known:
        raise BindError(f"there is no {what} for '{kernel}'; there is one for: {', '.join(known)}")
    return spec


def _problem(spec: KernelSpec, given: Mapping[str, Setting]) -> Problem:
    """The product that settings state; fp8 has a scale for each row, unless the kernel says otherwise."""
    from dataclasses import replace

    if "activation" in given:
        raise BindError("activation is not measured: cuBLAS has no such product to stand beside it")
    problem = spec.problem(spec.settings | dict(given))
    return replace(problem, scales="row") if problem.dtype.bits == 8 and problem.scales == "none" else problem


def _choice(spec: KernelSpec, given: Mapping[str, Setting], config: str) -> Choice:
    from tilepipe.bench.choice import Choice

    choice = Choice.parse(config)
    tiles = {name: value for name, value in given.items() if name in spec.tiles}
    if not tiles:
        return choice
    if config != "chosen":
        raise BindError(f"--config {config} and {', '.join(f'{n}={v}' for n, v in tiles.items())} contradict each other; give one of them")
    settings, _ = spec.configure(given, None)
    return Choice("given", config=spec.config(settings | {name: spec.settings[name] for name in spec.settings if name not in spec.tiles}))


def _measuring(spec: KernelSpec) -> Chip:
    """The GPU, where there is PyTorch as well."""
    chip = gpu(spec)
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError("measuring runs beside PyTorch, which is not installed: pip install tilepipe[torch]")
    import torch

    if not torch.cuda.is_available():
        raise UnavailableError("measuring runs beside PyTorch, and this PyTorch cannot use the GPU")
    return chip


def _chip_or_h200() -> Chip:
    from tilepipe.cuda import driver
    from tilepipe.ir.chip import H200

    with contextlib.suppress(TilepipeError):
        return driver.chip(0)
    return H200


def _announce(seconds: float) -> None:
    err.print(f"this takes about {seconds:.0f} s" if seconds < 100 else f"this takes about {seconds / 60:.0f} minutes")


def _host() -> dict[str, dict[str, float]]:
    from tilepipe.bench import host

    return {"host_us": host.overhead(), "cold_start_s": host.cold_start()}


def _host_tables(figures: Mapping[str, Mapping[str, float]]) -> list[Table]:
    from tilepipe.bench import host

    return [host.overhead_table(figures["host_us"]), host.cold_table(figures["cold_start_s"])] if figures else []


def _show(tables: list[Table], markdown: bool, head: list[str], legend: str) -> None:
    from rich.console import Console

    from tilepipe.bench import report

    if markdown:
        for text in ("  \n".join([*head, legend]) + "\n", *map(report.to_markdown, tables)):
            print(text)
        return
    console = Console(width=max(120, out.width), highlight=False)
    for table in tables:
        console.print(report.to_rich(table))
        for note in table.notes:
            out.print(note, style="red" if "WRONG" in note else None, markup=False)
        out.print()
    out.print(legend, style="dim")
