"""Ops on mbarriers, named barriers and cluster barriers, and fences."""

from __future__ import annotations

from tilepipe.cuda.codegen.addresses import barrier, counter
from tilepipe.cuda.codegen.arithmetic import add, value
from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import operand, parity, text
from tilepipe.cuda.codegen.instrument import withheld
from tilepipe.cuda.debug.wait_sites import cluster_warps
from tilepipe.errors import CompileError
from tilepipe.ir import ops
from tilepipe.ir.memory import BarrierRef, NamedBarrier, Tile
from tilepipe.ir.program import walk


@emit.register
def _(op: ops.MbarInit, ctx: Context) -> None:
    if op.count is None and op.bar.array.count is None:
        raise CompileError(f"no arrival count is known for barrier '{op.bar.array.name}'", op.loc)
    count = str(op.bar.array.count) if op.count is None else text(ctx, op.count)
    i, ref = counter(ctx, "i"), op.bar
    if op.n > 1:
        ref = BarrierRef(ref.array, add(ref.index, i) if value(ref.index) != 0 else i, ref.cta)
    with ctx.out.loop(i.name, op.n):
        ctx.out(f"{ctx.use('mbarrier_init')}({barrier(ctx, ref)}, {count});")


@emit.register
@withheld(ops.MbarInval)
def _(op: ops.MbarInval, ctx: Context) -> None:
    ctx.out(f"{ctx.use('mbarrier_inval')}({barrier(ctx, op.bar)});")


@emit.register
@withheld(ops.MbarArrive)
def _(op: ops.MbarArrive, ctx: Context) -> None:
    function = "arrive"
    if op.bar.cta is not None:
        function += "_remote_relaxed" if op.sem == "relaxed" else "_remote"
    once = value(op.count) == 1
    count = "" if once else f", {text(ctx, op.count)}"
    ctx.out(f"{ctx.use(function if once else f'{function}_n')}({barrier(ctx, op.bar)}{count});")


@emit.register
@withheld(ops.MbarExpect, ops.MbarCompleteTx)
def _(op: ops.MbarExpect | ops.MbarCompleteTx, ctx: Context) -> None:
    arrives = isinstance(op, ops.MbarExpect) and op.arrive
    counts = "complete_tx" if isinstance(op, ops.MbarCompleteTx) else "expect_tx"
    function = f"{'arrive_' if arrives else ''}{counts}{'' if op.bar.cta is None else '_remote'}"
    if isinstance(op, ops.MbarExpect) and arrives and op.bar.cta is not None:
        function += "_relaxed" if op.sem == "relaxed" else ""
    ctx.out(f"{ctx.use(function)}({barrier(ctx, op.bar)}, {text(ctx, op.nbytes)});")


def _check_own(op: ops.MbarWait | ops.MbarTryWait) -> None:
    if op.bar.cta is not None:
        raise CompileError(
            f"the wait for '{op.bar.array.name}' is for a barrier of another CTA; a CTA can wait"
            " only for its own barriers",
            op.loc,
        )


def acquiring(ctx: Context, function: str, bar: BarrierRef) -> str:
    """The name of the device function of a wait. It acquires at cluster scope where another CTA
    releases ordinary accesses through the barrier; where its copies, or the response to its cluster
    launch control request, signal the barrier and ordinary loads read their data; or where its
    commit says that such copies have landed.
    """
    module = ctx.module
    at_cluster_scope = (
        bar.array in module.released_remotely
        or bar.array in module.credited_remotely
        or _reads_after_commit(ctx, bar)
    )
    return f"{function}_cluster" if at_cluster_scope else function


def _reads_after_commit(ctx: Context, bar: BarrierRef) -> bool:
    """True if a commit by another CTA signals the barrier, and this role reads shared memory."""
    if ctx.role is None or bar.array not in ctx.module.committed_remotely:
        return False
    loads = (op for op in walk(ctx.role.body) if isinstance(op, ops.FragmentLoad | ops.Load))
    return any(isinstance(op, ops.FragmentLoad) or isinstance(op.src.base, Tile) for op in loads)


@emit.register
def _(op: ops.MbarWait, ctx: Context) -> None:
    _check_own(op)
    bounded = ctx.module.debug
    function = ctx.use(acquiring(ctx, "debug_wait" if bounded else "wait", op.bar))
    where = f", {ctx.module.sites[op]}, {text(ctx, op.bar.index)}" if bounded else ""
    ctx.out(f"{function}({barrier(ctx, op.bar)}, {parity(ctx, op.phase)}{where});")


