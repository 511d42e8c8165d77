"""TMA copies to and from addresses in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilepipe.errors import ExitError, LimitError, NotModelledError, SimFault
from tilepipe.ir import dtypes, ops
from tilepipe.ir.chip import H200
from tilepipe.ir.layout import swizzle_offset
from tilepipe.ir.location import Loc
from tilepipe.machine.actors import Request, Role
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers import mbarrier, rendezvous
from tilepipe.machine.clusters import one_after_another, together
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.memory.byte_access import load_bytes
from tilepipe.machine.memory.global_memory import GlobalTensor, PlainTensor
from tilepipe.machine.memory.tensor_map import TensorMap
from tilepipe.machine.program import AgentPlan, Program
from tilepipe.machine.sites import Site
from tilepipe.machine.units import grid, tma

WARP, LANE, BAR = 0xFFFFFFFF, 1, 8192
KINDS = (
    "mbar_init",
    "fence_barrier_init",
    "mbar_expect",
    "tma_load",
    "mbar_wait",
    "load",
    "tma_store",
    "tma_store_commit",
    "tma_store_wait",
    "cluster_arrive",
    "cluster_wait",
    "clc_try_cancel",
)
OPS = {op.kind: op for op in ops.EVERY}
SITES = {
    kind: Site(i, Loc("copy.ptx", 1 + i), kind, kind, "r", OPS[kind].facts, OPS[kind].sync)
    for i, kind in enumerate(KINDS)
}
Body = Generator[Request, Any, None]
ARRAY = np.arange(20 * 40, dtype=np.float16).reshape(20, 40)


def run(body: Callable[[Machine, Agent], Body], out: npt.NDArray[Any], ctas: int = 1) -> None:
    """Runs one warp in each CTA of a cluster; tensor 0 is `ARRAY`, tensor 1 is `out`."""
    one_after_another(world_of(body, out, ctas), [0], None, lambda m: None)


def world_of(body: Callable[[Machine, Agent], Body], out: npt.NDArray[Any], ctas: int = 1) -> World:
    """The start of that run."""
    role = Role("r", warpgroups=False, alone=True)
    program = Program(
        ctas, [AgentPlan(role, 0, 0, 1)], tuple(SITES.values()), smem_bytes=8448, addressed=True
    )
    tensors = [
        GlobalTensor(PlainTensor("a", dtypes.float16, 2), ARRAY, written=False, read_too=True),
        GlobalTensor(PlainTensor("c", dtypes.float16, 2), out, written=True, read_too=False),
    ]
    return World(program, body, H200, ctas, tensors)


def loaded(box: TensorMap, coords: tuple[int, int], address: int, mask: int | None = None) -> Body:
    """Loads a box and waits for it; where `mask` names CTAs, rank 0 loads for all of them."""
    yield mbarrier.mbar_init, (SITES["mbar_init"], LANE, BAR, 1, 1)
    yield rendezvous.fence_barrier_init, (SITES["fence_barrier_init"], LANE)
    if mask is not None:
        yield rendezvous.cluster_arrive, (SITES["cluster_arrive"], WARP)
        yield rendezvous.cluster_wait, (SITES["cluster_wait"], WARP)
    yield mbarrier.mbar_expect, (SITES["mbar_expect"], LANE, BAR, box.nbytes, True)
    yield tma.tma_load, (SITES["tma_load"], LANE, coords, address, box, BAR, mask)
    yield mbarrier.mbar_wait_parity, (SITES["mbar_wait"], WARP, BAR, 0)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("coords", [(0, 0), (3, 8), (17, 32), (-2, -8)])
def test_a_box_lies_where_the_swizzle_of_the_address_puts_it(
    swizzle: int, coords: tuple[int, int]
) -> None:
    """Also at an address that is no multiple of the swizzle's period; zero out of bounds."""
    cols = (swizzle or 32) // 2
    box, address = TensorMap(0, dtypes.float16, (8, cols), swizzle), 1024 + 128
    seen = []

    def body(m: Machine, agent: Agent) -> Body:
        yield from loaded(box, coords, address)
        memory = m.ctas[0].bytes().memory
        where = swizzle_offset(address + 2 * np.arange(8 * cols), swizzle)
        seen.append(memory[where[:, None] + np.arange(2)].view(np.float16).reshape(8, cols))

    run(body, np.zeros((8, 8), np.float16))
    padded = np.pad(ARRAY, 64)
    y, x = coords[0] + 64, coords[1] + 64
    assert (seen[0] == padded[y : y + 8, x : x + cols]).all()


