"""A timeline as a page: one file of HTML that needs no network.

The page is `assets/page.html` with `page.css` and `page.js`, which draws on a canvas what is
visible. The data stand in it as JSON: columns of numbers, in which texts are numbers of a table of
texts. Names come from users' programs: JSON is written so that none can end its script element, and
the script puts them on the canvas or into text nodes, never into markup.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from tilepipe.timeline.events import Event, Release
from tilepipe.timeline.record import Measured, Record, Stopped

_KINDS = {"copy": 0, "mma": 1, "wait": 2}
_NONE = -1
_TITLE = 100  # characters of a fault
_DIGITS = 5  # of microseconds: a hundredth of a nanosecond, a fiftieth of a cycle


def page(timelines: Sequence[Record]) -> str:
    """A page with these timelines, one below the other, on one axis of time."""
    assets = files("tilepipe.timeline") / "assets"
    texts = {
        "@TITLE@": escape(" beside ".join(map(_title, timelines))),
        "@CSS@": (assets / "page.css").read_text(encoding="utf-8"),
        "@SCRIPT@": (assets / "page.js").read_text(encoding="utf-8"),
        "@DATA@": _in_script(data(timelines)),
    }
    parts = (assets / "page.html").read_text(encoding="utf-8")
    before, rest = parts.split("@CSS@")
    between, rest = rest.split("@DATA@")
    last, after = rest.split("@SCRIPT@")
    # each text is put in once, so that none of them is searched for the marks of the others
    return "".join((
        before.replace("@TITLE@", texts["@TITLE@"]), texts["@CSS@"], between, texts["@DATA@"],
        last, texts["@SCRIPT@"], after,
    ))  # fmt: skip


def _title(timeline: Record) -> str:
    """Which kernel it is of, where it was measured, and in which fault it ended."""
    title = timeline.name
    if timeline.measured is not None:
        title += f" on {timeline.measured.device}"
    if timeline.fault is not None:
        said = (timeline.fault.message.splitlines() or [""])[0]
        title += f": {said if len(said) <= _TITLE else said[: _TITLE - 1] + '…'}"
    return title


def _in_script(x: object) -> str:
    """JSON in which no element of HTML begins or ends."""
    text = json.dumps(x, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def data(timelines: Sequence[Record]) -> dict[str, Any]:
    """What the page is told. Times are in microseconds."""
    texts = _Texts()
    return {"runs": [_run(timeline, texts) for timeline in timelines], "texts": texts.all}


class _Texts:
    """A table of texts, each of which stands in it once."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        number = self._numbers.setdefault(text, len(self.all))
        if number == len(self.all):
            self.all.append(text)
        return number


def _run(timeline: Record, texts: _Texts) -> dict[str, Any]:
    lanes: dict[tuple[int, str, str], int] = {}
    for key in sorted(
        {(e.cta, e.role, e.part) for e in timeline.events}, key=_in_order(timeline.events)
    ):
        lanes[key] = len(lanes)
    columns: dict[str, list[float]] = {
        name: []
        for name in (
            "lane", "kind", "begin", "end", "op", "what", "at", "about", "bytes", "on", "phase",
            "by", "byOp", "byWhat", "byAt", "byTime", "guess", "stuck",
        )
    }  # fmt: skip
    for e in timeline.events:
        wait, by = e.wait, None if e.wait is None else e.wait.released_by
        row: tuple[float, ...] = (
            lanes[e.cta, e.role, e.part], _KINDS[e.kind], _rounded(e.begin_us), _rounded(e.end_us),
            texts(e.op), texts(e.what), texts(e.at), texts(e.about), e.nbytes,
            _NONE if wait is None else texts(wait.on),
            _NONE if wait is None or wait.phase is None else wait.phase,
            *_released(by, lanes, texts), int(e.estimated), int(e.stuck),
        )  # fmt: skip
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return {
        "name": texts(timeline.name),
        "grid": timeline.grid,
        "ctas": timeline.ctas,
        "simulated": timeline.simulated_us,
        "fault": None if timeline.fault is None else _fault(timeline.fault, texts),
        "measured": None if timeline.measured is None else _measured(timeline.measured, texts),
        "lanes": [[cta, texts(role), texts(part)] for cta, role, part in lanes],
        "events": columns,
        "roles": [
            {
                "role": texts(role.role),
                "agents": role.agents,
                "busy": role.busy,
                "waiting": role.waiting,
                "waits": [[texts(w.on), int(w.own), w.count, w.part] for w in role.waits],
            }
            for role in timeline.roles()
        ],
        "units": [
            {
                "cta": x.cta,
                "us": _rounded(x.us),
                "tensor": [_rounded(t) for interval in x.tensor for t in interval],
                "tma": [_rounded(t) for interval in x.tma for t in interval],
                "tensorBusy": x.tensor_busy,
                "tmaBusy": x.tma_busy,
            }
            for x in timeline.utilisation()
        ],
        "rings": [
            {
                "cta": x.cta,
                "ring": texts(x.ring),
                "stages": x.stages,
                "times": [_rounded(t) for t, _ in x.steps],
                "filled": [filled for _, filled in x.steps],
            }
            for x in timeline.occupancy()
        ],
    }


def _fault(fault: Stopped, texts: _Texts) -> dict[str, Any]:
    return {
        "message": texts(fault.message),
        "steps": [[texts(x) for x in step] for step in fault.steps],
    }


def _measured(where: Measured, texts: _Texts) -> dict[str, Any]:
    return {
        "device": texts(where.device),
        "ghz": round(where.clock_ghz, 2),
        "us": round(where.us, 1),
        "lost": where.lost,
    }


def _released(
    by: Release | None, lanes: dict[tuple[int, str, str], int], texts: _Texts
) -> tuple[float, ...]:
    if by is None:
        return _NONE, _NONE, _NONE, _NONE, 0
    lane = lanes.get((by.cta, by.role, by.part), _NONE)
    return lane, texts(by.op), texts(by.what), texts(by.at), _rounded(by.time_us)


def _in_order(events: Sequence[Event]) -> Any:
    """CTA by CTA, roles in the order of their first events, their agents by number."""
    roles = {role: n for n, role in enumerate(dict.fromkeys(e.role for e in events))}
    return lambda key: (key[0], roles[key[1]], len(key[2]), key[2])


def _rounded(us: float) -> float:
    return round(us, _DIGITS)
