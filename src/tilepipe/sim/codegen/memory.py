"""Accesses to single elements, and copies by TMA, as Python source."""

from __future__ import annotations

from tilepipe.errors import SimFault
from tilepipe.ir import ops
from tilepipe.ir.memory import Tile
from tilepipe.machine.memory import elements
from tilepipe.machine.units import grid, tma
from tilepipe.sim.codegen.definition import defines, plain
from tilepipe.sim.codegen.functions import Function

plain(ops.TmaStoreCommit, tma.tma_store_commit)


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


@defines(ops.TmaStoreWait, tma.tma_store_wait)
def _(f: Function, op: ops.TmaStoreWait) -> None:
    f.request(op, tma.tma_store_wait, op.pending, op.read)
