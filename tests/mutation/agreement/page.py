"""docs/generated/ptx-agreement.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from tests.mutation.agreement.judging import Pair, Side
from tests.mutation.agreement.reasons import REASONS, reason
from tests.mutation.agreement.subjects import Subject
from tools.snapshot.families import FAMILIES

HEAD = """# Do both front ends agree?

`check` decides a traced program, and it decides PTX. `make ptx-agreement` writes this page: it
checks shipped kernels, examples and mutants of them as programs, and from the PTX that NVRTC makes
of their printed CUDA, and compares the verdicts. The two share the machine and the search, and no
code that reads a kernel. A mutant is a kernel with one synchronisation mistake
([mutants.md](mutants.md)), checked on one instance. A family of a shipped kernel is checked on the
smallest of its instances, in which every ring still goes round more than twice. Seconds are those
of the check alone; the machine did other things, too.
"""
CLASSES = ("both verified", "both fault", "program fault, PTX verified",
           "PTX fault, program verified", "undecided")  # fmt: skip


def classed(pair: Pair) -> str:
    """Its column in the table of mutants. A program that is refused counts as a fault."""
    if any(s.verdict in ("undecided", "error") for s in (pair.traced, pair.printed)):
        return "undecided"
    if pair.agrees:
        return "both fault" if pair.traced.refuted else "both verified"
    return CLASSES[2] if pair.traced.refuted else CLASSES[3]


def page(found: Sequence[Pair], missing: Sequence[Subject] = ()) -> str:
    """The text of the page. `missing`: what has not been compared."""
    kernels = [p for p in found if p.number < 0]
    mutants = [p for p in found if p.number >= 0]
    parts = [HEAD, f"{_counts('launches of kernels', kernels)} {_counts('mutants', mutants)}", ""]
    parts += ["## Mutants", "", *_mutants(mutants), ""]
    parts += ["## Disagreements", "", *_disagreements(found), ""]
    parts += ["## Not compared", "", *_missing(found, missing), ""]
    parts += ["## Kernels", "", *_kernels(kernels), ""]
    return "\n".join(parts)


def _missing(found: Sequence[Pair], missing: Sequence[Subject]) -> Iterable[str]:
    every = sum(map(len, FAMILIES.values()))
    some = sum(p.group == "families" for p in found)
    decided = sum(p.group == "families" and classed(p) != "undecided" for p in found)
    yield f"Of {every} families of the shipped kernels {some} were compared; both front ends"
    yield f"decided {decided} of these. Of mutants a sample is compared."
    kernels = [subject for subject in missing if subject.mutant is None]
    if kernels:
        yield "The comparison was stopped before it came to the others:"
        yield ""
    for kernel, names in groupby(kernels, lambda s: s.subject.partition(": ")[0]):
        of = "; ".join(dict.fromkeys(s.subject.partition(": ")[2] or s.instance for s in names))
        yield f"- {kernel}: {of or 'its instance'}"


def _counts(what: str, pairs: Sequence[Pair]) -> str:
    of = Counter(classed(p) for p in pairs)
    agree = sum(p.agrees for p in pairs)
    apart = ", ".join(f"{of[c]} {c}" for c in CLASSES[2:])
    return f"Of **{len(pairs):,} {what}** {agree:,} agree; {apart}."


def _mutants(pairs: Sequence[Pair]) -> Iterable[str]:
    yield f"| mutants | {' | '.join(CLASSES)} |"
    yield f"|---|{'---:|' * len(CLASSES)}"
    for operator in [*sorted({p.operator for p in pairs}), ""]:
        of = Counter(classed(p) for p in pairs if operator in ("", p.operator))
        yield f"| {operator or '**all**'} | {' | '.join(str(of[c] or '') for c in CLASSES)} |"


def _disagreements(pairs: Sequence[Pair]) -> Iterable[str]:
    apart = [p for p in pairs if not p.agrees]
    for text in [*(r.text for r in REASONS), ""]:
        mine = [p for p in apart if reason(p) == text]
        if not mine:
            continue
        yield f"{text or '**Unexplained.**'} {len(mine)}:"
        yield ""
        for p in mine:
            what = p.what.replace("](", "] (")  # which reads as a link, also inside backticks
            at = f", `{what}` at {p.loc}" if p.what else f", {p.instance}" if p.instance else ""
            yield f"- {p.subject}{at}: program {p.traced.verdict}, PTX {p.printed.verdict}"
        yield ""


def _kernels(pairs: Sequence[Pair]) -> Iterable[str]:
    sides = "verdict | executions | states | s"
    yield f"| kernel | instance | program: {sides} | PTX: {sides} |"
    yield "|---|---|---|---:|---:|---:|---|---:|---:|---:|"
    for p in pairs:
        yield f"| {p.subject} | {p.instance} | {_side(p.traced)} | {_side(p.printed)} |"


def _side(side: Side) -> str:
    return f"{side.verdict} | {side.executions:,} | {side.states:,} | {side.seconds:.2f}"
