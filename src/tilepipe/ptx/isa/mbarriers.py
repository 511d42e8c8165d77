"""mbarriers (PTX ISA, "Parallel Synchronization and Communication Instructions", mbarrier)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilepipe.errors import BarrierError
from tilepipe.ir.facts import Facts, Sync
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers import mbarrier
from tilepipe.machine.machine import Machine
from tilepipe.machine.rules import PARITY
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import lanes_in
from tilepipe.ptx.definition import (
    Compute,
    Modifiers,
    Operation,
    Perform,
    defines,
    inside,
    not_modelled,
    operands,
)
from tilepipe.ptx.isa.memory import address_type, in_shared
from tilepipe.ptx.isa.requests import Value, each, grouped, groups, place
from tilepipe.ptx.lanes import WARP, Array, spread
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.syntax.nodes import Address, Instruction, Integer, Sink
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
        # PTX ISA, mbarrier.try_wait: the default is .cta
        site=(("parity", by_parity), ("near", scope != "cluster"), ("unscoped", not scope)),
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
