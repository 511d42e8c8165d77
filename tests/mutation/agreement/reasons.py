"""Why the two front ends do not agree on a launch."""

from __future__ import annotations

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
        "**Stores at the end.** A CTA ends while its bulk store may still read shared memory: a"
        " fault in a program, advice in PTX if the store was committed, since shipped kernels end"
        " so ([rules.md](../reference/rules.md)).",
        lambda p: _missed(p) and "exits while a TMA store may still read" in p.traced.message,
    ),
    Reason(
        "**Address of tensor memory.** `tcgen05.alloc` writes the address to shared memory, and"
        " PTX does not say by which thread, so that the other lanes of the warp need"
        " `bar.warp.sync` before they read it. The program's alloc counts as a write by every"
        " lane.",
        lambda p: (
            p.traced.verdict == "verified"
            and p.printed.verdict == "fault"
            and "tcgen05.alloc" in p.printed.message
        ),
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