@emit.register
def _(op: ops.MbarTryWait, ctx: Context) -> None:
    _check_own(op)
    function = ctx.use(acquiring(ctx, "try_wait", op.bar))
    test = f"{function}({barrier(ctx, op.bar)}, {parity(ctx, op.phase)})"
    if not ctx.diverged:
        # A lane acquires only by its own try_wait, so the test holds only where all succeed.
        test = f"__all_sync(0xffffffff, {test})"
    ctx.out(f"const bool {ctx.bind(op.result)} = {test};")


def barrier_name(ctx: Context, bar: NamedBarrier) -> str:
    """The constant that holds the number of a named barrier."""
    name = ctx.module.names.of(bar, f"{bar.name}_barrier")
    ids = f" to {bar.id + bar.per_warpgroup - 1}, one a warpgroup" if bar.per_warpgroup > 1 else ""
    ctx.module.memory.setdefault(
        bar, [f"constexpr u32 {name} = {bar.id};  // named barrier {bar.id}{ids}"]
    )
    return name


def _named(ctx: Context, function: str, op: ops.NamedSync | ops.NamedArrive) -> None:
    bar, name = op.bar, barrier_name(ctx, op.bar)
    which = (
        name if op.group is None or value(op.group) == 0 else f"{name} + {operand(ctx, op.group)}"
    )
    if not ctx.module.debug:
        ctx.out(f"{ctx.use(function)}({which}, {bar.threads});")
        return
    where = (
        f", {ctx.module.sites[op]}, {'0' if op.group is None else text(ctx, op.group)}"
        if isinstance(op, ops.NamedSync)
        else ""
    )
    ctx.out(f"{ctx.use(f'debug_{function}')}({which}, {bar.threads}{where});")


@emit.register
def _(op: ops.NamedSync, ctx: Context) -> None:
    _named(ctx, "named_sync", op)


@emit.register
@withheld(ops.NamedArrive)
def _(op: ops.NamedArrive, ctx: Context) -> None:
    _named(ctx, "named_arrive", op)


@emit.register
def _(op: ops.SyncWarp, ctx: Context) -> None:
    ctx.out(f"__syncwarp({ctx.mask or ''});")


@emit.register
def _(op: ops.SetupBarrier, ctx: Context) -> None:
    ctx.out(f"{ctx.use('fence_mbarrier_init')}();")
    if ctx.kernel.cluster_size > 1:
        ctx.out(f"{ctx.use('cluster_arrive')}();")
        ctx.out(f"{ctx.use('cluster_wait')}();")
    else:
        ctx.out("__syncthreads();")


@emit.register
@withheld(ops.ClusterArrive)
def _(op: ops.ClusterArrive, ctx: Context) -> None:
    ctx.out(
        f"{ctx.use('debug_cluster_arrive')}({cluster_warps(ctx.kernel)});"
        if ctx.module.debug
        else f"{ctx.use('cluster_arrive')}();"
    )


@emit.register
def _(op: ops.ClusterWait, ctx: Context) -> None:
    ctx.out(
        f"{ctx.use('debug_cluster_wait')}({ctx.module.sites[op]});"
        if ctx.module.debug
        else f"{ctx.use('cluster_wait')}();"
    )


_SPACE_NAMES = {".shared::cluster": "cluster", ".global": "global", "": "all"}


@emit.register
def _(op: ops.FenceProxyAsync, ctx: Context) -> None:
    for space in ops.PROXY_SPACES[op.space]:
        name = (
            f"fence_proxy_async_{_SPACE_NAMES[space]}"
            if space != ".shared::cta"
            else "fence_proxy_async"
        )
        ctx.out(f"{ctx.use(name)}();")


# The ops without operands that are one call: fences, commits, and the ends of grids
_CALLS: dict[type[ops.Op], str] = {
    ops.FenceBarrierInit: "fence_mbarrier_init",
    ops.GridDependencyWait: "grid_dependency_wait",
    ops.LaunchDependents: "grid_launch_dependents",
    ops.Tcgen05FenceAfter: "tcgen05_fence_after",
    ops.Tcgen05FenceBefore: "tcgen05_fence_before",
    ops.TmaStoreCommit: "bulk_commit",
    ops.WgmmaCommit: "wgmma_commit",
}


def _call(op: ops.Op, ctx: Context) -> None:
    ctx.out(f"{ctx.use(_CALLS[type(op)])}();")


for _kind in _CALLS:
    emit.register(_kind, _call)
