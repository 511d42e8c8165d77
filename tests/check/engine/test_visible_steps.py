"""Every op that tells the journal is one at which an exploration can stop, and every kind that is
named does.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

from tests.check.test_cases_checked import CASES
from tests.scenarios import test_dynamic_work as dynamic
from tests.support.case_classes import by_words
from tests.support.check.programs import Act, Part, Program, launch
from tilepipe.check.engine.causal_order import CausalOrder
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.steps import AgentId, VisibleStep
from tilepipe.check.engine.traced_front_end import TracedFrontEnd
from tilepipe.ir import ops
from tilepipe.ir.program import Launch
from tilepipe.machine.clusters import quiet_numbers
from tilepipe.sim.sites import OpSite


class Listening(CausalOrder):
    """Keeps of which kind the ops were whose execution told something. What an agent's return
    completes is of none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.told: set[str] = set()
        self.orders: set[str] = set()
        self._done: tuple[AgentId, int] | None = None

    def step(self, who: AgentId, ordinal: int, site: Any, mask: int) -> None:
        self._done = None
        super().step(who, ordinal, site, mask)

    def cluster_ended(self, *_: Any) -> None:
        """No op does that."""

    def completed(self, barrier: Hashable, phase: int) -> None:
        before = set(self.told)
        super().completed(barrier, phase)
        if self._record(barrier).is_rendezvous:
            # by the last to come, which has told that it did, or by one that returns
            self.told = before

    def _step_of(self, mask: int) -> VisibleStep:
        assert isinstance(self._site, OpSite)
        self.told.add(self._site.op.kind)
        return super()._step_of(mask)


def kinds_that_tell(made: Launch) -> set[str]:
    """Those of one execution."""
    with quiet_numbers():
        front_end = TracedFrontEnd(made, "practice")
        execution = Execution(front_end, range(front_end.clusters))
        listening = execution.causal_order = execution.world.journal = Listening()
        for m in execution.machines.values():
            m.journal = listening
        execution.run_to_end()
    return listening.told


# What the cases of ops have nothing of: bytes credited by hand, the end of a barrier.
BY_HAND = Program(
    (1, 1),
    (
        Part(
            (
                Act("announce", 0, 16),
                Act("credit", 0, 16),
                Act("arrive", 0, 1),
                Act("wait", 0, 0),
                Act("arrive", 1, 1),
            )
        ),
        Part((Act("wait", 1, 0), Act("inval", 0), Act("init", 0, 1), Act("try", 0, 0))),
    ),
)


@pytest.fixture(scope="module")
def told() -> set[str]:
    """All kinds of ops that tell something, over the cases of every op: one of each shape, since
    the dtype changes no op.
    """
    found = kinds_that_tell(launch(BY_HAND)) | kinds_that_tell(
        dynamic.bind("", 2, 1, 1)[0].launch_args
    )
    for case in {by_words(case)[0]: case for case in CASES}.values():
        found |= kinds_that_tell(case.make(np.random.default_rng(0))[0].launch_args)
    return found


@pytest.mark.slow
def test_an_op_tells_the_journal_exactly_where_others_notice_it(
    told: set[str],
) -> None:
    # a reduction that nothing looks at only counts its sums, which commute
    assert told - {"tma_reduce"} == {op.kind for op in ops.EVERY if op.facts.noticed}
