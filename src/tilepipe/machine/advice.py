"""Advice: what is remarked of a run and is no fault. Repeated advice is one entry with a count."""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class Advice(str):
    """One text for all that a rule says about the same lines: that of the first, with how many more
    there are. Copies whose barriers no fence follows would else be an entry for each stage and each
    CTA, and the stores of an unrolled loop one for each round.

    Attributes:
        rule, lines: what it is about: the name of the rule, or
            of the remark, and the lines of source of the two ops,
            or of the one.
        texts: all that was said of them.
    """

    __slots__ = ("lines", "rule", "texts")

    rule: str
    lines: tuple[str, ...]
    texts: tuple[str, ...]

    def __new__(cls, rule: str, lines: tuple[str, ...], texts: tuple[str, ...]) -> Advice:
        shown, more = texts[0], len(texts) - 1
        if more:
            where = "lines" if len(lines) > 1 else "line"
            shown += f" ({more:,} more like this at the same {where})"
        made = super().__new__(cls, shown)
        made.rule, made.lines, made.texts = rule, lines, texts
        return made

    def __getnewargs__(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:  # type: ignore[override]
        """For pickle."""
        return self.rule, self.lines, self.texts


def subject(text: str) -> Hashable:
    """A key that is equal for advice that is one entry."""
    return (text.rule, text.lines) if isinstance(text, Advice) else text


def add(advice: list[str], texts: Iterable[str]) -> None:
    """Adds advice that is not there yet, to the entry about the same where there is one."""
    for text in texts:
        if text in advice:
            continue
        of = next((i for i, old in enumerate(advice) if subject(old) == subject(text)), None)
        if of is None:
            advice.append(text)
            continue
        old = advice[of]
        if isinstance(old, Advice) and isinstance(text, Advice):
            new = tuple(one for one in text.texts if one not in old.texts)
            if new:
                advice[of] = Advice(old.rule, old.lines, (*old.texts, *new))
