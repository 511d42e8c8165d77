"""What a campaign comes to, in a few tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.check.campaign.features import FEATURES
from tests.check.campaign.judge import Judged


def pairs(outcomes: Sequence[Judged]) -> dict[tuple[str, str], int]:
    """How many kernels have each pair of features, undecided ones left out; of a feature with
    itself: that feature.
    """
    decided = [o for o in outcomes if o.verdict in ("verified", "fault")]
    return {(a, b): sum({a, b} <= o.features for o in decided) for a in FEATURES for b in FEATURES}


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """As Markdown has it."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def pair_table(outcomes: Sequence[Judged]) -> str:
    """The lower half of the table of pairs, a feature alone on its diagonal."""
    counts, names = pairs(outcomes), list(FEATURES)
    rows = [
        [name, *(counts[name, other] if j <= i else "" for j, other in enumerate(names))]
        for i, name in enumerate(names)
    ]
    return _table(["", *names], rows)


def mistake_table(outcomes: Sequence[Judged]) -> str:
    """Of each mistake: how often it was planted, and what became of it."""
    by: dict[str, list[Judged]] = {}
    for o in outcomes:
        by.setdefault(o.mistake.split(":")[0] or "none", []).append(o)
    rows = []
    for name in sorted(by):
        found = Counter(o.verdict for o in by[name])
        seeds = sum(o.verdict == "fault" and o.failing is not None for o in by[name])
        rows.append(
            [
                name,
                len(by[name]),
                found["fault"],
                seeds,
                found["verified"],
                found["refused"],
                found["undecided"],
            ]
        )
    return _table(
        [
            "mistake",
            "kernels",
            "fault",
            "of which a seed shows",
            "verified",
            "refused",
            "undecided",
        ],
        rows,
    )


def report(outcomes: Sequence[Judged]) -> str:
    """All of it."""
    found = Counter(o.verdict for o in outcomes)
    right = [o for o in outcomes if not o.mistake]
    runs = sum(o.seeds for o in outcomes)
    shown = sum(o.verdict == "fault" and o.failing is not None for o in outcomes)
    bad = sum(bool(o.violation) for o in outcomes)
    head = (
        f"{len(outcomes):,} kernels: {found['verified']:,} verified, {found['fault']:,} faulty"
        f" ({shown:,} of them fail in a seed that was"
        f" run), {found['undecided']:,} undecided, {found['refused']:,} refused while they were"
        f" traced; {runs:,} simulated runs.\n"
        f"{len(right):,} right by construction: {sum(o.verdict == 'verified' for o in right):,}"
        " verified,"
        f" {sum(o.verdict == 'undecided' for o in right):,} undecided.\n"
        f"{sum(o.compared for o in outcomes):,} compared with other reductions. Wrong verdicts:"
        f" {bad:,}."
    )
    return "\n\n".join([head, pair_table(outcomes), mistake_table(outcomes)])
