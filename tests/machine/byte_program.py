"""A GEMM as a front end that knows addresses alone would hand it to the machine.

No op, program or tracer of the project's own language is used: warps are Python generators that
yield requests. One warp loads tiles of A and B by TMA into a ring; four warps multiply them by
wgmma with matrix descriptors, each warp for itself, and store the result into an epilogue buffer
that lies on the bytes of the ring's first stage; one lane writes that out by TMA.

    0x0000  stage 0: A (64 × 64 bf16), B; also C (64 × 64 float32)
    0x4000  stage 1: A, B
    0x8000  mbarriers: full[2], empty[2], drained
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.support.machine.matrix_descriptors import wgmma_bits
from tilepipe.check.proofs.guards import Guards
from tilepipe.check.proofs.polling import Kind
from tilepipe.check.unreached import Coverage
from tilepipe.ir import dtypes
from tilepipe.ir.chip import H200
from tilepipe.ir.facts import Facts, Group, Sync, Unit
from tilepipe.ir.location import Loc
from tilepipe.machine.actors import Body, Request, Role
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers import mbarrier, rendezvous
from tilepipe.machine.cta import Cta
from tilepipe.machine.journal import Journal
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.memory.boxes import Box
from tilepipe.machine.memory.byte_access import store_bytes
from tilepipe.machine.memory.device_memory import DeviceMemory
from tilepipe.machine.memory.fragment_access import read_registers
from tilepipe.machine.memory.fragments import Frag, WarpMatrix, accumulator_places, to_registers
from tilepipe.machine.memory.global_memory import GlobalTensor
from tilepipe.machine.memory.matrix_operands import MatrixDescriptor, MatrixOperand
from tilepipe.machine.memory.tensor_map import BY_NAME, TensorMapFields
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.program import AgentPlan, Program
from tilepipe.machine.sites import Site
from tilepipe.machine.units import tma, wgmma
from tilepipe.machine.units.tma_by_address import Completion, load, store

M = N = BK = 64
TILES, K_STEPS, STAGES = 2, 3, 2  # tiles of C along M, steps along K, stages of the ring
STAGE_BYTES, B_AT = 0x4000, 0x2000
FULL, EMPTY, DRAINED = 0x8000, 0x8010, 0x8020
SMEM_BYTES = 0xC000
WARP, LANE = 0xFFFFFFFF, 1  # masks
WARPS = 4  # of the warpgroup
FIRST_ON_C = 4  # the first step whose stage has the bytes of the first tile's C

BARRIER, MEETS = Facts(noticed=True), Sync.ARRIVE | Sync.WAIT
LOADS = Facts(unit=Unit.TMA, noticed=True)
STORES = Facts(unit=Unit.TMA, issues=Group.BULK)
MMAS = Facts(unit=Unit.TENSOR_CORE, issues=Group.WGMMA)
COMMITS = Facts(commits=Group.WGMMA, noticed=True)
RETIRES = Facts(awaits=Group.WGMMA, noticed=True)
# name -> its PTX, its facts, what it does to a barrier, its role
_SITES = {
    "init": ("mbarrier.init", BARRIER, Sync.INITIALISE, "load"),
    "publish": ("fence.mbarrier_init", Facts(), Sync.NOTHING, "load"),
    "begin load": ("bar.sync 0", BARRIER, MEETS, "load"),
    "wait empty": ("mbarrier.try_wait empty[stage]", BARRIER, Sync.WAIT, "load"),
    "wait drained": ("mbarrier.try_wait drained", BARRIER, Sync.WAIT, "load"),
    "expect": ("mbarrier.arrive.expect_tx full[stage]", BARRIER, Sync.ARRIVE | Sync.EXPECT, "load"),
    "load a": ("cp.async.bulk.tensor A", LOADS, Sync.CREDIT, "load"),
    "load b": ("cp.async.bulk.tensor B", LOADS, Sync.CREDIT, "load"),
    "begin mma": ("bar.sync 0", BARRIER, MEETS, "mma"),
    "wait full": ("mbarrier.try_wait full[stage]", BARRIER, Sync.WAIT, "mma"),
    "fence": ("wgmma.fence", Facts(), Sync.NOTHING, "mma"),
    "multiply": ("wgmma.mma_async", MMAS, Sync.NOTHING, "mma"),
    "commit": ("wgmma.commit_group", COMMITS, Sync.NOTHING, "mma"),
    "retire": ("wgmma.wait_group", RETIRES, Sync.NOTHING, "mma"),
    "free": ("mbarrier.arrive empty[stage]", BARRIER, Sync.ARRIVE, "mma"),
    "store c": ("st.shared C", Facts(), Sync.NOTHING, "mma"),
    "proxy fence": ("fence.proxy.async", Facts(), Sync.NOTHING, "mma"),
    "meet": ("bar.sync 1", BARRIER, MEETS, "mma"),
    "write c": ("cp.async.bulk.tensor shared to C", STORES, Sync.NOTHING, "mma"),
    "commit c": ("cp.async.bulk.commit_group", Facts(), Sync.NOTHING, "mma"),
    "wait c": ("cp.async.bulk.wait_group.read", Facts(), Sync.NOTHING, "mma"),
    "drained": ("mbarrier.arrive drained", BARRIER, Sync.ARRIVE, "mma"),
}


def _line(name: str) -> int:
    """The line of this file that has a site's request."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if f's["{name}"]' in line)


