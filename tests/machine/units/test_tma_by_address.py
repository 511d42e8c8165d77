"""TMA copies by address."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilepipe.errors import BarrierError, ExitError, RaceError, SimFault
from tilepipe.ir import ops
from tilepipe.ir.chip import H200
from tilepipe.ir.layout import swizzle_offset
from tilepipe.ir.location import Loc
from tilepipe.machine.actors import Request, Role
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers import mbarrier, rendezvous
from tilepipe.machine.clusters import one_after_another, together
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.memory.boxes import Box, Span
from tilepipe.machine.memory.byte_access import load_bytes, store_bytes
from tilepipe.machine.memory.device_memory import DeviceMemory, load_global, store_global
from tilepipe.machine.memory.tensor_map import BY_NAME, TensorMapFields
from tilepipe.machine.program import AgentPlan, Program
from tilepipe.machine.sites import Site
from tilepipe.machine.units import grid, tma, tma_by_address
from tilepipe.machine.units.tma_by_address import Completion

WARP, LANE, BAR = 0xFFFFFFFF, 1, 8192
KINDS = (
    "mbar_init", "fence_barrier_init", "mbar_expect", "tma_load", "mbar_wait", "load", "store",
    "tma_store", "tma_store_commit", "tma_store_wait", "cluster_arrive", "cluster_wait",
    "fence_proxy_async", "clc_try_cancel",
)  # fmt: skip
OPS = {op.kind: op for op in ops.EVERY}
SITES = {
    kind: Site(i, Loc("copy.ptx", 1 + i), kind, kind, "r", OPS[kind].facts, OPS[kind].sync)
    for i, kind in enumerate(KINDS)
}
Body = Generator[Request, Any, None]
FIRST = 1 << 40
TO = Completion(0, BAR)


class Tensors:
    """Two tensors in global memory: `array`, 20 × 40 of float16, and `out`."""

    def __init__(self, out: Sequence[int] = (8, 8), dtype: type = np.float16) -> None:
        self.array: npt.NDArray[Any] = np.arange(20 * 40).astype(dtype).reshape(20, 40)
        self.out: npt.NDArray[Any] = np.zeros(out, dtype)
        self.memory = DeviceMemory(FIRST)

    def map(
        self, box: tuple[int, ...], swizzle: int = 0, of: npt.NDArray[Any] | None = None
    ) -> TensorMapFields:
        """A tensor map of `array`, or of another one."""
        array = self.array if of is None else of
        address = self.memory.address_of("out" if of is not None else "a", array)
        names = {np.float16: "f16", np.uint32: "u32", np.float32: "f32"}
        return TensorMapFields(
            BY_NAME[names[array.dtype.type]], address, array.shape[::-1], array.strides[-2::-1],
            box[::-1], swizzle={0: 0, 32: 1, 64: 2, 128: 3}[swizzle], name="the map",
        )  # fmt: skip

    def run(self, body: Callable[[Machine, Agent], Body], ctas: int = 1, warps: int = 1) -> None:
        """Runs a body in each warp of each CTA of a cluster."""
        one_after_another(self.world(body, ctas, warps), [0], None, lambda m: None)

    def world(self, body: Callable[[Machine, Agent], Body], ctas: int = 1, warps: int = 1) -> World:
        """The start of that run."""
        role = Role("r", warpgroups=False, alone=warps == 1)
        plans = [AgentPlan(role, i, i, 1) for i in range(warps)]
        sites = tuple(SITES.values())
        program = Program(ctas, plans, sites, smem_bytes=8448, addressed=True)
        return World(program, body, H200, ctas, self.memory.tensors)


def begin() -> Body:
    yield mbarrier.mbar_init, (SITES["mbar_init"], LANE, BAR, 1, 1)
    yield rendezvous.fence_barrier_init, (SITES["fence_barrier_init"], LANE)


def meet() -> Body:
    yield rendezvous.cluster_arrive, (SITES["cluster_arrive"], WARP)
    yield rendezvous.cluster_wait, (SITES["cluster_wait"], WARP)


def loaded(
    t: Tensors, box: TensorMapFields, coords: Sequence[int], address: int, mask: int | None = None
) -> Body:
    """Loads a box and waits for it; where `mask` names CTAs, rank 0 loads for all of them.
    `coords`: outermost dimension first.
    """
    yield from begin()
    if mask is not None:
        yield from meet()
    yield mbarrier.mbar_expect, (SITES["mbar_expect"], LANE, BAR, box.nbytes, True)
    operands = Box(t.memory, box, tuple(coords)[::-1]), address, TO, mask
    yield tma_by_address.load, (SITES["tma_load"], LANE, *operands)
    yield mbarrier.mbar_wait_parity, (SITES["mbar_wait"], WARP, BAR, 0)


def stored(request: Request) -> Body:
    """Stores, and waits for it."""
    yield request
    yield tma.tma_store_commit, (SITES["tma_store_commit"], LANE)
    yield tma.tma_store_wait, (SITES["tma_store_wait"], LANE, 0, False)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("coords", [(0, 0), (3, 8), (17, 32), (-2, -8)])
def test_a_box_lies_where_the_swizzle_of_the_address_puts_it(
    swizzle: int, coords: tuple[int, int]
) -> None:
    """Also at an address that is no multiple of the swizzle's period; zero out of bounds."""
    cols, t = (swizzle or 32) // 2, Tensors()
    box, address = t.map((8, cols), swizzle), 1024 + 128
    seen = []

    def body(m: Machine, agent: Agent) -> Body:
        yield from loaded(t, box, coords, address)
        memory = m.ctas[0].bytes().memory
        where = swizzle_offset(address + 2 * np.arange(8 * cols), swizzle)
        seen.append(memory[where[:, None] + np.arange(2)].view(np.float16).reshape(8, cols))

    t.run(body)
    padded = np.pad(t.array, 64)
    y, x = coords[0] + 64, coords[1] + 64
    assert (seen[0] == padded[y : y + 8, x : x + cols]).all()


