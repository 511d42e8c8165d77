"""The queue of `inputs.consumer(lag=n)`, which frees a stage n wgmma groups later.

wgmma cannot signal an mbarrier, so the warpgroup itself makes the arrival that `mma_commit` binds
to a group, once it has waited for that group. Waiting for the newest group would leave the tensor
cores idle; with a lag, releasing stage i waits until at most `lag` groups run, and frees stage i -
lag. The queue holds the last `lag` stages in variables of the role, because the body of the loop is
traced once and their numbers are known only when the kernel runs.
"""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import expressions as exprs, ops
from tilepipe.ir.location import caller
from tilepipe.lang.asynchronous.commits import Commit, arrival_op, arrivals_of
from tilepipe.lang.values.scalars import Value, binary, to_expr
from tilepipe.lang.values.variables import Var
from tilepipe.pipelines.rings.producer_consumer import ProducerConsumerPipeline


class LagQueue:
    """The stages whose MMAs may still be running, oldest first. `held` counts them; entries [lag -
    held, lag) are valid.
    """

    def __init__(self, pipe: ProducerConsumerPipeline, lag: int) -> None:
        self._tracer = pipe._tracer
        self._lag = lag
        self._held = Var(self._tracer, 0, None, f"{pipe.name}_held")
        self._stages = [Var(self._tracer, 0, None, f"{pipe.name}_previous") for _ in range(lag)]
        self._commit: Commit | None = None
        self._published = False
        self._arrives: list[ops.MbarArrive] = []

    def push(self, commit: Commit, stage: Value, published: bool) -> None:
        """Adds stage `stage`, whose group has just been closed, and frees the one `lag` before
        it.
        """
        if self._commit is not None and not _same(self._commit.mask, commit.mask):
            raise TraceError(
                f"mma_commit with mask {commit.mask} here and {self._commit.mask} at"
                f" {self._commit.loc.short}: one view, one mask",
                commit.loc,
            )
        self._commit = commit
        # One traced body stands for all stages: if it accesses any by ordinary loads or stores,
        # every arrive must release, including those emitted before.
        if published and not self._published:
            self._published = True
            for arrive in self._arrives:
                arrive.sem = "release"
        t = self._tracer
        t.emit(ops.WgmmaWait(caller(), self._lag))
        held = self._held.get()
        self._free(self._stages[0].get(), binary(t, "ge", held, self._lag))
        for newer, older in zip(self._stages[1:], self._stages[:-1], strict=True):
            older.set(newer.get())
        self._stages[-1].set(stage)
        self._held.set(1 if self._lag == 1 else binary(t, "min", held + 1, self._lag))

    def flush(self) -> None:
        """Waits for every group and frees what is still held."""
        if self._commit is None:
            return
        self._tracer.emit(ops.WgmmaWait(caller(), 0))
        held = self._held.get()
        for position, stage in enumerate(self._stages):
            self._free(stage.get(), binary(self._tracer, "ge", held, self._lag - position))
        self._held.set(0)

    def _free(self, stage: Value, cond: Value) -> None:
        if self._commit is None:
            return
        index: exprs.Expr = to_expr(self._tracer, stage)
        arrive = arrival_op(self._commit, index, self._published)
        self._arrives += arrivals_of(arrive)
        self._tracer.emit(
            ops.If(caller(), to_expr(self._tracer, cond), ops.Block([arrive]), ops.Block())
        )


def _same(one: int | exprs.Expr | None, other: int | exprs.Expr | None) -> bool:
    return one is other if isinstance(one, exprs.Expr) else one == other
