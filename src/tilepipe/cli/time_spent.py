"""What a timeline says in a terminal: how long each role waits, and for what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from tilepipe.cli.common import out

if TYPE_CHECKING:
    from tilepipe.timeline import Timeline, Utilisation

_SHOWN = 4  # things that a role waits for
MODELLED = (
    "in flight, waiting: parts of the agents' time, from a CTA's start to its last completion,"
    " by the cost model,\nwhich counts copies and MMAs and not arithmetic in registers"
)
MEASURED = (
    "in flight, waiting: parts of the agents' time, from a CTA's start to its last completion,"
    " measured;\noccupied: what the copies and MMAs take by the rates of the cost model"
)
NOTHING = (
    "nothing to show: a timeline has copies, MMAs and waits that block, and there is none in these"
    " CTAs"
)


def report(found: Timeline) -> dict[str, Any]:
    """The report as `--json` prints it."""
    where = found.measured
    return {
        "ctas": found.ctas,
        "events": len(found.events),
        "simulated_us": found.simulated_us,
        "device": None if where is None else where.device,
        "measured_us": None if where is None else where.us,
        "lost": 0 if where is None else where.lost,
        "critical_path": [{"what": what, "us": us} for what, us in path_of(found).items()],
        "bubbles": [
            {"cta": b.cta, "before": b.before, "between": b.between, "after": b.after}
            for b in found.bubbles()
        ],
        "units": [
            {"kind": x.op, "count": x.count, "mean_us": x.mean_us, "busy": x.busy}
            for x in found.units()
        ],
        "roles": [
            {
                "role": x.role,
                "agents": x.agents,
                "busy": x.busy,
                "waiting": x.waiting,
                "waits": [
                    {"on": w.on, "own": w.own, "count": w.count, "us": w.us, "part": w.part}
                    for w in x.waits
                ],
            }
            for x in found.roles()
        ],
    }


def show(found: Timeline) -> None:
    """Prints a row for each role: how long it waits, and for what, longest first."""
    title = f"{found.name}, {found.ctas:,} of {found.grid:,} CTAs"
    if found.simulated_us is not None:
        title += f", modelled time {found.simulated_us:.1f} µs"
    where = found.measured
    if where is not None:
        title += f", {where.us:.1f} µs on {where.device} at {where.clock_ghz:.2f} GHz"
    if not found.events:
        out.print(title)
        out.print(NOTHING)
        return
    table = Table("role", title=title, title_justify="left")
    for column in ("in flight", "waiting"):
        table.add_column(column, justify="right")
    table.add_column("on what")
    for role in found.roles():
        waits = [f"{'its own ' if w.own else ''}{w.on} {w.part:.0%}" for w in role.waits[:_SHOWN]]
        more = len(role.waits) - _SHOWN
        name = role.role + (f" × {role.agents}" if role.agents > 1 else "")
        table.add_row(
            name,
            f"{role.busy:.0%}",
            f"{role.waiting:.0%}",
            ", ".join([*waits, *([f"{more} more"] if more > 0 else [])]),
        )
    out.print(table, soft_wrap=False)
    busy = found.utilisation()
    if busy:
        tensor, tma = (sum(x) / len(busy) for x in zip(*map(_busy, busy), strict=True))
        kinds = ", ".join(
            f"{x.count:,} {_short(x.op)} of {x.mean_us:.2f} µs" for x in found.units()
        )
        out.print(f"tensor core {tensor:.0%}, TMA {tma:.0%} occupied; {kinds}")
    _print_path(found)
    _print_bubbles(found)
    out.print(MODELLED if where is None else MEASURED)
    if where is not None and where.lost:
        out.print(
            f"{where.lost:,} notes found no room and are missing, the last of their warps: give"
            " --room more than it has now"
        )


def path_of(found: Timeline) -> dict[str, float]:
    """The parts of the critical path of the first CTA, largest first, in microseconds."""
    parts: dict[str, float] = {}
    for segment in found.critical_path(0):
        parts[segment.what] = parts.get(segment.what, 0.0) + segment.us
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


def _print_path(found: Timeline) -> None:
    parts = path_of(found)
    total = sum(parts.values())
    if total:
        said = [f"{what} {us / total:.0%}" for what, us in parts.items() if us / total >= 0.01]
        out.print(f"critical path of CTA 0, {total:.2f} µs: {', '.join(said)}")


def _print_bubbles(found: Timeline) -> None:
    every = found.bubbles()
    if not every:
        return
    n = len(every)
    before, between = sum(b.before for b in every) / n, sum(b.between for b in every) / n
    after = sum(b.after for b in every) / n
    waits: dict[tuple[str, bool], float] = {}
    for one in every:
        for on, own, part in one.waits:
            waits[on, own] = waits.get((on, own), 0.0) + part / n
    during = [
        f"{'its own ' if own else ''}{on} {part:.0%}"
        for (on, own), part in sorted(waits.items(), key=lambda w: -w[1])
        if part >= 0.01
    ]
    why = f", while who feeds them waits for {', '.join(during[:_SHOWN])}" if during else ""
    out.print(
        f"tensor cores idle {before:.0%} of the time before the first MMA, {between:.0%} between"
        f" MMAs{why}, {after:.0%} after the last"
    )


def _busy(x: Utilisation) -> tuple[float, float]:
    return x.tensor_busy, x.tma_busy


def _short(op: str) -> str:
    """The name of an op; of an instruction of PTX, its first parts."""
    return ".".join(op.split("::")[0].split(".")[:4])
