"""The stamps that a timed build leaves out, and that the reader adds."""

from __future__ import annotations

from tilepipe.ir.implied import Implied, Step, implied
from tilepipe.ir.program import walk
from tilepipe.ir.stamps import Stamp, points
from tilepipe.registry.catalog import find

# a warp issues an MMA (0), commits it (1), waits for a stage (2), issues one more (3), waits (4)
MMAS = Implied(after={(0, False): [Step(1), Step(2, may_block=True), Step(3), Step(4)]})


def stamp(point: int, cycles: int, ended: bool = False) -> Stamp:
    return Stamp(point, ended, cycles, 0, 0, None)


def test_a_wait_that_does_not_block_leaves_the_time_as_it_is() -> None:
    found = MMAS.complete([stamp(0, 10), stamp(4, 90, True), stamp(0, 95)])
    times = [(s.point, s.ended, s.cycles) for s in found]
    assert times == [
        (0, False, 10), (1, False, 10), (3, False, 10), (4, False, 10), (4, True, 90),
        (0, False, 95), (1, False, 95), (3, False, 95), (4, False, 95),
    ]  # fmt: skip


def test_what_follows_a_wait_that_blocked_comes_after_its_end() -> None:
    found = MMAS.complete([stamp(0, 10), stamp(2, 20), stamp(2, 50, True), stamp(4, 90, True)])
    times = [(s.point, s.ended, s.cycles) for s in found]
    assert times == [
        (0, False, 10), (1, False, 10), (2, False, 20), (2, True, 50), (3, False, 50),
        (4, False, 50), (4, True, 90),
    ]  # fmt: skip


def test_a_copy_is_about_the_barrier_whose_bytes_are_expected() -> None:
    loads = Implied(after={(0, False): [Step(1, same_barrier=True)]})
    assert loads.complete([Stamp(0, False, 7, index=3, parity=0, rank=1)])[1] == Stamp(
        1, False, 7, index=3, parity=0, rank=1
    )


def test_what_the_notes_of_a_gemm_imply() -> None:
    spec = find("gemm")
    config, _ = spec.configure(spec.parse(["m=256", "n=256", "k=256"]), None)
    kernel = spec.make(config, 0).program.kernel
    names = [point.op.name for point in points(kernel)]
    found = implied(kernel)
    follow = {names[n]: [names[s.point] for s in steps] for (n, _), steps in found.after.items()}
    assert follow["wgmma"] == ["wgmma_commit", "wgmma_wait"]
    (expects,) = (steps for (n, _), steps in found.after.items() if "expect" in names[n])
    assert [(names[s.point], s.same_barrier) for s in expects] == [("tma_load", True)] * 2
    mma = next(role for role in kernel.roles if role.name == "mma")
    assert len([op for op in walk(mma.body) if op in found.begins]) >= 2
