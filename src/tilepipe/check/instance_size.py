"""Whether instances are large enough for a verdict on them to say something of the kernel.

Measured, so that it holds for any kernel: a ring is an mbarrier array, and what has gone round it
is the phases that its barriers have completed. Mistakes of phases show when a ring has been gone
round twice; those between CTAs, where there are two.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.check.verdict import Verdict


def too_small(verdicts: Sequence[Verdict]) -> str:
    """What the instances do not reach, in a few lines; empty where they are large enough.

    Every array of S > 1 mbarriers must complete 2 S + 1 phases, all its barriers together, in some
    CTA of some instance; and some instance must have 2 CTAs, of one cluster or not.
    """
    rings: dict[str, tuple[int, int, str]] = {}  # array -> barriers, phases, instance
    for verdict in verdicts:
        for name, ctas in verdict.completions.items():
            size, reached = max(map(len, ctas)), max(map(sum, ctas))
            if reached > rings.get(name, (0, -1, ""))[1]:
                rings[name] = size, reached, verdict.instance
    problems = [
        f"ring '{name}' has {size} stages and completes {reached}"
        f" phase{'' if reached == 1 else 's'} in a CTA"
        f"{f' ({instance})' if instance else ''}; twice round and one more are 2 · {size} + 1 ="
        f" {2 * size + 1}"
        for name, (size, reached, instance) in rings.items()
        if size > 1 and reached < 2 * size + 1
    ]
    if max((verdict.grid for verdict in verdicts), default=0) < 2:
        problems.append("there is one CTA, and what CTAs do to each other takes two")
    return "\n".join(problems)
