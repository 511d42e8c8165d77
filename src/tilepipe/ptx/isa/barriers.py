"""mbarriers, named and cluster barriers, fences (PTX ISA, "Parallel Synchronization and
Communication Instructions").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilepipe.errors import BarrierError, SimFault
from tilepipe.ir.facts import WHOLE_WARP, Facts, Order, Sync
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers import mbarrier, rendezvous
from tilepipe.machine.happens_before.memory_order import Scope
from tilepipe.machine.machine import Machine
from tilepipe.machine.rules import PARITY
from tilepipe.machine.sites import ANY_NAMED, Site
from tilepipe.machine.thread_masks import lanes_in
from tilepipe.machine.units import grid
from tilepipe.ptx.definition import (
    Compute,
    Modifiers,
    Nothing,
    Operation,
    Perform,
    constant,
    defines,
    inside,
    not_modelled,
    operands,
)
from tilepipe.ptx.isa import tensor_maps
from tilepipe.ptx.isa.memory import SCOPES, address_type, in_shared
from tilepipe.ptx.isa.requests import (
    Value,
    each,
    grouped,
    groups,
    one,
    place,
)
from tilepipe.ptx.lanes import FULL, WARP, Array, lane_mask, spread
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.syntax.nodes import Address, Instruction, Integer, Operand, Sink
from tilepipe.ptx.warp_protocol import Warp

_NOTICED = Facts(noticed=True)
_BOOL = TYPES["pred"].dtype


@defines("mbarrier")
def _mbarrier(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    action = modifiers.any()
    match action:
        case "init" | "inval":
            return _init(instruction, modifiers, action)
        case "arrive" | "arrive_drop":
            return _arrive(instruction, modifiers, action)
        case "pending_count":
            return _pending_count(instruction, modifiers)
        case "expect_tx" | "complete_tx":
            return _transactions(instruction, modifiers, action)
        case "try_wait" | "test_wait":
            return _test(instruction, modifiers, action)
    not_modelled(instruction, f"the modifier '.{action}'")


def _scope(modifiers: Modifiers, *orders: str) -> tuple[str, str]:
    """`.release.cta` and the like: the order and the scope; "" where there are none."""
    order = modifiers.take("relaxed", *orders)
    return order, modifiers.need("cta", "cluster") if order else ""


def _init(instruction: Instruction, modifiers: Modifiers, action: str) -> Operation:
    space = modifiers.take("shared", "shared::cta")
    modifiers.need("b64")
    modifiers.end()
    where, *rest = operands(instruction, 2 if action == "init" else 1)
    address = inside(instruction, where)

    def start_init(w: Warp, site: Site, mask: int, at: Value, count: Value) -> Any:
        def request(part: int, address: int, n: int) -> Any:
            return mbarrier.mbar_init, (site, part, place(address)[1], 1, n)

        return grouped(site, mask, request, in_shared(w, site, mask, space, at), count)

    def start_inval(w: Warp, site: Site, mask: int, at: Value) -> Any:
        def request(part: int, address: int) -> Any:
            return mbarrier.mbar_inval, (site, part, place(address)[1])

        return grouped(site, mask, request, in_shared(w, site, mask, space, at))

    if action == "init":
        sources = ((address, address_type(space)), (rest[0], "u32"))
        return Perform((), sources, start_init, None, _NOTICED, Sync.INITIALISE)
    return Perform(
        (), ((address, address_type(space)),), start_inval, None, _NOTICED, Sync.INVALIDATE
    )


def _arrive(instruction: Instruction, modifiers: Modifiers, action: str) -> Operation:
    """mbarrier.arrive and .arrive_drop, with .expect_tx or .noComplete."""
    form = modifiers.take("expect_tx", "noComplete")
    order, scope = _scope(modifiers, "release")
    if not form:  # compilers put it on either side of the scope
        form = modifiers.take("expect_tx")
    space = modifiers.take("shared", "shared::cta", "shared::cluster")
    modifiers.need("b64")
    modifiers.end()
    expects, stays_open, drops = form == "expect_tx", form == "noComplete", action == "arrive_drop"
    given = instruction.operands
    returns = bool(given) and not isinstance(given[0], Address)
    needed = returns + 1 + (form != "")
    given = operands(instruction, needed, needed + (form == ""))
    state = given[0] if returns and not isinstance(given[0], Sink) else None
    if state is not None and space == "shared::cluster":
        not_modelled(instruction, "the state of a phase of another CTA's mbarrier")
    address = inside(instruction, given[int(returns)])
    count = given[returns + 1] if len(given) > returns + 1 else Integer(1)

    def request(site: Site, own: int, part: int, address: int, n: int) -> list[Any]:
        rank, offset = place(address)
        cta = None if rank == own else rank
        if stays_open:
            return [
                (mbarrier.check_stays_open, (site, part, offset, n)),
                (mbarrier.mbar_arrive, (site, part, offset, n)),
            ]
        if drops:
            first = [(mbarrier.mbar_expect, (site, part, offset, n, False, cta))] if expects else []
            return [*first, (mbarrier.mbar_drop, (site, part, offset, 1 if expects else n, cta))]
        if expects:
            return [(mbarrier.mbar_expect, (site, part, offset, n, True, cta))]
        return [(mbarrier.mbar_arrive, (site, part, offset, n, cta))]

    def start(w: Warp, site: Site, mask: int, at: Value, n: Value) -> Any:
        parts = groups(mask, in_shared(w, site, mask, space, at), n)
        if state is not None:
            return _with_states, (site, mask, [
                (part, place(key[0])[1], 1 if expects else key[1],
                 request(site, w.rank, part, *key)) for part, key in parts
            ])  # fmt: skip
        requests = [r for part, key in parts for r in request(site, w.rank, part, *key)]
        return requests[0] if len(requests) == 1 else (each, (site, mask, requests))

    sync = Sync.ARRIVE | Sync.EXPECT if expects else Sync.ARRIVE
    sources = ((address, address_type(space)), (count, "u32"))
    return Perform(
        () if state is None else ((state, "b64"),), sources, start,
        None if state is None else lambda w, states: (states,), _NOTICED, sync,
        relaxed=order == "relaxed", spread="lanes",
        site=(("near", scope != "cluster"),),  # PTX ISA, mbarrier.arrive: the default is .cta
    )  # fmt: skip


def _with_states(
    m: Machine, ag: Agent, site: Site, mask: int, parts: list[tuple[int, int, int, list[Any]]]
) -> Array:
    """Arrivals that return the state of the phase: its number, and the arrivals that were pending
    before that of each thread.
    """
    states = np.zeros(WARP, np.uint64)
    for part, bar, count, requests in parts:
        b = ag.cta.bars[bar]
        for order, lane in enumerate(lanes_in(part)):
            states[lane] = (b.phase & 0xFFFFFFFF) << 32 | (b.pending - count * order) & 0xFFFFFFFF
        for op, given in requests:
            op(m, ag, *given)
    return states


def _pending_count(instruction: Instruction, modifiers: Modifiers) -> Operation:
    """The arrivals that were pending when a state was taken."""
    modifiers.need("b64")
    modifiers.end()
    destination, state = operands(instruction, 2)
    return Compute(
        ((destination, "b32"),), ((state, "b64"),),
        lambda values: values.astype(np.uint32), "{0} & 0xffffffff",
    )  # fmt: skip


def _transactions(instruction: Instruction, modifiers: Modifiers, action: str) -> Operation:
    if modifiers.flag("relaxed"):
        modifiers.need("cta", "cluster")
    space = modifiers.take("shared", "shared::cta", "shared::cluster")
    modifiers.need("b64")
    modifiers.end()
    where, count = operands(instruction, 2)

    def start(w: Warp, site: Site, mask: int, at: Value, n: Value) -> Any:
        def request(part: int, address: int, n: int) -> Any:
            rank, offset = place(address)
            cta = None if rank == w.rank else rank
            if action == "expect_tx":
                return mbarrier.mbar_expect, (site, part, offset, n, False, cta)
            return mbarrier.mbar_complete_tx, (site, part, offset, n, cta)

        return grouped(site, mask, request, in_shared(w, site, mask, space, at), n)

    sync = Sync.EXPECT if action == "expect_tx" else Sync.CREDIT
    sources = ((inside(instruction, where), address_type(space)), (count, "u32"))
    return Perform((), sources, start, None, _NOTICED, sync)


def _test(instruction: Instruction, modifiers: Modifiers, action: str) -> Operation:
    """try_wait and test_wait: with a parity, or with the state that an arrive returned."""
    by_parity = modifiers.flag("parity")
    order, scope = _scope(modifiers, "acquire")
    space = modifiers.take("shared", "shared::cta")
    modifiers.need("b64")
    modifiers.end()
    timed = action == "try_wait"  # its last operand says how long it may wait
    destination, where, phase, *_ = operands(instruction, 3, 3 + timed)
    address = inside(instruction, where)
    test, wait_for = (
        (mbarrier.mbar_try_wait_parity, mbarrier.mbar_wait_parity)
        if by_parity
        else (mbarrier.mbar_try_wait, mbarrier.mbar_wait)
    )

    def asked(w: Warp, site: Site, mask: int, at: Value, phase: Value) -> Any:
        """(lanes, operands) for each barrier and phase that lanes ask for."""
        number = phase if by_parity else phase >> 32
        if by_parity and np.any(np.asarray(number) > 1):
            number = _low_bit(w, site, mask, number)
        parts = groups(mask, in_shared(w, site, mask, space, at), number)
        return [(site, part, place(bar)[1], number) for part, (bar, number) in parts]

    def start(w: Warp, site: Site, mask: int, at: Value, phase: Value) -> Any:
        parts = asked(w, site, mask, at, phase)
        return (test, parts[0]) if len(parts) == 1 else (_test_each, (site, mask, test, parts))

    def wait(w: Warp, site: Site, mask: int, at: Value, phase: Value) -> Any:
        parts = asked(w, site, mask, at, phase)
        if w.groups or len(parts) > 1:  # others may have to run for the phase to complete
            return start(w, site, mask, at, phase)
        return wait_for, parts[0]

    def finish(w: Warp, answer: Array | bool | None) -> Any:
        if isinstance(answer, np.ndarray):
            return (answer,)
        return (spread(answer is None or bool(answer), _BOOL),)

    sources = ((address, address_type(space)), (phase, "u32" if by_parity else "b64"))
    return Perform(
        ((destination, "pred"),), sources, start, finish, Facts(noticed=True), Sync.WAIT,
        waits=wait, relaxed=order == "relaxed",
        site=(("parity", by_parity), ("near", scope == "cta")),
    )  # fmt: skip


def _low_bit(w: Warp, site: Site, mask: int, parity: Value) -> Value:
    """The lowest bit of each parity, of which some are above 1; those of absent lanes may be."""
    given = parity if isinstance(parity, np.ndarray) else np.uint32(parity)
    wrong = [int(np.broadcast_to(given, WARP)[lane]) for lane in lanes_in(mask)]
    if (highest := max(wrong)) > 1:
        w.world.finding(
            PARITY, f"{site.what}: it gives {highest} as the parity of a phase", site.loc,
            "Give the lowest bit of the number of the phase.", BarrierError,
        )  # fmt: skip
    return parity & 1


def _test_each(
    m: Machine, ag: Agent, site: Site, mask: int, test: Callable[..., bool], parts: list[Any]
) -> Array:
    """Tests of several barriers, or of several phases, by the lanes of a warp."""
    passed = np.zeros(WARP, np.bool_)
    for part in parts:
        passed[lanes_in(part[1])] = test(m, ag, *part)
    ag.repeats = not passed.any()
    return passed


# -- named and cluster barriers ----------------------------------------------------------


@defines("bar", "barrier")
def _bar(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    if instruction.opcode == "barrier" and modifiers.flag("cluster"):
        return _cluster(instruction, modifiers)
    if instruction.opcode == "bar" and modifiers.flag("warp"):
        modifiers.need("sync")
        modifiers.end()
        (members,) = operands(instruction, 1)

        def sync(w: Warp, site: Site, mask: int) -> Any:
            return rendezvous.syncwarp, (site, mask)

        return Perform((), (), sync, None, WHOLE_WARP, members=members, anywhere="mask")
    modifiers.flag("cta")
    action = modifiers.need("sync", "arrive", "red")
    if action == "red":
        return _reduction(instruction, modifiers)
    aligned = instruction.opcode == "bar" or modifiers.flag("aligned")
    modifiers.end()
    number, *rest = operands(instruction, *((1, 2) if action == "sync" else (2,)))
    op = rendezvous.named_sync if action == "sync" else rendezvous.named_arrive

    def start(w: Warp, site: Site, mask: int, bar: Value, threads: Value) -> Any:
        n = _threads(w, site, mask, threads)
        return op, (site, mask, _number(site, mask, bar), n)

    return Perform(
        (), ((number, "u32"), (rest[0] if rest else Integer(0), "u32")), start, None,
        Facts(noticed=True), Sync.ARRIVE | (Sync.WAIT if action == "sync" else Sync.NOTHING),
        members=Integer(FULL), anywhere="" if aligned else "warp", site=(("named", _name(number)),),
    )  # fmt: skip


def _name(number: Operand) -> str:
    """What messages call a named barrier; all of them where its number is computed."""
    return f"barrier {number.value}" if isinstance(number, Integer) else ANY_NAMED


def _threads(w: Warp, site: Site, mask: int, threads: Value) -> int:
    """How many threads a named barrier is for; 0: all of the CTA that have not exited. Barriers
    count warps (PTX ISA, bar).
    """
    found = one(site, mask, threads)
    if found % WARP:
        raise SimFault(
            f"{site.what}: a barrier for {found} threads; the number is a multiple of {WARP}",
            site.loc,
        )
    return found


def _number(site: Site, mask: int, bar: Value) -> int:
    """The number of a named barrier: a CTA has 16."""
    found = one(site, mask, bar)
    if found > 15:
        raise SimFault(f"{site.what}: barrier {found}; a CTA has barriers 0 to 15", site.loc)
    return found


def _reduction(instruction: Instruction, modifiers: Modifiers) -> Operation:
    """`barrier.red.popc.u32 d, bar, threads, p`."""
    name = modifiers.need("popc", "and", "or")
    if instruction.opcode == "barrier":
        modifiers.flag("aligned")
    kind = modifiers.need("u32" if name == "popc" else "pred")
    modifiers.end()
    destination, number, *rest, vote = operands(instruction, 3, 4)

    def start(w: Warp, site: Site, mask: int, bar: Value, threads: Value, vote: Value) -> Any:
        n = _threads(w, site, mask, threads)
        votes = lane_mask(vote) & mask if isinstance(vote, np.ndarray) else mask * bool(vote)
        return rendezvous.named_reduce, (site, mask, _number(site, mask, bar), n, votes)

    def finish(w: Warp, answer: tuple[int, int]) -> Any:
        true, total = answer
        found = {"popc": true, "and": true == total, "or": true > 0}[name]
        return (spread(found, TYPES[kind].dtype),)

    sources = (number, "u32"), (rest[0] if rest else Integer(0), "u32"), (vote, "pred")
    return Perform(
        ((destination, kind),), sources, start, finish, Facts(noticed=True),
        Sync.ARRIVE | Sync.WAIT, spread="one", members=Integer(FULL),
        site=(("named", _name(number)),),
    )  # fmt: skip


def _cluster(instruction: Instruction, modifiers: Modifiers) -> Operation:
    action = modifiers.need("arrive", "wait")
    order = modifiers.take(*(("release", "relaxed") if action == "arrive" else ("acquire",)))
    modifiers.flag("aligned")
    modifiers.end()
    operands(instruction, 0)
    op = rendezvous.cluster_arrive if action == "arrive" else rendezvous.cluster_wait

    def start(w: Warp, site: Site, mask: int) -> Any:
        return op, (site, mask)

    return Perform(
        (), (), start, None, Facts(noticed=True), relaxed=order == "relaxed", members=Integer(FULL)
    )


# -- fences ------------------------------------------------------------------------------


@defines("fence", "membar")
def _fence(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    if modifiers.flag("proxy"):
        return _proxy_fence(instruction, modifiers)
    if instruction.opcode == "membar":
        scope = modifiers.need("cta", "gl", "sys")
        modifiers.end()
        operands(instruction, 0)
        return _ordinary_fence(Scope.GPU if scope == "gl" else SCOPES[scope])
    if modifiers.flag("mbarrier_init"):
        modifiers.need("release")
        modifiers.need("cluster")
        modifiers.end()

        def publish(w: Warp, site: Site, mask: int) -> Any:
            return rendezvous.fence_barrier_init, (site, mask)

        return Perform((), (), publish, None, Facts(orders=Order.BARRIER_INITIALISATION))
    order = modifiers.take("sc", "acq_rel", "acquire", "release")
    if order in ("acquire", "release"):
        restricted = "shared::cluster" if order == "acquire" else "shared::cta"
        if modifiers.flag(f"sync_restrict::{restricted}"):
            modifiers.need("cluster")
            modifiers.end()
            operands(instruction, 0)
            return _ordinary_fence(Scope.CLUSTER, order, restricted=True)
    scope = modifiers.need("cta", "cluster", "gpu", "sys")
    modifiers.end()
    operands(instruction, 0)
    return _ordinary_fence(SCOPES[scope], order)


def _ordinary_fence(scope: Scope, order: str = "acq_rel", *, restricted: bool = False) -> Perform:
    acquires, releases = order != "release", order != "acquire"

    def fence(w: Warp, site: Site, mask: int) -> Any:
        return rendezvous.fence, (site, mask, scope, acquires, releases, restricted)

    return Perform((), (), fence, None, acquires=acquires and scope >= Scope.GPU)


def _proxy_fence(instruction: Instruction, modifiers: Modifiers) -> Operation:
    kind = modifiers.need("async", "async::generic", "tensormap::generic", "alias")
    if kind == "alias":  # virtual aliases of an address: here each byte has one address
        modifiers.end()
        return Nothing()
    if kind == "tensormap::generic":
        return tensor_maps.fence(instruction, modifiers)
    if kind != "async":
        not_modelled(instruction, f"fence.proxy.{kind}")
    space = modifiers.take("global", "shared::cta", "shared::cluster")
    modifiers.end()
    covers = {"shared::cta": "shared", "shared::cluster": "cluster", "global": "global"}

    def fence(w: Warp, site: Site, mask: int) -> Any:
        return rendezvous.fence_proxy_async, (site, mask, covers.get(space, "all"))

    return Perform((), (), fence, None, Facts(orders=Order.PROXIES))


@defines("griddepcontrol")
def _griddepcontrol(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    action = modifiers.need("wait", "launch_dependents")
    modifiers.end()
    operands(instruction, 0)
    if action == "launch_dependents":
        return Nothing()

    def wait(w: Warp, site: Site, mask: int) -> Any:
        return grid.grid_dependency_wait, (site, mask)

    return Perform((), (), wait, None, _NOTICED, Sync.WAIT)


@defines("setmaxnreg")
def _setmaxnreg(instruction: Instruction) -> Operation:
    """Register counts decide nothing here; the count must be one that the hardware takes."""
    modifiers = Modifiers(instruction)
    modifiers.need("inc", "dec")
    modifiers.need("sync")
    modifiers.need("aligned")
    modifiers.need("u32")
    modifiers.end()
    (count,) = operands(instruction, 1)
    registers = constant(instruction, count)
    if registers % 8 or not 24 <= registers <= 256:
        not_modelled(instruction, f"{registers} registers (a multiple of 8 in 24..256)")
    return Nothing()
