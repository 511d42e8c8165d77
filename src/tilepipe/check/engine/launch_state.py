"""The start of every execution of a launch: its arguments as they were given, and what is known
about its kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilepipe.check.proofs.guards import Guards, guards
from tilepipe.check.proofs.polling import Watch
from tilepipe.errors import BindError
from tilepipe.ir import def_use, ops, printer
from tilepipe.ir.expressions import Const
from tilepipe.ir.memory import TensorParam
from tilepipe.ir.program import Launch, TensorArg, all_ops, walk
from tilepipe.machine.agents import Agent
from tilepipe.machine.journal import Journal
from tilepipe.machine.machine import World
from tilepipe.machine.rules import Rules, require_rules
from tilepipe.machine.sites import Site


class LaunchState(Watch):
    """The start of every execution of a launch.

    Attributes:
        launch: the launch, with copies of the arrays that the kernel writes.
        grid, clusters: the numbers of CTAs and of clusters of the grid.
        elected: the elected lane of executions that begin now.
        guards: the tests that are treated as the waits that they guard; none unless `decide` sets
            them.
        polls: whether a loop may poll an element of global memory.
        residents: how many clusters run at once, each number in turn where one may wait for
            another: nothing but a cooperative launch promises that they all do.
    """

    other_lanes: Sequence[int] = ()

    def __init__(self, launch: Launch, rules: Rules) -> None:
        written, _ = def_use.tensor_uses(launch.kernel)
        arrays = {
            n: a.array
            for n, a in launch.args.items()
            if isinstance(a, TensorArg) and isinstance(a.array, np.ndarray)
        }
        targets = [arrays[n] for n in written if n in arrays]
        self._given = {
            n: a for n, a in arrays.items() if any(np.may_share_memory(a, t) for t in targets)
        }
        copies: dict[int, np.ndarray] = {}
        for name, array in self._given.items():
            for other, kept in self._given.items():
                if other != name and kept is not array and np.may_share_memory(kept, array):
                    raise BindError(
                        f"arguments '{name}' and '{other}' share memory, and the kernel writes one"
                        " of them: pass copies"
                    )
            copies.setdefault(id(array), array.copy(order="K"))
        self._copies = {n: copies[id(a)] for n, a in self._given.items()}
        copied = {
            n: TensorArg(self._copies[n], a.shape)
            for n, a in launch.args.items()
            if isinstance(a, TensorArg) and n in self._copies
        }
        args = dict(launch.args) | copied
        super().__init__(replace(launch, args=args))
        self.rules = require_rules(rules)
        self.size = launch.kernel.cluster_size
        self.grid, self.clusters = launch.grid, launch.grid // self.size
        every = list(all_ops(launch.kernel))
        self.guards = Guards()
        self._tests = {s.id for s in self.sites if isinstance(s.op, ops.MbarTryWait)}
        looped = (op for loop in every if isinstance(loop, ops.While) for op in walk(loop.body))
        self.polls = any(self._looks(op) for op in looped)
        self.elected = self.lanes[0]
        self.residents: Sequence[int] = (self.resident,)
        most = min(self.resident, self.clusters)
        if self.polls and not launch.kernel.cooperative:
            self.residents = range(most, 0, -1)

    @property
    def text(self) -> str:
        """The printed ops of the kernel, with their lines."""
        return printer.text(self.launch.kernel)

    @property
    def lines(self) -> dict[str, str]:
        """The lines of source that ops come from, by location."""
        return {op.loc.short: op.loc.source for op in all_ops(self.launch.kernel) if op.loc.source}

    @property
    def has_tests(self) -> bool:
        """Whether the kernel has a try_wait that is not treated as a wait."""
        return not self._tests <= self.guards.tests.keys()

    def possible_guards(self) -> Guards:
        """The tests that may be treated as waits, by the text of the kernel."""
        return guards(self.launch.kernel, self.sites) if self._tests else Guards()

    def explained(self, error: Exception, agent: Agent, site: Site) -> Exception:
        """The error itself: every operand of a traced kernel has a value."""
        return error

    def _looks(self, op: ops.Op) -> bool:
        """Whether a strong access may change nothing, and what it finds can come to decide
        something.
        """
        match op:
            case ops.Atomic(operation="add", value=Const(value=value)) if value:
                return False
            case ops.Atomic() | ops.StrongLoad():
                return op.result in self.things
        return False

    def world(self, journal: Journal | None) -> World:
        """The state at the start of an execution: all memory as it was given."""
        for name, given in self._given.items():
            np.copyto(self._copies[name], given)
        world = self.start(self.rules)
        world.journal = journal
        world.elected = self.elected
        world.silent = True
        return world

    def given(self, number: int) -> np.ndarray:
        """The contents of a tensor at the start of each execution. `number`: its index among the
        tensors.
        """
        names = [p.name for p in self.launch.kernel.params if isinstance(p, TensorParam)]
        return self._given[names[number]]

    def output(self) -> dict[str, np.ndarray]:
        """The arrays that the last execution has written, by parameter."""
        return dict(self._copies)
