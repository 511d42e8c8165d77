"""`tilepipe warm`: compiles configurations ahead, into the cache on disk."""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import multiprocessing
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

import tilepipe as tp
from tilepipe import files
from tilepipe.cli import completion
from tilepipe.cli.common import Json, Settings, app, counting, err, out, print_json
from tilepipe.errors import BindError, CompileError
from tilepipe.ir.chip import ARCHITECTURES

LOOKING = 4.0  # seconds that one process looks into the cache, before there are several


@dataclass(frozen=True)
class Wanted:
    """A line of what is to be compiled: a kernel, or FILE.py:NAME, with its settings.

    Attributes:
        place: "FILE:LINE: " of a list. error: why the line cannot be read, or "".
    """

    what: str
    settings: tuple[str, ...] = ()
    place: str = ""
    error: str = ""

    def __str__(self) -> str:
        return self.place + " ".join((self.what, *self.settings))


@dataclass(frozen=True)
class Warmed:
    """What became of it. `programs`: how many there are. `compiled`: how many of them the cache did
    not have. `error`: what went wrong, or "". `there`, `made`: the keys of the kernels that the
    cache had, and of those that were compiled; several lines may have the same.
    """

    what: str
    programs: int
    compiled: int
    seconds: float
    error: str
    there: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()

    def as_json(self) -> dict[str, object]:
        """The fields of the report."""
        return {name: x for name, x in vars(self).items() if name not in ("there", "made")}


