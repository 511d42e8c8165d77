"""Former bugs through which a faulty kernel was verified are put back, one at a time, and the
campaign of generated kernels finds each of them.

Three have tests of their own only: registers that do not fit, on which no verdict depends
(tests/lang/arguments/test_launch_limits.py); bounds that are exceeded (test_bounds.py); and what
tcgen05.commit releases under the strict rules, on a chip for which no kernel is generated
(tests/machine/test_rules.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.check.campaign.drawing import drawn
from tests.check.campaign.judge import Judged, judge
from tilepipe.check.engine import state_key as fingerprint
from tilepipe.check.engine.traced_front_end import TracedFrontEnd
from tilepipe.check.key_encoding import digest
from tilepipe.lang.tracing import barrier_tests as answers
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.machine.barriers import rendezvous
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.happens_before.events import GlobalOrder
from tilepipe.sim import election
from tilepipe.sim.analysis.data_flow import DecidingData

# campaigns; other files of this folder have a quick test for each of their rules
pytestmark = pytest.mark.slow

Patch = Callable[[pytest.MonkeyPatch], None]


def _no_contents(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DecidingData, "slot", lambda self, slot: b"")
    patch.setattr(DecidingData, "tensor", lambda self, tensor: b"")
    patch.setattr(DecidingData, "fragment", lambda self, fragment: False)


def _hashes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fingerprint, "encoded", lambda key: hash(key))


def _locals_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        TracedFrontEnd,
        "polling_state",
        lambda self, world, ctas, ag: digest(self.registers(ag)),
    )


def _no_rule_for_tensors(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GlobalOrder, "mixed", property(lambda self: False, lambda self, value: None))


def _every_space(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rendezvous, "covered", lambda space, rank: lambda access: True)


def _never_in_role(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mbarrier, "in_role", property(lambda self: False, lambda self, value: None))


def _lane_zero(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(election, "lanes_of", lambda kernel: (0,))


@dataclass(frozen=True)
class Hole:
    """One hole: how it is put back, which generated kernel reaches it, and what the judge then
    says.

    Attributes:
        required, mistake, number: of the kernel, see `drawn`. seeds: of `run`, where one of them
            shows that the verdict is wrong.
    """

    patch: Patch
    required: str
    mistake: str
    number: int
    says: str
    seeds: int = 1

    def outcome(self) -> Judged:
        kernel, made = drawn(
            0, self.number, frozenset(filter(None, self.required.split(","))), self.mistake
        )
        return judge(kernel, range(self.seeds), made)


HOLES = {
    "a ctx kept from another kernel": Hole(
        lambda patch: patch.setattr(Tracer, "refuse", lambda self: None),
        "",
        "a ctx of another kernel",
        3,
        "not refused, but verified",
    ),
    "data that decide later are no part of a state": Hole(
        _no_contents, "peek", "an answer thought impossible", 4, "and seed", 60
    ),
    "-1 and -2 have one hash": Hole(
        _hashes, "peek", "an answer thought impossible", 60, "and seed", 60
    ),
    "a poll that gives up by a counter in memory": Hole(
        _locals_alone, "counter", "a poll taken for a wait", 2, "and seed", 60
    ),
    "no proxies of global memory": Hole(
        _no_rule_for_tensors, "global,tma", "a fence left out", 6, "wrong in every order"
    ),
    "a fence that covers a peer": Hole(
        _every_space, "cluster,tma", "a fence of another space", 1, "wrong in every order"
    ),
    "a test by half of the lanes": Hole(
        lambda patch: patch.setattr(answers, "require_whole_warp", lambda tracer: None),
        "peek",
        "half of the lanes test",
        2,
        "not refused",
    ),
    "a barrier initialised again": Hole(
        _never_in_role, "again", "a fence left out", 1, "wrong in every order"
    ),
    "the elected lane is lane 0": Hole(
        _lane_zero, "elected", "elected lane taken for lane 0", 1, "wrong in every order"
    ),
}


@pytest.mark.parametrize("hole", HOLES.values(), ids=HOLES)
def test_the_campaign_finds_a_hole_that_is_put_back(
    hole: Hole, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        hole.patch(patch)
        found = hole.outcome()
    assert hole.says in found.violation, f"{found.verdict}: {found.violation}\n{found.text}"
    closed = hole.outcome()
    assert closed.mistake == found.mistake
    assert closed.verdict in ("fault", "refused")
    assert not closed.violation
