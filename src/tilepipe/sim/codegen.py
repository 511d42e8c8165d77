"""IR -> Python source: for each role one generator function, compiled once per kernel.

The function of a role runs the set-up and then the role's body, for one agent. Every op that touches barriers, memory or an
asynchronous unit is `yield op, (site, threads, ...)`: the machine performs `op(machine, agent, site, threads, ...)` and
sends back its result. `threads` is a bit mask over the agent's threads, constant wherever the execution scope is static.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilepipe.errors import BarrierError, SimFault
from tilepipe.ir import exprs as e
from tilepipe.ir import ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import BarrierArray, BarrierRef, Fragment, SmemBuffer, TensorParam, Tile
from tilepipe.ir.program import Kernel, Role, walk
from tilepipe.sim import barriers, elements, support, tensorcore, tma
from tilepipe.sim.agents import Agent
from tilepipe.sim.expressions import LIMITS, Expressions, Names
from tilepipe.sim.memory import rounded
from tilepipe.sim.sites import SETUP, Site, describe

WARP_MASK = 0xFFFFFFFF
_OPS: tuple[Callable[..., Any], ...] = (
    barriers.mbar_init, barriers.mbar_inval, barriers.mbar_arrive, barriers.mbar_expect, barriers.mbar_complete_tx,
    barriers.mbar_wait, barriers.mbar_wait_parity, barriers.mbar_try_wait, barriers.mbar_try_wait_parity,
    barriers.named_sync, barriers.named_arrive, barriers.syncwarp, barriers.setup_barrier, barriers.cluster_arrive,
    barriers.cluster_wait, barriers.fence_proxy_async, barriers.fence_barrier_init,
    elements.load, elements.store, elements.load_global, elements.store_global, elements.fragment_store, elements.fragment_load,
    tma.tma_load, tma.tma_store, tma.tma_store_commit, tma.tma_store_wait,
    tensorcore.wgmma, tensorcore.wgmma_fence, tensorcore.wgmma_commit, tensorcore.wgmma_wait, tensorcore.Frag,
    support.lane_bits, support.lanes, support.elect_warps, support.place, support.check_range, support.check_ranges, support.at,
    support.tile_rect, support.show, support.check, rounded,
)  # fmt: skip
Function = Callable[[Any, Agent], Any]


@dataclass(eq=False)
class Compiled:
    """A kernel as the machine runs it. Holds no reference to the `Kernel`, which is the key it is cached under.

    Attributes:
        source: the generated module. lines: its line number -> the kernel's line.
        sites: all ops, by id. bodies: role name (or SETUP, for idle warps) -> generator function.
        bar_base, slot_base, named_base: where an array, a buffer, a named barrier starts in the CTA's flat lists.
    """

    source: str = ""
    lines: dict[int, Loc] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    bodies: dict[str, Function] = field(default_factory=dict)
    bar_base: dict[str, int] = field(default_factory=dict)
    slot_base: dict[str, int] = field(default_factory=dict)
    needs_idle: bool = False


_cache: weakref.WeakKeyDictionary[Kernel, Compiled] = weakref.WeakKeyDictionary()


def compile_kernel(kernel: Kernel) -> Compiled:
    """The compiled form of a kernel, made when it is first asked for."""
    found = _cache.get(kernel)
    if found is None:
        found = _cache[kernel] = _Module(kernel).build()
    return found


def source(kernel: Kernel) -> str:
    """The generated Python of a kernel, for reading."""
    return compile_kernel(kernel).source


class _Module:
    """The tables that all functions of one kernel share."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.out = Compiled()
        self.namespace: dict[str, Any] = {f.__name__: f for f in _OPS} | {"np": np}
        self.site_of: dict[int, Site] = {}
        self.named_base: dict[int, int] = {}
        self.bars: dict[int, int] = {}
        self.slots: dict[int, int] = {}
        self.constants: dict[tuple[str, object], str] = {}
        bar = slot = named = 0
        for array in kernel.barriers:
            self.bars[id(array)] = self.out.bar_base[array.name] = bar
            bar += array.size
        for buffer in kernel.buffers:
            self.slots[id(buffer)] = self.out.slot_base[buffer.name] = slot
            slot += buffer.count
        for barrier in kernel.named_barriers:
            self.named_base[id(barrier)] = named
            named += barrier.per_warpgroup
        self.tensors = {id(p): i for i, p in enumerate(p for p in kernel.params if isinstance(p, TensorParam))}
        blocks = [(SETUP, kernel.setup), *((r.name, r.body) for r in kernel.roles)]
        waits = [o for _, b in blocks for o in walk(b) if isinstance(o, (ops.MbarWait, ops.MbarTryWait))]
        parity = {id(o.bar.array) for o in waits if o.phase.dtype.kind != "phase"}
        for name, block in blocks:
            for op in walk(block):
                site = describe(op, len(self.out.sites), name, self.tensors, parity)
                self.site_of[id(op)] = site
                self.out.sites.append(site)

    def build(self) -> Compiled:
        kernel = self.kernel
        self.out.needs_idle = any(not _quiet(op) for op in kernel.setup.ops)
        functions = [_Function(self, role) for role in kernel.roles]
        idle = _Function(self, None)
        lines: list[str] = []
        for f in [*functions, idle]:
            for text, loc in f.lines():
                lines.append(text)
                if loc is not None:
                    self.out.lines[len(lines)] = loc
            lines.append("")
        self.out.source = "\n".join(lines) + "\n"
        exec(compile(self.out.source, f"<simulated {kernel.name}>", "exec"), self.namespace)
        for f in functions:
            assert f.role is not None
            self.out.bodies[f.role.name] = self.namespace[f.name]
        self.out.bodies[SETUP] = self.namespace[idle.name]
        return self.out

    def site(self, op: ops.Op) -> str:
        site = self.site_of[id(op)]
        name = f"S{site.id}"
        self.namespace[name] = site
        return name

    def constant(self, value: object, wish: str) -> str:
        key = (wish, id(value) if isinstance(value, DType) else str(value))
        if key not in self.constants:
            name = self.constants[key] = f"{wish}_" if wish in self.namespace else wish
            self.namespace[name] = value
        return self.constants[key]


