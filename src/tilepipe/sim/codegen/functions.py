"""The generator function of one role, op by op, as Python source."""

from __future__ import annotations

from typing import Any

from tilepipe.errors import BarrierError, SimFault
from tilepipe.ir import expressions as e
from tilepipe.ir import ops
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import Fragment, Tile
from tilepipe.ir.program import Role, walk
from tilepipe.ir.rules.operand_tiles import takes_stmatrix
from tilepipe.machine.happens_before.accesses import WARP_MASK
from tilepipe.sim import election
from tilepipe.sim import runtime as support
from tilepipe.sim.codegen.expressions import Expressions
from tilepipe.sim.codegen.names import Names
from tilepipe.sim.codegen.operands import Tables
from tilepipe.sim.codegen.tensor_memory import BY_WARP, PLAIN, TENSOR, TensorSource

_VALUES = (
    ops.Let, ops.Define, ops.Assign, ops.Read, ops.CursorDefine, ops.CursorRead, ops.CursorStep,
)  # fmt: skip
_CONTROL = (ops.For, ops.While, ops.If, ops.Elect, ops.PerWarp)
_BARRIERS = (
    ops.MbarInit, ops.MbarInval, ops.MbarArrive, ops.MbarExpect, ops.MbarCompleteTx, ops.MbarWait, ops.MbarTryWait,
    ops.NamedSync, ops.NamedArrive,
)  # fmt: skip
_FRAGMENTS = (
    ops.FragmentDefine, ops.FragmentSet, ops.FragmentReduce, ops.FragmentAny, ops.FragmentStore, ops.FragmentLoad, ops.FragmentLoadGlobal,
    ops.FragmentStoreGlobal,
)  # fmt: skip
_MEMORY = (ops.Load, ops.Store, ops.TmaLoad, ops.TmaStore, ops.Wgmma)
_TOGETHER = (
    ops.FragmentSet, ops.FragmentReduce, ops.FragmentAny, ops.FragmentStore, ops.FragmentLoad, ops.FragmentLoadGlobal,
    ops.FragmentStoreGlobal,
    ops.Wgmma, ops.WgmmaFence, ops.WgmmaCommit, ops.WgmmaWait, ops.ClusterArrive, ops.ClusterWait,
)  # fmt: skip
_GRID = (ops.AtomicAdd, ops.ClcTryCancel, ops.ClcQuery)
_BY_WARP = (ops.NamedSync, ops.NamedArrive, *BY_WARP)
_PLAIN: dict[type[ops.Op], str] = {
    ops.SyncWarp: "syncwarp",
    ops.SetupBarrier: "setup_barrier",
    ops.ClusterArrive: "cluster_arrive",
    ops.ClusterWait: "cluster_wait",
    ops.FenceBarrierInit: "fence_barrier_init",
    ops.LaunchDependents: "launch_dependents",
    ops.GridDependencyWait: "grid_dependency_wait",
    ops.TmaStoreCommit: "tma_store_commit",
    ops.WgmmaFence: "wgmma_fence",
    ops.WgmmaCommit: "wgmma_commit",
    **PLAIN,
}


