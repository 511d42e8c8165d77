"""Observations of each op of a kernel in a run: how often it was performed, whether it changed the
happens-before knowledge of its threads, and which phases it was about.

Explanations of redundant mutants rest on them. The proof is the exploration.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import zip_longest
from operator import or_
from typing import Any

from tilepipe import sim
from tilepipe.check.mutation.judging import arrays_kept
from tilepipe.ir import ops
from tilepipe.ir.program import Launch
from tilepipe.machine.actors import Body
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.mbarrier import phase_of
from tilepipe.machine.machine import Machine
from tilepipe.sim.front_end import Params, StartBody, listen

Phase = tuple[int, int, int, int]  # run, CTA of the grid, mbarrier of the CTA, phase


@dataclass(slots=True)
class Observed:
    """The observations of one op.

    Attributes:
        runs: how often it was performed.
        effects: how often it changed what its threads know, or which registers are fenced.
        phases: the phases of mbarriers in which it arrived, or for which it waited.
    """

    runs: int = 0
    effects: int = 0
    phases: set[Phase] = field(default_factory=set)


class Observations:
    """The observations of some runs of one kernel, by op."""

    def __init__(self, launches: Iterable[Launch]) -> None:
        """Runs each launch once.

        Raises:
            SimFault: a run ends in a fault.
        """
        self._of: dict[int, Observed] = {}
        self._waited: set[Phase] = set()
        for self._run, launch in enumerate(launches):
            watched = replace(launch, kernel=replace(launch.kernel))
            listen(watched.kernel, self._listening)
            with arrays_kept(watched), contextlib.redirect_stdout(io.StringIO()):
                sim.run(watched)

    def of(self, op: ops.Op) -> Observed:
        """The observations of one op; empty if it was never performed."""
        return self._of.get(id(op), Observed())

    def awaited(self, op: ops.Op) -> bool:
        """True if any agent waited for one of the phases in which an op arrived."""
        return bool(self.of(op).phases & self._waited)

    def _listening(self, body: StartBody) -> StartBody:
        """A body with a listener between it and the machine."""

        def listening(m: Machine, ag: Agent, params: Params) -> Generator[Any, Any, None]:
            inner: Body = body(m, ag, params)
            result: Any = None
            while True:
                try:
                    request = inner.send(result)
                except StopIteration:
                    return
                before, where = _knowledge(ag), self._phase(m, ag, *request[1])
                result = yield request
                observed = self._of.setdefault(id(request[1][0].op), Observed())
                observed.runs += 1
                observed.effects += _grew(before, _knowledge(ag))
                observed.phases |= where

        return listening

    def _phase(self, m: Machine, ag: Agent, site: Any, mask: int, *args: Any) -> set[Phase]:
        """The phases that an op on an mbarrier is about. Those of a wait are kept as awaited."""
        match site.op:
            case ops.MbarWait(phase=given) | ops.MbarTryWait(phase=given):
                number = (
                    args[1] if given.dtype.kind == "phase" else phase_of(ag, args[0], args[1], mask)
                )
                waited = {(self._run, ag.cta.block_id, args[0], number)}
                self._waited |= waited
                return waited
            case ops.MbarArrive():
                return {(self._run, *where) for where in _arrived(m, ag, args[0], args[2:])}
            case ops.Tcgen05Commit():
                return {
                    (self._run, cta.block_id, args[0], cta.bars[args[0]].phase) for cta in m.ctas
                }
        return set()


def _arrived(m: Machine, ag: Agent, bar: int, target: tuple[Any, ...]) -> set[tuple[int, int, int]]:
    """The barriers on which an op arrives: of its own CTA, of a rank, or of several CTAs."""
    ctas = [ag.cta] if not target else [m.ctas[target[0]]] if isinstance(target[0], int) else m.ctas
    return {(cta.block_id, bar, cta.bars[bar].phase) for cta in ctas}


def _knowledge(ag: Agent) -> tuple[list[int], tuple[int, bool]]:
    """The knowledge of the threads of an agent: all lanes of each warp, any thread, and of accesses
    to tensor memory, received and published; and the state of its registers: how many fragments
    have to be fenced, and whether there has been a fence.
    """
    known = [ag.k | (ag.kw[w] if ag.kw is not None else 0) for w in range(ag.warps)]
    known.append(_union((*known, *(entry.bits for entry in ag.pend))))
    if ag.tensor is not None:
        after = ag.tensor.after
        received = (after.k, *(after.kw or ()), *(entry.bits for entry in after.pend))
        known += [_union(received), ag.tensor.published]
    return known, (len(ag.dirty), ag.fenced)


def _grew(
    before: tuple[list[int], tuple[int, bool]], now: tuple[list[int], tuple[int, bool]]
) -> bool:
    """True if an op between two states had any effect."""
    pairs = zip_longest(before[0], now[0], fillvalue=0)
    return before[1] != now[1] or any(b & ~a for a, b in pairs)


def _union(sets: Iterable[int]) -> int:
    return reduce(or_, sets, 0)