def test_there_and_back() -> None:
    t = Tensors((12, 40))
    into, back = t.map((8, 32), 64), t.map((8, 32), 64, t.out)

    def body(m: Machine, agent: Agent) -> Body:
        yield from loaded(t, into, (4, 8), 2048)
        operands = Box(t.memory, back, (16, 8)), 2048
        yield from stored((tma_by_address.store, (SITES["tma_store"], LANE, *operands)))

    t.run(body)
    want = np.zeros_like(t.out)
    want[8:, 16:] = t.array[4:8, 8:32]  # what lies outside is clipped
    assert (t.out == want).all()


def test_multicast() -> None:
    """Each CTA of the mask gets the box at the same address, and its own barrier the bytes."""
    t = Tensors()
    box = t.map((8, 16))
    seen: dict[int, list[int]] = {}

    def body(m: Machine, agent: Agent) -> Body:
        for request in loaded(t, box, (0, 0), 0, mask=0b11):
            if request[1][0] is not SITES["tma_load"] or agent.cta.rank == 0:
                yield request
        raw = yield load_bytes, (SITES["load"], WARP, [32 * (lane % 8) for lane in range(32)], 2)
        seen[agent.cta.rank] = raw.view(np.float16)[:8, 0].tolist()
        yield from meet()

    t.run(body, ctas=2)
    assert seen[0] == seen[1] == t.array[:8, 0].tolist()


@pytest.mark.parametrize(
    ("coords", "address", "said"),
    [
        ((0, 0), 64, "a box at 0x40 of shared memory; its address is a multiple of 128"),
        ((0, 0, 0), 0, "3 coordinates for the map, which has 2 dimensions"),
        ((0, 0), 8064, "bytes of the mbarrier at 0x2000"),
        ((0, 0), 8320, "the CTA has 8,448 bytes of it"),
        ((0, 3), 0, "starts at element 3. Start at a multiple of 8 elements"),
    ],
)
def test_copies_that_are_refused(coords: Any, address: int, said: str) -> None:
    t = Tensors()
    box = t.map((8, 16))
    with pytest.raises(SimFault) as caught:
        t.run(lambda m, agent: loaded(t, box, coords, address))
    assert said in str(caught.value)


