"""The tensor cores of Hopper and of Blackwell, and tensor memory, as Python source."""

from __future__ import annotations

from tilepipe.ir import ops
from tilepipe.ir.expressions import Expr
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.memory import Tile, TmemScales
from tilepipe.machine.memory import tensor_access, tensor_allocation
from tilepipe.machine.units import tcgen05, wgmma
from tilepipe.sim.codegen.functions import Function, defines

defines(ops.WgmmaFence, wgmma.wgmma_fence)
defines(ops.WgmmaCommit, wgmma.wgmma_commit)
defines(ops.WgmmaWait, wgmma.wgmma_wait, operands=lambda f, op: [op.pending])
defines(ops.TmemRelinquish, tensor_allocation.tmem_relinquish)
defines(ops.TmemWaitLoad, tensor_access.tmem_wait_load)
defines(ops.TmemWaitStore, tensor_access.tmem_wait_store)
defines(ops.Tcgen05FenceBefore, tensor_access.tcgen05_fence_before)
defines(ops.Tcgen05FenceAfter, tensor_access.tcgen05_fence_after)
defines(ops.TmemAlloc, tensor_allocation.tmem_alloc, operands=lambda f, op: f.place(op.dst, op))
defines(
    ops.TmemDealloc,
    tensor_allocation.tmem_dealloc,
    operands=lambda f, op: [_address(f, op.address, op)],
)
defines(
    ops.TmemLoad,
    tensor_access.tmem_load,
    operands=lambda f, op: [f.fragment(op.dst), _address(f, op.src.address, op)],
)
defines(
    ops.TmemStore,
    tensor_access.tmem_store,
    operands=lambda f, op: [_address(f, op.dst.address, op), f.x(op.value)[0]],
)
defines(
    ops.TmemCopy,
    tcgen05.tmem_copy,
    operands=lambda f, op: [_address(f, op.dst.address, op), *f.place(op.src, op)],
)


def _address(f: Function, x: Expr, op: ops.Op) -> str:
    return f.x.scalar(x, "an address in tensor memory", op)


def _scales(f: Function, s: TmemScales, op: ops.Op) -> str:
    """(address, first row) of scale factors."""
    first = f.x.scalar(s.first, "the first row of scale factors", op)
    return f"({_address(f, s.address, op)}, {first})"


@defines(ops.Wgmma, wgmma.wgmma)
def _(f: Function, op: ops.Wgmma) -> None:
    a = [f.fragment(op.a), "None"] if isinstance(op.a, Fragment) else f.place(op.a, op)
    adds = f.x.uniform(op.accumulate, "whether a wgmma accumulates", op)
    f.request(op, wgmma.wgmma, f.fragment(op.acc), *a, *f.place(op.b, op), adds)


@defines(ops.Tcgen05Mma, tcgen05.tcgen05_mma)
def _(f: Function, op: ops.Tcgen05Mma) -> None:
    a = f.place(op.a, op) if isinstance(op.a, Tile) else [_address(f, op.a.address, op), "None"]
    adds = f.x.uniform(op.accumulate, "whether an MMA accumulates", op)
    scales = [_scales(f, s, op) for s in (op.sfa, op.sfb) if s is not None]
    acc = _address(f, op.acc.address, op)
    f.request(op, tcgen05.tcgen05_mma, acc, *a, *f.place(op.b, op), adds, *scales)


@defines(ops.Tcgen05Commit, tcgen05.tcgen05_commit)
def _(f: Function, op: ops.Tcgen05Commit) -> None:
    ctas = "None" if op.mask is None else f.x.scalar(op.mask, "a mask of CTAs", op)
    f.request(op, tcgen05.tcgen05_commit, f.bar(op.bar, op), ctas, *f.remote(op.bar.cta, op))
