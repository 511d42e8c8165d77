"""Runs everything in tests/gpu on this machine's GPU, and prints one table last: `python
tests/gpu/run.py [pytest options]`.

Each file is a group, run by a pytest of its own, so that a kernel that takes the GPU's context with
it takes only its group. Options:
    --limit SECONDS   after which what still runs is ended, and counts as failed (480)
    --groups WORD     only files whose name contains one of these words, with commas between them
    --mirror          also what tests of the simulator run, launched beside it (`tests.gpu.mirror`)
    --jobs N          groups at once (3). --workers N: processes of a group (4), where pytest-xdist
    is installed
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
EACH = 150  # seconds of one test
LEAST = 5  # seconds that must be left for a file to be started
ALONE = ("debug", "cli")  # parts of names: these measure time, so nothing else runs beside them
MIRRORED = ("sim", "scenarios", "pipelines", "kernels")  # folders of tests


@dataclass
class Group:
    """The outcome of one file. `skipped`: by reason. `note`: why there is no report, or it is not
    the whole.
    """

    name: str
    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: float = 0
    note: str = ""
    output: str = ""

    @property
    def good(self) -> bool:
        return not self.failed and not self.note


def read(group: Group, report: Path) -> None:
    """Counts the results of a pytest XML report."""
    for case in ET.parse(report).iter("testcase"):
        kinds = {child.tag: child for child in case}
        if "failure" in kinds or "error" in kinds:
            group.failed += 1
        elif "skipped" in kinds:
            group.skipped[kinds["skipped"].get("message", "no reason given")] += 1
        else:
            group.passed += 1


def alone(path: Path) -> bool:
    """Whether a file must have the GPU for itself."""
    return any(word in path.stem for word in ALONE)


def run(path: Path, options: argparse.Namespace, rest: list[str], deadline: float) -> Group:
    """Runs one file."""
    mirrored = path.is_dir()
    group = Group(
        f"mirror of {path.name}"
        if mirrored
        else path.stem.removeprefix("test_").removesuffix("_gpu")
    )
    start = time.monotonic()
    left = deadline - start
    if left < LEAST:
        group.note = "not started: the time limit was reached"
        return group
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:benchmark",
            "--tb=short",
            f"--junitxml={report}",
            str(path),
            *rest,
        ]
        if mirrored:
            command += ["-p", "tests.gpu.mirror"]
        if options.workers > 1 and not alone(path) and importlib.util.find_spec("xdist"):
            command += ["-n", str(options.workers), "--dist", "worksteal"]
        if importlib.util.find_spec("pytest_timeout"):
            command += [f"--timeout={EACH}"]
        places = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        env = os.environ | {"PYTHONPATH": places, "TILEPIPE_CACHE_DIR": options.cache}
        # A file and not a pipe: PyTorch's compile workers outlive pytest and keep a pipe open, and
        # its end would be waited for until the time limit.
        with (Path(folder) / "output.txt").open("w+") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=env,
                start_new_session=True,
            )
            try:
                process.wait(timeout=left)
            except subprocess.TimeoutExpired:
                group.note = f"ended after {left:.0f} s: the time limit"
            # What is left of the group: after a time limit, pytest and its workers.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            output.seek(0)
            group.output = output.read()
        group.seconds = time.monotonic() - start
        if report.exists():
            read(group, report)
        elif not group.note:
            group.note = f"pytest ended with {process.returncode} and no report"
        if not group.note and process.returncode not in (0, 1, 5):
            group.note = f"pytest ended with {process.returncode}"
    return group


def table(groups: list[Group]) -> str:
    """One line for each group with the reasons of its skipped tests, and a line of totals."""
    width = max(len(g.name) for g in groups)
    lines = [f"{'group':{width}}  passed  failed  skipped  seconds"]
    for g in groups:
        lines.append(
            f"{g.name:{width}}  {g.passed:6}  {g.failed:6}  {g.skipped.total():7} "
            f" {g.seconds:7.1f}{'  ' * bool(g.note)}{g.note}"
        )
        lines += [
            f"{'':{width}}  {count} × skipped: {' '.join(reason.split())}"
            for reason, count in g.skipped.most_common()
        ]
    sums = (
        sum(g.passed for g in groups),
        sum(g.failed for g in groups),
        sum(g.skipped.total() for g in groups),
    )
    lines.append(
        f"{'all':{width}}  {sums[0]:6}  {sums[1]:6}  {sums[2]:7} "
        f" {sum(g.seconds for g in groups):7.1f}"
    )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if something ran, all groups ended, and nothing failed."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", 1)[0], allow_abbrev=False
    )
    parser.add_argument("--limit", type=float, default=480)
    parser.add_argument("--groups", default="")
    parser.add_argument("--mirror", action="store_true")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    options, rest = parser.parse_known_args(arguments)
    wanted = [word for word in options.groups.split(",") if word]
    paths = sorted(FOLDER.glob("test_*.py")) + [
        FOLDER.parent / name for name in MIRRORED if options.mirror
    ]
    paths = [p for p in paths if not wanted or any(word in p.stem for word in wanted)]
    if not paths:
        parser.error(f"no file of {FOLDER} has {' or '.join(wanted)} in its name")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        options.cache = os.environ.get("TILEPIPE_CACHE_DIR", cache)  # the groups share many kernels
        with ThreadPoolExecutor(max(options.jobs, 1)) as pool:
            groups = list(
                pool.map(
                    lambda path: run(path, options, rest, start + options.limit),
                    [p for p in paths if not alone(p)],
                )
            )
        groups += [run(path, options, rest, start + options.limit) for path in paths if alone(path)]
    for group in groups:
        if not group.good:
            print(f"== {group.name} {'=' * 100}\n{group.output[-12000:]}")
    print(table(groups))
    print(f"{time.monotonic() - start:.0f} s in all")
    if not any(group.passed for group in groups):
        print("nothing ran on a GPU")
        return 1
    return 0 if all(group.good for group in groups) else 1


if __name__ == "__main__":
    sys.exit(main())
