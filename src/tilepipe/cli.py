"""The command line: `tilepipe kernels | run | compile | demo`.

Exit codes: 0 fine, 1 a fault or a wrong result, 2 bad usage. With --json one object goes to stdout and nothing else
there.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tilepipe.errors import SimFault, TilepipeError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilepipe.kernels.registry import Case
    from tilepipe.sim import Run

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="Tile pipelines for warp-specialised GPU kernels: simulate, compile.",
)  # fmt: skip
out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)

Kernel = Annotated[str, typer.Argument(help="Name of a shipped kernel; `tilepipe kernels` lists them.")]
Settings = Annotated[list[str] | None, typer.Option("-s", "--set", metavar="NAME=VALUE", help="A setting of the kernel; repeatable.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


class Device(StrEnum):
    """Where to run."""

    sim = "sim"
    cuda = "cuda"


class Emit(StrEnum):
    """What to write."""

    cuda = "cuda"
    ptx = "ptx"
    cubin = "cubin"


class Arch(StrEnum):
    """What to compile for."""

    sm_90a = "sm_90a"
    sm_100a = "sm_100a"


@app.command()
def kernels(as_json: Json = False) -> None:
    """Lists the shipped kernels and their settings."""
    from tilepipe.kernels.registry import KERNELS

    if as_json:
        rows = [{"name": k.name, "summary": k.summary, "settings": dict(k.settings), "archs": list(k.archs)} for k in KERNELS.values()]
        print(json.dumps({"kernels": rows}))
        return
    table = Table("kernel", "what it does", "architectures", "settings and defaults")
    for k in KERNELS.values():
        table.add_row(k.name, k.summary, ", ".join(k.archs), " ".join(f"{n}={v}" for n, v in k.settings.items()))
    out.print(table)


@app.command()
def run(
    kernel: Kernel, settings: Settings = None, device: Annotated[Device, typer.Option(help="Where to run it.")] = Device.sim,
    seed: Annotated[int, typer.Option(help="Data and interleaving; 0 is one deterministic order.", min=0)] = 0, as_json: Json = False,
) -> None:  # fmt: skip
    """Runs a kernel on random data and verifies the result against float64."""
    from tilepipe.kernels.registry import find

    spec = find(kernel)
    if device is Device.cuda:
        raise UnavailableError("launching on a GPU is not in this version; `tilepipe compile` builds the kernel, --device sim runs it")
    config, case = spec.case(spec.parse(settings or []), seed)
    wall, result = _simulate(case, seed, quiet=as_json)
    comparison = case.verify()
    if as_json:
        report: dict[str, Any] = {
            "kernel": kernel, "config": config, "device": device.value, "ok": comparison.ok, "rel_error": comparison.rel_error,
            "wall_s": wall, "simulated_us": result.simulated_us, "tiles": case.tiles, "seed": seed,
        }  # fmt: skip
        print(json.dumps(report))
    else:
        out.print(f"{kernel}: {' '.join(f'{n}={v}' for n, v in config.items())}")
        out.print(f"simulated in {wall:.3f} s, {case.tiles} tiles, modelled time {result.simulated_us:.1f} µs; {comparison}")
    if not comparison.ok:
        raise typer.Exit(1)


@app.command("compile")
def compile_(
    kernel: Kernel, settings: Settings = None, arch: Annotated[Arch, typer.Option(help="Target.")] = Arch.sm_90a,
    emit: Annotated[Emit, typer.Option(help="What to write.")] = Emit.cubin,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File; stdout for cuda and ptx unless given.")] = None,
) -> None:  # fmt: skip
    """Compiles a kernel with NVRTC; needs no GPU."""
    from tilepipe.errors import BindError
    from tilepipe.kernels.registry import find

    spec = find(kernel)
    if arch.value not in spec.archs:
        raise BindError(f"kernel '{kernel}' exists for {', '.join(spec.archs)}, not {arch.value}")
    if emit is Emit.cubin and output is None:
        raise BindError("a cubin is binary: name a file with -o FILE")
    program = spec.case(spec.parse(settings or []), 0)[1].program
    started = time.perf_counter()
    if emit is Emit.cuda:
        data, note = program.source(arch.value).encode(), ""
    else:
        compiled = program.compile(arch.value, emit.value)
        data = compiled.data
        note = f", {compiled.registers} registers, no spills"
    seconds = time.perf_counter() - started
    if output is None:
        sys.stdout.write(data.decode())
        return
    try:
        output.write_bytes(data)
    except OSError as error:
        raise BindError(f"cannot write {output}: {error.strerror}") from None
    err.print(f"{output}: {len(data):,} bytes of {emit.value} for {arch.value} in {seconds:.2f} s{note}")


@app.command()
def demo() -> None:
    """Simulates and verifies a warp-specialised GEMM, and says what each role did."""
    from tilepipe.kernels.registry import find

    spec = find("gemm")
    config, case = spec.case({"m": 1000, "n": 328, "k": 776}, 0)
    out.print(f"GEMM {config['m']}×{config['n']}×{config['k']} {config['dtype']}, tiles of {config['bm']}×{config['bn']}×{config['bk']},")
    out.print(f"{config['stages']} stages between one TMA warp and {config['consumers']} MMA warpgroups, on a simulated GPU.\n")
    wall, result = _simulate(case, 0, quiet=False)
    table = Table("role", "what it did", title="What each role did")
    for role in result.roles:
        name, _, text = str(role).partition(": ")
        table.add_row(name, text)
    out.print(table)
    rings = Table("barriers", "phases completed, all CTAs", title="Every phase that was produced was consumed")
    for name, ctas in result.completions.items():
        rings.add_row(name, f"{sum(map(sum, ctas)):,}")
    out.print(rings)
    comparison = case.verify()
    out.print(f"\n{case.tiles} output tiles in {wall:.2f} s, every access checked for races; against float64: {comparison}")
    if not comparison.ok:
        raise typer.Exit(1)
    out.print("Next: `tilepipe kernels`, `tilepipe run gemm -s m=512`, `tilepipe compile gemm --emit cuda`, examples/.")


def _simulate(case: Case, seed: int, quiet: bool) -> tuple[float, Run]:
    with _progress(quiet) as progress:
        started = time.perf_counter()
        result = case.program.run(seed=seed, progress=progress)
        return time.perf_counter() - started, result


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr while it is a terminal; nothing otherwise."""
    if quiet or not err.is_terminal:
        yield None
        return
    columns = TextColumn("simulating CTAs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def main() -> None:
    """Entry point: faults exit 1, everything else wrong 2, each with one message on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter gets "?" and not a traceback
    try:
        app(standalone_mode=True)
    except OSError as error:
        with contextlib.suppress(OSError):
            print(f"error: cannot write the output: {error.strerror}", file=sys.stderr)
        os._exit(2)  # what is still buffered cannot be written either
    except TilepipeError as error:
        err.print(f"error: {type(error).__name__}: {error}", markup=False, style="red")
        raise SystemExit(1 if isinstance(error, SimFault) else 2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
