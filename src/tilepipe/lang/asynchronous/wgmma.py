"""wgmma: MMAs of a warpgroup, their groups and the commits bound to them."""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, expressions as exprs, memory, ops
from tilepipe.ir.hardware.mma import broken_wgmma_rule
from tilepipe.ir.location import Loc, caller
from tilepipe.lang.asynchronous.commits import Commit, Mbar, arrival_op, check_mask, commit_arrivals
from tilepipe.lang.fragments.fragment import Fragment
from tilepipe.lang.handles.linear import owner_of
from tilepipe.lang.memory.shared_tiles import BY_WGMMA, SmemTile
from tilepipe.lang.tracing.convergence import require_warpgroup
from tilepipe.lang.tracing.tracer import Tracer, require_rule
from tilepipe.lang.values.scalars import binary, require_integer, require_uniform, to_expr


def mma(tracer: Tracer, acc: object, a: object, b: object, accumulate: object = True) -> None:
    """See `Context.mma`."""
    require_warpgroup(tracer, "mma")
    acc, a, b = _checked_mma(acc, a, b)
    adds = to_expr(tracer, accumulate)
    if adds.dtype is not dtypes.boolean:
        raise TraceError(
            "mma: accumulate is True, False or a traced condition such as `k > 0`, got"
            f" {accumulate!r}; compare it with `!= 0`",
            caller(),
        )
    require_uniform(adds, "mma: accumulate")
    operand = a.operand() if isinstance(a, Fragment) else a.ir(BY_WGMMA)
    tile_b = b.ir(BY_WGMMA)
    if not tracer.scope.group_open:
        tracer.emit(ops.WgmmaFence(caller()))
        tracer.scope.group_open = True
    for tile in (a, b):
        if isinstance(tile, SmemTile) and tile._owner is not None:
            tile._owner.read_by_mma = True
    tracer.emit(ops.Wgmma(caller(), acc.operand(), operand, tile_b, adds))
    acc.version += 1


def _checked_mma(
    acc: object, a: object, b: object
) -> tuple[Fragment, SmemTile | Fragment, SmemTile]:
    if not isinstance(acc, Fragment):
        raise TraceError(f"mma: acc must be a fragment, or in tensor memory, got {acc!r}", caller())
    if not isinstance(a, SmemTile | Fragment):
        raise TraceError(f"mma: A must be a tile or a fragment, got {a!r}", caller())
    if not isinstance(b, SmemTile):
        raise TraceError(f"mma: B must be a tile, got {b!r}", caller())
    require_rule(
        broken_wgmma_rule(acc._ir, a._ir if isinstance(a, Fragment) else a._tile, b._tile), "mma"
    )
    return acc, a, b


def mma_commit(tracer: Tracer, mbar: Mbar, mask: object) -> None:
    """See `Context.mma_commit`."""
    ref, loc = mbar.ref(), caller()
    commit = Commit(ref, None, loc) if mask is None else _commit_to(tracer, ref, mask, loc)
    group = close_group(tracer)
    handle = owner_of(tracer, ref.array, ref.index)
    bind = getattr(handle, "bind_commit", None)
    arrivals = commit_arrivals(tracer, commit)
    if handle is not None:
        tracer.scope.note_signal(handle, arrivals)
    else:
        tracer.ledger.loose(ref.array, tracer.role.role, commit.loc, arrivals)
    if bind is not None:
        bind(commit)
    else:
        group.append(commit)


def _commit_to(tracer: Tracer, ref: memory.BarrierRef, mask: object, loc: Loc) -> Commit:
    what = "a mask of CTAs"
    ctas = require_uniform(require_integer(to_expr(tracer, mask), what), what)
    if isinstance(ctas, exprs.Const):
        check_mask(tracer, int(ctas.value))
        return Commit(ref, int(ctas.value), loc)
    members = []
    for cta in range(tracer.kernel.cluster_size):
        bit = binary(tracer, "and", binary(tracer, "shr", mask, cta), 1)
        members.append(to_expr(tracer, binary(tracer, "ne", bit, 0)))
    commit = Commit(ref, ctas, loc, tuple(members))
    if not commit_arrivals(tracer, commit).known:
        raise TraceError(
            "a traced mask of mma_commit must be made of ctx.cta_rank and constants alone: the"
            f" arrivals come later, in other loops; got {mask!r}",
            loc,
        )
    return commit


def close_group(tracer: Tracer) -> list[Commit]:
    """Emits wgmma.commit_group; returns the list of the commits bound to the group, empty so
    far.
    """
    require_warpgroup(tracer, "wgmma_commit")
    tracer.emit(ops.WgmmaCommit(caller()))
    tracer.scope.group_open = False
    group: list[Commit] = []
    tracer.scope.groups.append(group)
    return group


def wgmma_wait(tracer: Tracer, pending: int) -> None:
    """See `Context.wgmma_wait`."""
    if not isinstance(pending, int) or not 0 <= pending <= 7:
        raise TraceError(
            "wgmma_wait takes the number of groups that may still be running, 0..7, got"
            f" {pending!r}",
            caller(),
        )
    require_warpgroup(tracer, "wgmma_wait")
    tracer.emit(ops.WgmmaWait(caller(), pending))
    groups = tracer.scope.groups
    while len(groups) > pending:
        for commit in groups.pop(0):
            tracer.emit(arrival_op(commit))
