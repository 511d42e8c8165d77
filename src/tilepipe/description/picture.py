"""The pipeline graph as SVG: a column for each role, below them a band for each ring and barrier
with a line for each of its barriers, from who completes its phases to who waits for them.

Rows of lines cannot cross, whatever the kernel, and each has room for its own label; a graph of
boxes and curves would have needed a layout library, and could not show who of four roles waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from tilepipe.description.columns import brings, order
from tilepipe.description.description import Action, Barrier, Description, NamedBarrier, Ring, Role
from tilepipe.description.memory_map import memory_map
from tilepipe.description.svg import FONT, clipped, element, rectangle, style, text

_COLUMN = 225.0
_MARGIN = 22.0
_LEAST = 700.0  # the picture's width
_SHOWN = 6  # lines of what a role does
_DOT = 4.5
_FAR = ", in other CTAs of the cluster too"


def picture(d: Description) -> str:
    """The picture of a kernel."""
    return _Picture(d).svg()


@dataclass
class _Picture:
    d: Description
    parts: list[str] = field(default_factory=list)
    y: float = 0.0

    def __post_init__(self) -> None:
        places = order(self.d)
        self.width = max(2 * _MARGIN + _COLUMN * len(places), _LEAST)
        self.column = (self.width - 2 * _MARGIN) / max(len(places), 1)
        self.x = {role: _MARGIN + self.column * (i + 0.5) for i, role in enumerate(places)}

    def svg(self) -> str:
        d = self.d
        inside = self.width - 2 * _MARGIN
        self.parts += [
            text(_MARGIN, 30, clipped(d.name, inside * 0.7, 19), size=18, bold=True),
            text(self.width - _MARGIN, 30, clipped(d.target, inside * 0.3), "soft", anchor="end"),
            text(_MARGIN, 49, clipped(d.size, inside), "soft"),
        ]
        self.y = 64
        self._roles()
        lanes = len(self.parts), self.y
        self.y += 18
        for ring in d.rings:
            self._ring(ring)
        for barrier in d.lone_barriers:
            self._single(barrier)
        bands = d.rings or d.barriers or d.named_barriers
        self.parts[lanes[0] : lanes[0]] = [
            element(
                "line", "", ("lane",), x1=x, y1=lanes[1], x2=x, y2=self.y - 10, stroke_width=1.5
            )
            for x in self.x.values()
            if bands
        ]
        if bands:
            self._legend()
        found, high = memory_map(d, _MARGIN, self.y, self.width - 2 * _MARGIN)
        self.parts += found
        self.y += high + 14
        title = element("title", escape(f"{d.name}: {d.launch}"))
        body = "".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.y:g}"'
            f' width="{self.width:g}" height="{self.y:g}" preserveAspectRatio="xMinYMin"'
            f' role="img" font-family="{escape(FONT)}">'
            f"{title}<style>{style()}</style>"
            f"{rectangle(0, 0, self.width, self.y, 'back', radius=6)}{body}</svg>"
        )

    def _roles(self) -> None:
        shown = max((min(len(r.does), _SHOWN) for r in self.d.roles), default=0)
        high = 60 + 15 * shown + (6 if shown else 0)
        for number, role in enumerate(self.d.roles):
            self.parts.append(self._role(role, self.x[number], high))
        self.y += high

    def _role(self, role: Role, x: float, high: float) -> str:
        wide = self.column - 18
        left = x - wide / 2
        room = wide - 16
        registers = "" if role.registers is None else f"{role.registers} registers, "
        parts = [
            element("title", escape(f"{role.name}: {role.threads}, {registers}{role.at}")),
            element(
                "rect", "", ("role", "role-line"), x=left, y=self.y, width=wide, height=high, rx=5
            ),
            text(left + 10, self.y + 19, clipped(role.name, room, 15.5), size=14, bold=True),
            text(left + 10, self.y + 36, clipped(role.threads, room, 11), "soft", 11),
            text(left + 10, self.y + 51, clipped(registers + role.at, room, 11), "soft", 11),
        ]
        does = list(role.does)
        if len(does) > _SHOWN:
            does[_SHOWN - 1 :] = [f"{len(does) - _SHOWN + 1} more"]
        for i, words in enumerate(does):
            parts.append(text(left + 10, self.y + 71 + 15 * i, clipped(words, room, 11), size=11))
        return element("g", "".join(parts))

    # -- bands -------------------------------------------------------------------------

    def _band(self, heading: str, about: str, rows: list[str], high: float) -> None:
        """A band with rows that are drawn, from the present y on."""
        whole = rectangle(_MARGIN / 2, self.y, self.width - _MARGIN, high, "band", radius=5)
        name = clipped(heading, self.width / 2, 14.5)
        head = text(_MARGIN, self.y + 18, name, size=13, bold=True, on="band")
        left = _MARGIN + len(name) * 8.5 + 14
        room = self.width - _MARGIN - left
        head += text(left, self.y + 18, clipped(about, room, 11), "soft", 11, on="band")
        # below the lanes' lines lies the band; above them, what is in it
        self.parts.insert(0, whole)
        self.parts += [head, *rows]
        self.y += high + 10

    def _ring(self, ring: Ring) -> None:
        y = self.y + 30
        full, first = self._bus(f"full: {ring.full.needs}", ring.full.actions, y, "full")
        empty, second = self._bus(
            f"empty: {ring.empty.needs}", ring.empty.actions, y + first, "empty"
        )
        self._band(ring.name, ring.about, [full, empty], 32 + first + second)

    def _single(self, barrier: Barrier | NamedBarrier) -> None:
        about = barrier.about
        if any(a.far for a in barrier.actions if brings(a)):
            about += _FAR
        row, high = self._bus("", barrier.actions, self.y + 14, "plain")
        self._band(barrier.name, about, [row], 16 + high)

    def _bus(
        self, label: str, actions: tuple[Action, ...], y: float, colour: str
    ) -> tuple[str, float]:
        """A line from who brings to who waits, and its height."""
        sources = {a.role: self.x[a.role] for a in actions if brings(a)}
        sinks = {a.role: self.x[a.role] for a in actions if not brings(a)}
        every = {**sources, **sinks}
        if not every:
            words = f"{label}, not used" if label else "not used"
            return text(_MARGIN, y + 18, words, "soft", 11), 28
        if label and any(a.far for a in actions if brings(a)):
            label += _FAR
        label = clipped(label, self.width - 2 * _MARGIN, 11)
        line = y + 18
        low, high = min(every.values()), max(every.values())
        parts = [element("title", escape(self._told(label, actions)))]
        if high > low:
            parts.append(
                element("line", "", (colour,), x1=low, y1=line, x2=high, y2=line, stroke_width=2)
            )
        for role, x in every.items():
            parts.append(self._end(x, line, role in sources, role in sinks, sources, colour))
        start = max(min(low + 12, self.width - _MARGIN - len(label) * 6.6), _MARGIN)
        parts.append(text(start, y + 8, label, size=11, on="band"))
        deepest = 0
        for role, x in every.items():
            lines = self._lines(role, actions)
            deepest = max(deepest, len(lines))
            for i, words in enumerate(lines):
                shown = clipped(words, self.column - 10, 10)
                parts.append(text(x, line + 17 + 12 * i, shown, "soft", 10, "middle", on="band"))
        return element("g", "".join(parts)), 31 + 12.0 * deepest

    def _end(
        self, x: float, y: float, is_source: bool, is_sink: bool, sources: dict[int, float],
        colour: str,
    ) -> str:  # fmt: skip
        """A dot where something is brought, an arrowhead where it is waited for; a dot in a circle
        where a role does both.
        """
        fill = f"{colour}-fill"
        dot = element("circle", "", (fill,), cx=x, cy=y, r=_DOT)
        if is_source and is_sink:
            return element("circle", "", ("band", colour), cx=x, cy=y, r=8, stroke_width=1.6) + dot
        if is_source or not sources:
            return dot
        nearest = min(sources.values(), key=lambda other: abs(other - x))
        side = 1 if nearest > x else -1  # the arrow comes from there
        points = f"{x:g},{y:g} {x + side * 11:g},{y - 5.5:g} {x + side * 11:g},{y + 5.5:g}"
        return element("polygon", "", (fill,), points=points)

    def _lines(self, role: int, actions: tuple[Action, ...]) -> list[str]:
        """What a role does to a barrier, a line for each verb."""
        mine = [a for a in actions if a.role == role]
        verbs = {a.does for a in mine}
        if verbs == {"arrives", "waits"} and len({a.at for a in mine}) == 1:
            return [f"arrives, waits {_at(mine[0])}"]
        # of a role that announces bytes, its copies stand in the label
        shown = [a for a in mine if a.does != "copies" or "expects" not in verbs]
        return [f"{a.does} {_at(a)}" for a in shown]

    def _told(self, label: str, actions: tuple[Action, ...]) -> str:
        """The whole of it, for who points at it."""
        return "\n".join(
            [
                *([label] if label else []),
                *(f"{self.d.roles[a.role].name} {a.does}: {', '.join(a.at)}" for a in actions),
            ]
        )

    def _legend(self) -> None:
        words = "● completes a phase, ▸ waits for it, ◉ does both; below: the lines that do"
        self.parts.append(text(_MARGIN, self.y + 6, words, "soft", 10))
        self.y += 18


def _at(action: Action) -> str:
    more = len(action.at) - 1
    return action.at[0] + (f" +{more}" if more else "")
