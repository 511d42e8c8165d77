"""A kernel as one CUDA C++ file: types, the PTX wrappers that it uses, shared memory by name, a
function for each role, and the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilepipe.cuda.codegen import (
    column_reductions,
    control,
    election,
    fragment_global,
    fragment_shared,
    fragments,
    instrument,
    lanes,
    row_finds,
    row_reductions,
    row_scans,
    stamps,
    strong_accesses,
    synchronisation,
    tcgen05,
    tensor_memory,
    transfers,
    wgmma,
    whole_reductions,
)
from tilepipe.cuda.codegen.context import Context, Lines, Module, smem_things
from tilepipe.cuda.codegen.control import block
from tilepipe.cuda.codegen.inlining import inlinable
from tilepipe.cuda.codegen.instrument import SHARED
from tilepipe.cuda.codegen.names import Names
from tilepipe.cuda.codegen.parameters import arguments
from tilepipe.cuda.debug.wait_sites import every_op, role_name
from tilepipe.cuda.ptx.wrappers import FUNCTION, SNIPPETS
from tilepipe.errors import CompileError
from tilepipe.ir import ops
from tilepipe.ir.chip import generation
from tilepipe.ir.def_use import elements, needed, reductions
from tilepipe.ir.expressions import SPECIALS
from tilepipe.ir.memory import BarrierArray, BarrierRef, Element, SmemBuffer, TensorParam, Tile
from tilepipe.ir.placement import group_registers, launch_registers
from tilepipe.ir.program import WARP, Kernel, Role, all_ops, architecture, only_on, walk

# These modules register the functions that print their ops.
assert all(
    (
        column_reductions,
        control,
        fragment_global,
        fragment_shared,
        fragments,
        lanes,
        row_finds,
        row_reductions,
        row_scans,
        strong_accesses,
        synchronisation,
        tcgen05,
        tensor_memory,
        transfers,
        wgmma,
        whole_reductions,
    )
)
_RESERVED = frozenset((*SPECIALS, *election.NAMES.values()))
_TYPES = """using i8 = signed char;
using u8 = unsigned char;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;"""
_TENSOR_MAP = (
    "struct alignas(128) TensorMap { u64 opaque[16]; };  // CUtensorMap, as CUDA 13 aligns it"
)
_PRINTF = """#ifndef __CUDACC_RTC__
#include <cstdio>
#endif"""


def source(
    kernel: Kernel,
    arch: str | None = None,
    *,
    lineinfo: bool = False,
    debug: bool = False,
    perturb: int | None = None,
    timed: bool = False,
) -> str:
    """The kernel as CUDA C++; it includes nothing and compiles alone, with NVRTC or nvcc.

    `arch`: the kernel's `architecture` unless given. `lineinfo`: `#line` directives instead of
    comments, so that profilers show the lines of the Python kernel. `debug`, `perturb`, `timed`:
    see `compile`.

    Raises:
        BindError: unknown architecture.
        CompileError: an op has no form on this GPU, or not with its operands.
        LimitError: a debug or perturbed build finds no room in shared memory, or there is too much
            for a timed build to note.
    """
    arch = architecture(kernel) if arch is None else arch
    _check_arch(kernel, arch)
    module = Module(kernel, arch, lineinfo, debug=debug, perturbed=perturb is not None)
    module.timed = timed
    module.arguments = arguments(kernel)
    instrument.prepare(module)
    stamps.prepare(module)
    every = list(all_ops(kernel))
    module.needed = needed(every)
    module.reductions = reductions(kernel)
    module.released_remotely = {bar.array for op in every if (bar := _remote_release(op))}
    commits = (op for op in every if isinstance(op, ops.Tcgen05Commit) and op.mask is not None)
    module.committed_remotely = {op.bar.array for op in commits}
    module.credited_remotely = _credited_remotely(every)
    for a in module.arguments:
        module.names.of(a, a.name)
    for thing in smem_things(kernel):
        module.names.of(thing, thing.name)
    entry = module.names.of(kernel, kernel.name)
    functions = {
        role: module.names.of(role, role.name)
        for role in sorted(kernel.roles, key=lambda r: r.first_warp)
    }

    setup = Context(module, Lines(1, lineinfo), Names(module.names, _RESERVED))
    instrument.begin(setup)
    _head(setup)
    itself = any(isinstance(op, ops.GridDependencyWait) for op in every)
    early = any(isinstance(x.base, TensorParam) for op in walk(kernel.setup) for x in elements(op))
    if early and not itself:
        _wait_for_grid(setup)
    block(setup, kernel.setup)
    if not early and not itself:
        _wait_for_grid(setup)
    if itself and timed:  # a role may store stamps before a wait of its own, or without one
        setup.out.aside(f"{setup.use('grid_dependency_wait')}();  // before stamps are stored")
    roles = [_role(module, role, setup, name) for role, name in functions.items()]
    launch = _dispatch(
        setup,
        {
            r: f"{name}({call})"
            for (r, name), (_, call) in zip(functions.items(), roles, strict=True)
        },
    )
    body = [*_kernel(setup, entry, launch)]
    return (
        "\n".join(
            [*_preamble(module, arch), *(line for code, _ in roles for line in [*code, ""]), *body]
        )
        + "\n"
    )