@app.command()
def warm(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[KERNEL|FILE.py:NAME]",
            help="A shipped kernel; or a program, or what makes one or several, in a file.",
            autocompletion=completion.targets,
        ),
    ] = None,
    settings: Settings = None,
    listed: Annotated[
        Path | None,
        typer.Option(
            "--list",
            metavar="FILE",
            help="A text with a line for each: KERNEL|FILE.py:NAME NAME=VALUE ...; # begins a"
            " comment.",
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(ARCHITECTURES),
            help="Target; unless given, the first that each kernel exists for with its settings.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes; one for each core unless given.", min=1),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compiles kernels ahead, so that their first launches read the cache. Needs no GPU.

    Exit 2: one of them could not be compiled; the others are. With TILEPIPE_JIT=error in the
    environment, a launch that would compile is an error.
    """
    from tilepipe.cuda.nvrtc import cache

    where = cache.directory()
    if where is None:
        raise BindError(
            "there is no cache to compile into: TILEPIPE_CACHE_DIR is off, or there is no home"
            " directory"
        )
    if why := cache.refused(where):
        raise BindError(f"cannot write to the cache {where}: {why}. TILEPIPE_CACHE_DIR names it")
    wanted = [] if what is None else [Wanted(what, tuple(settings or ()))]
    if what is None and settings:
        raise BindError(f"-s {settings[0]} is a setting of a kernel: name the kernel")
    wanted += [] if listed is None else _lines(listed)
    if not wanted:
        raise BindError(
            "name a kernel, or FILE.py:NAME, or a text with --list FILE"
            if listed is None
            else f"{listed} lists no kernel: a line for each, KERNEL NAME=VALUE ..."
        )
    count = min(workers or os.cpu_count() or 1, len(wanted))
    done = []
    started = time.perf_counter()
    with counting("compiling", as_json) as progress:
        for each in _compiled(wanted, arch, count):
            done.append(each)
            if progress is not None:
                progress(len(done), len(wanted))
    seconds = time.perf_counter() - started
    failed = [x for x in done if x.error]
    made = frozenset[str]().union(*(x.made for x in done))
    kernels = made.union(*(x.there for x in done))
    if as_json:
        print_json(
            {
                "cache": str(where),
                "compiled": len(made),
                "kernels": len(kernels),
                "programs": sum(x.programs for x in done),
                "seconds": seconds,
                "failed": len(failed),
                "configurations": [x.as_json() for x in done],
            }
        )
    else:
        for x in failed:
            err.print(f"{x.what}: {x.error}", style="red")
        said = f"{where}: {_summary(len(made), len(kernels))} {seconds:.1f} s"
        if 0 < len(made) < len(kernels):
            said += ", the others were there"
        if failed:
            said += f"; {len(failed)} of {len(done)} lines failed"
        out.print(said)
    if failed:
        raise typer.Exit(2)


def _summary(made: int, kernels: int) -> str:
    """What was done, before the seconds that it took."""
    if not kernels:
        return "no kernel compiled in"
    if made:
        return f"{made} of {kernels} kernels compiled in"
    return f"{'the kernel was' if kernels == 1 else f'all {kernels} kernels were'} there already;"


def _lines(path: Path) -> list[Wanted]:
    try:
        text = files.read(path).decode()
    except OSError as error:
        raise BindError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BindError(f"{path} is no text in UTF-8") from None
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            found.append(Wanted(line, place=f"{path}:{number}: ", error=str(error)))
            continue
        if words:
            found.append(Wanted(words[0], tuple(words[1:]), f"{path}:{number}: "))
    return found


def _compiled(wanted: Sequence[Wanted], arch: str | None, workers: int) -> Iterator[Warmed]:
    """The outcome of each, as they are done. A process takes seconds to start, so the cache is
    looked into first, and there are processes only for what may have to be compiled.
    """
    rest = list(wanted)
    if workers > 1:
        missing, until = [], math.inf
        while rest and time.perf_counter() < until:
            each = rest.pop(0)
            found = _warmed(each, arch, compiles=False)
            if until == math.inf:  # the first also imports the kernels, as each process has to
                until = time.perf_counter() + LOOKING
            if found is None:
                missing.append(each)
            else:
                yield found
        rest = missing + rest
    workers = min(workers, len(rest))
    if workers <= 1:
        yield from (_compile(x, arch) for x in rest)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        jobs = [pool.submit(_compile, x, arch) for x in rest]
        yield from (job.result() for job in concurrent.futures.as_completed(jobs))


def _compile(wanted: Wanted, arch: str | None) -> Warmed:
    found = _warmed(wanted, arch, compiles=True)
    assert found is not None
    return found


def _warmed(wanted: Wanted, arch: str | None, *, compiles: bool) -> Warmed | None:
    """The outcome of a line; None, unless it `compiles`, where a kernel has to be compiled."""
    from tilepipe.cuda.nvrtc import cache
    from tilepipe.cuda.nvrtc.compiler import cubin_key

    started, programs = time.perf_counter(), 0
    there, made = set(), set()
    try:
        for program, target in () if wanted.error else _programs(wanted, arch):
            programs += 1
            key = cubin_key(program.kernel, target)
            if cache.read(key) is not None:
                there.add(key)
                continue
            if not compiles:
                return None
            program.compile(target)
            if cache.read(key) is None:
                raise CompileError("compiled, but the cache did not keep it: is the disk full?")
            made.add(key)
        error = wanted.error
    except tp.TilepipeError as found:
        error = f"{type(found).__name__}: {found}"
    seconds = time.perf_counter() - started
    there -= made
    return Warmed(
        str(wanted), programs, len(made), seconds, error, frozenset(there), frozenset(made)
    )


def _programs(wanted: Wanted, arch: str | None) -> Iterator[tuple[tp.Program, str]]:
    """The programs of a line, and what they are compiled for."""
    from tilepipe.cli import programs

    if not programs.names_file(wanted.what):
        program, target, _ = programs.one_program(wanted.what, wanted.settings, arch)
        yield program, target
        return
    with contextlib.redirect_stdout(sys.stderr):  # what the file prints
        found = programs.target(wanted.what, wanted.settings)
        for instance in found.instances:
            made = instance.make()
            if not isinstance(made, tp.Program):
                raise BindError(f"{wanted.what} is a launch of PTX, which is compiled already")
            yield made, arch or made.kernel.arch
