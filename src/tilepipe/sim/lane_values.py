"""Which values of a role depend on the number of the lane that holds them, and which on whether
that lane was elected.

Both are found by data flow over the role's IR, to a fixed point, without regard to the order of
ops. A value that depends on neither is lane-private at most: exchange two lanes that no condition
names, and it goes with them. What is loaded from a place that does not depend on the lane's number
is such a value, since memory is the same for whoever reads it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ir import def_use, expressions as exprs, facts, ops
from tilepipe.ir.expressions import Expr, Local, Vary
from tilepipe.ir.memory import Variable
from tilepipe.ir.program import WARP, Role, bodies
from tilepipe.ir.static_evaluation import evaluate, thread_env

Name = Local | Variable


class LaneValues:
    """The values of one role that differ between its lanes.

    Attributes:
        numbered: names whose value depends on the number of the lane.
        chosen: names whose value depends on whether the lane was elected, or took a branch that
            data decide.
    """

    def __init__(self, role: Role, cluster_size: int) -> None:
        self.numbered: set[Name] = set()
        self.chosen: set[Name] = set()
        self._shape = cluster_size, role.agents, role.agent_threads
        self._env = thread_env(role, cluster_size)
        known = -1
        while known != len(self.numbered) + len(self.chosen):
            known = len(self.numbered) + len(self.chosen)
            self._block(role.body, apart=False)

    def of_threads(self, x: Expr) -> npt.NDArray[Any] | None:
        """The value of an expression in every thread, shape [CTA of the cluster, agent, thread of
        the agent]; None: data decide it.
        """
        values = evaluate(x, self._env)
        return None if values is None else np.broadcast_to(values, self._shape)

    def is_numbered(self, x: Expr) -> bool:
        """True if the value of an expression depends on the number of the lane."""
        if x.vary is not Vary.LANE:
            return False
        values = self.of_threads(x)
        if values is not None:
            rows = values.reshape(-1, WARP)
            return bool((rows != rows[:, :1]).any())
        if isinstance(x, Local):
            return x in self.numbered
        inner = exprs.children(x)
        return any(map(self.is_numbered, inner)) if inner else True

    def is_chosen(self, x: Expr) -> bool:
        """True if the value of an expression depends on whether the lane was elected."""
        return any(isinstance(node, Local) and node in self.chosen for node in def_use.nodes(x))

    def by_data(self, op: ops.If) -> bool:
        """True if a branch tells lanes apart by what is not known before the kernel runs."""
        return op.cond.vary is Vary.LANE and self.of_threads(op.cond) is None

    def _block(self, block: ops.Block, apart: bool) -> None:
        """`apart`: an elected lane executes the block, or lanes that data pick."""
        for op in block.ops:
            self._op(op, apart)
            inner = (
                apart or isinstance(op, ops.Elect) or (isinstance(op, ops.If) and self.by_data(op))
            )
            for body in bodies(op):
                self._block(body, inner)

    def _op(self, op: ops.Op, apart: bool) -> None:
        given = [x for x in def_use.operands(op) if isinstance(x, Expr)]
        source = op.var if isinstance(op, ops.Read) else None
        targets: list[Name] = [
            *def_use.bound(op),
            *(x for x in def_use.assigned(op) if isinstance(x, Variable)),
        ]
        targets = [name for name in targets if name.vary is Vary.LANE]
        # The lanes of a warp that add to one place get the sums one after the other, each its own.
        in_turn = isinstance(op, ops.Atomic) and not apart
        # Which lane gets the value of which goes by their numbers.
        in_turn |= op.facts.scope is facts.Scope.WARP
        if in_turn or source in self.numbered or any(map(self.is_numbered, given)):
            self.numbered.update(targets)
        if apart or source in self.chosen or any(map(self.is_chosen, given)):
            self.chosen.update(targets)
