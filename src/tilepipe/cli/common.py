"""What the commands share: the application, its consoles, its options, progress bars."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tilepipe import _version
from tilepipe.cli import completion
from tilepipe.errors import BindError, TilepipeError, UnavailableError
from tilepipe.ir.chip import Chip, generation

if TYPE_CHECKING:
    from tilepipe.registry.catalog import KernelSpec

HEARTBEAT = 20.0  # seconds between two lines on stderr that say that something goes on
LONG = 10.0  # what takes more seconds is announced
SETTLED = 1.0  # after which what is done says how long the rest takes

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Tile pipelines for warp-specialised GPU kernels: simulate, compile, launch, measure.",
)
if not os.environ.get("COLUMNS", "80").strip("0 "):
    # of a terminal that does not know its width; in 0 columns nothing would be shown
    del os.environ["COLUMNS"]
# What is printed is a user's text as often as ours: paths, source lines, names of roles. None of it
# is markup, and `s[0:b:2]` no emoji; where words are coloured, they are a `Text` with a style.
out = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)

Kernel = Annotated[
    str,
    typer.Argument(
        help="Name of a shipped kernel; `tilepipe kernels` lists them.",
        autocompletion=completion.kernels,
    ),
]
What = Annotated[
    str,
    typer.Argument(
        metavar="KERNEL|FILE.py:NAME",
        help="A shipped kernel; or a program, or a launch of PTX, or what makes one, in a file.",
        autocompletion=completion.targets,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the kernel, or an argument of the function NAME; repeatable.",
        autocompletion=completion.settings,
    ),
]
Against = Annotated[
    str,
    typer.Option(
        "--against",
        metavar="FILE.py:NAME",
        help="What the results are compared with: another program, or a function of the arguments,"
        " which it takes by their names.",
        autocompletion=completion.files,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


class Source(StrEnum):
    """The form of a kernel that is simulated or checked."""

    program = "program"
    ptx = "ptx"


class Device(StrEnum):
    """Where to run."""

    sim = "sim"
    cuda = "cuda"


class Regime(StrEnum):
    """How kernels are timed."""

    burst = "burst"
    steady = "steady"
    both = "both"

    @property
    def names(self) -> tuple[str, ...]:
        """The regimes it stands for."""
        return ("burst", "steady") if self is Regime.both else (self.value,)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"tilepipe {_version.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Takes what is common to all commands."""


def gpu(spec: KernelSpec, archs: tuple[str, ...] = ()) -> Chip:
    """Device 0.

    Args:
        archs: the architectures that it may have; all that the kernel exists for unless given.

    Raises:
        UnavailableError: there is none, or it is of another architecture.
    """
    from tilepipe.cuda.runtime import driver

    chip = driver.chip(0)
    if generation(chip.arch) not in (archs or spec.archs):
        does = "is measured on" if archs else "exists for"
        raise UnavailableError(
            f"kernel '{spec.name}' {does} {', '.join(archs or spec.archs)}; device 0 is a"
            f" {chip.name} ({chip.arch})"
        )
    return chip


def notes(error: BaseException) -> None:
    """Prints the notes of an error: what was interrupted, or the traceback of an error that is not
    tilepipe's.
    """
    for note in getattr(error, "__notes__", []):
        err.print(note)


def write_output(path: Path, data: str | bytes) -> None:
    """Writes what a command has made to the file that the user has named.

    Raises:
        BindError: it cannot be written.
    """
    try:
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise BindError(f"cannot write {path}: {error.strerror}") from None


def print_json(report: Mapping[str, Any]) -> None:
    """One JSON object on stdout. JSON has neither NaN nor infinities: they become the texts "nan",
    "inf", "-inf".
    """
    print(json.dumps(_plain(report), ensure_ascii=False, allow_nan=False))


class InterruptedCommand(Exception):
    """Ctrl-C in a command that says what it was doing, in the notes of `error`. typer would keep
    the exit code alone.
    """

    def __init__(self, error: KeyboardInterrupt) -> None:
        super().__init__()
        self.error = error


def print_json_error(error: object, message: str) -> None:
    """The object that a command with --json prints where it ends in an error."""
    loc = error.loc if isinstance(error, TilepipeError) else None
    print_json(
        {
            "error": {
                "type": type(error).__name__,
                "message": message,
                "at": None if loc is None else f"{loc.file}:{loc.line}",
                "notes": list(getattr(error, "__notes__", [])),
            }
        }
    )


def wants_json() -> bool:
    """True if the command line asks for JSON: also where it cannot be parsed."""
    words = sys.argv[1:]
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {name: _plain(x) for name, x in value.items()}
        case list() | tuple():
            return [_plain(x) for x in value]
        case float() if not math.isfinite(value):
            return str(value)
    return value


def print_list(heading: str, texts: Sequence[str]) -> None:
    """Prints texts below a heading; nothing where there are none."""
    if texts:
        out.print(f"\n{heading}")
        for text in texts:
            out.print(f"  {text}")


@contextlib.contextmanager
def counting(text: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr, to be called with (done, total), or, where that is no terminal,
    lines now and then about what takes long; None if `quiet`.
    """
    if quiet:
        yield None
        return
    if not err.is_terminal:
        yield _beats(text)
        return
    with _bar() as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _beats(text: str) -> Callable[[int, int], None]:
    """Says how far something is that is going to take more than `LONG` seconds: as soon as that is
    known, and then every `HEARTBEAT` seconds. What comes first takes longer than the rest, since it
    has the preparation: how long the rest takes is known by what follows it.
    """
    began = said = since = time.perf_counter()
    first, told = 0, False

    def report(done: int, total: int) -> None:
        nonlocal said, told, first, since
        now = time.perf_counter()
        if not first:
            first, since = done, now
            if now - began < LONG:
                return
        new, spent = (done - first, now - since) if done > first else (done, now - began)
        left = spent * (total - done) / max(new, 1)
        due = done < total and now - said >= (HEARTBEAT if told else SETTLED)
        if due and (told or now - began + left >= LONG):
            told, said = True, now
            err.print(f"{text}: {done:,} of {total:,}, about {left:.0f} s to go")

    return report


@contextlib.contextmanager
def stepping(text: str, total: int, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A progress bar of `total` steps on stderr while that is a terminal: to be called after each
    step, with the name of the next.
    """
    if quiet or not err.is_terminal:
        yield lambda text: None
        return
    with _bar() as bar:
        task = bar.add_task(text, total=total)
        yield lambda text: bar.update(task, advance=1, description=text)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
    )
