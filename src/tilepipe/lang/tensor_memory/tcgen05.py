"""tcgen05: MMAs into tensor memory, and their commits."""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, expressions as exprs, ops
from tilepipe.ir.hardware import block_scales
from tilepipe.ir.hardware.mma import broken_group_rule, broken_tcgen05_rule
from tilepipe.ir.location import caller
from tilepipe.lang.asynchronous.commits import Mbar, check_mask
from tilepipe.lang.handles.arrivals import count_arrivals
from tilepipe.lang.handles.linear import owner_of
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.tensor_memory.tensors import TmemScales, TmemTensor
from tilepipe.lang.tracing.convergence import require_one_lane
from tilepipe.lang.tracing.tracer import Tracer, require_rule
from tilepipe.lang.values.scalars import require_integer, require_uniform, to_expr


def use_group(tracer: Tracer, cta_group: int) -> None:
    """Sets how many CTAs share an MMA in this kernel (PTX ISA, tcgen05: .cta_group): the same in
    all its instructions.

    Raises:
        TraceError: not 1 or 2, a cluster without pairs, or another number elsewhere in the kernel.
    """
    broken = broken_group_rule(cta_group, tracer.kernel.cluster_size)
    present = tracer.kernel.cta_group
    if broken is None and present not in (0, cta_group):
        broken = (
            f"all tcgen05 instructions of a kernel have one cta_group; this is {cta_group}, others"
            f" have {present}"
        )
    require_rule(broken)
    tracer.kernel.cta_group = cta_group


def require_even_cta(tracer: Tracer, what: str) -> None:
    """Raises TraceError where the odd CTA of a pair would issue what the even one issues for both
    (PTX ISA, tcgen05: .cta_group::2).
    """
    active = tracer.scope.active
    if tracer.kernel.cta_group == 2 and active is not None and active[1::2].any():
        raise TraceError(
            f"{what}: of a pair of CTAs (cta_group 2) the even one issues it for both, but the odd"
            " one executes this too: put it under `with ctx.when(tp.elect_one_cta(ctx)):`",
            caller(),
        )


def mma(
    tracer: Tracer,
    acc: TmemTensor,
    a: object,
    b: object,
    accumulate: object,
    sfa: object = None,
    sfb: object = None,
) -> None:
    """See `Context.mma`."""
    require_one_lane(tracer, "mma into tensor memory")
    require_even_cta(tracer, "mma")
    if not isinstance(a, SmemTile | TmemTensor) or not isinstance(b, SmemTile):
        raise TraceError(
            f"mma into tensor memory: A is a tile or in tensor memory, B a tile; got {a!r} and"
            f" {b!r}",
            caller(),
        )
    if not (sfa is sfb is None or (isinstance(sfa, TmemScales) and isinstance(sfb, TmemScales))):
        raise TraceError(
            "mma: sfa and sfb are both scale factors in tensor memory, from `tmem.scales`; got"
            f" {sfa!r} and {sfb!r}",
            caller(),
        )
    group, left = tracer.kernel.cta_group, a._tmem if isinstance(a, TmemTensor) else a._tile
    if isinstance(sfa, TmemScales) and isinstance(sfb, TmemScales):
        broken = block_scales.broken_scaled_mma_rule(
            acc._tmem, left, b._tile, sfa._scales, sfb._scales, group
        )
    else:
        broken = broken_tcgen05_rule(acc._tmem, left, b._tile, group)
    require_rule(broken, "mma")
    adds = to_expr(tracer, accumulate)
    if adds.dtype is not dtypes.boolean:
        raise TraceError(
            "mma: accumulate is True, False or a traced condition such as `k > 0`, got"
            f" {accumulate!r}; compare it with `!= 0`",
            caller(),
        )
    adds = require_uniform(adds, "mma: accumulate", exprs.Vary.WARP)
    scales = [s for s in (sfa, sfb) if isinstance(s, TmemScales)]
    for x in (acc, a, b, *scales):
        if x._owner is not None:
            x._owner.read_by_mma = True
    source, other, into = (
        a.ir("read by an MMA"),
        b.ir("read by an MMA"),
        acc.ir("written by an MMA"),
    )
    tracer.emit(
        ops.Tcgen05Mma(
            caller(), into, source, other, adds, group, *(s.ir("read by an MMA") for s in scales)
        )
    )


def commit(tracer: Tracer, mbar: Mbar, mask: object) -> None:
    """tcgen05.commit; see `Context.mma_commit`."""
    require_one_lane(tracer, "mma_commit")
    ref = mbar.ref()
    ctas = (
        None
        if mask is None
        else require_uniform(
            require_integer(to_expr(tracer, mask), "a mask of CTAs"), "a mask of CTAs"
        )
    )
    if isinstance(ctas, exprs.Const):
        check_mask(tracer, int(ctas.value))
    if ctas is not None and ref.cta is not None:
        raise TraceError(
            "mma_commit takes a barrier of this CTA with mask=, or one of another CTA without",
            caller(),
        )
    handle = owner_of(tracer, ref.array, ref.index)
    role, active = tracer.role.role, tracer.scope.active
    arrivals = count_arrivals(role, tracer.kernel.cluster_size, active, 1, ref.cta, ctas)
    if handle is None:
        tracer.ledger.loose(ref.array, role, caller(), arrivals)
    else:
        handle.refuse_twice("commits")
        tracer.scope.note_signal(handle, arrivals)
    tracer.emit(ops.Tcgen05Commit(caller(), ref, tracer.kernel.cta_group, ctas))
