"""Deadlocks that a GPU may not have: some lanes of a warp wait, and others, which need not, could
bring what an agent waits for.

Since Volta the lanes of a warp proceed on their own between the places where the warp converges.
Here a warp's lanes are performed in program order, so that lanes which wait hold up the others.
Where that may be why nothing can act, the model cannot say whether the kernel hangs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilepipe.errors import NotModelledError
from tilepipe.ir import expressions as exprs, facts, ops
from tilepipe.ir.program import WARP, Kernel, Role, bodies
from tilepipe.ir.static_evaluation import evaluate, thread_env
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers import mbarrier as mbarriers
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.machine import Machine
from tilepipe.machine.separated_lanes import SeparatedLanes
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import WARP_MASK
from tilepipe.sim import election
from tilepipe.sim.sites import OpSite

_WAITS = (mbarriers.mbar_wait, mbarriers.mbar_wait_parity)


@dataclass(frozen=True)
class _Place:
    """An op of a role, the threads of the agent that may execute it, and the ops that it is nested
    in, outermost first; `by_data`: sides of branches among them that data decide.
    """

    op: ops.Op
    threads: int
    inside: tuple[ops.Op, ...]
    by_data: tuple[ops.Block, ...] = ()


def undecided(
    kernel: Kernel, m: Machine, stuck: list[Agent], sources: dict[Mbarrier, list[Site]]
) -> NotModelledError | None:
    """What to say instead of a deadlock where lanes of an agent in `stuck` could go on to an op
    that an agent waits for; None: there are none. `sources`: the mbarriers that agents wait on,
    each with the ops that could bring what it lacks.
    """
    for agent in stuck:
        assert agent.request is not None
        function, args = agent.request
        site: OpSite = args[0]
        waiting = _partly(args[1]) if function in _WAITS else 0
        role = next((r for r in kernel.roles if r.name == agent.role_name), None)
        if not waiting or role is None:
            continue
        places = _places(m, agent, role, kernel.cluster_size)
        here = next(place for place in places if place.op is site.op)
        for place in _reached(places, here, args[1]):
            if set(place.by_data) & set(here.by_data):  # who comes there waits here
                continue
            found = next(
                (
                    bar
                    for bar, of in sources.items()
                    if any(isinstance(s, OpSite) and s.op is place.op for s in of)
                ),
                None,
            )
            if found is not None and place.threads & waiting:
                lanes = "1 lane" if args[1].bit_count() == 1 else f"{args[1].bit_count()} lanes"
                return NotModelledError(
                    f"not modelled: {agent} waits at {site.loc.short} with {lanes}, and nothing"
                    " else can act; but other lanes of the same warp, which need not wait there,"
                    f" could go on to {place.op.loc.short}, which {found.where} waits for. Put what"
                    " the other lanes do before the wait, let the whole warp wait, or use two"
                    " roles. On a GPU the lanes of a warp proceed on their own until they converge,"
                    " so this kernel may end there; the simulator runs the lanes of a warp in"
                    " program order and cannot tell.",
                    site.loc,
                )
    return None


def separated(kernel: Kernel, m: Machine, agent: Agent) -> Iterator[SeparatedLanes]:
    """The lanes of an agent that some of its lanes, which wait, have to meet before those go on."""
    assert agent.request is not None
    function, args = agent.request
    waiting = _partly(args[1]) if function in _WAITS else 0
    role = next((r for r in kernel.roles if r.name == agent.role_name), None)
    if not waiting or role is None:
        return
    places = _places(m, agent, role, kernel.cluster_size)
    at = next(i for i, place in enumerate(places) if place.op is args[0].op)
    here, later = places[at], places[at + 1 :]
    first = next((i for i, place in enumerate(later) if _meets(place, here, args[1])), None)
    if first is None:
        return
    sites = {id(s.op): s for s in m.world.program.sites if isinstance(s, OpSite)}
    meeting = sites.get(id(later[first].op))
    what = f" ({meeting.kind})" if meeting is not None else ""
    for place in later[first:]:
        site = sites.get(id(place.op))
        if site is not None and place.threads & waiting and not {*place.by_data} & {*here.by_data}:
            yield SeparatedLanes(
                place.threads & waiting,
                f"{later[first].op.loc.short}{what}",
                frozenset([site.id]),
            )


def _partly(mask: int) -> int:
    """The threads beside those of a mask in warps of which it has some."""
    other = 0
    for shift in range(0, mask.bit_length(), WARP):
        part = mask >> shift & WARP_MASK
        other |= (WARP_MASK & ~part if part else 0) << shift
    return other


def _places(m: Machine, agent: Agent, role: Role, cluster_size: int) -> list[_Place]:
    """The ops of an agent's role in program order."""
    env = thread_env(role, cluster_size)

    def held(condition: exprs.Expr) -> int | None:
        """The threads of the agent for which a condition holds; None where that is not known."""
        value = evaluate(condition, env)
        if value is None:
            return None
        shape = (cluster_size, role.agents, role.agent_threads)
        row = np.broadcast_to(value, shape)[agent.cta.rank, agent.index]
        return sum(1 << int(thread) for thread in np.flatnonzero(row))

    def walk(
        block: ops.Block, threads: int, inside: tuple[ops.Op, ...], by_data: tuple[ops.Block, ...]
    ) -> Iterator[_Place]:
        for op in block.ops:
            yield _Place(op, threads, inside, by_data)
            match op:
                case ops.If(cond=condition, then=then, orelse=orelse):
                    mask = held(condition)
                    for side, part in ((then, mask), (orelse, None if mask is None else ~mask)):
                        known = threads if part is None else threads & part
                        yield from walk(
                            side,
                            known,
                            (*inside, op),
                            (*by_data, side) if part is None else by_data,
                        )
                case ops.Elect(scope=scope, body=body):
                    active = threads if scope == "warp" else threads & WARP_MASK
                    yield from walk(
                        body,
                        election.elected_of_warps(active, m.world.elected),
                        (*inside, op),
                        by_data,
                    )
                case _:
                    for body in bodies(op):
                        yield from walk(body, threads, (*inside, op), by_data)

    return list(walk(role.body, agent.full, (), ()))


def _meets(place: _Place, wait: _Place, mask: int) -> bool:
    """True if lanes that wait, those of `mask`, have to meet others at an op."""
    return (
        place.op.facts.scope > facts.Scope.LANE
        and bool(place.threads & mask)
        and set(place.inside) <= set(wait.inside)
    )


def _reached(places: list[_Place], wait: _Place, mask: int) -> Iterator[_Place]:
    """The ops that lanes may reach which do not wait at `wait`, where those of `mask` do, before
    they have to meet those.
    """
    at, inside = places.index(wait), wait.inside

    def up_to_meeting(first: int, last: int) -> list[_Place]:
        # up to an op at which a whole warp meets, or those of its lanes that have come
        part = places[first:last]
        meets = (_meets(place, wait, mask) for place in part)
        return part[: next((i for i, met in enumerate(meets) if met), len(part))]

    first = at + 1
    for loop in (*reversed([op for op in inside if op.facts.control is facts.Control.LOOP]), None):
        body = [i for i, place in enumerate(places) if loop is None or loop in place.inside]
        free = up_to_meeting(first, body[-1] + 1)
        yield from free
        if len(free) < body[-1] + 1 - first:
            return
        if loop is not None:
            yield from up_to_meeting(body[0], at)  # in the next iteration
        first = body[-1] + 1
