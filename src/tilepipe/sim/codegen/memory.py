"""Accesses to memory, of single elements and of fragments; copies by TMA; and requests for another
cluster's work, as Python source.
"""

from __future__ import annotations

from tilepipe.errors import SimFault
from tilepipe.ir import ops
from tilepipe.ir.expressions import Vary
from tilepipe.ir.hardware.operand_tiles import takes_stmatrix
from tilepipe.ir.memory import TensorParam, Tile
from tilepipe.ir.program import WARP
from tilepipe.machine.happens_before.memory_order import Scope, Strong
from tilepipe.machine.memory import elements, fragment_access, strong_elements
from tilepipe.machine.units import grid, tma
from tilepipe.sim.codegen.functions import Function, defines

defines(ops.TmaStoreCommit, tma.tma_store_commit)
defines(ops.TmaStoreWait, tma.tma_store_wait, operands=lambda f, op: [op.pending, op.read])
defines(
    ops.ClcTryCancel,
    grid.clc_try_cancel,
    operands=lambda f, op: [op.multicast, *f.place(op.dst, op), f.bar(op.bar, op)],
)
defines(
    ops.FragmentLoadGlobal,
    fragment_access.fragment_load_global,
    operands=lambda f, op: [f.fragment(op.dst), f.coords(op.coords, op)],
)
defines(
    ops.FragmentStoreGlobal,
    fragment_access.fragment_store_global,
    operands=lambda f, op: [f.coords(op.coords, op), f.x(op.value)[0], *_rows(f, op)],
)
defines(
    ops.FragmentReduceGlobal,
    fragment_access.fragment_reduce_global,
    operands=lambda f, op: [
        f.coords(op.coords, op),
        f.x(op.value)[0],
        repr(op.operation),
        *_rows(f, op),
    ],
)


def _rows(f: Function, op: ops.FragmentStoreGlobal | ops.FragmentReduceGlobal) -> list[str]:
    """The operand that says how many rows are written, where the op has one."""
    return [] if op.rows is None else [f.x.scalar(op.rows, "rows= of store_global", op)]


@defines(ops.ClcQuery, grid.clc_query)
def _(f: Function, op: ops.ClcQuery) -> None:
    results = f"{f.x.bind(op.valid, False)}, {f.x.bind(op.cluster, False)}"
    f.request(op, grid.clc_query, *f.place(op.src, op), result=results)


@defines(ops.Load, elements.load, elements.load_global)
def _(f: Function, op: ops.Load) -> None:
    where, array = f.element(op.src, op)
    function = elements.load if isinstance(op.src.base, Tile) else elements.load_global
    f.request(op, function, *where, result=f.x.bind(op.result, array))


@defines(ops.Store, elements.store, elements.store_global)
def _(f: Function, op: ops.Store) -> None:
    function = elements.store if isinstance(op.dst.base, Tile) else elements.store_global
    f.request(op, function, f.x(op.value)[0], *f.element(op.dst, op)[0])


@defines(ops.StrongLoad, strong_elements.load_strong)
def _(f: Function, op: ops.StrongLoad) -> None:
    where, array = f.element(op.src, op)
    strong, result = _strong(f, op), f.x.bind(op.result, array)
    f.request(op, strong_elements.load_strong, strong, *where, result=result)


@defines(ops.StrongStore, strong_elements.store_strong)
def _(f: Function, op: ops.StrongStore) -> None:
    value, where = f.x(op.value)[0], f.element(op.dst, op)[0]
    f.request(op, strong_elements.store_strong, _strong(f, op), value, *where)


@defines(ops.Atomic, strong_elements.atomic)
def _(f: Function, op: ops.Atomic) -> None:
    values = [None if x is None else f.x(x)[0] for x in (op.value, op.compare)]
    each = op.result.vary is Vary.LANE
    width = (f.threads if f.x.warp is None else WARP) if each else 0
    operands = _strong(f, op), repr(op.operation), width, *values, *f.element(op.dst, op)[0]
    f.request(op, strong_elements.atomic, *operands, result=f.x.bind(op.result, each))


@defines(ops.Fence, strong_elements.fence)
def _(f: Function, op: ops.Fence) -> None:
    f.request(op, strong_elements.fence, f.module.constant(Scope[op.scope.upper()], "scope"))


def _strong(f: Function, op: ops.StrongLoad | ops.StrongStore | ops.Atomic) -> str:
    """The name of the strength of an access in the generated module."""
    element = op.src if isinstance(op, ops.StrongLoad) else op.dst
    assert isinstance(element.base, TensorParam)
    strong = Strong(
        Scope[op.scope.upper()],
        element.base.dtype.bits // 8,
        acquires=op.order in ("acquire", "acq_rel"),
        releases=op.order in ("release", "acq_rel"),
    )
    return f.module.constant(strong, "strong")


@defines(ops.FragmentStore, fragment_access.fragment_store)
def _(f: Function, op: ops.FragmentStore) -> None:
    remote = f.remote(op.dst.cta, op)
    aligned = takes_stmatrix(op.dst, op.value.shape)
    where = f.place(op.dst, op)
    f.request(op, fragment_access.fragment_store, *where, aligned, f.x(op.value)[0], *remote)


@defines(ops.FragmentLoad, fragment_access.fragment_load)
def _(f: Function, op: ops.FragmentLoad) -> None:
    remote, into = f.remote(op.src.cta, op), f.fragment(op.dst)
    where = f.place(op.src, op)
    f.request(op, fragment_access.fragment_load, into, *where, f.x.warp, *remote)


@defines(ops.TmaLoad, tma.tma_load)
def _(f: Function, op: ops.TmaLoad) -> None:
    remote = op.bar.cta is not None
    if op.dst.cta is not None or (remote and f.module.kernel.cta_group != 2):
        raise SimFault(
            "a TMA load into a peer's shared memory: only multicast= reaches other CTAs", op.loc
        )
    mask = [] if op.multicast is None else [f.x.scalar(op.multicast, "a multicast mask", op)]
    if remote:
        mask = [*(mask or ["None"]), *f.remote(op.bar.cta, op)]
    if op.tensor.ragged:
        assert op.tensor.box is not None
        every = str(op.tensor.box[op.tensor.lines_axis])
        lines = every if op.lines is None else f.x.scalar(op.lines, "lines= of tma_load", op)
        mask = [*mask, *["None"] * (2 - len(mask)), lines]
    coords, place = f.coords(op.coords, op), f.place(op.dst, op)
    f.request(op, tma.tma_load, coords, *place, f.bar(op.bar, op), *mask)


@defines(ops.TmaStore, tma.tma_store)
def _(f: Function, op: ops.TmaStore) -> None:
    count = [] if op.rows is None else [f.x.scalar(op.rows, "rows= of tma_store", op)]
    f.request(op, tma.tma_store, f.coords(op.coords, op), *f.place(op.src, op), *count)


@defines(ops.TmaReduce, tma.tma_store)
def _(f: Function, op: ops.TmaReduce) -> None:
    count = "None" if op.rows is None else f.x.scalar(op.rows, "rows= of tma_store", op)
    coords, place = f.coords(op.coords, op), f.place(op.src, op)
    f.request(op, tma.tma_store, coords, *place, count, repr(op.operation))
