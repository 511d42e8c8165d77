"""Ops of the asynchronous units: TMA copies, wgmma, and the barriers they signal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, memory, ops
from tilepipe.ir import expressions as exprs
from tilepipe.ir.location import Loc, caller
from tilepipe.ir.rules import operand_tiles as geometry
from tilepipe.ir.rules.tma import broken_coordinate_rule
from tilepipe.ir.rules.wgmma import broken_mma_rule
from tilepipe.lang.fragments.fragment import Fragment
from tilepipe.lang.handles.arrivals import Arrivals, count_arrivals
from tilepipe.lang.handles.linear import note_signal, owner_of
from tilepipe.lang.memory.shared_tiles import GlobalTensor, SmemTile, SmemTileArray, require_place
from tilepipe.lang.tracing.convergence import require_warpgroup
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import require_integer, require_uniform, to_expr


class Mbar(Protocol):
    """Anything that stands for one mbarrier."""

    def ref(self) -> memory.BarrierRef:
        """The operand."""


def require_one_lane(tracer: Tracer, what: str) -> None:
    """Raises TraceError unless one lane executes the present block: of the role, of each warpgroup,
    or, under per_warp, of each warp.
    """
    scope = tracer.scope
    role = tracer.role.role
    if scope.active is not None:
        per_agent = scope.active.sum(axis=2).max()
        per_cta = scope.active.sum(axis=(1, 2)).max()
        if scope.inside("per_warp") is not None:
            one = per_agent <= 4 and scope.inside("elect") is not None
        else:
            one = per_agent <= 1 if role.is_warpgroup else per_cta <= 1
        if one:
            return
    elif scope.inside("elect") is not None:
        return
    elect = "ctx.elect_one()" if role.warps == 1 else 'ctx.elect_one("role")'
    raise TraceError(
        f"{what} must be executed by one lane, but here every active lane of role '{role.name}'"
        " would. Put it under"
        f" `with {elect}:`"
        + (
            ""
            if role.warps == 1
            else ' (or "warpgroup", with coordinates that depend on ctx.warpgroup_rank)'
        )
        + ".",
        caller(),
    )


def _coords(
    tracer: Tracer, tensor: GlobalTensor, coords: Sequence[object], store: bool
) -> tuple[exprs.Expr, ...]:
    if not isinstance(coords, Sequence) or len(coords) != tensor.rank:
        got = len(coords) if isinstance(coords, Sequence) else repr(coords)
        raise TraceError(
            f"{tensor!r} takes {tensor.rank} coordinates, outermost first, got {got}", caller()
        )
    found = tuple(require_integer(to_expr(tracer, c), "a TMA coordinate") for c in coords)
    # 0 breaks no rule; the simulator looks at the others
    known = [int(x.value) if isinstance(x, exprs.Const) else 0 for x in found]
    broken = broken_coordinate_rule(known, tensor.param.contiguous_axis, tensor.dtype, store=store)
    if broken is not None:
        raise TraceError(f"{tensor!r}: {broken}", caller())
    return found


def _check_box(tensor: GlobalTensor, tile: object, what: str) -> None:
    if tensor.box is None:
        raise TraceError(
            f"{what} needs a tensor map with a box: pass `tp.tensor_map(array, box=...)`, not the bare array",
            caller(),
        )
    if not isinstance(tile, SmemTile):
        one = (
            " Of an array of tiles take one: `tiles[i]`." if isinstance(tile, SmemTileArray) else ""
        )
        raise TraceError(f"{what} moves one tile of shared memory, got {tile!r}.{one}", caller())
    box = (1, *tensor.box)[-2:]
    outer = tensor.box[:-2]
    if box != tile.shape or any(extent != 1 for extent in outer):
        raise TraceError(
            f"the box of '{tensor.param.name}' is {'×'.join(map(str, tensor.box))}, the tile is {tile.shape[0]}×{tile.shape[1]}",
            caller(),
        )
    buffer = tile._tile.buffer
    facts = {
        "dtype": (tensor.dtype, tile.dtype), "order": (tensor.order, tile.order), "swizzle": (tensor.swizzle, buffer.swizzle)
    }  # fmt: skip
    for name, (theirs, ours) in facts.items():
        if theirs != ours:
            raise TraceError(
                f"{what}: the {name} of '{tensor.param.name}' is {theirs}, that of '{buffer.name}' is {ours}; they must agree",
                caller(),
            )
    require_place(what, geometry.broken_tma_rule(tile._tile))


def tma_load(
    tracer: Tracer,
    tensor: GlobalTensor,
    coords: Sequence[object],
    tile: SmemTile,
    mbar: Mbar,
    multicast: object = None,
) -> None:
    """See `Context.tma_load`."""
    require_one_lane(tracer, "tma_load")
    _check_box(tensor, tile, "tma_load")
    if tensor.param.ragged:
        raise TraceError(
            f"tma_load: the map of '{tensor.param.name}' is ragged, which only stores take: load by another map",
            caller(),
        )
    mask = (
        None
        if multicast is None
        else require_uniform(to_expr(tracer, multicast), "a multicast mask")
    )
    if isinstance(mask, exprs.Const):
        check_mask(tracer, int(mask.value))
    dst, ref = tile.ir("loaded into"), mbar.ref()
    tracer.emit(
        ops.TmaLoad(
            caller(), tensor.param, _coords(tracer, tensor, coords, store=False), dst, ref, mask
        )
    )


def check_mask(tracer: Tracer, mask: int) -> None:
    """Raises TraceError when a mask names no CTA, or one outside the cluster."""
    size = tracer.kernel.cluster_size
    if mask < 1:
        raise TraceError(
            f"a mask of CTAs has a bit for each and names at least one, got mask {mask:#b}",
            caller(),
        )
    if mask >> size:
        raise TraceError(
            f"mask {mask:#b} names a CTA outside the cluster of {size} (bits 0..{size - 1})",
            caller(),
        )


def tma_store(
    tracer: Tracer,
    tensor: GlobalTensor,
    coords: Sequence[object],
    tile: SmemTile,
    rows: object = None,
) -> None:
    """See `Context.tma_store`."""
    require_one_lane(tracer, "tma_store")
    _check_box(tensor, tile, "tma_store")
    if rows is not None and not tensor.param.ragged:
        raise TraceError(
            f"tma_store: rows= needs a ragged map of '{tensor.param.name}': `tp.tensor_map(array, box=..., ragged=True)`",
            caller(),
        )
    count = None if rows is None else require_integer(to_expr(tracer, rows), "rows= of tma_store")
    tracer.emit(
        ops.TmaStore(
            caller(),
            tensor.param,
            _coords(tracer, tensor, coords, store=True),
            tile.ir("stored"),
            count,
        )
    )


# -- wgmma -----------------------------------------------------------------------------


def mma(tracer: Tracer, acc: object, a: object, b: object, accumulate: object = True) -> None:
    """See `Context.mma`."""
    require_warpgroup(tracer, "mma")
    acc, a, b = _checked_mma(acc, a, b)
    adds = to_expr(tracer, accumulate)
    if adds.dtype is not dtypes.boolean:
        raise TraceError(
            f"mma: accumulate is True, False or a traced condition such as `k > 0`, got {accumulate!r}; compare it with `!= 0`",
            caller(),
        )
    require_uniform(adds, "mma: accumulate")
    operand = a.operand() if isinstance(a, Fragment) else a.ir("read by an MMA")
    tile_b = b.ir("read by an MMA")
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
    broken = broken_mma_rule(acc._ir, a._ir if isinstance(a, Fragment) else a._tile, b._tile)
    if broken is not None:
        raise TraceError(f"mma: {broken}", caller())
    return acc, a, b


@dataclass(frozen=True, eq=False)
class Commit:
    """An arrival bound to a wgmma group: made on `ref`'s barrier in every CTA of `mask` (None: this
    CTA's) once the group retires.
    """

    ref: memory.BarrierRef
    mask: int | None
    loc: Loc

    def describe(self) -> str:
        """The barrier, as in messages."""
        from tilepipe.ir.printer import barrier

        return barrier(self.ref)


def mma_commit(tracer: Tracer, mbar: Mbar, mask: object) -> None:
    """See `Context.mma_commit`."""
    if mask is not None:
        if not isinstance(mask, int):
            raise TraceError(f"the mask of mma_commit must be a static int, got {mask!r}", caller())
        check_mask(tracer, mask)
    ref = mbar.ref()
    group = close_group(tracer)
    commit = Commit(ref, mask, caller())
    handle = owner_of(tracer, ref.array, ref.index)
    bind = getattr(handle, "bind_commit", None)
    arrivals = commit_arrivals(tracer, commit)
    if handle is not None:
        note_signal(tracer, handle, arrivals)
    else:
        tracer.ledger.loose(ref.array, tracer.role.role, commit.loc, arrivals)
    if bind is not None:
        bind(commit)
    else:
        group.append(commit)


def close_group(tracer: Tracer) -> list[Commit]:
    """Emits wgmma.commit_group; returns the list of what is bound to the group."""
    require_warpgroup(tracer, "wgmma_commit")
    tracer.emit(ops.WgmmaCommit(caller()))
    tracer.scope.group_open = False
    group: list[Commit] = []
    tracer.scope.groups.append(group)
    return group


def commit_arrivals(tracer: Tracer, commit: Commit) -> Arrivals:
    """What one commit by every warpgroup of the role causes."""
    role = tracer.role.role
    leaders = tracer.all_active(role)
    leaders &= (np.arange(role.agent_threads) == 0)[None, None, :]
    size = tracer.kernel.cluster_size
    if commit.mask is None:
        return count_arrivals(role, size, leaders, 1, commit.ref.cta)
    targets = [t for t in range(size) if commit.mask >> t & 1]
    total = count_arrivals(role, size, leaders, 1, exprs.const(targets[0]))
    for target in targets[1:]:
        total = total + count_arrivals(role, size, leaders, 1, exprs.const(target))
    return total


def fire(commit: Commit, index: exprs.Expr | None = None, published: bool = True) -> ops.Elect:
    """The arrival of a retired commit, by one lane of the warpgroup; `index` replaces the barrier's
    index.

    A remote arrive after nothing but wgmma reads is "relaxed": it has nothing of its own to
    publish, and a release at cluster scope costs a quarter of a GEMM's speed. `published`: the body
    also touched the slot with ordinary accesses, so it must release.
    """
    body = ops.Block()
    at = commit.ref.index if index is None else index
    ctas = (
        [commit.ref.cta]
        if commit.mask is None
        else [exprs.const(t) for t in range(commit.mask.bit_length()) if commit.mask >> t & 1]
    )
    for cta in ctas:
        sem = "relaxed" if cta is not None and not published else "release"
        body.ops.append(
            ops.MbarArrive(
                commit.loc, memory.BarrierRef(commit.ref.array, at, cta), exprs.const(1), sem
            )
        )
    return ops.Elect(commit.loc, "warpgroup", body)


def wgmma_wait(tracer: Tracer, pending: int) -> None:
    """See `Context.wgmma_wait`."""
    if not isinstance(pending, int) or not 0 <= pending <= 7:
        raise TraceError(
            f"wgmma_wait takes the number of groups that may still be running, 0..7, got {pending!r}",
            caller(),
        )
    require_warpgroup(tracer, "wgmma_wait")
    tracer.emit(ops.WgmmaWait(caller(), pending))
    groups = tracer.scope.groups
    while len(groups) > pending:
        for commit in groups.pop(0):
            tracer.emit(fire(commit))
