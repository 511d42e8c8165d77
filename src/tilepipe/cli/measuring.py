"""What the commands share that measure: what is asked for, what must be there, tables."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilepipe.cli.common import err, out
from tilepipe.errors import UnavailableError

if TYPE_CHECKING:
    from tilepipe.bench.report import Table


@dataclass(frozen=True)
class Wanted:
    """What all benchmarks are asked for."""

    shapes: list[str]
    regimes: tuple[str, ...]
    seed: int
    repeats: int
    markdown: bool
    as_json: bool

    def heading(self, lines: list[str]) -> None:
        """Lines that a person reads while the rest takes its time."""
        if not self.as_json and not self.markdown:
            for line in lines:
                out.print(line)


def require_torch() -> None:
    """Asserts that PyTorch is there and can use the GPU.

    Raises:
        UnavailableError: it is not, or cannot.
    """
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError(
            "measuring runs beside PyTorch, which is not installed: pip install tilepipe[torch]"
        )
    import torch

    if not torch.cuda.is_available():
        raise UnavailableError("measuring runs beside PyTorch, and this PyTorch cannot use the GPU")


def announce(seconds: float) -> None:
    """Says on stderr how long it takes."""
    err.print(
        f"this takes about {seconds:.0f} s"
        if seconds < 100
        else f"this takes about {seconds / 60:.0f} minutes"
    )


def show(tables: list[Table], markdown: bool, head: list[str], legend: str = "") -> None:
    """Tables and what explains them, on stdout."""
    from tilepipe.bench import report, terminal

    if markdown:
        for text in (
            "  \n".join([*head, *([legend] if legend else [])]) + "\n",
            *map(report.to_markdown, tables),
        ):
            print(text)
        return
    for table in tables:
        for part in terminal.fitted(table, out.width):
            out.print(terminal.text(part, out.width))
            for note in part.notes:
                out.print(note, style="red" if "WRONG" in note else None)
            out.print()
    if legend:
        out.print(legend, style="dim")
