"""What the key of a state must tell apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.machine.byte_program import (
    B_AT,
    FULL,
    LANE,
    SITES,
    SMEM_BYTES,
    STAGE_BYTES,
    WARP,
    Arguments,
    Launch,
    Variant,
)
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.keys_of_units import queued
from tilepipe.check.engine.state_key import StateKeys
from tilepipe.ir import dtypes
from tilepipe.machine.actors import CtaPlace
from tilepipe.machine.barriers import mbarrier
from tilepipe.machine.memory.boxes import Box
from tilepipe.machine.memory.byte_access import store_bytes
from tilepipe.machine.memory.fragment_access import write_registers
from tilepipe.machine.memory.fragments import Frag, WarpMatrix
from tilepipe.machine.memory.matrix_operands import MatrixDescriptor, MatrixOperand
from tilepipe.machine.memory.tensor_map import TensorMapFields
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.units import wgmma
from tilepipe.machine.units.in_flight import TensorQueue
from tilepipe.machine.units.tcgen05_by_address import (
    COPIES,
    AddressedCopy,
    AddressedMma,
    AddressedShift,
    Mma,
)
from tilepipe.machine.units.tma_by_address import Completion, load
from tilepipe.machine.wording import PTX

GIVEN = Arguments()


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
        keys.append(StateKeys(launch, symmetry=False).of(execution, tensors))
    assert keys[0] == keys[1]
    assert keys[1] != keys[2]


@pytest.mark.parametrize(
    ("box", "address"),
    [
        (GIVEN.b_map, 0),  # another tensor
        (replace(GIVEN.a_map, swizzle=0), 0),  # another place for each element
        (GIVEN.a_map, STAGE_BYTES),
    ],
)
def test_a_key_says_what_a_copy_by_tensor_map_moves(box: TensorMapFields, address: int) -> None:
    """Also once nothing compares its write with later accesses any more."""
    keys = []
    a_map = GIVEN.a_map
    for tensor_map, at in ((a_map, 0), (a_map, 0), (box, address)):
        launch = Launch(Variant())
        execution = Execution(launch, [0])
        (m,) = execution.machines.values()
        agent = m.agents[0]
        mbarrier.mbar_init(m, agent, SITES["init"], LANE, FULL, 1, 1)
        mbarrier.mbar_expect(m, agent, SITES["expect"], LANE, FULL, a_map.nbytes, True)
        memory, to = launch.arguments.memory, Completion(0, FULL)
        site = SITES["load a"]
        load(m, agent, site, LANE, Box(memory, tensor_map, (0, 0)), at, to)
        execution._collect(m, (0, agent.uid))
        for slot in m.ctas[0].slots:
            slot.accesses.clear()
        keys.append(StateKeys(launch, symmetry=False).of(execution))
    assert keys[0] == keys[1]
    assert keys[1] != keys[2]


def test_a_key_says_what_a_wgmma_by_descriptor_reads() -> None:
    """Two descriptors of the same bytes in another order, before the group is committed."""
    keys = []
    for leading, stride in ((1024, 128), (1024, 128), (256, 128), (128, 1024)):
        launch = Launch(Variant())
        execution = Execution(launch, [0])
        (m,) = execution.machines.values()
        agent = m.agents[1]
        m.ctas[0].bytes().put(np.arange(SMEM_BYTES), np.zeros(SMEM_BYTES, np.uint8))
        acc = Frag(WarpMatrix("acc", dtypes.float32, 16, 16))
        wgmma.wgmma_fence(m, agent, SITES["fence"], WARP)
        a = Frag(WarpMatrix("a", dtypes.bfloat16, 16, 16))
        write_registers(a, agent, SITES["fence"], np.zeros((16, 16), np.float32), 0, 16)
        agent.dirty, a.dirty = [], None
        b = MatrixOperand(MatrixDescriptor(B_AT, leading, stride, 0), dtypes.bfloat16, 16)
        wgmma.wgmma(m, agent, SITES["multiply"], WARP, acc, a, None, b, None, False)
        for slot in m.ctas[0].slots:
            slot.accesses.clear()
        keys.append(StateKeys(launch, symmetry=False).of(execution))
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_a_key_says_which_lane_stored_which_bytes() -> None:
    """The same bytes by the same lanes: what a lane stores next may race in one state alone."""
    keys = []
    for first in (0, 0, 1):
        launch = Launch(Variant())
        execution = Execution(launch, [0])
        (m,) = execution.machines.values()
        addresses = [4 * (lane ^ first) for lane in range(32)]
        values = np.zeros((32, 4), np.uint8)
        store_bytes(m, m.agents[1], SITES["store c"], WARP, addresses, values)
        keys.append(StateKeys(launch, symmetry=False).of(execution))
    assert keys[0] == keys[1]
    assert keys[1] != keys[2]


def test_a_key_says_how_many_threads_a_named_barrier_waits_for() -> None:
    keys = []
    for threads in (64, 64, 96):
        launch = Launch(Variant())
        execution = Execution(launch, [0])
        (m,) = execution.machines.values()
        m.ctas[0].named[0].threads = threads
        keys.append(StateKeys(launch, symmetry=False).of(execution))
    assert keys[0] == keys[1]
    assert keys[1] != keys[2]


def test_a_key_says_what_a_wait_for_threads_of_its_own_cta_does_not_learn() -> None:
    keys = []
    for near, far in ((False, False), (False, True), (True, False), (True, True)):
        launch = Launch(Variant())
        launch.sites = [replace(site, near=near and site.waits) for site in launch.sites]
        execution = Execution(launch, [0])
        (m,) = execution.machines.values()
        values = np.zeros((32, 4), np.uint8)
        store_bytes(m, m.agents[1], SITES["store c"], WARP, [4 * i for i in range(32)], values)
        bar, (stored,) = m.ctas[0].bars[64], m.ctas[0].bytes().accesses
        bar.known, bar.far = stored.bit, far * stored.bit
        keys.append(StateKeys(launch, symmetry=False).of(execution))
    assert keys[0] == keys[1]  # no wait asks who released
    assert keys[2] != keys[3]


def test_the_key_of_a_fragment_says_all_that_can_decide_a_fault() -> None:
    def changed(attribute: str, value: object) -> tuple[object, ...]:
        frag = Frag(WarpMatrix("acc", dtypes.float32, 16, 16))
        setattr(frag, attribute, value)
        return frag.key

    plain = Frag(WarpMatrix("acc", dtypes.float32, 16, 16)).key
    states = {
        "defined": 1,
        "zero": True,
        "writers": 1,
        "readers": 1,
        "loading": 1,
        "dirty": SITES["fence"],
    }
    keys = [plain, *(changed(attribute, value) for attribute, value in states.items())]
    assert len(set(keys)) == len(keys)
    assert changed("data", np.ones((16, 16), np.float32)) == plain


def test_units_by_address_are_known_by_their_operands() -> None:
    """They stand in a queue after a commit that has not acted."""
    bits: Any = int
    site, queue, tm = SITES["load a"], TensorQueue(), TensorMemory(CtaPlace(0, 1, PTX))

    def key(unit: object) -> object:
        return queued(unit, bits)

    def mma(b: int, lane: int) -> AddressedMma:
        skipped = np.arange(128) == lane
        operands = Mma("f16", 1, 0, 64, b, 0x08100010, True, skipped=skipped)
        return AddressedMma(site, queue, 5, operands.shape(site), operands, [])

    def copied(column: int, at: int) -> AddressedCopy:
        _, lanes = COPIES["128x128b"]
        places = at + np.arange(2048).reshape(128, 16)
        space: Any = None
        return AddressedCopy(site, queue, 5, lanes, 8, [(space, places, tm, column)])

    def shifted(lane: int, column: int) -> AddressedShift:
        return AddressedShift(site, queue, 5, lane, column, [tm])

    for make, others in ((mma, (1, 2)), (copied, (64, 32)), (shifted, (32, 8))):
        first, second = others
        found = key(make(first, second))
        assert found == key(make(first, second))
        assert found != key(make(first + 1, second))
        assert found != key(make(first, second + 1))