def _quiet(op: ops.Op) -> bool:
    """Whether the idle warps may leave this set-up op out: one lane of the CTA does it, or it has no effect outside."""
    if isinstance(op, ops.Elect):
        return op.scope == "role"
    return isinstance(op, (ops.SetupBarrier, ops.FenceBarrierInit, ops.Let, ops.Define, ops.Read, ops.CursorDefine, ops.CursorRead))


class _Function:
    """The source of one generator function."""

    def __init__(self, module: _Module, role: Role | None) -> None:
        self.module = module
        self.role = role
        self.group = role is not None and role.is_warpgroup
        self.threads = 128 if self.group else 32
        names = Names(set(module.namespace))
        self.name = module_name = names.fresh(role.name if role is not None else "idle")
        module.namespace[module_name] = None
        self.names = names
        self.x = Expressions(self.threads, names, module.constant)
        self.mask: int | str = (1 << self.threads) - 1
        self.body: list[tuple[int, str, Loc | None]] = []
        self.depth = 1
        self.emit("# set-up")
        self.block(module.kernel.setup)
        self.x.in_setup = False
        if role is not None:
            self.emit(f"# role {role.name}")
            self.block(role.body)

    def lines(self) -> list[tuple[str, Loc | None]]:
        """The function, line by line, each with the kernel's line it comes from."""
        head = [f"def {self.name}(m, ag):", *(f"    {line}" for line in self.x.prologue)]
        out: list[tuple[str, Loc | None]] = [(line, None) for line in head]
        for depth, text, loc in self.body:
            tail = f"  # {loc.short}" if loc is not None else ""
            out.append(("    " * depth + text + tail, loc))
        if not any("yield" in text for _, text, _ in self.body):
            out.append(("    yield from ()", None))
        return out

    def emit(self, text: str, op: ops.Op | None = None) -> None:
        self.body.append((self.depth, text, op.loc if op is not None else None))

    def request(self, op: ops.Op, what: str, *operands: object, result: str = "") -> None:
        """`yield what, (site, mask, operands...)`."""
        args = ", ".join([self.x.site, self.mask_text, *map(str, operands)])
        self.emit(f"{result + ' = ' if result else ''}yield {what}, ({args})", op)

    @property
    def mask_text(self) -> str:
        return self.mask if isinstance(self.mask, str) else hex(self.mask) if self.mask > 9 else str(self.mask)

    def block(self, block: ops.Block) -> None:
        for op in block.ops:
            self.x.site = self.module.site(op)
            self.op(op)

    def nested(self, head: str, op: ops.Op, block: ops.Block, mask: int | str | None = None) -> None:
        """A block one level deeper, possibly under another mask."""
        outer = self.mask
        self.emit(head, op)
        self.depth += 1
        if mask is not None:
            self.mask = mask
        before = len(self.body)
        self.block(block)
        if len(self.body) == before:
            self.emit("pass")
        self.depth -= 1
        self.mask = outer

    def inline(self, comment: str, op: ops.Op, block: ops.Block, mask: int | str) -> None:
        """A block under another mask, at the same level."""
        outer, self.mask = self.mask, mask
        self.emit(comment)
        self.block(block)
        self.mask = outer

    # -- operands --------------------------------------------------------------------------------------------------------

    def flat(self, base: int, index: e.Expr, size: int, op: ops.Op, what: str) -> str:
        """A place in a flat list of the CTA: `base` + an index, checked unless it is in range by construction."""
        if isinstance(index, e.Const):
            i = int(index.value)
            if not 0 <= i < size:
                raise SimFault(f"{what}[{i}]: there are {size}", op.loc)
            return str(base + i)
        text = self.x.scalar(index, f"the index of {what}", op)
        if self.x.ring.get(id(index), size + 1) > size:
            text = f"at({self.x.site}, {text}, {size}, {what!r})"
        return f"{base} + {text}" if base else text

    def bar(self, ref: BarrierRef, op: ops.Op) -> str:
        return self.flat(self.module.bars[id(ref.array)], ref.index, ref.array.size, op, ref.array.name)

    def remote(self, cta: e.Expr | None, op: ops.Op) -> list[str]:
        return [] if cta is None else [self.x.scalar(cta, "the rank of a CTA", op)]

    def slot(self, tile: Tile, op: ops.Op) -> str:
        return self.flat(self.module.slots[id(tile.buffer)], tile.index, tile.buffer.count, op, tile.buffer.name)

    def rect(self, tile: Tile, op: ops.Op) -> str:
        """The rectangle of a tile: a literal where its place is static, hoisted where it never changes."""
        b = tile.buffer
        if isinstance(tile.row, e.Const) and isinstance(tile.col, e.Const):
            r, c = int(tile.row.value), int(tile.col.value)
            return str(support.tile_rect(self.module.namespace[self.x.site], r, c, tile.rows, tile.cols, b.rows, b.cols))
        row, col = self.x.scalar(tile.row, "the row of a tile", op), self.x.scalar(tile.col, "the column of a tile", op)
        text = f"tile_rect({self.x.site}, {row}, {col}, {tile.rows}, {tile.cols}, {b.rows}, {b.cols})"
        return self.x.hoist(text, "rect") if self.x.invariant(tile.row) and self.x.invariant(tile.col) else text

    def coords(self, coords: tuple[e.Expr, ...], op: ops.Op) -> str:
        texts = [self.x.scalar(c, "a coordinate", op) for c in coords]
        return f"({', '.join(texts)},)"

    def checked(self, name: str, x: e.Expr, array: bool, op: ops.Op) -> None:
        """Reports integer overflow of a value just computed."""
        if x.shape == () and x.dtype.name in LIMITS and self.x.grows(x):
            lo, hi = LIMITS[x.dtype.name]
            if array:
                self.emit(f"check_ranges({self.x.site}, {name}, {lo}, {hi})", op)
            else:
                self.emit(f"if not {lo} <= {name} <= {hi}: check_range({self.x.site}, {name}, {lo}, {hi})", op)

    # -- ops -------------------------------------------------------------------------------------------------------------

    def op(self, op: ops.Op) -> None:
        match op:
            case ops.Let() | ops.Define() | ops.Assign() | ops.Read() | ops.CursorDefine() | ops.CursorRead() | ops.CursorStep():
                self.value_op(op)
            case ops.For() | ops.If() | ops.Elect() | ops.PerWarp():
                self.control_op(op)
            case (
                ops.MbarInit() | ops.MbarInval() | ops.MbarArrive() | ops.MbarExpect() | ops.MbarCompleteTx() | ops.MbarWait()
                | ops.MbarTryWait() | ops.NamedSync() | ops.NamedArrive()
            ):  # fmt: skip
                self.barrier_op(op)
            case ops.FragmentDefine() | ops.FragmentSet() | ops.FragmentReduce() | ops.FragmentStore() | ops.FragmentLoad():
                self.fragment_op(op)
            case ops.Load() | ops.Store() | ops.TmaLoad() | ops.TmaStore() | ops.Wgmma():
                self.memory_op(op)
            case ops.TmaStoreWait(pending=n, read=reading):
                self.request(op, "tma_store_wait", n, reading)
            case ops.WgmmaWait(pending=n):
                self.request(op, "wgmma_wait", n)
            case ops.Print(format=text, args=args):
                values = "".join(f"{self.x(a)[0]}, " for a in args)
                self.emit(f"show(m, ag, {self.x.site}, {self.mask_text}, {text!r}, ({values}))", op)
            case ops.Assert(cond=cond, message=message):
                self.emit(f"check(ag, {self.x.site}, {self.mask_text}, {self.x(cond)[0]}, {message!r})", op)
            case _:
                name = _PLAIN.get(type(op))
                if name is None:
                    raise SimFault(f"the simulator has no definition of {type(op).__name__}", op.loc)
                self.request(op, name)

    def value_op(self, op: ops.Op) -> None:
        match op:
            case ops.Let(local=local, expr=x):
                text, array = self.x(x)
                if isinstance(x, e.FragmentRead):
                    text += ".copy()"
                name = self.x.bind(local, array)
                self.emit(f"{name} = {text}", op)
                self.checked(name, x, array, op)
            case ops.Define(var=var, init=x):
                text, array = self.x(x)
                if self.x.varies(var.vary) and not array:
                    text, array = f"np.full({32 if self.x.warp is not None else self.threads}, {text})", True
                name = self.x.define(var, array)
                self.emit(f"{name} = {text}", op)
                self.checked(name, x, array, op)
            case ops.Assign(var=var, value=x):
                text, array = self.x(x)
                if array and not self.x.is_array(var):
                    text = self.x.scalar(x, f"the value given to '{var.name}'", op)
                name = self.x.names(var, var.name)
                if self.x.is_array(var):
                    text = f"place({name}, {text}, {self.mask_text}, {self.lane_base})"
                self.emit(f"{name} = {text}", op)
                self.checked(name, x, self.x.is_array(var), op)
            case ops.Read(local=local, var=var):
                text, array = self.x.read(var)
                self.emit(f"{self.x.bind(local, array)} = {text}", op)
            case ops.CursorDefine(cursor=cursor):
                stage, phase = self.cursor(cursor)
                self.emit(f"{stage} = 0; {phase} = {cursor.start_phase}", op)
            case ops.CursorRead(cursor=cursor, stage=stage_local, phase=phase_local):
                stage, phase = self.cursor(cursor)
                self.emit(f"{self.x.bind_stage(stage_local, cursor)} = {stage}", op)
                self.emit(f"{self.x.bind(phase_local, False)} = {phase}", op)
            case ops.CursorStep(cursor=cursor, n=n):
                stage, phase = self.cursor(cursor)
                if isinstance(n, e.Const) and n.value == 1:
                    self.emit(f"{stage} += 1", op)
                    self.emit(f"if {stage} == {cursor.stages}: {stage} = 0; {phase} += 1", op)
                    return
                self.emit(f"{stage} += {self.x.scalar(n, 'the step of a cursor', op)}", op)
                self.emit(f"{phase} += {stage} // {cursor.stages}; {stage} %= {cursor.stages}", op)

    @property
    def lane_base(self) -> int:
        """The thread of the agent that element 0 of arrays computed here belongs to."""
        return 0 if self.x.warp is None else 32 * self.x.warp

    def cursor(self, cursor: Any) -> tuple[str, str]:
        name = self.names(cursor, cursor.name)
        return f"{name}_stage", f"{name}_phase"

    def control_op(self, op: ops.Op) -> None:
        match op:
            case ops.For(index=index, start=start, stop=stop, step=step, body=body):
                bounds = ", ".join(self.x.scalar(b, "a bound of a loop", op) for b in (start, stop, step))
                self.nested(f"for {self.x.bind(index, False)} in range({bounds}):", op, body)
            case ops.If(cond=cond, then=then, orelse=orelse):
                text, array = self.x(cond)
                if array:
                    self.masked(op, text, cond, then, orelse)
                    return
                self.nested(f"if {text}:", op, then)
                if orelse.ops:
                    self.nested("else:", op, orelse)
            case ops.Elect(scope=scope, body=body):
                self.elect(op, scope, body)
            case ops.PerWarp(index=index, body=body):
                self.per_warp(op, index, body)

    def masked(self, op: ops.Op, text: str, cond: e.Expr, then: ops.Block, orelse: ops.Block) -> None:
        """A branch that only some threads take."""
        bits = f"lane_bits({text}, {self.lane_base})"
        if self.x.invariant(cond):
            bits = self.x.hoist(bits, "bits")
        outer = self.mask_text
        name = self.names.fresh("mask")
        self.emit(f"{name} = {bits} & {outer}", op)
        self.nested(f"if {name}:", op, then, name)
        if orelse.ops:
            other = self.names.fresh("mask")
            self.emit(f"{other} = {outer} & ~{name}", op)
            self.nested(f"if {other}:", op, orelse, other)

    def elect(self, op: ops.Op, scope: str, body: ops.Block) -> None:
        """One lane: of each warp, or of the group's first warp."""
        if scope == "warp":
            if isinstance(self.mask, int):
                mask: int | str = support.elect_warps(self.mask)
            else:
                mask = self.names.fresh("elected")
                self.emit(f"{mask} = elect_warps({self.mask})", op)
            self.inline("# one lane of each warp", op, body, mask)
            return
        if self.x.warp:
            return
        first = "ag.first_warp" if self.x.in_setup else "ag.index"
        test = f"{first} == 0" if scope == "role" else "True" if self.group else f"{first} % 4 == 0"
        alone = self.role is not None and self.role.agents == 1 and not self.x.in_setup
        if isinstance(self.mask, int):
            mask = self.mask & -self.mask
        else:
            mask = self.names.fresh("elected")
            self.emit(f"{mask} = {self.mask} & -{self.mask}", op)
        if alone or test == "True":
            self.inline(f"# one lane of the {scope}", op, body, mask)
        else:
            self.nested(f"if {test}:", op, body, mask)

    def per_warp(self, op: ops.Op, index: e.Local, body: ops.Block) -> None:
        """Unrolled: each warp of the group runs the body with its own threads."""
        for inner in walk(body):
            if isinstance(inner, (ops.NamedSync, ops.ClusterWait, ops.SetupBarrier)):
                raise SimFault(
                    f"{type(inner).__name__} inside ctx.per_warp(): the simulator runs the warps of the group one after the other, so a"
                    " barrier between them must stand outside.",
                    inner.loc,
                )
        outer = self.mask
        for w in range(4):
            self.emit(f"# warp {w}")
            self.x.warp = w
            if isinstance(outer, int):
                self.mask = outer & (WARP_MASK << (32 * w))
            else:
                self.mask = self.names.fresh("mask")
                self.emit(f"{self.mask} = {outer} & {WARP_MASK << (32 * w):#x}", op)
            self.emit(f"{self.x.bind(index, False)} = {w}", op)
            self.block(body)
        self.x.warp = None
        self.mask = outer

    def barrier_op(self, op: ops.Op) -> None:
        match op:
            case ops.MbarInit(bar=ref, count=count):
                if count is None and ref.array.count is None:
                    raise BarrierError(f"{ref.array.name} is initialised without an arrival count", op.loc)
                n = str(ref.array.count) if count is None else self.x.scalar(count, "an arrival count", op)
                self.request(op, "mbar_init", *self.init_range(ref, op), n)
            case ops.MbarInval(bar=ref):
                self.request(op, "mbar_inval", self.bar(ref, op))
            case ops.MbarArrive(bar=ref, count=count):
                n = self.x.scalar(count, "the count of an arrive", op)
                self.request(op, "mbar_arrive", self.bar(ref, op), n, *self.remote(ref.cta, op))
            case ops.MbarExpect(bar=ref, nbytes=nbytes, arrive=arrive):
                n = self.x.scalar(nbytes, "a number of bytes", op)
                self.request(op, "mbar_expect", self.bar(ref, op), n, arrive, *self.remote(ref.cta, op))
            case ops.MbarCompleteTx(bar=ref, nbytes=nbytes):
                n = self.x.scalar(nbytes, "a number of bytes", op)
                self.request(op, "mbar_complete_tx", self.bar(ref, op), n, *self.remote(ref.cta, op))
            case ops.MbarWait(bar=ref, phase=phase):
                kind = "mbar_wait" if phase.dtype.kind == "phase" else "mbar_wait_parity"
                self.request(op, kind, self.bar(ref, op), self.x.scalar(phase, "the phase of a wait", op))
            case ops.MbarTryWait(bar=ref, phase=phase, result=result):
                kind = "mbar_try_wait" if phase.dtype.kind == "phase" else "mbar_try_wait_parity"
                bar, p = self.bar(ref, op), self.x.scalar(phase, "the phase of a wait", op)
                self.request(op, kind, bar, p, result=self.x.bind(result, False))
            case ops.NamedSync(bar=named, group=group) | ops.NamedArrive(bar=named, group=group):
                base = self.module.named_base[id(named)]
                if group is not None:
                    where = self.flat(base, group, named.per_warpgroup, op, named.name)
                else:
                    where = f"{base} + ag.index" if named.per_warpgroup > 1 and self.group else str(base)
                self.request(op, "named_sync" if isinstance(op, ops.NamedSync) else "named_arrive", where)

    def init_range(self, ref: BarrierRef, op: ops.Op) -> tuple[str, int]:
        """Which barriers an mbarrier.init is for: every one of the array."""
        return str(self.module.bars[id(ref.array)]), ref.array.size

    def fragment_op(self, op: ops.Op) -> None:
        warp = "" if self.x.warp is None else f", {self.x.warp}"
        match op:
            case ops.FragmentDefine(fragment=f):
                self.emit(f"{self.names(f, f.name)} = Frag({self.module.constant(f, f'ir_{f.name}')})", op)
            case ops.FragmentSet(fragment=f, value=value, col=col):
                width = value.shape[1] if value.shape else f.cols
                self.emit(f"{self.names(f, f.name)}.set(ag, {self.x.site}, {self.x(value)[0]}, {col}, {width}{warp})", op)
            case ops.FragmentReduce(dst=f, value=value, op=kind):
                reduce = "np.add" if kind == "add" else "np.maximum"
                text = f"{reduce}.reduce({self.x(value)[0]}, axis=1, keepdims=True)"
                self.emit(f"{self.names(f, f.name)}.set(ag, {self.x.site}, {text}, 0, 1{warp})", op)
            case ops.FragmentStore(dst=tile, value=value):
                remote = self.remote(tile.cta, op)
                self.request(op, "fragment_store", self.slot(tile, op), self.rect(tile, op), self.x(value)[0], *remote)
            case ops.FragmentLoad(dst=f, src=tile):
                self.request(op, "fragment_load", self.names(f, f.name), self.slot(tile, op), f"{self.rect(tile, op)}{warp}")

    def memory_op(self, op: ops.Op) -> None:
        match op:
            case ops.Load(result=result, src=element):
                where, array = self.element(element, op)
                kind = "load" if isinstance(element.base, Tile) else "load_global"
                self.request(op, kind, *where, result=self.x.bind(result, array))
            case ops.Store(dst=element, value=value):
                kind = "store" if isinstance(element.base, Tile) else "store_global"
                self.request(op, kind, self.x(value)[0], *self.element(element, op)[0])
            case ops.TmaLoad(coords=coords, dst=tile, bar=ref, multicast=multicast):
                if tile.cta is not None or ref.cta is not None:
                    raise SimFault("a TMA load into a peer's shared memory: on sm_90 only multicast= reaches other CTAs", op.loc)
                mask = [] if multicast is None else [self.x.scalar(multicast, "a multicast mask", op)]
                self.request(
                    op, "tma_load", self.coords(coords, op), self.slot(tile, op), self.rect(tile, op), self.bar(ref, op), *mask
                )
            case ops.TmaStore(coords=coords, src=tile):
                self.request(op, "tma_store", self.coords(coords, op), self.slot(tile, op), self.rect(tile, op))
            case ops.Wgmma(acc=acc, a=a, b=b):
                if isinstance(a, Fragment):
                    left = [self.names(a, a.name), "None"]
                else:
                    left = [self.slot(a, op), self.rect(a, op)]
                self.request(op, "wgmma", self.names(acc, acc.name), *left, self.slot(b, op), self.rect(b, op))

    def element(self, element: Any, op: ops.Op) -> tuple[list[str], bool]:
        """The operands that name an element, and whether it differs between threads."""
        index = [self.x(i) for i in element.index]
        texts, array = [t for t, _ in index], any(a for _, a in index)
        if not isinstance(element.base, Tile):
            return texts, array
        tile = element.base
        return [self.slot(tile, op), self.rect(tile, op), *texts, *self.remote(tile.cta, op)], array


_PLAIN: dict[type[ops.Op], str] = {
    ops.SyncWarp: "syncwarp",
    ops.SetupBarrier: "setup_barrier",
    ops.ClusterArrive: "cluster_arrive",
    ops.ClusterWait: "cluster_wait",
    ops.FenceProxyAsync: "fence_proxy_async",
    ops.FenceBarrierInit: "fence_barrier_init",
    ops.TmaStoreCommit: "tma_store_commit",
    ops.WgmmaFence: "wgmma_fence",
    ops.WgmmaCommit: "wgmma_commit",
}
