"""docs/generated/mutants.md, from what the campaign found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.mutation.results import Result

KINDS = ("BarrierError", "DeadlockError", "RaceError", "ExitError", "PoisonError")
UNEXPLAINED = "unexplained"

HEAD = """# Mutants

What becomes of a kernel that is wrong by one thing. `make mutants` writes this page: it takes every shipped kernel in its families, and
nine examples, and drops, duplicates or moves each wait, arrive, expect, fence, commit, release and drain, and changes each count, byte
total, mask, stage and phase by one. Each mutant is checked on the instances of `tilepipe check`, in all interleavings.

| column | the mutant |
|---|---|
| barrier, deadlock, race, exit, poison | ends in such a fault, in some interleaving |
| other | never ends (an endless loop), or has an index, a mask or a set of lanes that cannot be |
| numbers | has no fault and writes something else |
| redundant | is as good as the kernel: explored, no fault in any interleaving, and the same results (compared on one run) |

{counts}

A redundant mutant is not a hole by itself: most say that an op was there twice, or could stand a line earlier. Each one is explained
below by a rule of [`redundancy.py`](../src/tilepipe/check/mutation/redundancy.py) or [`pairs.py`](../src/tilepipe/check/mutation/pairs.py),
some of which look at what the op did in a run. `program.sensitivity()` says the like of your own kernel
([checker.md](checker.md#what-each-line-is-for)).
"""


def page(results: Sequence[Result]) -> str:
    """The file."""
    caught = sum(r.fate in ("fault", "refused", "numbers") for r in results)
    redundant = [r for r in results if r.fate == "redundant"]
    families = {(r.kernel, r.family) for r in results}
    counts = (
        f"{len(results):,} mutants of {len(families)} configurations of"
        f" {len({r.kernel for r in results})} kernels and the examples: "
        f"{caught:,} caught, {len(redundant):,} redundant, {sum(not r.reason for r in redundant)}"
        " of them without an explanation, "
        f"{sum(r.fate == 'undecided' for r in results)} undecided."
    )
    parts = [
        HEAD.format(counts=counts),
        "## By operator",
        "",
        *_operators(results),
        "",
        "## By configuration",
        "",
        *_families(results),
    ]
    for kernel in dict.fromkeys(r.kernel for r in results):
        mine = [r for r in results if r.kernel == kernel]
        parts += ["", f"## {kernel}", "", *_operators(mine)]
    return "\n".join([*parts, "", "## Why the redundant ones are", "", *_reasons(redundant), ""])


def _operators(results: Sequence[Result]) -> list[str]:
    rows = [
        (name, [r for r in results if r.operator == name])
        for name in dict.fromkeys(sorted(r.operator for r in results))
    ]
    return _table("operator", [*rows, ("all", list(results))])


def _families(results: Sequence[Result]) -> list[str]:
    names = dict.fromkeys((r.kernel, r.family) for r in results)
    return _table(
        "kernel",
        [(f"{k}: {f}", [r for r in results if (r.kernel, r.family) == (k, f)]) for k, f in names],
    )


def _table(what: str, rows: Iterable[tuple[str, Sequence[Result]]]) -> list[str]:
    short = [kind.removesuffix("Error").lower() for kind in KINDS]
    lines = [
        f"| {what} | mutants | {' | '.join(short)} | other | numbers | redundant |",
        "|---|" + "---:|" * (len(KINDS) + 4),
    ]
    for name, found in rows:
        kinds = Counter(r.kind for r in found if r.fate in ("fault", "refused"))
        other = sum(kinds.values()) - sum(kinds[kind] for kind in KINDS)
        fates = Counter(r.fate for r in found)
        figures = [
            len(found),
            *(kinds[kind] for kind in KINDS),
            other,
            fates["numbers"],
            fates["redundant"],
        ]
        lines.append(f"| {name} | " + " | ".join(f"{n:,}" if n else "" for n in figures) + " |")
    return lines


def _reasons(redundant: Sequence[Result]) -> list[str]:
    """All of them, by reason; one line for what is the same in several configurations of a
    kernel.
    """
    lines: list[str] = []
    for reason, _ in Counter(r.reason for r in redundant).most_common():
        mine = [r for r in redundant if r.reason == reason]
        lines += [f"### {_capital(reason) if reason else UNEXPLAINED.capitalize()}", "", "```text"]
        same = Counter((r.kernel, r.loc, r.operator, r.what) for r in mine)
        for (kernel, loc, operator, what), n in sorted(same.items()):
            times = f", in {n} configurations" if n > 1 else ""
            lines.append(f"{kernel}, {loc}: {operator}: {what}{times}")
        lines += ["```", ""]
    return lines


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
