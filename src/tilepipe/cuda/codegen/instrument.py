"""What debug and perturbed builds print round the ops of a kernel; `debug.cuh` has the functions.

Debug: waits are bounded, and what the world would see of a launch that has been given up is not
done: arrivals, copies, stores, accesses to tensor memory. Loads from shared memory then give 0, as
do those from global memory at a place that was itself loaded, so that neither an address nor a trip
count is made of garbage; but the address that tcgen05.alloc has written is given back as it is.
Everything else runs on as printed, so the warps of a warpgroup stay together.

Perturbed: a random delay stands before each synchronisation op.
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
from tilepipe.ir.memory import Element, Tile
from tilepipe.ir.ops.facts import BRINGS, SHARED_BY_CLUSTERS, Order, Scope, Sync, Unit
from tilepipe.ir.program import Kernel, all_ops

STATE_BYTES = 352  # DebugState of debug.cuh, behind the kernel's own shared memory
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
_MEETS = BRINGS | Sync.WAIT | Sync.TEST
_WITHHELD: dict[type[ops.Op], bool] = {}  # op -> whether all lanes of a warp do it, or none
AnEmit = TypeVar("AnEmit", bound=Callable[..., None])


def withheld(op: type[ops.Op], by_warp: bool = False) -> Callable[[AnEmit], AnEmit]:
    """Marks the function that prints an op: in a debug build the op is not done once the launch has
    been given up. `by_warp`: by all lanes of a warp or none.
    """

    def mark(emit: AnEmit) -> AnEmit:
        _WITHHELD[op] = by_warp
        return emit

    return mark


def _synchronises(op: type[ops.Op]) -> bool:
    """Whether a delay before an op changes who comes first: it meets others at a barrier, draws on
    what others draw on, closes or awaits a group, or is a copy by TMA.
    """
    facts = op.facts
    if op.sync & _MEETS and (op.given or facts.scope is Scope.CLUSTER):
        return True
    turn = facts.takes in SHARED_BY_CLUSTERS or facts.unit is Unit.TMA
    tensor_fence = facts.orders is Order.TENSOR_MEMORY
    return bool(turn or facts.commits or facts.awaits or tensor_fence)


_SYNCHRONISES = {op for op in ops.EVERY if _synchronises(op)}


def prepare(module: Module) -> None:
    """Fills in what the printing of a debug or perturbed build needs.

    Raises:
        LimitError: shared memory has no room for the build's own state.
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
    """Dynamic shared memory of a build, bytes.

    Raises:
        LimitError: more than a CTA has.
    """
    total = _offset(kernel) + STATE_BYTES if instrumented else kernel.smem_bytes
    if instrumented and total > H200.smem_per_cta:
        raise LimitError(
            f"a debug or perturbed build of '{kernel.name}' needs {_offset(kernel):,} +"
            f" {STATE_BYTES} = {total:,} bytes of shared memory;"
            f" a CTA has at most {H200.smem_per_cta:,}. Take a stage, or {total - H200.smem_per_cta} bytes, away while debugging.",
            kernel.loc,
        )
    return total


def _offset(kernel: Kernel) -> int:
    return -(-kernel.smem_bytes // 16) * 16


def preamble(module: Module) -> Iterator[str]:
    """Lines before the PTX wrappers."""
    if module.instrumented:
        yield "// ---- debugging: see debug.cuh of tilepipe.cuda"
        yield SHARED
        cluster = f", debug_cluster = {module.kernel.cluster_size}" if module.debug else ""
        yield f"constexpr u32 debug_offset = {_offset(module.kernel)}, debug_bytes = {STATE_BYTES}{cluster};"
        yield ""


def parameters(module: Module) -> list[str]:
    """Declarations of the arguments that follow the program's: the record, then the seed."""
    result = [f"DebugRecord* {_record(module)}"] if module.debug else []
    return [*result, f"u32 {_seed(module)}"] if module.perturbed else result


def _record(module: Module) -> str:
    return module.names.of("debug record", "debug")


def _seed(module: Module) -> str:
    return module.names.of("perturb seed", "perturb_seed")


def begin(ctx: Context) -> None:
    """Prints what comes before set-up."""
    m = ctx.module
    if m.instrumented:
        ctx.out(
            f"{m.use('debug_begin')}({_record(m) if m.debug else 'nullptr'},"
            f" {_seed(m) if m.perturbed else '0'});"
        )


def end(ctx: Context) -> None:
    """Prints what comes at the end of a role."""
    if not ctx.module.debug:
        return
    if ctx.kernel.cluster_size > 1:
        ctx.out(f"{ctx.use('debug_leave_cluster')}({cluster_warps(ctx.kernel)});")
    else:
        ctx.out(f"{ctx.use('debug_leave')}();")


@contextmanager
def instrumented(op: ops.Op, ctx: Context) -> Iterator[None]:
    """Prints the delay before an op, and the test round it that keeps it from being done once the
    launch is given up.
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
    """Locals and variables whose value comes from memory, by way of others included."""
    every = list(all_ops(kernel))
    found: set[object] = set()
    while True:
        before = len(found)
        for op in every:
            comes = isinstance(op, ops.Load | ops.AtomicAdd | ops.ClcQuery) or any(
                leaf in found for leaf in leaves(op)
            )
            if comes or (isinstance(op, ops.Read) and op.var in found):
                found.update(bound(op))
            if comes and isinstance(op, ops.Define | ops.Assign):
                found.add(op.var)
        if len(found) == before:
            return found
