"""Which data of a kernel can come to decide what it does: a data-flow analysis over its ops.

A value decides where it picks a branch, a trip count, a place (coordinates, indices, addresses,
ranks), a phase, a count of bytes or of arrivals, where an assertion tests it, or where arithmetic
on it can fault. From all such places the analysis goes backwards through every op that moves data:
expressions, variables, fragments, shared memory, tensor memory, global tensors. What it does not
reach (the accumulators of a GEMM that are only stored) can be left out of a state's key, because
two states that differ in it alone take the same steps and end in the same faults.

Each op declares what it reads, writes and binds (`ir.facts`); the operands of which it declares
nothing decide, with everything that they name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tilepipe.ir import def_use, expressions as exprs, facts, ops, ranges
from tilepipe.ir.expressions import Expr, FragmentRead, Local, Vary
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.memory import (
    Cursor,
    Element,
    SmemBuffer,
    TensorParam,
    Tile,
    Tmem,
    TmemScales,
    Variable,
)
from tilepipe.ir.program import Kernel, Role, blocks, bodies, walk
from tilepipe.machine.memory.global_memory import GlobalTensor
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tiles import Slot
from tilepipe.sim.codegen.module import Compiled

# a counter that grows by no more in a step leaves int32 after more steps than an execution has: see
# `_slow_counters`
SLOW_STEP = 64
SLOW_START = 1 << 30


class _TensorMemory:
    """Stands for the tensor memory of a CTA, all of it."""


TENSOR_MEMORY: Final = _TensorMemory()
Thing = Local | Variable | Cursor | Fragment | SmemBuffer | TensorParam | _TensorMemory


class Flow:
    """How data move in a kernel. `sources`: what a thing's value is made of. `roots`: the things
    that decide something themselves.
    """

    def __init__(
        self, kernel: Kernel, aliases: Iterable[tuple[TensorParam, TensorParam]] = ()
    ) -> None:
        """`aliases`: tensors that are one array."""
        self.sources: dict[Thing, set[Thing]] = {}
        self.roots: set[Thing] = set()
        for a, b in aliases:
            self.move(a, {b})
            self.move(b, {a})
        self._slow = _slow_counters(block for _, block in blocks(kernel))
        for role, block in blocks(kernel):
            for op in walk(block):
                self._op(op, role)

    def reached(self) -> frozenset[Thing]:
        """Everything that can come to decide something."""
        found, waiting = set(self.roots), list(self.roots)
        while waiting:
            more = self.sources.get(waiting.pop(), set()) - found
            found |= more
            waiting += more
        return frozenset(found)

    def move(self, to: Thing, things: Iterable[Thing]) -> None:
        """The value of `to` is made of `things`, beside what it was."""
        self.sources.setdefault(to, set()).update(things)

    def decide(self, operand: object) -> None:
        """The place in memory that an operand names decides."""
        for x in def_use.parts(operand):
            if isinstance(x, Expr):
                self.roots |= _names(x)

    def _op(self, op: ops.Op, role: Role | None) -> None:
        if not isinstance(op, ops.Assign) or op.var not in self._slow:
            for x in def_use.operands(op):
                if isinstance(x, Expr):
                    self.roots |= _faulting(x)
        sources: set[Thing] = set()
        targets: list[Thing] = list(def_use.bound(op))
        for name in op.given:
            x, use = getattr(op, name), op.uses.get(name)
            if use is None:
                self._names_decide(x)
                continue
            for part in x if isinstance(x, tuple) else (x,):
                if isinstance(part, Expr):
                    sources |= _names(part)
                elif (thing := thing_of(part)) is not None:
                    self.decide(part)
                    sources |= {thing} if use.reads else set()
                    targets += [thing] if use.writes else []
        for target in targets:
            self.move(target, sources)
        if op.facts.control is facts.Control.LOOP:  # it says how often the loop has still to go
            self.roots |= {*targets, *sources}
        self._can_fault(op, role)

    def _can_fault(self, op: ops.Op, role: Role | None) -> None:
        """Data that can make an op a fault decide."""
        match op:
            case (
                ops.Store(dst=element, value=value) | ops.StrongStore(dst=element, value=value)
            ) if value.vary == Vary.LANE:
                # two lanes may store different values to one element
                if not any(_own_of_each_lane(i, role) for i in element.index):
                    self.roots |= _names(value)
            case ops.ReduceLanes(op="add", value=value) if value.dtype.kind == "int":
                self.roots |= _names(value)  # the sum may not fit
            case ops.Tcgen05Mma() if op.sfa is not None or op.sfb is not None:
                # a scale factor may be negative, and groups of lanes may differ
                self.roots.add(TENSOR_MEMORY)

    def _names_decide(self, operand: object) -> None:
        """Everything that an operand names decides."""
        for x in def_use.parts(operand):
            if isinstance(x, Expr):
                self.roots |= _names(x)
            elif (thing := thing_of(x)) is not None:
                self.roots.add(thing)


def thing_of(x: object) -> Thing | None:
    """What holds the contents of an operand; None of an operand that has none."""
    match x:
        case Tile():
            return x.buffer
        case Element():
            return thing_of(x.base)
        case Tmem() | TmemScales():
            return TENSOR_MEMORY
        case Variable() | Cursor() | Fragment() | TensorParam():
            return x
    return None


class DecidingData:
    """What of a kernel can come to decide something.

    Attributes:
        things: locals, variables, fragments, buffers and tensors.
    """

    def __init__(
        self,
        kernel: Kernel,
        compiled: Compiled,
        aliases: Iterable[tuple[TensorParam, TensorParam]] = (),
    ) -> None:
        """`aliases`: tensors that are one array in the launch at hand."""
        self.things = Flow(kernel, aliases).reached()
        self.source = compiled.source
        self._left_out = {
            function: frozenset(
                name
                for name, thing in names
                if isinstance(thing, Local | Variable) and thing not in self.things
            )
            for function, names in compiled.names.items()
        }

    def leaves_out(self, function: str) -> frozenset[str]:
        """The Python names, in a function of the generated source, of values that decide
        nothing.
        """
        return self._left_out[function]

    def fragment(self, fragment: object) -> bool:
        """True if the contents of a fragment decide."""
        return fragment in self.things

    def slot(self, slot: Slot) -> bytes:
        """The contents of a tile of shared memory, or of tensor memory, where they decide."""
        if isinstance(slot, TensorMemory):
            return slot.columns.tobytes() if TENSOR_MEMORY in self.things else b""
        return slot.data.tobytes() if slot.buffer in self.things else b""

    def tensor(self, tensor: GlobalTensor) -> bytes:
        """The contents of a tensor, where they decide."""
        return tensor.array.tobytes() if tensor.param in self.things else b""


def _names(x: Expr) -> set[Thing]:
    """The locals and fragments that an expression reads."""
    return {
        node if isinstance(node, Local) else node.fragment
        for node in def_use.nodes(x)
        if isinstance(node, Local | FragmentRead)
    }


def _faulting(x: Expr) -> set[Thing]:
    """Names whose values can make the computation of an expression a fault: signed arithmetic, or a
    conversion of a signed integer to a narrower one, that leaves its dtype; an integer division or
    remainder by 0, or of the least integer by -1.

    `ir.numbers` has the rules, `sim.integers` the faults. Shifts and conversions from floating
    point are defined for every operand; so is arithmetic in floating point.
    """
    can_fault = (n for n in def_use.nodes(x) if ranges.overflows(n) or ranges.divides(n))
    return {name for node in can_fault for name in _names(node)}


def _own_of_each_lane(index: Expr, role: Role | None) -> bool:
    """True if an index of a store differs between any two threads of an agent: the lane of a warp,
    or the thread of a role, plus what is the same for all of them.
    """
    match index:
        case exprs.Special(name="thread"):
            return role is not None
        case exprs.Special(name="lane"):
            return role is not None and not role.is_warpgroup
        case exprs.Binary(op="add", a=a, b=b):
            alike = (Vary.UNIFORM,)
            return (a.vary in alike and _own_of_each_lane(b, role)) or (
                b.vary in alike and _own_of_each_lane(a, role)
            )
    return False


def _slow_counters(blocks: Iterable[ops.Block]) -> frozenset[Variable]:
    """Variables that start small and only ever grow, or shrink, by a small constant, in step with
    ops that an execution counts.

    From `SLOW_START` a counter leaves int32 after (2^31 - 2^30) / `SLOW_STEP` = 2^24 assignments.
    Where each of them comes with a step of its own, an execution has too few steps for that
    (`Bounds.steps`, 5 million unless the user asks for more), so counting the rounds of a loop for
    a statistic decides nothing. A loop of pure arithmetic performs no step, however often it goes
    round.
    """
    read: dict[Local, Variable] = {}
    given: dict[Variable, list[Expr]] = {}
    fast: set[Variable] = set()

    def visit(block: ops.Block, stepless: bool) -> None:
        for op in block.ops:
            match op:
                case ops.Read(local=local, var=var):
                    read[local] = var
                case ops.Define(var=var, init=x):
                    given.setdefault(var, []).append(x)
                case ops.Assign(var=var, value=x):
                    given.setdefault(var, []).append(x)
                    if stepless:
                        fast.add(var)
            loop = op.facts.control is facts.Control.LOOP
            for inner in bodies(op):
                visit(inner, (loop or stepless) and not _steps(inner))

    for block in blocks:
        visit(block, False)

    def slow(var: Variable, x: Expr) -> bool:
        match x:
            case exprs.Const(value=value):
                return abs(value) <= SLOW_START
            case exprs.Binary(op="add" | "sub", a=Local() as a, b=exprs.Const(value=value)):
                return read.get(a) is var and abs(value) <= SLOW_STEP
        return False

    return frozenset(
        v
        for v, values in given.items()
        if v not in fast and v.dtype.bits >= 32 and all(slow(v, x) for x in values)
    )


def _steps(block: ops.Block) -> bool:
    """True if a block performs a step whatever branches it takes: an op that is handed to the
    machine, and counted.
    """
    for op in block.ops:
        match op:
            case ops.If(then=then, orelse=orelse):
                if _steps(then) and _steps(orelse):
                    return True
            case ops.PerWarp(body=body):
                if _steps(body):
                    return True
            case _:
                # a loop may go round no times, and agents that are not elected skip an `Elect`
                if op.acts:
                    return True
    return False
