"""A timeline in the Trace Event Format, which ui.perfetto.dev opens."""

from __future__ import annotations

from typing import Any

from tilepipe.timeline.record import Record


def trace(timeline: Record) -> dict[str, Any]:
    """A process for each CTA, a track for each role or agent of it, and a counter for each ring.

    Copies and MMAs of a track overlap, so each has a beginning and an end with an id of its own.
    Waits do not, and are plain slices. An arrow (a flow) leads from who released a wait to the
    wait.
    """
    events = timeline.events
    tracks = list(dict.fromkeys((e.role, e.part) for e in events))
    found: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": cta, "args": {"name": f"CTA {cta}"}}
        for cta in sorted({e.cta for e in events})
    ]
    for cta, role, part in sorted({(e.cta, e.role, e.part) for e in events}):
        place = {"pid": cta, "tid": tracks.index((role, part))}
        name = f"{role} {part}".rstrip()
        found.append({"ph": "M", "name": "thread_name", **place, "args": {"name": name}})
    for number, e in enumerate(events):
        place = {"pid": e.cta, "tid": tracks.index((e.role, e.part))}
        common = {"cat": e.op, "name": e.what, **place}
        args: dict[str, Any] = {"at": e.at}
        if e.about:
            args["about"] = e.about
        if e.wait is None:
            found.append({"ph": "b", "ts": e.begin_us, "id": number, **common, "args": args})
            found.append({"ph": "e", "ts": e.end_us, "id": number, **common})
            continue
        args["on"] = e.wait.on
        if e.wait.phase is not None:
            args["phase"] = e.wait.phase
        by = e.wait.released_by
        if by is not None:
            args["released by"] = f"{by.role} {by.part}".rstrip() + f", {by.what} at {by.at}"
        found.append({"ph": "X", "ts": e.begin_us, "dur": e.us, **common, "args": args})
        if by is not None and (by.role, by.part) in tracks and not e.wait.own:
            flow = {"cat": "release", "name": "releases", "id": number}
            start = {"pid": by.cta, "tid": tracks.index((by.role, by.part)), "ts": by.time_us}
            found.append({"ph": "s", **flow, **start})
            found.append({"ph": "f", "bp": "e", **flow, **place, "ts": e.end_us})
    for ring in timeline.occupancy():
        found += [
            {"ph": "C", "name": f"{ring.ring}: stages filled", "pid": ring.cta, "ts": at,
             "args": {"filled": filled}}
            for at, filled in ring.steps
        ]  # fmt: skip
    return {"traceEvents": found, "displayTimeUnit": "ns"}