def _remote_release(op: ops.Op) -> BarrierRef | None:
    """The barrier of another CTA through which an op releases ordinary accesses. Its wait has to
    acquire at cluster scope.
    """
    match op:
        case (
            ops.MbarArrive(bar=bar, sem="release")
            | ops.MbarExpect(bar=bar, arrive=True, sem="release")
        ):
            return bar if bar.cta is not None else None
    return None


def _credited_remotely(every: Sequence[ops.Op]) -> set[BarrierArray]:
    """The barriers that a copy by another CTA, or the response to its cluster launch control
    request, signals, where ordinary loads then read the data. Its complete-tx releases at cluster
    scope (PTX ISA, cp.async.bulk.tensor), so the wait has to acquire at cluster scope. This holds
    for a wait of the MMA warp too, whose commit then signals the warps that read.
    """
    read: set[SmemBuffer] = set()
    for op in every:
        match op:
            case (
                ops.Load(src=Element(base=Tile(buffer=buffer)))
                | ops.FragmentLoad(src=Tile(buffer=buffer))
                | ops.ClcQuery(src=Tile(buffer=buffer))
            ):
                read.add(buffer)
    found: set[BarrierArray] = set()
    for op in every:
        match op:
            case ops.TmaLoad(dst=tile, bar=bar, multicast=mask) if tile.buffer in read and (
                mask is not None or bar.cta is not None
            ):
                found.add(bar.array)
            case ops.ClcTryCancel(bar=bar, multicast=True):
                found.add(bar.array)
    return found


def _check_arch(kernel: Kernel, arch: str) -> None:
    has = generation(arch)
    for role, op in every_op(kernel):
        what, home = only_on(op)
        if home not in ("", has):
            instead = (
                ", or take an AtomicScheduler"
                if isinstance(op, ops.ClcTryCancel | ops.ClcQuery)
                else ""
            )
            raise CompileError(
                f"{role_name(role)} of '{kernel.name}' uses {what}, which {arch} does not have;"
                f" compile for {home}{instead}",
                op.loc,
            )


# -- before the functions --------------------------------------------------------------


def _preamble(module: Module, arch: str) -> Iterator[str]:
    k = module.kernel
    cluster = f", clusters of {k.cluster_size} CTAs" if k.cluster_size > 1 else ""
    yield (
        f"// {k.name} ({k.loc.short}): {k.threads} threads{cluster}, {k.smem_bytes} bytes of"
        " dynamic shared memory."
    )
    yield f"// Printed by tilepipe for {arch}; stands alone."
    if k.roles:
        yield "//"
    for role in sorted(k.roles, key=lambda r: r.first_warp):
        last = role.first_warp + role.warps - 1
        warps = f"warp {last}" if role.warps == 1 else f"warps {role.first_warp}-{last}"
        registers = "" if role.registers is None else f", {role.registers} registers a thread"
        yield f"//   {role.name}: {warps}{registers}"
    yield ""
    if any(isinstance(op, ops.Print | ops.Assert) for op in all_ops(k)):
        yield from (_PRINTF, "")
    yield from (_TYPES, _TENSOR_MAP, "")
    yield from instrument.preamble(module)
    yield from ("// ---- PTX", "")
    order = {name: i for i, name in enumerate(SNIPPETS)}
    for snippet in sorted(module.snippets.values(), key=lambda s: order.get(s.name, len(order))):
        yield from (snippet.code, "")
    if module.memory:
        yield from ("// ---- shared memory and barriers", "")
        yield from () if module.instrumented else (SHARED, "")
        for thing in smem_things(k):
            yield from module.memory.get(thing, ())
            yield from module.memory.get((thing, "format"), ())
            if isinstance(thing, SmemBuffer):
                yield from module.memory.get((thing.transpose, "format"), ())
        for bar in k.named_barriers:
            yield from module.memory.get(bar, ())
        yield ""
    yield from ("// ---- roles", "") if k.roles else ()


