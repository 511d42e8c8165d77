"""Mistakes as people make them, planted in a kernel that is right: a wait left out, a phase one
off, a fence forgotten, ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.check.campaign.lines import Kernel, Line

Block = list[Line]
# (choices, block, index of the line) -> what `Kernel.expected` becomes, None: not here
Change = Callable[[Random, Block, int], str | None]


def _dropped(kinds: tuple[str, ...]) -> Change:
    def change(r: Random, block: Block, at: int) -> str | None:
        if block[at].kind not in kinds:
            return None
        certain = block.pop(at).certain
        return "fault" if certain else ""

    return change


def _doubled(r: Random, block: Block, at: int) -> str | None:
    if block[at].kind != "arrive":
        return None
    block.insert(at, block[at])
    return ""


def _moved(kinds: tuple[str, ...], step: int) -> Change:
    """Moved by one line, earlier or later."""

    def change(r: Random, block: Block, at: int) -> str | None:
        if block[at].kind not in kinds or not 0 <= at + step < len(block):
            return None
        block.insert(at + step, block.pop(at))
        return ""

    return change


def _part(name: str, kinds: tuple[str, ...], new: Callable[[Random, str], str]) -> Change:
    """A place of a line filled with something else."""

    def change(r: Random, block: Block, at: int) -> str | None:
        line = block[at]
        if line.kind not in kinds or name not in line.parts:
            return None
        was = line.parts[name]
        line.parts[name] = new(r, was)
        return "" if line.parts[name] != was else None

    return change


def _once(kinds: tuple[str, ...]) -> Change:
    """Left out in one step of the ring."""

    def change(r: Random, block: Block, at: int) -> str | None:
        line = block[at]
        if line.kind not in kinds or "i" not in line.parts.get("index", ""):
            return None
        block[at] = Line(f"with ctx.when(i != {r.randint(0, 2)}):", "", [line])
        return ""

    return change


def _never(r: Random, block: Block, at: int) -> str | None:
    """A combination of answers that is thought impossible is not."""
    line = block[at]
    if line.kind != "decide":
        return None
    line.parts["never"] = r.choice(line.parts["reach"].split())
    return ""


def _lane_zero(r: Random, block: Block, at: int) -> str | None:
    """The elected lane is taken for lane 0."""
    line = block[at]
    if line.kind != "elected again" or "elect" not in line.parts["who"]:
        return None
    line.parts["who"] = "with ctx.when(ctx.lane == 0):"
    return "fault" if line.certain else ""


def _other_space(r: Random, block: Block, at: int) -> str | None:
    """A fence that orders accesses to another memory than was written."""
    line = block[at]
    if line.kind != "fence" or "space" not in line.parts:
        return None
    line.parts["space"] = "" if line.parts["space"] else '"global"'
    return "fault" if line.certain else ""


def _lanes_test(r: Random, block: Block, at: int) -> str | None:
    """Half of the lanes ask."""
    line = block[at]
    if line.kind != "test" or " = " not in line.text:
        return None
    block[at : at + 1] = [
        Line(
            "with ctx.when(ctx.lane < 16):",
            "",
            [Line(line.text.split(" = ", 1)[1], "", [], dict(line.parts))],
        ),
        line,
    ]
    return "refused"


def _after_poll(r: Random, block: Block, at: int) -> str | None:
    """A loop of tests that may give up is taken for a wait."""
    if block[at].kind != "wait" or at == 0 or block[at - 1].kind != "poll":
        return None
    block.pop(at)
    return ""


def _foreign(r: Random, block: Block, at: int) -> str | None:
    """A ctx kept from another kernel."""
    line = block[at]
    if not line.text.startswith("ctx.") or ("{" in line.text and line.kind == ""):
        return None
    line.text = "other." + line.text.removeprefix("ctx.")
    return "refused"


MISTAKES: dict[str, Change] = {
    "a wait left out": _dropped(("wait", "guard")),
    "a wait one line later": _moved(("wait", "guard"), 1),
    "a wait left out once": _once(("wait",)),
    "a phase one off": _part("phase", ("wait", "test"), lambda r, was: f"({was}) + 1"),
    "another stage": _part(
        "index",
        ("wait", "arrive", "copy", "load", "store"),
        lambda r, was: was.replace("i", "(i + 1)", 1),
    ),
    "an arrive left out": _dropped(("arrive",)),
    "a flag never set": _dropped(("signal",)),
    "an arrive left out once": _once(("arrive",)),
    "an arrive twice": _doubled,
    "an arrive one line earlier": _moved(("arrive", "elect"), -1),
    "a count one off": _part(
        "count", ("count",), lambda r, was: str(max(1, int(was) + r.choice((-1, 1))))
    ),
    "a fence left out": _dropped(("fence",)),
    "a fence of another space": _other_space,
    "a meeting left out": _dropped(("meet",)),
    "bytes one short": _part("bytes", ("expect",), lambda r, was: str(int(was) // 2)),
    "a store's wait left out": _dropped(("drain",)),
    "one store may be pending": _part("pending", ("drain",), lambda r, was: "1"),
    "the other CTA": _part(
        "peer", ("arrive",), lambda r, was: "ctx.cta_rank" if "rank" in was else str(1 - int(was))
    ),
    "a guard the wrong way round": _part("cond", ("guard",), lambda r, was: was.removeprefix("~")),
    "an answer thought impossible": _never,
    "a poll taken for a wait": _after_poll,
    "elected lane taken for lane 0": _lane_zero,
    "half of the lanes test": _lanes_test,
    "a ctx of another kernel": _foreign,
    "no cluster barrier at the end": _dropped(("cluster",)),
}


def plant(r: Random, kernel: Kernel, only: str = "") -> Kernel | None:
    """The kernel with one mistake in it; None where the one that was drawn, or `only`, has no place
    in it.
    """
    names = [only] if only else r.sample(list(MISTAKES), len(MISTAKES))
    for name in names:
        places = [(b, i) for b, (_, block) in enumerate(kernel.blocks()) for i in range(len(block))]
        r.shuffle(places)
        blocks = [block for _, block in kernel.blocks()]
        for number, at in places:
            # what is under a line, no mistake touches
            trial = [replace(line, parts=dict(line.parts)) for line in blocks[number]]
            if MISTAKES[name](Random(0), trial, at) is None:
                continue
            wrong = kernel.copied()
            role, block = list(wrong.blocks())[number]
            where = str(block[at])
            expected = MISTAKES[name](r, block, at)
            if expected is None or wrong.text() == kernel.text():
                continue
            wrong.mistake = f"{name}: {where}{f' ({role.name})' if role else ''}"
            wrong.expected = expected
            return wrong
    return None
