"""The ops on mbarriers, as Python source."""

from __future__ import annotations

from tilepipe.errors import BarrierError
from tilepipe.ir import ops
from tilepipe.machine.barriers import mbarrier
from tilepipe.sim.codegen.definition import defines
from tilepipe.sim.codegen.functions import Function


@defines(ops.MbarInit, mbarrier.mbar_init)
def _(f: Function, op: ops.MbarInit) -> None:
    array = op.bar.array
    if op.count is None and array.count is None:
        raise BarrierError(f"{array.name} is initialised without an arrival count", op.loc)
    n = str(array.count) if op.count is None else f.x.scalar(op.count, "an arrival count", op)
    f.request(op, mbarrier.mbar_init, f.bar(op.bar, op), op.n, n)


@defines(ops.MbarInval, mbarrier.mbar_inval)
def _(f: Function, op: ops.MbarInval) -> None:
    f.request(op, mbarrier.mbar_inval, f.bar(op.bar, op))


@defines(ops.MbarArrive, mbarrier.mbar_arrive, mbarrier.mbar_arrive_each)
def _(f: Function, op: ops.MbarArrive) -> None:
    n = f.x.scalar(op.count, "the count of an arrive", op)
    each, to = f.targets(op.bar.cta, op)
    function = mbarrier.mbar_arrive_each if each else mbarrier.mbar_arrive
    f.request(op, function, f.bar(op.bar, op), n, *to)


@defines(ops.MbarExpect, mbarrier.mbar_expect, mbarrier.mbar_expect_each)
def _(f: Function, op: ops.MbarExpect) -> None:
    n = f.x.scalar(op.nbytes, "a number of bytes", op)
    each, to = f.targets(op.bar.cta, op)
    function = mbarrier.mbar_expect_each if each else mbarrier.mbar_expect
    f.request(op, function, f.bar(op.bar, op), n, op.arrive, *to)


@defines(ops.MbarCompleteTx, mbarrier.mbar_complete_tx)
def _(f: Function, op: ops.MbarCompleteTx) -> None:
    n = f.x.scalar(op.nbytes, "a number of bytes", op)
    bar = f.bar(op.bar, op)
    f.request(op, mbarrier.mbar_complete_tx, bar, n, *f.remote(op.bar.cta, op))


@defines(ops.MbarWait, mbarrier.mbar_wait, mbarrier.mbar_wait_parity)
def _(f: Function, op: ops.MbarWait) -> None:
    full = op.phase.dtype.kind == "phase"
    f.request(op, mbarrier.mbar_wait if full else mbarrier.mbar_wait_parity, *_asked(f, op))


@defines(ops.MbarTryWait, mbarrier.mbar_try_wait, mbarrier.mbar_try_wait_parity)
def _(f: Function, op: ops.MbarTryWait) -> None:
    full = op.phase.dtype.kind == "phase"
    function = mbarrier.mbar_try_wait if full else mbarrier.mbar_try_wait_parity
    f.request(op, function, *_asked(f, op), result=f.x.bind(op.result, False))


def _asked(f: Function, op: ops.MbarWait | ops.MbarTryWait) -> tuple[str, str]:
    """The barrier and the phase of a wait or a test."""
    if op.bar.cta is not None:
        raise BarrierError(
            f"a wait on {op.bar.array.name} of another CTA: only a CTA's own barriers can be waited on",
            op.loc,
        )
    return f.bar(op.bar, op), f.x.scalar(op.phase, "the phase of a wait", op)
