"""A run as a part of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilepipe import markup
from tilepipe.sim.role_stats import RoleStats

if TYPE_CHECKING:
    from tilepipe.timeline import Timeline

_LINES = 40  # that a kernel printed, the last ones
_WAITS = 3  # things that a role waits for


def part(
    head: str,
    roles: Sequence[RoleStats],
    timeline: Timeline | None,
    advice: Sequence[str],
    printed: Sequence[str],
) -> str:
    """How long a run took (`head`), what each role did and waited for, advice, and what the kernel
    printed.
    """
    more = len(printed) - _LINES
    lines = [*([f"... {more:,} lines before"] if more > 0 else []), *printed[-_LINES:]]
    return markup.part(
        markup.text("ran without a fault", "span", "good"),
        markup.text(f" {head}", "span"),
        markup.table(
            "roles",
            ("", "loaded", "MMAs", "stored", "waits", "of them blocked"),
            map(_did, roles),
        ),
        "" if timeline is None else _waits(timeline),
        markup.listed("Advice:", advice),
        markup.text("printed", "h4") + markup.text("\n".join(lines), "pre") if lines else "",
    )


def _did(role: RoleStats) -> tuple[str, ...]:
    return (
        role.name,
        f"{role.bytes_loaded / 1e6:,.1f} MB" if role.bytes_loaded else "",
        f"{role.mmas:,}, {role.flops / 1e9:,.2f} GFLOP" if role.mmas else "",
        f"{role.bytes_stored / 1e6:,.1f} MB" if role.bytes_stored else "",
        f"{role.waits:,}",
        f"{role.waits_blocked:,}",
    )


def _waits(timeline: Timeline) -> str:
    """The things that roles waited for."""
    rows = (
        (
            role.role + (f" × {role.agents}" if role.agents > 1 else ""),
            f"{role.busy:.0%}",
            f"{role.waiting:.0%}",
            ", ".join(f"{'its own ' if w.own else ''}{w.on} {w.part:.0%}" for w in longest)
            + (f", {more} more" if (more := len(role.waits) - len(longest)) else ""),
        )
        for role in timeline.roles()
        for longest in [role.waits[:_WAITS]]
    )
    return markup.table("timeline", ("", "in flight", "waiting", "on what"), rows)
