"""A campaign: generated kernels, checked, and run with many seeds.

    python -m tests.check.campaign --kernels 2000 --seed 0 [--seeds 300] [--jobs 2] [--compare 25]
    [--save FOLDER]

Exits with 1 where a verdict is wrong. `--save` keeps each kernel of which that is so as a script;
`--log` keeps every outcome, a line each, and a campaign that was interrupted goes on behind the
last of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from tests.check.campaign.judge import Judged
from tests.check.campaign.plan import Campaign
from tests.check.campaign.report import report
from tests.support.processes import map_in_processes


def logged(path: Path | None) -> list[Judged]:
    """The outcomes that a log has."""
    if path is None or not path.exists():
        return []
    found = []
    for text in path.read_text(encoding="utf-8").splitlines():
        kept = json.loads(text)
        found.append(Judged(**kept | {"features": frozenset(kept["features"])}))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Generated kernels, checked, and run with many seeds."
    )
    parser.add_argument("--kernels", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first kernel")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the campaign: the same kernels for the same seed"
    )
    parser.add_argument("--seeds", type=int, default=300, help="simulated runs of each kernel")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--compare",
        type=int,
        default=25,
        help="every so many-th kernel is checked without reductions, too; 0: none",
    )
    parser.add_argument(
        "--require",
        help="features that each kernel has, such as peek,tma; pairs in turn unless given",
    )
    parser.add_argument("--mistake", help="the mistake to plant; none for ''")
    parser.add_argument(
        "--save", type=Path, help="a folder for the kernels of wrong verdicts, as scripts"
    )
    parser.add_argument("--log", type=Path, help="a file for all outcomes")
    given = parser.parse_args(arguments)
    required = None if given.require is None else frozenset(filter(None, given.require.split(",")))
    campaign = Campaign(given.seed, given.seeds, given.compare, required, given.mistake)
    console = Console(width=140, highlight=False, markup=False, emoji=False)
    done = logged(given.log)
    numbers = range(given.first + len(done), given.first + given.kernels)
    start = time.perf_counter()
    for number, one in zip(
        numbers, map_in_processes(campaign.one, numbers, given.jobs), strict=True
    ):
        done.append(one)
        if given.log is not None:
            kept = asdict(replace(one, message="", text="")) | {"features": sorted(one.features)}
            with given.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(kept) + "\n")
        if one.violation:
            console.print(f"kernel {number}: {one.mistake or 'right'}: {one.violation}")
            if given.save is not None:
                given.save.mkdir(parents=True, exist_ok=True)
                (given.save / f"kernel_{given.seed}_{number}.py").write_text(
                    one.text, encoding="utf-8"
                )
    console.print(report(done))
    console.print(f"{time.perf_counter() - start:,.0f} seconds, {given.jobs} processes")
    return 1 if any(one.violation for one in done) else 0


if __name__ == "__main__":
    sys.exit(main())
