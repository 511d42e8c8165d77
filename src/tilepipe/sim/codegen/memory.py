"""Accesses to memory, of single elements and of fragments; copies by TMA; and requests for another
cluster's work, as Python source.
"""

from __future__ import annotations

from tilepipe.errors import SimFault
from tilepipe.ir import ops
from tilepipe.ir.hardware.operand_tiles import takes_stmatrix
from tilepipe.ir.memory import Tile
from tilepipe.machine.memory import elements, fragment_access
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
    operands=lambda f, op: [f.coords(op.coords, op), f.x(op.value)[0]],
)


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


@defines(ops.AtomicAdd, grid.atomic_add)
def _(f: Function, op: ops.AtomicAdd) -> None:
    value, where = f.x(op.value)[0], f.element(op.dst, op)[0]
    f.request(op, grid.atomic_add, value, *where, result=f.x.bind(op.result, False))


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
    coords, place = f.coords(op.coords, op), f.place(op.dst, op)
    f.request(op, tma.tma_load, coords, *place, f.bar(op.bar, op), *mask)


@defines(ops.TmaStore, tma.tma_store)
def _(f: Function, op: ops.TmaStore) -> None:
    count = [] if op.rows is None else [f.x.scalar(op.rows, "rows= of tma_store", op)]
    f.request(op, tma.tma_store, f.coords(op.coords, op), *f.place(op.src, op), *count)
