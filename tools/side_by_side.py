"""Times two checkouts in alternation: importing, tracing, printing, compiling, simulating,
checking.

    python tools/side_by_side.py OLD_TREE NEW_TREE [--rounds 5] [--only simulate]

Each measurement is a process of its own, and the trees take turns, so that a busy machine is busy
for both. What counts is the CPU time of the work, its median over the rounds; beside the ratio of
the medians stands that of the fastest, which a busy machine disturbs least. Launches are measured
on a GPU, by `tilepipe bench`.

Many modules are imported when they are first needed, inside a measurement. So both trees have their
byte code in a cache of this tool's own, which a process that does not count fills: a tree without
byte code beside its sources took two to three times as long to import, and 1.7 times as long to
check a small kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Answer = dict[str, float]  # "seconds", and "executions" of a check


def _seconds(work: Callable[[], object], times: int = 1) -> float:
    """CPU time of the fastest of several calls."""
    found = []
    for _ in range(times):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found)


def import_() -> Answer:
    """`import tilepipe` in a new process."""
    return {"seconds": _seconds(lambda: __import__("tilepipe"))}


def _families(kernel: str, count: int) -> list[dict[str, Any]]:
    from tools.snapshot.families import FAMILIES

    small = {"m": 256, "n": 256, "k": 256} if "gemm" in kernel else {"s_q": 256, "s_kv": 256}
    return [settings | small for settings in list(FAMILIES[kernel].values())[:count]]


def _trace(kernel: str) -> Answer:
    """Configurations that this process has not traced; what they import it has imported."""
    from tools.snapshot import doors

    first, *others = _families(kernel, 7)
    doors.shipped(kernel, first)
    return {"seconds": _seconds(lambda: [doors.shipped(kernel, settings) for settings in others])}


def _print(kernel: str) -> Answer:
    from tools.snapshot import doors

    arch = doors.arch_of(kernel)
    first, *others = [
        doors.kernel_of(doors.shipped(kernel, s).program) for s in _families(kernel, 7)
    ]
    doors.source_of(first, arch)
    return {"seconds": _seconds(lambda: [doors.source_of(k, arch) for k in others], 3)}


def _compile(kernel: str) -> Answer:
    from tools.snapshot import doors

    program = doors.shipped(kernel, _families(kernel, 1)[0]).program
    return {"seconds": _seconds(lambda: doors.cubin_of(program, doors.arch_of(kernel)))}


def _simulate(kernel: str, settings: dict[str, Any]) -> Answer:
    from tools.snapshot import doors

    program = doors.shipped(kernel, settings).program
    return {"seconds": _seconds(lambda: program.run(seed=1), 3)}


def _check(kernel: str, **settings: Any) -> Answer:
    from tools.snapshot import doors
    from tools.snapshot.families import SMALLEST

    programs = doors.instances(kernel, SMALLEST.get(kernel, {}) | settings)
    executions = 0

    def work() -> None:
        nonlocal executions
        limits = doors.bounds(600.0, 400)
        executions = sum(p.check(bounds=limits).traces for p in programs)

    return {"seconds": _seconds(work), "executions": executions}


GEMM_512 = {"m": 512, "n": 512, "k": 512}
MEASURES: dict[str, Callable[[], Answer]] = {
    "import tilepipe": import_,
    "trace GEMM": lambda: _trace("gemm.sm90"),
    "trace attention": lambda: _trace("attention.sm90"),
    "trace tcgen05 GEMM": lambda: _trace("gemm.sm100"),
    "print GEMM": lambda: _print("gemm.sm90"),
    "print attention": lambda: _print("attention.sm90"),
    "compile GEMM": lambda: _compile("gemm.sm90"),
    "simulate GEMM 512³": lambda: _simulate("gemm.sm90", GEMM_512),
    "simulate attention": lambda: _simulate("attention.sm90", {"s_q": 512, "s_kv": 512}),
    "simulate tcgen05 GEMM 512³": lambda: _simulate("gemm.sm100", GEMM_512),
    "check GEMM, one execution": lambda: _check("gemm.sm90"),
    "check tcgen05 GEMM, explored": lambda: _check("gemm.sm100"),
    "check a pair's GEMM, explored": lambda: _check(
        "gemm.sm100", cta_group=2, cluster=2, scheduler="static"
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    about = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="side_by_side", description=about)
    parser.add_argument("trees", type=Path, nargs="+", metavar="OLD_TREE NEW_TREE")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each tree")
    parser.add_argument("--only", default="", help="measurements whose name contains this")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        print(json.dumps(_measured(options.trees[0].resolve(), options.measure)))
        return 0
    if len(options.trees) != 2:
        parser.error("two trees are compared")
    _table([tree.resolve() for tree in options.trees], options.rounds, options.only)
    return 0


def _measured(tree: Path, name: str) -> Answer:
    """One measurement in this process, which has imported nothing of the tree yet."""
    sys.path[:] = [str(ROOT), *(p for p in sys.path if Path(p or ".").resolve().name != "tools")]
    import tools

    sys.path[:] = [str(tree / "src"), str(tree), *(p for p in sys.path if p != str(ROOT))]
    assert Path(tools.__file__ or "").is_relative_to(ROOT)
    answer = MEASURES[name]()
    where = Path(sys.modules["tilepipe"].__file__ or "").resolve()
    assert where.is_relative_to(tree), f"tilepipe comes from {where}"
    return answer


def _process(tree: Path, name: str, bytecode: str) -> Answer:
    """One measurement in a process of its own. `bytecode`: the folder of its byte code."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    settings = {"PYTHONPYCACHEPREFIX": bytecode}
    settings |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), str(tree), "--measure", name]
    done = subprocess.run(
        command, capture_output=True, text=True, env=inherited | settings, cwd=tree
    )
    if done.returncode:
        raise SystemExit(f"{name} in {tree}:\n{done.stderr}")
    answer: Answer = json.loads(done.stdout.splitlines()[-1])
    return answer


def _table(trees: list[Path], rounds: int, only: str) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 110)
    table = Table(title=f"{trees[0]} and {trees[1]}, {rounds} rounds")
    table.add_column("CPU time", no_wrap=True)
    for column in ("old, ms", "new, ms", "new / old", "of the fastest", "executions/s"):
        table.add_column(column, justify="right", no_wrap=True)
    chosen = [name for name in MEASURES if only in name]
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with (
        tempfile.TemporaryDirectory() as bytecode,
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
    ):
        bar = progress.add_task("", total=len(chosen) * (rounds + 1) * 2)
        for name in chosen:
            answers: list[list[Answer]] = [[], []]
            for turn in range(rounds + 1):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    progress.update(bar, description=name, advance=1)
                    answers[side].append(_process(trees[side], name, bytecode))
            for found in answers:
                del found[0]  # its process has compiled the sources
            old, new = (median(a["seconds"] for a in side) for side in answers)
            fastest = [min(a["seconds"] for a in side) for side in answers]
            rates = [
                f"{side[0]['executions'] / seconds:,.1f}"
                for side, seconds in zip(answers, (old, new), strict=True)
                if "executions" in side[0]
            ]
            table.add_row(
                name,
                f"{1000 * old:,.1f}",
                f"{1000 * new:,.1f}",
                f"{new / old:.2f}",
                f"{fastest[1] / fastest[0]:.2f}",
                " → ".join(rates),
            )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