def test_there_and_back() -> None:
    out = np.zeros((12, 40), np.float16)
    into, back = (
        TensorMap(0, dtypes.float16, (8, 32), 64),
        TensorMap(1, dtypes.float16, (8, 32), 64),
    )

    def body(m: Machine, agent: Agent) -> Body:
        yield from loaded(into, (4, 8), 2048)
        yield tma.tma_store, (SITES["tma_store"], LANE, (8, 16), 2048, back)
        yield tma.tma_store_commit, (SITES["tma_store_commit"], LANE)
        yield tma.tma_store_wait, (SITES["tma_store_wait"], LANE, 0, False)

    run(body, out)
    want = np.zeros_like(out)
    want[8:, 16:] = ARRAY[4:8, 8:32]  # what lies outside is clipped
    assert (out == want).all()


def test_multicast() -> None:
    """Each CTA of the mask gets the box at the same address, and its own barrier the bytes."""
    box = TensorMap(0, dtypes.float16, (8, 16))
    seen: dict[int, list[int]] = {}

    def body(m: Machine, agent: Agent) -> Body:
        requests = loaded(box, (0, 0), 0, mask=0b11)
        for request in requests:
            if request[1][0] is not SITES["tma_load"] or agent.cta.rank == 0:
                yield request
        raw = yield load_bytes, (SITES["load"], WARP, [32 * (lane % 8) for lane in range(32)], 2)
        seen[agent.cta.rank] = raw.view(np.float16)[:8, 0].tolist()
        yield rendezvous.cluster_arrive, (SITES["cluster_arrive"], WARP)
        yield rendezvous.cluster_wait, (SITES["cluster_wait"], WARP)

    run(body, np.zeros((8, 8), np.float16), ctas=2)
    assert seen[0] == seen[1] == ARRAY[:8, 0].tolist()


@pytest.mark.parametrize(
    ("coords", "address", "said"),
    [
        ((0, 0), 64, "a box at 0x40 of shared memory; its address is a multiple of 128"),
        ((0, 0, 0), 0, "for a tensor of 2 dimensions"),
        ((0, 0), 8064, "bytes of the mbarrier at 0x2000"),
        ((0, 0), 8320, "the CTA has 8,448 bytes of it"),
    ],
)
def test_copies_that_are_refused(coords: Any, address: int, said: str) -> None:
    box = TensorMap(0, dtypes.float16, (8, 16))
    with pytest.raises(SimFault) as caught:
        run(lambda m, agent: loaded(box, coords, address), np.zeros((8, 8), np.float16))
    assert said in str(caught.value)


def test_a_cta_does_not_exit_before_its_copy_has_landed() -> None:
    def body(m: Machine, agent: Agent) -> Body:
        for request in loaded(TensorMap(0, dtypes.float16, (8, 16)), (0, 0), 0):
            if request[1][0] is not SITES["mbar_wait"]:
                yield request

    with pytest.raises(ExitError, match="a copy into shared memory can still land: tma_load"):
        run(body, np.zeros((8, 8), np.float16))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (BAR, "writes bytes 0x2000..0x200f, which has bytes of the mbarrier at 0x2000"),
        (8448, "accesses bytes 0x2100..0x210f of shared memory, and the CTA has 8,448 bytes"),
    ],
)
def test_responses_that_are_refused(address: int, said: str) -> None:
    """A response by address is checked as any write of bytes is."""

    def body(m: Machine, agent: Agent) -> Body:
        yield mbarrier.mbar_init, (SITES["mbar_init"], LANE, BAR, 1, 1)
        yield rendezvous.fence_barrier_init, (SITES["fence_barrier_init"], LANE)
        yield mbarrier.mbar_expect, (SITES["mbar_expect"], LANE, BAR, 16, True)
        rect = (0, 1, address, address + 16)
        yield grid.clc_try_cancel, (SITES["clc_try_cancel"], LANE, False, None, rect, BAR)

    world = world_of(body, np.zeros((8, 8), np.float16))
    with pytest.raises(SimFault, match=said):
        together(world, [0], 1, None, lambda m: None)


@pytest.mark.parametrize(
    ("box", "swizzle"), [((8, 12), 0), ((8, 64), 64), ((257, 16), 0), ((8, 16), 16)]
)
def test_boxes_that_no_tensor_map_has(box: tuple[int, int], swizzle: int) -> None:
    with pytest.raises(LimitError):
        TensorMap(0, dtypes.float16, box, swizzle)


def test_elements_of_4_bits_are_not_modelled() -> None:
    packed = np.zeros((8, 64), np.uint8)
    tensor = GlobalTensor(
        PlainTensor("p", dtypes.float4_e2m1, 2), packed, written=False, read_too=True
    )
    with pytest.raises(NotModelledError, match="4-bit"):
        tensor.read_raw((0, 0), (8, 64))
