"""Whether instances are large enough for their verdicts to be meaningful for the kernel.

The size is measured in the executions, so that this works for any kernel: an mbarrier array stands
for a ring, and the phases that its barriers complete for the laps. A mistake in a phase number
shows when a ring is used for the third time; a mistake between CTAs, when there are two.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.check.verdict import Verdict


def too_small(verdicts: Sequence[Verdict]) -> str:
    """What the instances do not reach, one line for each problem; empty if they are large enough.

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