# -- functions -------------------------------------------------------------------------


def _specials(ctx: Context) -> list[str]:
    """The declarations of the special registers that a function reads."""
    first = 0 if ctx.role is None else ctx.role.first_warp
    clusters = ctx.kernel.cluster_size > 1
    group = "warp / 4" if ctx.role is None or ctx.role.warps > 4 else "0"
    one_group = ctx.role is not None and ctx.role.is_warpgroup and ctx.role.warps == 4
    code = {
        "lane": "lane_id()",
        "warp_in_group": "warp" if one_group else "warp % 4",
        "warpgroup": group,
        "thread": "threadIdx.x" + (f" - {first * WARP}" if first else ""),
        "block_id": "blockIdx.x",
        "cta_rank": "cluster_cta_rank()" if clusters else "0",
        "cluster_id": "cluster_index()" if clusters else "blockIdx.x",
        "num_clusters": "cluster_count()" if clusters else "gridDim.x",
    }
    lines, elected = [], election.declarations(ctx)
    for name in (n for n in ctx.specials if n != "warp" and n not in elected):
        value = code[name]
        if value.endswith("()"):
            ctx.use(value[:-2])
        lines.append(f"const i32 {name} = {value};")
    lines += (f"const bool {name} = {value};" for name, value in elected.items())
    return lines


def _role(module: Module, role: Role, setup: Context, name: str) -> tuple[list[str], str]:
    """The (lines of the function of a role, arguments that it is called with)."""
    ctx = Context(module, Lines(1, module.lineinfo), Names(module.names, _RESERVED), role, setup)
    ctx.inline = inlinable(role.body)
    stamps.begin(ctx)
    block(ctx, role.body)
    stamps.end(ctx)
    instrument.end(ctx)
    specials = _specials(ctx)
    parameters, values = [], []
    if {"warp", "warp_in_group", "warpgroup"} & set(ctx.specials):
        parameters.append("i32 warp")
        values.append(f"warp - {role.first_warp}" if role.first_warp else "warp")
    for a in (a for a in module.arguments if a in ctx.used):
        parameters.append(a.declare(module.names.of(a, a.name)))
        values.append(setup.argument(a.kind, a.param.name, a.axis))
    parameters += ctx.outer
    values += ctx.outer.values()
    head = [] if role.loc.line == 0 else [f"// {role.loc.short}"]
    lines = [
        *head,
        f"{FUNCTION} void {name}({', '.join(parameters)}) {{",
        *(f"    {s}" for s in specials),
        *ctx.out.lines,
        "}",
    ]
    return lines, ", ".join(values)


def _head(ctx: Context) -> None:
    """Prints the prefetch of the tensor maps by one thread."""
    if maps := [a for a in ctx.module.arguments if a.kind == "map"]:
        ctx.out("// Fetch the tensor maps before they are needed.")
        with ctx.out.block(f"if (warp == 0 && {ctx.use('elect_one')}())"):
            for a in maps:
                ctx.out(f"{ctx.use('prefetch_tensor_map')}({ctx.argument('map', a.param.name)});")


def _wait_for_grid(ctx: Context) -> None:
    """Prints the wait for the previous kernel on the stream (PTX ISA, griddepcontrol). A launch
    without programmatic stream serialisation starts after the end of that kernel, so the wait
    returns at once.
    """
    ctx.out(
        "// The set-up may run while the previous kernel ends; global memory is accessed only"
        " after this wait."
    )
    ctx.out(f"{ctx.use('grid_dependency_wait')}();")


