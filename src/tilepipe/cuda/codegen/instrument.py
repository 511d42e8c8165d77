"""The code that debug and perturbed builds add around the ops of a kernel. `debug.cuh` has the
functions that it calls.

A debug build bounds its waits. When a wait expires, the launch is given up: every effect that is
visible outside the warp is then left out, which are arrivals, copies, stores and accesses to tensor
memory. Loads from shared memory give 0, and so do loads from global memory at an index that was
itself loaded, so that neither an address nor a trip count is computed from undefined data. The
address that tcgen05.alloc wrote is still loaded, because the columns have to be freed. All other
code runs as printed, so that the warps of a warpgroup stay together.

A perturbed build puts a random delay before each synchronisation op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tilepipe.cuda.codegen.context import Context, Module
from tilepipe.cuda.debug.wait_sites import cluster_warps, every_op, sites
from tilepipe.errors import LimitError
from tilepipe.ir import ops
from tilepipe.ir.chip import H200
from tilepipe.ir.def_use import bound, leaves, nodes
from tilepipe.ir.facts import BRINGS, SHARED_BY_CLUSTERS, Order, Scope, Sync, Unit
from tilepipe.ir.memory import Element, Tile
from tilepipe.ir.program import Kernel, all_ops

STATE_BYTES = 352  # size of DebugState in debug.cuh, after the kernel's own shared memory
SHARED = "extern __shared__ __align__(1024) unsigned char smem[];"
_TYPES = (
    "DebugWait",
    "DebugRecord",
    "DebugState",
    "DebugWatch",
    "debug_offset",
    "debug_bytes",
    "debug_cluster",
)
_SIGNALS_OR_WAITS = BRINGS | Sync.WAIT | Sync.TEST
_WITHHELD: dict[type[ops.Op], bool] = {}  # op -> whether all lanes of a warp execute it, or none
AnEmit = TypeVar("AnEmit", bound=Callable[..., None])


def withheld(*every: type[ops.Op], by_warp: bool = False) -> Callable[[AnEmit], AnEmit]:
    """Marks the function that prints ops: a debug build does not execute them once the launch has
    been given up. `by_warp`: all lanes of a warp have to execute the op, or none.
    """

    def mark(emit: AnEmit) -> AnEmit:
        _WITHHELD.update(dict.fromkeys(every, by_warp))
        return emit

    return mark


def _synchronises(op: type[ops.Op]) -> bool:
    """True if a delay before an op can change the order of agents: the op signals or awaits a
    barrier, draws on something that CTAs contend for, commits or awaits a group, or is a TMA copy.
    """
    facts = op.facts
    if op.sync & _SIGNALS_OR_WAITS and (op.given or facts.scope is Scope.CLUSTER):
        return True
    contends = facts.takes in SHARED_BY_CLUSTERS or facts.unit is Unit.TMA
    tensor_fence = facts.orders is Order.TENSOR_MEMORY
    return bool(contends or facts.commits or facts.awaits or tensor_fence)


_SYNCHRONISES = {op for op in ops.EVERY if _synchronises(op)}


def prepare(module: Module) -> None:
    """Collects the facts that printing a debug or perturbed build needs.

    Raises:
        LimitError: shared memory has no room for the state of the build.
    """
    if not module.instrumented:
        return
    for name in _TYPES:
        module.names.put(name, module.names.fresh(name))
    smem_bytes(module.kernel, True)
    if module.debug:
        module.sites = {site.op: n for n, site in enumerate(sites(module.kernel))}
        module.loaded = _loaded(module.kernel)
        module.allocated = {
            op.dst.buffer for _, op in every_op(module.kernel) if isinstance(op, ops.TmemAlloc)
        }


def smem_bytes(kernel: Kernel, instrumented: bool) -> int:
    """The bytes of dynamic shared memory of a build.

    Raises:
        LimitError: an instrumented build needs more than a CTA has.
    """
    total = _offset(kernel) + STATE_BYTES if instrumented else kernel.smem_bytes
    excess = total - H200.smem_per_cta
    if instrumented and excess > 0:
        raise LimitError(
            f"a debug or perturbed build of '{kernel.name}' needs {_offset(kernel):,} +"
            f" {STATE_BYTES} = {total:,} bytes of shared memory; a CTA has at most"
            f" {H200.smem_per_cta:,}. Take a stage, or {excess} bytes, away while debugging.",
            kernel.loc,
        )
    return total


def _offset(kernel: Kernel) -> int:
    return -(-kernel.smem_bytes // 16) * 16


def preamble(module: Module) -> Iterator[str]:
    """The lines before the PTX wrappers."""
    if module.instrumented:
        yield "// ---- debugging: see debug.cuh of tilepipe.cuda"
        yield SHARED
        cluster = f", debug_cluster = {module.kernel.cluster_size}" if module.debug else ""
        yield (
            f"constexpr u32 debug_offset = {_offset(module.kernel)}, debug_bytes ="
            f" {STATE_BYTES}{cluster};"
        )
        yield ""


def parameters(module: Module) -> list[str]:
    """The declarations of the arguments after the program's: the record, then the seed."""
    result = [f"DebugRecord* {_record(module)}"] if module.debug else []
    return [*result, f"u32 {_seed(module)}"] if module.perturbed else result