SITES = {
    name: Site(
        number,
        Loc(__file__, _line(name)),
        ptx.split(" ")[0],
        ptx,
        role,
        facts,
        sync,
        named=ptx if sync is MEETS else "",
    )
    for number, (name, (ptx, facts, sync, role)) in enumerate(_SITES.items())
}
LOAD, MMA = Role("load", warpgroups=False, alone=True), Role("mma", warpgroups=False, alone=False)


@dataclass(frozen=True)
class Variant:
    """The program, or one with a mistake.

    Attributes:
        without: sites that are left out.
        full_at, c_at: where the consumers take full[0], and C, to be.
        leaves: a warp that returns instead of committing its wgmma.
    """

    without: frozenset[str] = frozenset()
    full_at: int = FULL
    c_at: int = 0
    leaves: int = -1

    def program(self) -> Program:
        """What the machine is given."""
        plans = [AgentPlan(LOAD, 0, 0, 1)]
        plans += [AgentPlan(MMA, warp, WARPS + warp, 1) for warp in range(WARPS)]
        named = [("bar.sync 0", 32 * (1 + WARPS)), ("bar.sync 1", 32 * WARPS)]
        return Program(
            1, plans, tuple(SITES.values()), named=named, smem_bytes=SMEM_BYTES, addressed=True
        )

    def body(self, given: Arguments, agent: Agent) -> Body:
        """The instructions of a warp."""
        requests = self._load(given) if agent.role is LOAD else self._mma(given, agent)
        return _Chosen(requests, self.without)

    def _load(self, given: Arguments) -> Iterator[Request]:
        s, memory, a_map, b_map = SITES, given.memory, given.a_map, given.b_map
        for address, count in ((FULL, 1), (EMPTY, WARPS), (DRAINED, 1)):
            for i in range(1 if address == DRAINED else STAGES):
                yield mbarrier.mbar_init, (s["init"], LANE, address + 8 * i, 1, count)
        yield rendezvous.fence_barrier_init, (s["publish"], LANE)
        yield rendezvous.named_sync, (s["begin load"], WARP, 0)
        for n in range(TILES * K_STEPS):
            tile, k = divmod(n, K_STEPS)
            lap, stage = divmod(n, STAGES)
            at, full = stage * STAGE_BYTES, FULL + 8 * stage
            empty = EMPTY + 8 * stage
            yield mbarrier.mbar_wait_parity, (s["wait empty"], WARP, empty, lap & 1 ^ 1)
            if n == FIRST_ON_C:
                yield mbarrier.mbar_wait_parity, (s["wait drained"], WARP, DRAINED, 0)
            nbytes = a_map.nbytes + b_map.nbytes
            to = Completion(0, full)
            yield mbarrier.mbar_expect, (s["expect"], LANE, full, nbytes, True)
            a_at, b_at = (BK * k, M * tile), (BK * k, 0)
            yield load, (s["load a"], LANE, Box(memory, a_map, a_at), at, to)
            yield load, (s["load b"], LANE, Box(memory, b_map, b_at), at + B_AT, to)

    def _mma(self, given: Arguments, agent: Agent) -> Iterator[Request]:
        s, warp = SITES, agent.first_warp - WARPS
        acc = Frag(WarpMatrix("acc", dtypes.float32, M // WARPS, N))
        yield rendezvous.named_sync, (s["begin mma"], WARP, 0)
        for tile in range(TILES):
            for k in range(K_STEPS):
                lap, stage = divmod(tile * K_STEPS + k, STAGES)
                full = self.full_at + 8 * stage
                yield mbarrier.mbar_wait_parity, (s["wait full"], WARP, full, lap & 1)
                yield wgmma.wgmma_fence, (s["fence"], WARP)
                for step in range(BK // 16):
                    at = stage * STAGE_BYTES + 32 * step
                    a, b = _operand(at, M), _operand(at + B_AT, N)
                    adds = bool(k or step)
                    yield wgmma.wgmma, (s["multiply"], WARP, acc, a, None, b, None, adds)
                if warp == self.leaves:
                    return
                yield wgmma.wgmma_commit, (s["commit"], WARP)
                yield wgmma.wgmma_wait, (s["retire"], WARP, 0)
                yield mbarrier.mbar_arrive, (s["free"], LANE, EMPTY + 8 * stage, 1)
            values = to_registers(read_registers(acc, agent, s["store c"], 0, N))
            rows, cols = accumulator_places(N)
            for pair in range(0, N // 2, 2):  # two registers are neighbours in a row
                where = self.c_at + 4 * (N * (16 * warp + rows[pair]) + cols[pair])
                raw = np.ascontiguousarray(values[pair : pair + 2].T).view(np.uint8)
                yield store_bytes, (s["store c"], WARP, where, raw)
            yield rendezvous.fence_proxy_async, (s["proxy fence"], WARP, "shared")
            yield rendezvous.named_sync, (s["meet"], WARP, 1)
            if warp == 0:
                to = (0, M * tile)
                box = Box(given.memory, given.c_map, to)
                yield store, (s["write c"], LANE, box, self.c_at)
                yield tma.tma_store_commit, (s["commit c"], LANE)
                yield tma.tma_store_wait, (s["wait c"], LANE, 0, True)
                yield mbarrier.mbar_arrive, (s["drained"], LANE, DRAINED, 1)


def _operand(address: int, rows: int) -> MatrixOperand:
    """A slice of 16 elements along K of a tile in 128-byte swizzle."""
    bits = wgmma_bits(MatrixDescriptor(address, 0, 8 * 128, 128))
    return MatrixOperand(MatrixDescriptor.of_wgmma(bits), dtypes.bfloat16, rows)


class _Chosen:
    """The requests of a warp without some of them."""

    def __init__(self, requests: Iterator[Request], without: frozenset[str]) -> None:
        self.requests = requests
        self.given = 0
        self.left_out = {SITES[name] for name in without}

    def send(self, result: Any, /) -> Request:
        while True:
            request = next(self.requests)
            self.given += 1
            if request[1][0] not in self.left_out:
                return request


@dataclass
class Arguments:
    """The tensors of a launch, and their tensor maps."""

    a: npt.NDArray[Any] = field(init=False)
    b: npt.NDArray[Any] = field(init=False)
    c: npt.NDArray[Any] = field(init=False)
    memory: DeviceMemory = field(init=False)
    a_map: TensorMapFields = field(init=False)
    b_map: TensorMapFields = field(init=False)
    c_map: TensorMapFields = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(1)
        shape = (TILES * M, K_STEPS * BK)
        self.a = rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
        self.b = rng.standard_normal((N, shape[1])).astype(ml_dtypes.bfloat16)
        self.c = np.zeros((TILES * M, N), np.float32)
        self.memory = DeviceMemory(1 << 40)
        self.a_map = self._map("A", self.a, "bf16", (BK, M), 3)
        self.b_map = self._map("B", self.b, "bf16", (BK, N), 3)
        self.c_map = self._map("C", self.c, "f32", (N, M), 0)

    def _map(
        self, name: str, array: npt.NDArray[Any], kind: str, box: tuple[int, int], swizzle: int
    ) -> TensorMapFields:
        address = self.memory.address_of(name, array)
        rows, cols = array.shape
        strides = (array.strides[0],)
        return TensorMapFields(BY_NAME[kind], address, (cols, rows), strides, box, swizzle=swizzle)

    @property
    def want(self) -> npt.NDArray[np.float64]:
        return self.a.astype(np.float64) @ self.b.astype(np.float64).T


class Launch:
    """The launch as the checker is given it (`check.engine.front_end.FrontEnd`). No loop
    polls; a state is how far each warp has come, and no data decide anything.
    """

    shares_work = has_tests = may_poll = False
    grid = clusters = resident = 1
    kinds = [Kind.OTHER] * len(SITES)
    adds: frozenset[int] = frozenset()
    lanes: Sequence[int] = (0,)
    other_lanes: Sequence[int] = ()
    residents: Sequence[int] = (1,)
    waits_for_flags = False
    flag_looks: frozenset[int] = frozenset()
    requests: frozenset[int] = frozenset()

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.arguments = Arguments()
        self.elected = 0
        self.guards = Guards()
        self.sites = list(SITES.values())

    def possible_guards(self) -> Guards:
        return Guards()

    def coverage(self, unmade: Collection[int]) -> Coverage:
        return Coverage()

    def explained(self, error: Exception, agent: Agent, site: Site) -> Exception:
        return error

    def world(self, journal: Journal | None) -> World:
        self.arguments = given = Arguments()

        def body(m: Machine, agent: Agent) -> Body:
            return self.variant.body(given, agent)

        world = World(self.variant.program(), body, H200, 1, given.memory.tensors)
        world.journal = journal
        return world

    def ends_wait(self, agent: Agent) -> None:
        return None

    def polling_state(self, world: World, ctas: Iterable[Cta], ag: Agent) -> bytes:
        raise AssertionError("nothing tests a barrier")

    def registers(self, agent: Agent) -> Hashable:
        assert isinstance(agent.body, _Chosen)
        return agent.done, agent.body.given

    def slot(self, slot: Slot) -> bytes:
        return b""

    def tensor(self, tensor: GlobalTensor) -> bytes:
        return b""

    def standing(self, agent: Agent) -> str:
        return ""

    def interchangeable(self) -> Sequence[str]:
        return ()