def _kernel(ctx: Context, entry: str, launch: list[str]) -> Iterator[str]:
    k = ctx.kernel
    module = ctx.module
    cluster = f" __cluster_dims__({k.cluster_size}, 1, 1)" if k.cluster_size > 1 else ""
    parameters = [a.declare(module.names.of(a, a.name), kernel=True) for a in module.arguments]
    parameters += instrument.parameters(module) + stamps.parameters(module)
    bounds = f"__launch_bounds__({k.threads}, {k.ctas_per_sm})"
    head = f'extern "C" __global__ void{cluster} {bounds} {entry}('
    if len(head) + len(", ".join(parameters)) > 110:
        yield head
        yield "    " + ",\n    ".join(parameters) + ") {"
    else:
        yield f"{head}{', '.join(parameters)}) {{"
    # Without the shuffle the compiler does not know that the branches on `warp` are uniform.
    yield "    // The shuffle lets the compiler know that all lanes of a warp have the same value."
    yield "    const i32 warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);"
    yield from (f"    {line}" for line in _specials(ctx))
    yield from ctx.out.lines
    yield from launch
    yield "}"


def _dispatch(ctx: Context, calls: dict[Role, str]) -> list[str]:
    """The lines of one if / else chain over the roles. Where warpgroups set their registers, the
    chain is over warpgroups, and roles that share a warpgroup are inside its branch, because all
    warps of a warpgroup have to execute the same setmaxnreg (PTX ISA, setmaxnreg).
    """
    k = ctx.kernel
    out = Lines(1)
    out.lines.append("")
    registers = group_registers(k)
    asks = any(r is not None for r in registers)
    # At launch each thread gets `cap` registers. setmaxnreg.dec returns registers to the pool of
    # the CTA, and setmaxnreg.inc blocks until the pool has enough: so a warpgroup that wants fewer
    # than `cap` has to release some before another can take more.
    cap = min(launch_registers(k.threads * k.ctas_per_sm), 255)
    for position, roles in enumerate(_groups(k, asks)):
        first, end = roles[0].first_warp, max(r.first_warp + r.warps for r in roles)
        if asks:
            end = -(-end // 4) * 4
        condition = f"warp == {first}" if end == first + 1 else f"warp < {end}"
        # The last branch needs no test, unless some warps belong to no role.
        test = "" if position and end == k.warps else f"if ({condition}) "
        out(f"{'} else ' if position else ''}{test}{{")
        out.depth += 1
        if asks and (wanted := registers[first // 4]) is not None:
            out(f"{ctx.use('setmaxnreg_dec' if wanted <= cap else 'setmaxnreg_inc')}<{wanted}>();")
        _calls(out, roles, first, end, calls)
        out.depth -= 1
    if calls:
        out("}")
    return out.lines


def _groups(k: Kernel, by_warpgroup: bool) -> list[list[Role]]:
    """The roles in the order of their warps. With `by_warpgroup`, roles that share a warpgroup are
    in one list.
    """
    result: list[list[Role]] = []
    end = 0
    for role in sorted(k.roles, key=lambda r: r.first_warp):
        if by_warpgroup and result and role.first_warp < end:
            result[-1].append(role)
        else:
            result.append([role])
        end = max(end, role.first_warp + role.warps)
        if by_warpgroup:
            end = -(-end // 4) * 4
    return result


def _calls(out: Lines, roles: list[Role], first: int, end: int, calls: dict[Role, str]) -> None:
    """Prints the calls of the roles that share warps [first, end). Warps without a role call
    nothing and exit.
    """
    if len(roles) == 1 and roles[0].first_warp + roles[0].warps == end:
        out(f"{calls[roles[0]]};")
        return
    for i, role in enumerate(roles):
        stop = role.first_warp + role.warps
        condition = f"warp == {role.first_warp}" if role.warps == 1 else f"warp < {stop}"
        out(f"{'} else ' if i else ''}if ({condition}) {{")
        out.depth += 1
        out(f"{calls[role]};")
        out.depth -= 1
    out("}")
