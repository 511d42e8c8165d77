"""Kernels that hand over data through flags, checked with loops that count as waits, and again by
exploring every look.

    python -m tests.check.flag_campaign 2000 [--first SEED]

prints how many were decided how. Exit code 1: the two ways disagree about some kernel. Kernels that
are not explored within the bounds are left out, and others take their place.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.support.check.flag_programs import Program, generate, launch
from tilepipe.check import Bounds, Verdict, check

BOUNDS = Bounds(traces=400)


def both_ways(made: Program) -> tuple[Verdict, Verdict]:
    """The verdict with loops as waits, and that with every look explored."""
    quick = check(launch(made), bounds=BOUNDS, shorten=False)
    return quick, check(launch(made), explore=True, bounds=BOUNDS, shorten=False)


def main(given: list[str] | None = None) -> int:
    """Runs a campaign."""
    parser = argparse.ArgumentParser(description="loops that count as waits, beside exploring")
    parser.add_argument("kernels", type=int)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(given)
    started = time.perf_counter()
    counts: Counter[str] = Counter()
    executions = [0, 0]
    left, seed, wrong = options.kernels, options.first - 1, 0
    while left:
        seed += 1
        made = generate(seed)
        quick, full = both_ways(made)
        if full.verdict == "undecided":
            counts["left out"] += 1
            continue
        left -= 1
        how = "one order" if quick.method == "single-execution" else "several orders"
        counts[f"{quick.verdict} after {how}"] += 1
        executions[0] += quick.traces
        executions[1] += full.traces
        if quick.verdict != full.verdict:
            wrong += 1
            print(f"seed {seed}: {quick.verdict}, but explored {full.verdict}: {made}", flush=True)
    for what, count in sorted(counts.items()):
        print(f"{count:7,} {what}")
    print(f"{executions[0]:,} executions, and {executions[1]:,} with every look explored")
    print(f"{wrong} disagreements, {time.perf_counter() - started:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
