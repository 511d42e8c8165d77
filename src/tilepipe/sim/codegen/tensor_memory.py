"""The ops of tensor memory and of the tensor core of Blackwell, as Python source."""

from __future__ import annotations

from tilepipe.errors import SimFault
from tilepipe.ir import ops
from tilepipe.ir.expressions import Expr
from tilepipe.ir.memory import Tmem, TmemScales
from tilepipe.sim.codegen.names import Names
from tilepipe.sim.codegen.operands import Operands

TENSOR = (
    ops.TmemAlloc, ops.TmemDealloc, ops.TmemLoad, ops.TmemStore, ops.TmemCopy, ops.Tcgen05Mma, ops.Tcgen05Commit,
)  # fmt: skip
BY_WARP = (
    ops.TmemAlloc,
    ops.TmemRelinquish,
    ops.TmemDealloc,
    ops.TmemLoad,
    ops.TmemStore,
    ops.TmemWaitLoad,
    ops.TmemWaitStore,
)
PLAIN: dict[type[ops.Op], str] = {
    ops.TmemRelinquish: "tmem_relinquish",
    ops.TmemWaitLoad: "tmem_wait_load",
    ops.TmemWaitStore: "tmem_wait_store",
    ops.Tcgen05FenceBefore: "tcgen05_fence_before",
    ops.Tcgen05FenceAfter: "tcgen05_fence_after",
}


class TensorSource(Operands):
    """The part of a function's source that is about tensor memory."""

    names: Names

    def address(self, x: Expr, op: ops.Op) -> str:
        return self.x.scalar(x, "an address in tensor memory", op)

    def scales(self, s: TmemScales, op: ops.Op) -> str:
        """(address, first row) of scale factors."""
        return f"({self.address(s.address, op)}, {self.x.scalar(s.first, 'the first row of scale factors', op)})"

    def tensor_op(self, op: ops.Op) -> None:
        """The source of an op of `TENSOR`."""
        if not self.module.kernel.cta_group:
            raise SimFault(f"{type(op).__name__} in a kernel whose cta_group is not set", op.loc)
        match op:
            case ops.TmemAlloc(dst=tile):
                self.request(op, "tmem_alloc", *self.place(tile, op))
            case ops.TmemDealloc(address=at):
                self.request(op, "tmem_dealloc", self.address(at, op))
            case ops.TmemLoad(dst=f, src=t):
                self.request(op, "tmem_load", self.names(f, f.name), self.address(t.address, op))
            case ops.TmemStore(dst=t, value=value):
                self.request(op, "tmem_store", self.address(t.address, op), self.x(value)[0])
            case ops.TmemCopy(dst=t, src=tile):
                self.request(op, "tmem_copy", self.address(t.address, op), *self.place(tile, op))
            case ops.Tcgen05Mma(acc=acc, a=a, b=b, accumulate=accumulate, sfa=sfa, sfb=sfb):
                left = (
                    [self.address(a.address, op), "None"]
                    if isinstance(a, Tmem)
                    else self.place(a, op)
                )
                adds = self.x.uniform(accumulate, "whether an MMA accumulates", op)
                scales = [self.scales(s, op) for s in (sfa, sfb) if s is not None]
                self.request(
                    op,
                    "tcgen05_mma",
                    self.address(acc.address, op),
                    *left,
                    *self.place(b, op),
                    adds,
                    *scales,
                )
            case ops.Tcgen05Commit(bar=ref, mask=mask):
                ctas = "None" if mask is None else self.x.scalar(mask, "a mask of CTAs", op)
                self.request(
                    op, "tcgen05_commit", self.bar(ref, op), ctas, *self.remote(ref.cta, op)
                )
