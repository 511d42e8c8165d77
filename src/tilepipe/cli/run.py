"""`tilepipe kernels`, `run`, `compile` and `demo`."""

from __future__ import annotations

import contextlib
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tilepipe.cli.common import (
    Against,
    Device,
    Json,
    Settings,
    Source,
    What,
    app,
    counting,
    err,
    gpu,
    out,
    print_json,
    print_list,
    write_output,
)
from tilepipe.errors import BindError
from tilepipe.ir.chip import ARCHITECTURES

if TYPE_CHECKING:
    from tilepipe.registry.catalog import Case
    from tilepipe.sim import Run


class Emit(StrEnum):
    """What to write."""

    cuda = "cuda"
    ptx = "ptx"
    cubin = "cubin"


@app.command()
def kernels(as_json: Json = False) -> None:
    """Lists the shipped kernels and their settings."""
    from tilepipe.registry.catalog import KERNELS

    if as_json:
        rows = [
            {
                "name": k.name,
                "summary": k.summary,
                "settings": dict(k.settings),
                "archs": list(k.archs),
                "tuned": k.tuning is not None,
            }
            for k in KERNELS.values()
        ]
        print_json({"kernels": rows})
        return
    for k in KERNELS.values():
        table = Table.grid(padding=(0, 2))
        table.add_row(k.name, f"{k.summary} ({', '.join(k.archs)})")
        problem = {n: v for n, v in k.settings.items() if n not in k.tiles}
        tiles = {n: v for n, v in k.settings.items() if n in k.tiles}
        table.add_row("  problem", " ".join(f"{n}={v}" for n, v in problem.items()))
        if tiles:
            table.add_row("  tiles", " ".join(f"{n}={v}" for n, v in tiles.items()))
        out.print(table, soft_wrap=False)
    no_search = [k.name for k in KERNELS.values() if k.tuning is None]
    others = " and ".join((", ".join(no_search[:-1]), no_search[-1]))
    out.print(
        f"\n`tilepipe tune` searches configurations of all but {others}.",
        soft_wrap=False,
    )
    out.print(
        "Defaults are shown. On a GPU, and compiled, tiles are chosen for the shape unless one of"
        " them is set.",
        soft_wrap=False,
    )


@app.command()
def run(
    what: What,
    settings: Settings = None,
    device: Annotated[Device, typer.Option(help="Where to run the kernel.")] = Device.sim,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of the data and the interleaving; 0 is one deterministic order.", min=0
        ),
    ] = 0,
    source: Annotated[
        Source,
        typer.Option(
            "--from",
            help="What is simulated: the program itself, or the PTX that its printed CUDA compiles"
            " to, instruction by instruction.",
        ),
    ] = Source.program,
    timeout: Annotated[
        float | None,
        typer.Option(
            help="With --from ptx: CPU seconds after which an unfinished run is abandoned (60; 0:"
            " no limit).",
            min=0,
        ),
    ] = None,
    against: Against = "",
    as_json: Json = False,
) -> None:
    """Runs a shipped kernel on random data and verifies the result against float64; or a program
    of a file on its own arrays, whose results --against compares.

    Exit 1: a fault, or a wrong result.
    """
    from tilepipe.cli import programs

    if source is Source.ptx and device is Device.cuda:
        raise BindError("--from ptx simulates: it goes with --device sim")
    if timeout is not None and source is not Source.ptx and not programs.names_file(what):
        raise BindError("--timeout is the limit of a run of PTX: it goes with --from ptx")
    if programs.names_file(what):
        from tilepipe.cli.run_file import run_file

        with contextlib.redirect_stdout(sys.stderr):  # what the file prints
            found = programs.target(what, settings or [])
        if not run_file(found, device.value, source, seed, timeout, against, as_json):
            raise typer.Exit(1)
        return
    if against:
        raise BindError(f"'{what}' is verified against float64; --against is for FILE.py:NAME")
    spec = programs.shipped_kernel(what)
    given = spec.parse(settings or [])
    chip = gpu(spec) if device is Device.cuda else None
    config, origin = spec.configure(given, chip)
    case = spec.case(config, seed)
    simulated_us: float | None = None
    advice: list[str] = []
    if source is Source.ptx:
        target = spec.target(given)
        wall, steps, advice = _read(case, target, seed, timeout)
        did = f"ran its PTX for {target} in {wall:.3f} s, {steps:,} steps, {case.tiles} tiles"
    elif chip is None:
        wall, result = _simulate(case, seed, quiet=as_json)
        simulated_us, advice = result.simulated_us, result.advice
        did = f"simulated in {wall:.3f} s, {case.tiles} tiles, modelled time {simulated_us:.1f} µs"
    else:
        wall = launch(case)
        did = (
            f"launched on {chip.name}: {wall * 1e6:.1f} µs with its synchronisation, {case.tiles}"
            " tiles"
        )
    comparison = case.verify()
    if as_json:
        report: dict[str, Any] = {
            "kernel": what,
            "config": config,
            "device": device.value,
            "ok": comparison.ok,
            "rel_error": comparison.rel_error,
            "wall_s": wall,
            "simulated_us": simulated_us,
            "tiles": case.tiles,
            "seed": seed,
            "advice": advice,
        }
        if source is not Source.program:
            report["from"] = source.value
        print_json(report)
    else:
        out.print(f"{what}: {' '.join(f'{n}={v}' for n, v in config.items())}")
        out.print(f"tiles: {origin}")
        out.print(f"{did}; {comparison}")
        print_list("Advice:", advice)
    if not comparison.ok:
        raise typer.Exit(1)