def _record(module: Module) -> str:
    return module.names.of("debug record", "debug")


def _seed(module: Module) -> str:
    return module.names.of("perturb seed", "perturb_seed")


def begin(ctx: Context) -> None:
    """Prints the code before set-up."""
    m = ctx.module
    if m.instrumented:
        ctx.out(
            f"{m.use('debug_begin')}({_record(m) if m.debug else 'nullptr'},"
            f" {_seed(m) if m.perturbed else '0'});"
        )


def end(ctx: Context) -> None:
    """Prints the code at the end of a role."""
    if not ctx.module.debug:
        return
    if ctx.kernel.cluster_size > 1:
        ctx.out(f"{ctx.use('debug_leave_cluster')}({cluster_warps(ctx.kernel)});")
    else:
        ctx.out(f"{ctx.use('debug_leave')}();")


@contextmanager
def instrumented(op: ops.Op, ctx: Context) -> Iterator[None]:
    """Prints a delay before an op, and a test around it that skips it once the launch has been
    given up.
    """
    if ctx.module.perturbed and type(op) in _SYNCHRONISES:
        ctx.out(f"{ctx.use('debug_delay')}();")
    by_warp = _WITHHELD.get(type(op))
    if ctx.module.debug and by_warp is not None:
        aborted = f"{ctx.use('debug_aborted')}()"
        if by_warp:
            aborted = f"__any_sync(0xffffffff, {aborted})"
        with ctx.out.block(f"if (!{aborted})"):
            yield
    else:
        yield


def load(ctx: Context, code: str, source: Element) -> str:
    """The code of an ordinary load, made safe for a launch that has been given up."""
    if not ctx.module.debug:
        return code
    if isinstance(source.base, Tile) and source.base.buffer in ctx.module.allocated:
        return code
    loaded = any(node in ctx.module.loaded for i in source.index for node in nodes(i))
    if not loaded and not isinstance(source.base, Tile):
        return code
    return f"({ctx.use('debug_aborted')}() ? 0 : {code})"


def _loaded(kernel: Kernel) -> set[object]:
    """The locals and variables whose value comes from memory, directly or through others."""
    every = list(all_ops(kernel))
    found: set[object] = set()
    while True:
        before = len(found)
        for op in every:
            comes = isinstance(op, ops.Load | ops.StrongLoad | ops.Atomic | ops.ClcQuery) or any(
                leaf in found for leaf in leaves(op)
            )
            if comes or (isinstance(op, ops.Read) and op.var in found):
                found.update(bound(op))
            if comes and isinstance(op, ops.Define | ops.Assign):
                found.add(op.var)
        if len(found) == before:
            return found
