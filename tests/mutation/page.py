"""docs/generated/mutants.md, from what the campaign found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.mutation.results import Result

KINDS = ("BarrierError", "DeadlockError", "RaceError", "ExitError", "PoisonError")
UNEXPLAINED = "unexplained"

HEAD = """# Mutants

What the checker finds in kernels with one synchronisation mistake. `make mutants` writes this page:
it takes every shipped kernel in several configurations, and nine examples; it drops, duplicates and
moves each wait, arrive, expect, fence, commit, release and drain, and changes each count, byte
total, mask, stage and phase by one. Each mutant is checked on the instances of `tilepipe check`, in
all interleavings.

{counts}

{summary}

A redundant mutant is not a gap in the checker: in most of them an op was there twice, or could
stand a line earlier. Each one is explained [below](#why-redundant-mutants-are-redundant) by a rule
of [`redundancy.py`](../../src/tilepipe/check/mutation/redundancy.py) or
[`reordering.py`](../../src/tilepipe/check/mutation/reordering.py), some of which depend on what the
op did in a run. `program.sensitivity()` reports the same for a kernel of your own
([checker.md](../concepts/checker.md#what-each-line-is-for)).

| column | the mutant |
|---|---|
| barrier, deadlock, race, exit, poison | ends in such a fault, in some interleaving |
| other | never ends (an endless loop), or has an index, a mask or a set of lanes that is invalid |
| numbers | has no fault and other results |
| redundant | is equivalent to the kernel: no fault in any interleaving, same results (in one run) |
"""


def page(results: Sequence[Result]) -> str:
    """The text of the page."""
    redundant = [r for r in results if r.fate == "redundant"]
    families = {(r.kernel, r.family) for r in results}
    kernels = {r.kernel for r in results} - {"examples"}
    of = [_some(len(kernels), "kernel")] if kernels else []
    of += ["the examples"] if any(r.kernel == "examples" for r in results) else []
    counts = (
        f"**{_some(len(results), 'mutant')}** of {_some(len(families), 'configuration')} of"
        f" {' and '.join(of)}:"
        f" {_caught(results):,} caught, {len(redundant):,} redundant,"
        f" {sum(not r.reason for r in redundant)} of them without an explanation,"
        f" {sum(r.fate == 'undecided' for r in results)} undecided."
    )
    parts = [
        HEAD.format(counts=counts, summary="\n".join(_summary(results))),
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
    reasons = ["", "## Why redundant mutants are redundant", "", *_reasons(redundant), ""]
    return "\n".join([*parts, *reasons])


def _some(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _caught(results: Sequence[Result]) -> int:
    return sum(r.fate in ("fault", "refused", "numbers") for r in results)


def _summary(results: Sequence[Result]) -> list[str]:
    """One row for each kernel."""
    lines = ["| kernel | mutants | caught | redundant |", "|---|---:|---:|---:|"]
    for kernel in dict.fromkeys(r.kernel for r in results):
        mine = [r for r in results if r.kernel == kernel]
        redundant = sum(r.fate == "redundant" for r in mine)
        lines.append(
            f"| [{kernel}](#{kernel}) | {len(mine):,} | {_caught(mine):,} | {redundant:,} |"
        )
    return lines


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
    """The redundant mutants by reason; one line for those that several configurations of a kernel
    share.
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
