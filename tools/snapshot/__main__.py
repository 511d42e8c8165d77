"""Takes a snapshot of what a tree does, and compares two.

    python -m tools.snapshot write FILE [--tree DIR] [--only ir,cuda] [--all] [--texts DIR]
    python -m tools.snapshot compare OLD [NEW] [--tree DIR] [--only ir,cuda]

`compare` without NEW takes it of the tree at hand. It exits with 1 where an entry has changed or is
missing; new entries are only counted. Sections: ir, cuda, runs, verdicts, planted, mutants, sass;
and printed, which runs unless left out only with --all.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEFAULT = (
    "ir",
    "cuda",
    "runs",
    "verdicts",
    "planted",
    "mutants",
    "sass",
)  # about three minutes; `printed` takes five more
Snapshot = dict[str, dict[str, dict[str, Any]]]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.snapshot", description=(__doc__ or "").split("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="take a snapshot")
    write.add_argument("file", type=Path)
    compare = commands.add_parser(
        "compare", help="list what differs; exit 1 where anything has changed or is missing"
    )
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path, nargs="?", help="taken now unless given")
    for command in (write, compare):
        command.add_argument(
            "--tree",
            type=Path,
            default=ROOT,
            help="the repository to look at; this one unless given",
        )
        command.add_argument("--only", metavar="SECTION,...", help="sections")
        command.add_argument(
            "--all",
            action="store_true",
            help="also what other tests print; compile every family, judge every mutant",
        )
        command.add_argument(
            "--texts", type=Path, help="a folder for the normalised texts, for diff"
        )
    options = parser.parse_args(arguments)
    everything = (*DEFAULT, "printed") if options.all else DEFAULT
    sections = options.only.split(",") if options.only else list(everything)
    if options.command == "write":
        taken = _take(options, sections)
        before = (
            json.loads(options.file.read_text(encoding="utf-8")) if options.file.exists() else {}
        )
        _save(options.file, before | taken)
        return 0
    from tools.snapshot.compare import show

    old = json.loads(options.old.read_text(encoding="utf-8"))
    new = (
        json.loads(options.new.read_text(encoding="utf-8"))
        if options.new is not None
        else _take(options, sections)
    )
    return show(
        {name: old[name] for name in sections if name in old},
        {name: new[name] for name in sections if name in new},
    )


def _save(file: Path, snapshot: Snapshot) -> None:
    """One entry a line."""
    lines = []
    for name in sorted(snapshot):
        entries = [
            f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
            for key, value in sorted(snapshot[name].items())
        ]
        lines.append(f" {json.dumps(name)}: {{\n" + ",\n".join(entries) + "\n }")
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _take(options: argparse.Namespace, sections: Sequence[str]) -> Snapshot:
    """The sections, of a tree whose sources and tests come first in the search path."""
    tree = options.tree.resolve()
    import tools.snapshot  # noqa: F401  # from here, whatever the tree has

    sys.path[:] = [
        str(tree / "src"),
        str(tree),
        *(p for p in sys.path if Path(p or os.getcwd()).resolve() != ROOT),
    ]
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    import tilepipe

    where = Path(tilepipe.__file__ or "").resolve()
    if not where.is_relative_to(tree):
        raise SystemExit(f"tilepipe comes from {where}, not from {tree}")
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from tools.snapshot.sections import SECTIONS, Context

    console = Console(stderr=True)
    found: Snapshot = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        for name in sections:
            bar = progress.add_task(name, total=None)

            def tick(what: str, of: int, bar: Any = bar) -> None:
                progress.update(bar, description=f"{what[:60]:60}", total=of, advance=1)

            begun = time.monotonic()
            texts = None if options.texts is None else options.texts.resolve()
            found[name] = SECTIONS[name](Context(tree, options.all, texts, tick))
            progress.remove_task(bar)
            console.print(
                f"{name}: {len(found[name]):,} entries in {time.monotonic() - begun:.0f} s"
            )
    return found


if __name__ == "__main__":
    sys.exit(main())
