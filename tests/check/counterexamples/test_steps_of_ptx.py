"""The steps of a race between accesses by addresses tell how the second came before its time."""

from __future__ import annotations

from tests.support.handover import ARRIVE, PTX, launch


def test_both_accesses_and_what_let_the_second_go_on_are_shown() -> None:
    """The first warp writes again after it has arrived."""
    again = PTX.replace(ARRIVE, f"{ARRIVE}    st.shared.u32 [%r4], %r1;\n")
    (fault,) = launch(again).check().faults
    assert fault.kind == "RaceError"
    shown = [(step.agent, step.op.split(" ")[0], step.effect) for step in fault.steps]
    bar = "the mbarrier at 'bar' of CTA 0: "
    started = ("bar.sync", "barrier 0: passes, all have arrived")
    expected = [
        ("warp 0 of CTA 0", *started),
        ("warp 0 of CTA 0", "mbarrier.arrive.shared.b64", f"{bar}phase 0 complete"),
        ("warp 0 of CTA 0", "st.shared.u32", ""),
        ("warp 1 of CTA 0", *started),
        (
            "warp 1 of CTA 0",
            "mbarrier.try_wait.parity.shared.b64",
            f"{bar}passes, phase 0 is complete",
        ),
        ("warp 1 of CTA 0", "ld.shared.u32", ""),
    ]
    assert shown == expected
