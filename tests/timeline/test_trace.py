"""A timeline in the Trace Event Format."""

from __future__ import annotations

from tests.timeline.kernels import copying, recorded


def test_copies_waits_and_arrows() -> None:
    found = recorded(copying())
    events = found.trace()["traceEvents"]
    begun = {e["id"]: e for e in events if e["ph"] == "b"}
    ended = {e["id"]: e for e in events if e["ph"] == "e"}
    assert begun.keys() == ended.keys()
    assert len(begun) == len([e for e in found.events if e.wait is None])
    waits = [e for e in events if e["ph"] == "X"]
    assert [(e["ts"], e["dur"]) for e in waits] == [
        (e.begin_us, e.us) for e in found.events if e.wait is not None
    ]
    empty = next(e for e in waits if e["args"]["on"] == "ring.empty")
    assert empty["args"]["phase"] == 0
    assert empty["args"]["released by"].startswith("store, mbar_arrive ring.empty")
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    # an arrow for each wait for another agent: two for fills and one for a release in each CTA
    assert len(starts) == 6
    assert all(starts[i]["ts"] == ends[i]["ts"] for i in starts)
    assert all(starts[i]["tid"] != ends[i]["tid"] for i in starts)


def test_tracks_and_counters_have_names() -> None:
    events = recorded(copying()).trace()["traceEvents"]
    names = [e["args"]["name"] for e in events if e["ph"] == "M"]
    assert names == ["CTA 0", "CTA 1", "load", "store", "load", "store"]
    counted = [e["args"]["filled"] for e in events if e["ph"] == "C" and e["pid"] == 0]
    assert counted == [1, 0, 1, 0]
