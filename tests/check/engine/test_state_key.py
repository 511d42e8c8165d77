"""What the key of a state must tell apart."""

from __future__ import annotations

import pytest

from tests.machine.byte_program import LANE, SITES, Launch, Variant
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.state_key import StateKeys
from tilepipe.machine.barriers import mbarrier


@pytest.mark.parametrize("tensors", [True, False])
def test_a_key_says_at_which_address_a_barrier_is(tensors: bool) -> None:
    keys = []
    for address in (64, 64, 72):
        launch = Launch(Variant())
        execution = Execution(launch, [0])
        (machine,) = execution.machines.values()
        mbarrier.mbar_init(machine, machine.agents[0], SITES["init"], LANE, address, 1, 1)
        for slot in machine.ctas[0].slots:  # the write of its word, once all agents know of it
            slot.accesses.clear()
        keys.append(StateKeys(launch.front_end, symmetry=False).of(execution, tensors))
    assert keys[0] == keys[1]
    assert keys[1] != keys[2]