class Function(TensorSource):
    """The source of one generator function."""

    def __init__(self, module: Tables, role: Role | None) -> None:
        self.module = module
        self.role = role
        self.group = role is not None and role.is_warpgroup
        self.threads = 128 if self.group else 32
        names = Names(set(module.namespace))
        self.name = module_name = names.fresh(role.name if role is not None else "idle")
        module.namespace[module_name] = None
        self.names = names
        self.x = Expressions(self.threads, names, module.constant, lambda: self.mask_text)
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

    def block(self, block: ops.Block) -> None:
        for op in block.ops:
            self.x.site = self.module.site(op)
            self.op(op)

    def nested(
        self, head: str, op: ops.Op, block: ops.Block, mask: int | str | None = None
    ) -> None:
        """A block one level deeper, possibly under another mask."""
        outer = self.mask
        self.emit(head, op)
        self.depth += 1
        if mask is not None:
            self.mask = mask
        before = len(self.body)
        self.block(block)
        if all(text.startswith("#") for _, text, _ in self.body[before:]):
            self.emit("pass")
        self.depth -= 1
        self.mask = outer

    def inline(self, comment: str, op: ops.Op, block: ops.Block, mask: int | str) -> None:
        """A block under another mask, at the same level."""
        outer, self.mask = self.mask, mask
        self.emit(comment)
        self.block(block)
        self.mask = outer

    def op(self, op: ops.Op) -> None:
        """The source of one op."""
        self.aligned(op)
        if isinstance(op, _VALUES):
            self.value_op(op)
        elif isinstance(op, _CONTROL):
            self.control_op(op)
        elif isinstance(op, _BARRIERS):
            self.barrier_op(op)
        elif isinstance(op, _FRAGMENTS):
            self.fragment_op(op)
        elif isinstance(op, _MEMORY):
            self.memory_op(op)
        elif isinstance(op, TENSOR):
            self.tensor_op(op)
        elif isinstance(op, _GRID):
            self.grid_op(op)
        elif type(op) in _PLAIN:
            self.request(op, _PLAIN[type(op)])
        else:
            self.other_op(op)

    def aligned(self, op: ops.Op) -> None:
        """A check before an op that a warpgroup, a warp of `PerWarp`, or each warp executes as
        one.
        """
        together = isinstance(op, _TOGETHER)
        span = (1 << self.threads) - 1 if self.x.warp is None else WARP_MASK << self.x.base
        if (together and self.mask == span) or not (together or isinstance(op, _BY_WARP)):
            return
        if together:
            unit = "warpgroup" if self.group and self.x.warp is None else "warp"
            self.emit(f"all_lanes(ag, {self.x.site}, {self.mask_text}, {span:#x}, {unit!r})", op)
        elif isinstance(self.mask, str) or support.part_of_a_warp(self.mask):
            self.emit(f"whole_warps(ag, {self.x.site}, {self.mask_text})", op)

    def other_op(self, op: ops.Op) -> None:
        match op:
            case ops.TmaStoreWait(pending=n, read=reading):
                self.request(op, "tma_store_wait", n, reading)
            case ops.FenceProxyAsync(space=space):
                self.request(op, "fence_proxy_async", repr(space))
            case ops.WgmmaWait(pending=n):
                self.request(op, "wgmma_wait", n)
            case ops.Print(format=text, args=args):
                values = "".join(f"{self.x(a)[0]}, " for a in args)
                self.emit(f"show(m, ag, {self.x.site}, {self.mask_text}, {text!r}, ({values}))", op)
            case ops.Assert(cond=cond, message=message):
                self.emit(
                    f"check(ag, {self.x.site}, {self.mask_text}, {self.x(cond)[0]}, {message!r})",
                    op,
                )
            case _:
                raise SimFault(f"the simulator has no definition of {type(op).__name__}", op.loc)

    def value_op(self, op: ops.Op) -> None:
        match op:
            case ops.Let(local=local, expr=x):
                text, array = self.x(x)
                if isinstance(x, e.FragmentRead):
                    text += ".copy()"
                name = self.x.bind(local, array)
                self.emit(f"{name} = {text}", op)
            case ops.Define(var=var, init=x):
                text, array = self.x(x)
                if self.x.varies(var.vary) and not array:
                    text, array = (
                        f"np.full({32 if self.x.warp is not None else self.threads}, {text})",
                        True,
                    )
                name = self.x.define(var, array)
                self.emit(f"{name} = {text}", op)
            case ops.Assign(var=var, value=x):
                text, array = self.x(x)
                if array and not self.x.is_array(var):
                    text = self.x.uniform(x, f"the value given to '{var.name}'", op)
                name = self.x.names(var, var.name)
                if self.x.is_array(var):
                    text = f"place({name}, {text}, {self.mask_text}, {self.x.base})"
                self.emit(f"{name} = {text}", op)
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

    def cursor(self, cursor: Any) -> tuple[str, str]:
        name = self.names(cursor, cursor.name)
        return f"{name}_stage", f"{name}_phase"

    def control_op(self, op: ops.Op) -> None:
        match op:
            case ops.For(index=index, start=start, stop=stop, step=step, body=body):
                bounds = ", ".join(
                    self.x.scalar(b, "a bound of a loop", op) for b in (start, stop, step)
                )
                at, name = len(self.body), self.x.bind(index, False)
                self.nested(f"for {name} in range({bounds}):", op, body)
                # nobody else gets to see the time
                if not any("yield" in text for _, text, _ in self.body[at:]):
                    self.body[at] = (
                        self.depth,
                        f"for {name} in trips(m, range({bounds})):",
                        op.loc,
                    )
            case ops.While(var=var, body=body):
                turns = self.names.fresh("turns")
                self.emit(f"{turns} = turns(m, ag, {self.x.site})", op)
                self.nested(f"while {self.x.read(var)[0]} and next({turns}):", op, body)
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

    def masked(
        self, op: ops.Op, text: str, cond: e.Expr, then: ops.Block, orelse: ops.Block
    ) -> None:
        """A branch that only some threads take."""
        bits = f"lane_bits({text}, {self.x.base})"
        if self.x.constant_for_life(cond):
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
        """One lane: of each warp, or of the group's first warp (nobody where that warp is masked
        out).
        """
        lane = self.module.elects
        if scope == "warp":
            if isinstance(self.mask, int) and lane is not None:
                mask: int | str = election.elected_of_warps(self.mask, lane)
            else:
                mask = self.elected("elected_of_warps", self.mask)
            self.inline("# one lane of each warp", op, body, mask)
            return
        if self.x.warp:
            return
        first = "ag.first_warp" if self.x.in_setup else "ag.index"
        test = f"{first} == 0" if scope == "role" else "True" if self.group else f"{first} % 4 == 0"
        alone = self.role is not None and self.role.agents == 1 and not self.x.in_setup
        if isinstance(self.mask, int):
            active = self.mask & WARP_MASK
            if not active:
                return
            mask = (
                election.elected(active, lane)
                if lane is not None
                else self.elected("elected", active)
            )
        else:
            mask = self.elected("elected", f"{self.mask} & {WARP_MASK:#x}")
            test = mask if alone or test == "True" else f"{test} and {mask}"
        if isinstance(self.mask, int) and (alone or test == "True"):
            self.inline(f"# one lane of the {scope}", op, body, mask)
        else:
            self.nested(f"if {test}:", op, body, mask)

    def elected(self, function: str, active: int | str) -> str:
        """A name for the lane, or the one of each warp, that is elected among those of a mask;
        computed once where the mask is static.
        """
        if isinstance(active, int):
            return self.x.hoist(f"{function}({active:#x}, m.world.elected)", "elected")
        name = self.names.fresh("elected")
        lane = "m.world.elected" if self.module.elects is None else str(self.module.elects)
        self.emit(f"{name} = {function}({active}, {lane})")
        return name

    def per_warp(self, op: ops.Op, index: e.Local, body: ops.Block) -> None:
        """Unrolled: each warp of the group runs the body with its own threads."""
        for inner in walk(body):
            if isinstance(inner, (ops.NamedSync, ops.ClusterWait, ops.SetupBarrier)):
                raise SimFault(
                    f"{type(inner).__name__} inside ctx.per_warp(): the simulator runs the warps"
                    " of the group one"
                    " after the other, so a barrier between them must stand outside.",
                    inner.loc,
                )
        outer = self.mask
        for w in range(4):
            self.x.warp = w
            part = WARP_MASK << (32 * w)
            bind = f"{self.x.bind(index, False)} = {w}"
            if isinstance(outer, int):
                if outer & part:
                    self.emit(bind, op)
                    self.inline(f"# warp {w}", op, body, outer & part)
            else:
                mask = self.names.fresh("mask")
                self.emit(f"{mask} = {outer} & {part:#x}", op)
                self.emit(bind, op)
                self.nested(f"if {mask}:", op, body, mask)
        self.x.warp = None

    def barrier_op(self, op: ops.Op) -> None:
        match op:
            case ops.MbarInit(bar=ref, count=count, n=size):
                if count is None and ref.array.count is None:
                    raise BarrierError(
                        f"{ref.array.name} is initialised without an arrival count", op.loc
                    )
                n = (
                    str(ref.array.count)
                    if count is None
                    else self.x.scalar(count, "an arrival count", op)
                )
                self.request(op, "mbar_init", self.bar(ref, op), size, n)
            case ops.MbarInval(bar=ref):
                self.request(op, "mbar_inval", self.bar(ref, op))
            case ops.MbarArrive(bar=ref, count=count):
                n = self.x.scalar(count, "the count of an arrive", op)
                kind, to = self.each("mbar_arrive", ref.cta, op)
                self.request(op, kind, self.bar(ref, op), n, *to)
            case ops.MbarExpect(bar=ref, nbytes=nbytes, arrive=arrive):
                n = self.x.scalar(nbytes, "a number of bytes", op)
                kind, to = self.each("mbar_expect", ref.cta, op)
                self.request(op, kind, self.bar(ref, op), n, arrive, *to)
            case ops.MbarCompleteTx(bar=ref, nbytes=nbytes):
                n = self.x.scalar(nbytes, "a number of bytes", op)
                self.request(
                    op, "mbar_complete_tx", self.bar(ref, op), n, *self.remote(ref.cta, op)
                )
            case ops.MbarWait(bar=ref) | ops.MbarTryWait(bar=ref) if ref.cta is not None:
                raise BarrierError(
                    f"a wait on {ref.array.name} of another CTA: only a CTA's own barriers can be waited on",
                    op.loc,
                )
            case ops.MbarWait(bar=ref, phase=phase):
                kind = "mbar_wait" if phase.dtype.kind == "phase" else "mbar_wait_parity"
                self.request(
                    op, kind, self.bar(ref, op), self.x.scalar(phase, "the phase of a wait", op)
                )
            case ops.MbarTryWait(bar=ref, phase=phase, result=result):
                kind = "mbar_try_wait" if phase.dtype.kind == "phase" else "mbar_try_wait_parity"
                bar, p = self.bar(ref, op), self.x.scalar(phase, "the phase of a wait", op)
                self.request(op, kind, bar, p, result=self.x.bind(result, False))
            case ops.NamedSync(bar=named, group=group) | ops.NamedArrive(bar=named, group=group):
                base = self.module.named_base[id(named)]
                if group is not None:
                    where = self.flat(base, group, named.per_warpgroup, op, named.name)
                else:
                    where = (
                        f"{base} + ag.index"
                        if named.per_warpgroup > 1 and self.group
                        else str(base)
                    )
                self.request(
                    op, "named_sync" if isinstance(op, ops.NamedSync) else "named_arrive", where
                )

    def fragment_op(self, op: ops.Op) -> None:
        warp = "" if self.x.warp is None else f", {self.x.warp}"
        match op:
            case ops.FragmentDefine(fragment=f):
                self.emit(
                    f"{self.names(f, f.name)} = Frag({self.module.constant(f, f'ir_{f.name}')})", op
                )
            case ops.FragmentSet(fragment=f, value=value, col=col):
                width = value.shape[1] if value.shape and value.shape[1] > 1 else f.cols - col
                self.emit(
                    f"{self.names(f, f.name)}.set(ag, {self.x.site}, {self.x(value)[0]}, {col}, {width}{warp})",
                    op,
                )
            case ops.FragmentReduce(dst=f, value=value, op=kind):
                # fmaxf: a NaN gives way to a number
                reduce = "np.add" if kind == "add" else "np.fmax"
                text = f"{reduce}.reduce({self.x(value)[0]}, axis=1, keepdims=True)"
                self.emit(f"{self.names(f, f.name)}.set(ag, {self.x.site}, {text}, 0, 1{warp})", op)
            case ops.FragmentAny(result=result, value=value):
                self.emit(f"{self.x.bind(result, False)} = bool(np.any({self.x(value)[0]}))", op)
            case ops.FragmentStore(dst=tile, value=value):
                remote = self.remote(tile.cta, op)
                aligned = takes_stmatrix(tile, value.shape)
                self.request(
                    op,
                    "fragment_store",
                    self.slot(tile, op),
                    self.rect(tile, op),
                    aligned,
                    self.x(value)[0],
                    *remote,
                )
            case ops.FragmentLoad(dst=f, src=tile):
                remote = self.remote(tile.cta, op)
                self.request(
                    op,
                    "fragment_load",
                    self.names(f, f.name),
                    self.slot(tile, op),
                    self.rect(tile, op),
                    self.x.warp,
                    *remote,
                )
            case ops.FragmentLoadGlobal(dst=f, coords=coords):
                self.request(
                    op, "fragment_load_global", self.names(f, f.name), self.coords(coords, op)
                )
            case ops.FragmentStoreGlobal(coords=coords, value=value):
                self.request(op, "fragment_store_global", self.coords(coords, op), self.x(value)[0])

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
                if tile.cta is not None or (
                    ref.cta is not None and self.module.kernel.cta_group != 2
                ):
                    raise SimFault(
                        "a TMA load into a peer's shared memory: only multicast= reaches other CTAs",
                        op.loc,
                    )
                mask = (
                    [] if multicast is None else [self.x.scalar(multicast, "a multicast mask", op)]
                )
                if ref.cta is not None:
                    mask = [*(mask or ["None"]), *self.remote(ref.cta, op)]
                self.request(
                    op,
                    "tma_load",
                    self.coords(coords, op),
                    self.slot(tile, op),
                    self.rect(tile, op),
                    self.bar(ref, op),
                    *mask,
                )
            case ops.TmaStore(coords=coords, src=tile, rows=rows):
                count = [] if rows is None else [self.x.scalar(rows, "rows= of tma_store", op)]
                self.request(
                    op,
                    "tma_store",
                    self.coords(coords, op),
                    self.slot(tile, op),
                    self.rect(tile, op),
                    *count,
                )
            case ops.Wgmma(acc=acc, a=a, b=b, accumulate=accumulate):
                left = (
                    [self.names(a, a.name), "None"]
                    if isinstance(a, Fragment)
                    else self.place(a, op)
                )
                adds = self.x.uniform(accumulate, "whether a wgmma accumulates", op)
                self.request(
                    op, "wgmma", self.names(acc, acc.name), *left, *self.place(b, op), adds
                )