def test_a_tensor_map_of_more_than_the_allocation() -> None:
    t = Tensors()
    box = replace(t.map((8, 16)), shape=(40, 21))
    with pytest.raises(SimFault, match=r"the map accesses 32 bytes .* all of 'a': it ends 0 bytes"):
        t.run(lambda m, agent: loaded(t, box, (16, 0), 0))


def test_a_cta_does_not_exit_before_its_copy_has_landed() -> None:
    t = Tensors()
    box = t.map((8, 16))

    def body(m: Machine, agent: Agent) -> Body:
        for request in loaded(t, box, (0, 0), 0):
            if request[1][0] is not SITES["mbar_wait"]:
                yield request

    said = "a copy into shared memory can still land: tma_load"
    world = t.world(body)
    one_after_another(world, [0], None, lambda m: None)
    (advice,) = world.advice
    assert advice.startswith("load at exit")
    assert said in advice
    world = t.world(body)
    world.rules = "strict"
    with pytest.raises(ExitError, match=f"strict rules, load at exit: .*{said}"):
        one_after_another(world, [0], None, lambda m: None)


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
        yield from begin()
        yield mbarrier.mbar_expect, (SITES["mbar_expect"], LANE, BAR, 16, True)
        rect = (0, 1, address, address + 16)
        yield grid.clc_try_cancel, (SITES["clc_try_cancel"], LANE, False, None, rect, BAR)

    with pytest.raises(SimFault, match=said):
        together(Tensors().world(body), [0], 1, None, lambda m: None)


@pytest.mark.parametrize(
    ("box", "swizzle"), [((8, 12), 0), ((8, 64), 64), ((257, 16), 0), ((0, 16), 0)]
)
def test_boxes_that_no_tensor_map_has(box: tuple[int, int], swizzle: int) -> None:
    assert Tensors().map(box, swizzle).broken_rule()


# -- global memory -----------------------------------------------------------------------


def ordinary(t: Tensors, array: npt.NDArray[Any], at: int = 0) -> tuple[Any, ...]:
    """The first operands of an access by 32 threads to consecutive words of an array."""
    return t.memory, t.memory.address_of("out", array) + at + 4 * np.arange(32)


def test_a_load_sees_ordinary_stores_after_a_proxy_fence() -> None:
    values = np.arange(128, dtype=np.uint8).reshape(32, 4)
    for fenced in (True, False):
        t = Tensors((8, 64))
        box = t.map((1, 64), 0, t.out)

        def body(
            m: Machine, agent: Agent, t: Tensors = t, box: TensorMapFields = box, f: bool = fenced
        ) -> Body:
            yield store_global, (SITES["store"], WARP, *ordinary(t, t.out), values)
            if f:
                yield rendezvous.fence_proxy_async, (SITES["fence_proxy_async"], WARP, "all")
            yield rendezvous.syncwarp, (SITES["load"], WARP)
            yield from loaded(t, box, (0, 0), 0)
            raw = yield load_bytes, (SITES["load"], WARP, 4 * np.arange(32), 4)
            assert (raw == values).all()

        if fenced:
            t.run(body)
        else:
            with pytest.raises(RaceError, match=r"fence.proxy.async"):
                t.run(body)


def test_ordinary_accesses_meet_copies_byte_by_byte() -> None:
    """Another warp stores to global memory that a TMA store writes, or to what lies beside it."""
    for beside in (True, False):
        t = Tensors((8, 64))
        box = t.map((4, 64), 0, t.out)

        def body(
            m: Machine, agent: Agent, t: Tensors = t, box: TensorMapFields = box, by: bool = beside
        ) -> Body:
            if agent.first_warp:
                values = np.zeros((32, 4), np.uint8)
                at = 4 * t.out.strides[0] if by else 3 * t.out.strides[0] + 8
                yield store_global, (SITES["store"], WARP, *ordinary(t, t.out, at), values)
                return
            for i in range(4):
                rows = np.ones((32, 4), np.uint8)
                yield store_bytes, (SITES["store"], WARP, 128 * i + 4 * np.arange(32), rows)
            yield rendezvous.fence_proxy_async, (SITES["fence_proxy_async"], WARP, "all")
            yield rendezvous.syncwarp, (SITES["load"], WARP)
            operands = Box(t.memory, box, (0, 0)), 0
            yield from stored((tma_by_address.store, (SITES["tma_store"], LANE, *operands)))

        if beside:
            t.run(body, warps=2)
            assert (t.out[:4].view(np.uint8) == 1).all()
        else:
            with pytest.raises(RaceError, match="race on tensor 'out'"):
                t.run(body, warps=2)


