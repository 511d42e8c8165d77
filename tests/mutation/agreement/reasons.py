"""Why the two front ends do not agree on a launch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.mutation.agreement.judging import Pair


@dataclass(frozen=True)
class Reason:
    """A mechanism, in words, and the pairs that it explains."""

    text: str
    explains: Callable[[Pair], bool]


def _missed(pair: Pair) -> bool:
    return pair.traced.verdict == "fault" and pair.printed.verdict in ("verified", "undecided")


REASONS = (
    Reason(
        "**Loaded registers.** A register that `tcgen05.ld` writes is used before"
        " `tcgen05.wait::ld`: a fault in a program, advice in PTX, since Triton's kernels do it"
        " ([rules.md](../reference/rules.md)).",
        lambda p: _missed(p) and "a load from tensor memory" in p.traced.message,
    ),
    Reason(
        "**Plain arrives.** A program's relaxed arrive on another CTA's barrier is printed without"
        " an order, as CUTLASS does. In PTX that form hands on loads from tensor memory that are"
        " over, in practice; in a program a relaxed arrive needs the fence before it"
        " ([rules.md](../reference/rules.md), tcgen05 fences).",
        lambda p: (
            _missed(p) and "race on tensor memory" in p.traced.message and "sem=relaxed" in p.what
        ),
    ),
    Reason(
        "**Stores at the end.** A CTA ends while its bulk store may still read shared memory: a"
        " fault in a program, advice in PTX if the store was committed, since shipped kernels end"
        " so ([rules.md](../reference/rules.md)).",
        lambda p: _missed(p) and "exits while a TMA store may still read" in p.traced.message,
    ),
    Reason(
        "**Loads at the end.** A CTA ends while a copy that it has issued may still land in its"
        " shared memory: a fault in a program, advice in PTX, since an H200 keeps the memory until"
        " it has ([rules.md](../reference/rules.md)).",
        lambda p: (
            _missed(p)
            and re.search("exits while a copy into .* can still land", p.traced.message) is not None
        ),
    ),
    Reason(
        "**Elected lane.** A program is a fault if it is one for any lane that `elect.sync` may"
        " elect. Of PTX, practice takes the lowest, as an H200 does, and what another lane leads to"
        " is advice ([rules.md](../reference/rules.md)).",
        lambda p: _missed(p) and p.operator == "elect scope",
    ),
    Reason(
        "**Time.** PTX has three times the steps of the program, each of them slower, and more"
        " points at which orders differ: the search of the orders of tests, strong accesses or"
        " requests for work does not end within its limit.",
        lambda p: p.printed.verdict == "undecided",
    ),
)


def reason(pair: Pair) -> str:
    """The explanation; empty if there is none."""
    return next((found.text for found in REASONS if found.explains(pair)), "")
