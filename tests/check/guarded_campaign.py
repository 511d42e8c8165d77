"""Rings with tests, checked by tests that count as waits, and again by exploring every order.

    python -m tests.check.guarded_campaign 20000 [--first SEED] [--without phases]

prints how many were decided how. Exit code 1: some ring is verified by one way and has a fault by
the other. Rings that are not explored within the bounds are left out, and others take their place.
`--without`: one of the conditions under which a test counts as a wait is not asked for; then there
must be such rings.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace

from tests.support.check.guarded_rings import Loop, Ring, generate, launch
from tilepipe.check import Bounds, Verdict, check
from tilepipe.check.proofs import guards
from tilepipe.check.proofs.guards import Conditions

BOUNDS = Bounds(traces=1_000)  # few rings take more
NAMES = tuple(f.name for f in fields(Conditions))


@contextmanager
def without(condition: str) -> Iterator[None]:
    """One of the conditions is not asked for; "": all are."""
    kept = guards.CONDITIONS
    guards.CONDITIONS = replace(kept, **{condition: False}) if condition else kept
    try:
        yield
    finally:
        guards.CONDITIONS = kept


def both_ways(made: Ring | Loop, condition: str = "") -> tuple[Verdict, Verdict]:
    """The verdict with tests as waits, and that with every test explored."""
    ring = launch(made)
    with without(condition):
        quick = check(ring, bounds=BOUNDS, shorten=False)
    return quick, check(ring, explore=True, bounds=BOUNDS, shorten=False)


def differs(seed: int, condition: str = "") -> str:
    """What the two ways say of a ring where they disagree; else empty."""
    quick, full = both_ways(generate(seed), condition)
    if quick.verdict == full.verdict or full.verdict == "undecided":
        return ""
    return f"seed {seed}: {quick.verdict}, but explored {full.verdict}"


def main(given: list[str] | None = None) -> int:
    """Runs a campaign."""
    parser = argparse.ArgumentParser(description="tests that count as waits, beside exploring")
    parser.add_argument("rings", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--without", choices=NAMES, default="")
    options = parser.parse_args(given)
    started = time.perf_counter()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    executions = [0, 0]
    left, seed = options.rings, options.first - 1
    while left:
        seed += 1
        made = generate(seed)
        quick, full = both_ways(made, options.without)
        if full.verdict == "undecided":
            counts["left out"] += 1
            continue
        left -= 1
        counts[
            f"{quick.verdict} in {'one execution' if quick.facts else 'several executions'}"
        ] += 1
        executions[0] += quick.traces
        executions[1] += full.traces
        if quick.verdict != full.verdict:
            wrong.append(f"seed {seed}: {quick.verdict}, but explored {full.verdict}: {made}")
            print(wrong[-1], flush=True)
    for what, count in sorted(counts.items()):
        print(f"{count:7,} {what}")
    print(f"{executions[0]:,} executions, and {executions[1]:,} with every test explored")
    print(f"{len(wrong)} disagreements, {time.perf_counter() - started:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