def test_the_thread_itself_waits_for_its_store() -> None:
    for waits in (True, False):
        t = Tensors((8, 64))
        box = t.map((1, 64), 0, t.out)

        def body(
            m: Machine, agent: Agent, t: Tensors = t, box: TensorMapFields = box, w: bool = waits
        ) -> Body:
            values = np.ones((32, 4), np.uint8)
            yield store_bytes, (SITES["store"], WARP, 4 * np.arange(32), values)
            yield rendezvous.fence_proxy_async, (SITES["fence_proxy_async"], WARP, "all")
            yield rendezvous.syncwarp, (SITES["load"], WARP)
            operands = Box(t.memory, box, (0, 0)), 0
            for request in stored((tma_by_address.store, (SITES["tma_store"], LANE, *operands))):
                if w or request[0] is not tma.tma_store_wait:
                    yield request
            address = t.memory.address_of("out", t.out)
            seen = yield load_global, (SITES["load"], LANE, t.memory, [address] * 32, 4)
            assert seen[0].tolist() == [1, 1, 1, 1]

        if waits:
            t.run(body)
        else:
            with pytest.raises(RaceError, match="race on tensor 'out'"):
                t.run(body)


# -- bulk copies -------------------------------------------------------------------------


def test_bulk_copies_there_and_back_and_between_ctas() -> None:
    """Rank 0 loads 64 bytes, passes them to rank 1, which writes them out."""
    t = Tensors((1, 32))
    source, to = t.memory.address_of("a", t.array), t.memory.address_of("out", t.out)

    def body(m: Machine, agent: Agent) -> Body:
        yield from begin()
        yield from meet()
        yield mbarrier.mbar_expect, (SITES["mbar_expect"], LANE, BAR, 64, True)
        if agent.cta.rank == 0:
            operands = Span(t.memory, source + 16, 64), 256, TO
            yield tma_by_address.load, (SITES["tma_load"], LANE, *operands)
            yield mbarrier.mbar_wait_parity, (SITES["mbar_wait"], WARP, BAR, 0)
            there = 256, 64, 1, 512, Completion(1, BAR)
            yield tma_by_address.copy_to_cta, (SITES["tma_load"], LANE, *there)
        else:
            yield mbarrier.mbar_wait_parity, (SITES["mbar_wait"], WARP, BAR, 0)
            back = Span(t.memory, to, 64), 512
            yield from stored((tma_by_address.store, (SITES["tma_store"], LANE, *back)))
        yield from meet()

    t.run(body, ctas=2)
    assert (t.out[0] == t.array.reshape(-1)[8:40]).all()


@pytest.mark.parametrize(("nbytes", "at"), [(24, 0), (32, 8)])
def test_bulk_copies_move_multiples_of_16_bytes(nbytes: int, at: int) -> None:
    t = Tensors()
    source = t.memory.address_of("a", t.array)

    def body(m: Machine, agent: Agent) -> Body:
        yield from begin()
        yield mbarrier.mbar_expect, (SITES["mbar_expect"], LANE, BAR, nbytes, True)
        operands = Span(t.memory, source, nbytes), at, TO
        yield tma_by_address.load, (SITES["tma_load"], LANE, *operands)

    with pytest.raises(SimFault, match="not a multiple of 16"):
        t.run(body)


def test_a_barrier_of_another_cta() -> None:
    t = Tensors()
    source = t.memory.address_of("a", t.array)

    def body(m: Machine, agent: Agent) -> Body:
        yield from begin()
        yield from meet()
        operands = Span(t.memory, source, 64), 0, Completion(1 - agent.cta.rank, BAR)
        yield tma_by_address.load, (SITES["tma_load"], LANE, *operands)

    with pytest.raises(BarrierError, match="a copy signals one of its own CTA"):
        t.run(body, ctas=2)