@app.command("compile")
def compile_(
    what: What,
    settings: Settings = None,
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(ARCHITECTURES),
            help="Target; unless given, the first that the kernel exists for with these settings.",
        ),
    ] = None,
    emit: Annotated[Emit, typer.Option(help="What to write.")] = Emit.cubin,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Output file; - is stdout, where cuda and ptx go by default."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compiles a kernel with NVRTC; needs no GPU."""
    from tilepipe.cli import programs

    if as_json and str(output) == "-":
        raise BindError("--json is what goes to stdout; name a file with -o FILE")
    program, target, config = programs.one_program(what, settings or [], arch)
    if emit is Emit.cubin and output is None:
        raise BindError("a cubin is binary: name a file with -o FILE, or -o - for stdout")
    started = time.perf_counter()
    if emit is Emit.cuda:
        data, note, registers = program.source(target).encode(), "", None
    else:
        compiled = program.compile(target, emit.value)
        data, registers = compiled.data, compiled.registers
        note = "" if compiled.registers is None else f", {compiled.registers} registers, no spills"
    seconds = time.perf_counter() - started
    if not as_json and (output is None or str(output) == "-"):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    if output is not None:
        write_output(output, data)
    if as_json:
        print_json(
            {
                "kernel": what,
                "config": config,
                "arch": target,
                "emit": emit.value,
                "bytes": len(data),
                "registers": registers,
                "seconds": seconds,
                "output": None if output is None else str(output),
                "text": data.decode() if output is None else None,
            }
        )
        return
    err.print(
        f"{output}: {len(data):,} bytes of {emit.value} for {target} in {seconds:.2f} s{note}"
    )


@app.command()
def demo(
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="Write a page of when its copies, MMAs and waits happen."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulates and verifies a warp-specialised GEMM, and says what each role did."""
    from tilepipe.registry.catalog import find

    spec = find("gemm")
    config, _ = spec.configure({"m": 1000, "n": 328, "k": 776}, None)
    case = spec.case(config, 0)
    if as_json:
        wall, result = _simulate(case, 0, quiet=True)
        comparison = case.verify()
        roles = {name: text for name, _, text in (str(x).partition(": ") for x in result.roles)}
        print_json(
            {
                "ok": comparison.ok,
                "rel_error": comparison.rel_error,
                "wall_s": wall,
                "tiles": case.tiles,
                "roles": roles,
                "timeline": None if timeline is None else _save_timeline(case, timeline),
            }
        )
        if not comparison.ok:
            raise typer.Exit(1)
        return
    out.print(
        f"GEMM {config['m']}×{config['n']}×{config['k']} {config['dtype']}, tiles of"
        f" {config['bm']}×{config['bn']}×{config['bk']},"
    )
    out.print(
        f"{config['stages']} stages between one TMA warp and {config['consumers']} MMA warpgroups,"
        " on a simulated GPU.\n"
    )
    wall, result = _simulate(case, 0, quiet=False)
    table = Table("role", "what it did", title="What each role did")
    for role in result.roles:
        name, _, text = str(role).partition(": ")
        table.add_row(name, text)
    out.print(table)
    rings = Table(
        "barriers", "phases completed, all CTAs", title="Every phase that was produced was consumed"
    )
    for name, ctas in result.completions.items():
        rings.add_row(name, f"{sum(map(sum, ctas)):,}")
    out.print(rings)
    comparison = case.verify()
    out.print(
        f"\n{case.tiles} output tiles in {wall:.2f} s, every access checked for races; against"
        f" float64: {comparison}"
    )
    if not comparison.ok:
        raise typer.Exit(1)
    if timeline is None:
        out.print(
            "Where its time goes: `tilepipe timeline gemm -o gemm.html` writes a page, for any"
            " browser."
        )
    else:
        out.print(
            f"Where its time goes: {_save_timeline(case, timeline)} shows its first CTAs, in any"
            " browser; `tilepipe timeline gemm -o gemm.html` writes such a page."
        )
    out.print(
        "Next: `tilepipe kernels`, `tilepipe run gemm -s m=512`, `tilepipe compile gemm --emit"
        " cuda`, examples/."
    )


def _read(case: Case, arch: str, seed: int, timeout: float | None) -> tuple[float, int, list[str]]:
    """Runs the PTX of a case: seconds without printing and compiling it, steps, and advice."""
    launch = case.program.ptx(arch)
    started = time.perf_counter()
    if timeout is None:
        steps = launch.run(seed=seed)
    else:
        steps = launch.run(seed=seed, timeout=timeout or None)
    return time.perf_counter() - started, steps, launch.advice


def _save_timeline(case: Case, file: Path) -> str:
    """Writes the page of the case's first CTAs; returns where it lies."""
    found = case.program.run(timeline=4).timeline
    assert found is not None
    found.save(file)
    return str(file.resolve())


def _simulate(case: Case, seed: int, quiet: bool) -> tuple[float, Run]:
    with counting("simulating CTAs", quiet) as progress:
        started = time.perf_counter()
        result = case.program.run(seed=seed, progress=progress)
        return time.perf_counter() - started, result


def launch(case: Case) -> float:
    """Launches a case on device 0 twice, from the same state; seconds of the second launch and of
    waiting for it, without any copies.
    """
    from tilepipe.cuda.runtime.launching import wait_for
    from tilepipe.cuda.runtime.restoring import restorable
    from tilepipe.cuda.runtime.staging import staged

    launched, launcher = case.program.launch_args, case.program.launcher()
    name = launched.kernel.name
    with (
        staged(launched, launcher.ordinal) as places,
        restorable(launched, places, 0, "Choose a smaller problem") as restore,
    ):
        addresses = tuple(places[tensor] for tensor in launcher.tensors)
        launcher(addresses)
        restore()
        wait_for(name)
        started = time.perf_counter()
        launcher(addresses)
        wait_for(name)
        return time.perf_counter() - started
