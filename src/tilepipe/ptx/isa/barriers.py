"""mbarriers, named and cluster barriers, fences (PTX ISA, "Parallel Synchronization and
Communication Instructions").
"""

from __future__ import annotations

from typing import Any

from tilepipe.ir.facts import WHOLE_WARP, Facts, Order, Sync
from tilepipe.machine.barriers import mbarrier, rendezvous
from tilepipe.machine.sites import Site
from tilepipe.ptx.definition import (
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
from tilepipe.ptx.execution.requests import Value, grouped, one, place
from tilepipe.ptx.execution.warp import Warp
from tilepipe.ptx.lanes import FULL, spread
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.syntax.nodes import Address, Instruction, Integer

_NOTICED = Facts(noticed=True)
_BOOL = TYPES["pred"].dtype


@defines("mbarrier")
def _mbarrier(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    action = modifiers.any()
    match action:
        case "init" | "inval":
            return _init(instruction, modifiers, action)
        case "arrive":
            return _arrive(instruction, modifiers)
        case "expect_tx" | "complete_tx":
            return _transactions(instruction, modifiers, action)
        case "try_wait" | "test_wait":
            return _test(instruction, modifiers)
    not_modelled(instruction, f"the modifier '.{action}'")


def _scope(modifiers: Modifiers, *orders: str) -> tuple[str, str]:
    """`.release.cta` and the like: (order, scope)."""
    order = modifiers.take("relaxed", *orders)
    return order, modifiers.take("cta", "cluster")


def _init(instruction: Instruction, modifiers: Modifiers, action: str) -> Operation:
    modifiers.take("shared", "shared::cta")
    modifiers.need("b64")
    modifiers.end()
    where, *rest = operands(instruction, 2 if action == "init" else 1)
    address = inside(instruction, where)

    def start_init(w: Warp, site: Site, mask: int, at: Value, count: Value) -> Any:
        def request(part: int, address: int, n: int) -> Any:
            return mbarrier.mbar_init, (site, part, place(address)[1], 1, n)

        return grouped(site, mask, request, at, count)

    def start_inval(w: Warp, site: Site, mask: int, at: Value) -> Any:
        def request(part: int, address: int) -> Any:
            return mbarrier.mbar_inval, (site, part, place(address)[1])

        return grouped(site, mask, request, at)

    if action == "init":
        sources = ((address, "u32"), (rest[0], "u32"))
        return Perform((), sources, start_init, None, _NOTICED, Sync.INITIALISE)
    return Perform((), ((address, "u32"),), start_inval, None, _NOTICED, Sync.INVALIDATE)


def _arrive(instruction: Instruction, modifiers: Modifiers) -> Operation:
    expects = modifiers.flag("expect_tx")
    if modifiers.flag("noComplete"):
        not_modelled(instruction, "an arrival that may not complete the phase")
    order, _ = _scope(modifiers, "release")
    expects = expects or modifiers.flag("expect_tx")
    modifiers.take("shared", "shared::cta", "shared::cluster")
    modifiers.need("b64")
    modifiers.end()
    given = instruction.operands
    if given and not isinstance(given[0], Address):
        # The state of the phase: only tests with a state can read it, and these are refused. Its
        # register stays empty, so that any other use is a fault.
        given = given[1:]
    address = inside(instruction, given[0])
    count = given[1] if len(given) > 1 else Integer(1)

    def start(w: Warp, site: Site, mask: int, at: Value, n: Value) -> Any:
        def request(part: int, address: int, n: int) -> Any:
            rank, offset = place(address)
            cta = None if rank == w.rank else rank
            if expects:
                return mbarrier.mbar_expect, (site, part, offset, n, True, cta)
            return mbarrier.mbar_arrive, (site, part, offset, n, cta)

        return grouped(site, mask, request, at, n)

    sync = Sync.ARRIVE | Sync.EXPECT if expects else Sync.ARRIVE
    return Perform(
        (), ((address, "u32"), (count, "u32")), start, None, _NOTICED, sync,
        relaxed=order == "relaxed",
    )  # fmt: skip


def _transactions(instruction: Instruction, modifiers: Modifiers, action: str) -> Operation:
    _scope(modifiers)
    modifiers.take("shared", "shared::cta", "shared::cluster")
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

        return grouped(site, mask, request, at, n)

    sync = Sync.EXPECT if action == "expect_tx" else Sync.CREDIT
    sources = ((inside(instruction, where), "u32"), (count, "u32"))
    return Perform((), sources, start, None, _NOTICED, sync)


def _test(instruction: Instruction, modifiers: Modifiers) -> Operation:
    by_parity = modifiers.flag("parity")
    _scope(modifiers, "acquire")
    modifiers.take("shared", "shared::cta")
    modifiers.need("b64")
    modifiers.end()
    if not by_parity:
        not_modelled(instruction, "a test with the state of a phase")
    destination, where, parity, *_ = operands(instruction, 3, 4)
    address = inside(instruction, where)

    def operands_of(site: Site, mask: int, at: Value, phase: Value) -> tuple[Any, ...]:
        return site, mask, place(one(site, mask, at))[1], one(site, mask, phase)

    def start(w: Warp, site: Site, mask: int, at: Value, phase: Value) -> Any:
        return mbarrier.mbar_try_wait_parity, operands_of(site, mask, at, phase)

    def wait(w: Warp, site: Site, mask: int, at: Value, phase: Value) -> Any:
        if w.groups:  # others of this warp may have to run for the phase to complete
            return start(w, site, mask, at, phase)
        return mbarrier.mbar_wait_parity, operands_of(site, mask, at, phase)

    def finish(w: Warp, answer: bool | None) -> Any:
        return (spread(answer is None or answer, _BOOL),)

    return Perform(
        ((destination, "pred"),), ((address, "u32"), (parity, "u32")), start, finish,
        Facts(noticed=True), Sync.WAIT, waits=wait,
    )  # fmt: skip


# -- named and cluster barriers ----------------------------------------------------------


@defines("bar", "barrier")
def _bar(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    if modifiers.flag("cluster"):
        return _cluster(instruction, modifiers)
    if modifiers.flag("warp"):
        modifiers.need("sync")
        modifiers.end()
        (members,) = operands(instruction, 1)

        def sync(w: Warp, site: Site, mask: int) -> Any:
            return rendezvous.syncwarp, (site, mask)

        return Perform((), (), sync, None, WHOLE_WARP, members=members)
    modifiers.flag("cta")
    action = modifiers.need("sync", "arrive", "red")
    if action == "red":
        not_modelled(instruction, "a reduction at a barrier")
    modifiers.flag("aligned")
    modifiers.end()
    number, *rest = operands(instruction, 1, 2)
    op = rendezvous.named_sync if action == "sync" else rendezvous.named_arrive

    def start(w: Warp, site: Site, mask: int, bar: Value, threads: Value) -> Any:
        n = one(site, mask, threads) or w.cta_threads
        return op, (site, mask, one(site, mask, bar), n)

    return Perform(
        (), ((number, "u32"), (rest[0] if rest else Integer(0), "u32")), start, None,
        Facts(noticed=True), Sync.ARRIVE | (Sync.WAIT if action == "sync" else Sync.NOTHING),
        members=Integer(FULL),
    )  # fmt: skip


def _cluster(instruction: Instruction, modifiers: Modifiers) -> Operation:
    action = modifiers.need("arrive", "wait")
    modifiers.take("release", "relaxed", "acquire")
    modifiers.flag("aligned")
    modifiers.end()
    operands(instruction, 0)
    op = rendezvous.cluster_arrive if action == "arrive" else rendezvous.cluster_wait

    def start(w: Warp, site: Site, mask: int) -> Any:
        return op, (site, mask)

    return Perform((), (), start, None, Facts(noticed=True), members=Integer(FULL))


# -- fences ------------------------------------------------------------------------------


@defines("fence", "membar")
def _fence(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    if modifiers.flag("mbarrier_init"):
        modifiers.need("release")
        modifiers.need("cluster")
        modifiers.end()

        def publish(w: Warp, site: Site, mask: int) -> Any:
            return rendezvous.fence_barrier_init, (site, mask)

        return Perform((), (), publish, None, Facts(orders=Order.BARRIER_INITIALISATION))
    if modifiers.flag("proxy"):
        kind = modifiers.need("async", "async::generic", "tensormap::generic", "alias")
        if kind != "async":
            not_modelled(instruction, f"fence.proxy.{kind}")
        space = modifiers.take("global", "shared::cta", "shared::cluster")
        modifiers.end()
        covers = {"shared::cta": "shared", "shared::cluster": "cluster", "global": "global"}

        def fence(w: Warp, site: Site, mask: int) -> Any:
            return rendezvous.fence_proxy_async, (site, mask, covers.get(space, "all"))

        return Perform((), (), fence, None, Facts(orders=Order.PROXIES))
    modifiers.take("sc", "acq_rel", "acquire", "release", "cta", "gl", "sys")
    modifiers.take("cta", "cluster", "gpu", "sys")
    modifiers.end()
    return Nothing()


@defines("griddepcontrol")
def _griddepcontrol(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    modifiers.need("wait", "launch_dependents")
    modifiers.end()
    return Nothing()


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
