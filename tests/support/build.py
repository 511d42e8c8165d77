"""A small builder of IR by hand, so that the readers are tested without the tracer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilepipe import sim
from tilepipe.ir import dtypes, expressions as exprs, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import (
    Binary,
    Const,
    Expr,
    Local,
    Param,
    Vary,
    const,
    special as special,
)
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import (
    BarrierArray,
    BarrierRef,
    Cursor,
    Element,
    NamedBarrier,
    ScalarParam,
    SmemBuffer,
    TensorParam,
    Tile,
    Variable,
)
from tilepipe.ir.placement import place
from tilepipe.ir.program import Kernel, Launch, Role, TensorArg


def here() -> Loc:
    """The nearest line outside this file."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ or "contextlib" in frame.f_code.co_filename:
        assert frame.f_back is not None
        frame = frame.f_back
    return Loc(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def ex(x: object) -> Expr:
    return x if isinstance(x, Expr) else const(x)  # type: ignore[arg-type]


def binary(op: str, a: object, b: object, dtype: DType | None = None) -> Binary:
    a, b = ex(a), ex(b)
    kind = dtypes.boolean if op in ("eq", "ne", "lt", "le", "gt", "ge") else a.dtype
    shape = max(a.shape, b.shape, key=lambda s: s[1] if s else 0)
    nonneg = a.nonneg and b.nonneg and op != "sub"
    return Binary(
        dtype or kind, vary=max(a.vary, b.vary), nonneg=nonneg, shape=shape, op=op, a=a, b=b
    )


LANE, THREAD, RANK, GROUP = (
    special("lane"),
    special("thread"),
    special("cta_rank"),
    special("warpgroup"),
)
BLOCK = special("block_id")


class Builder:
    """Builds one kernel; methods append ops to the block at hand."""

    def __init__(self, cluster: int = 1, name: str = "kernel") -> None:
        self.kernel = Kernel(name, here(), cluster=(cluster, 1, 1))
        self.block = self.kernel.setup
        self.n = 0

    # -- declarations ------------------------------------------------------------------

    def tensor(
        self,
        name: str,
        dtype: DType = dtypes.bfloat16,
        rank: int = 2,
        box: tuple[int, ...] | None = None,
        order: str = "row",
        swizzle: int = 0,
    ) -> TensorParam:
        p = TensorParam(name, dtype, rank, order, box, swizzle)
        self.kernel.params.append(p)
        return p

    def scalar(self, name: str, dtype: DType = dtypes.int32) -> Param:
        self.kernel.params.append(ScalarParam(name, dtype))
        return Param(dtype, nonneg=True, name=name)

    def shape(self, t: TensorParam, axis: int) -> Param:
        return Param(dtypes.int32, nonneg=True, name=t.name, axis=axis)

    def smem(
        self,
        name: str,
        rows: int,
        cols: int,
        count: int = 1,
        dtype: DType = dtypes.bfloat16,
        swizzle: int = 0,
        order: str = "row",
    ) -> SmemBuffer:
        b = SmemBuffer(
            name, dtype, count, rows, cols, order, swizzle, align=1024 if swizzle else 128
        )
        self.kernel.buffers.append(b)
        return b

    def barriers(
        self, name: str, size: int = 1, count: int | None = 1, init: bool = True
    ) -> BarrierArray:
        a = BarrierArray(name, size, count)
        self.kernel.barriers.append(a)
        if init:
            with self.elect("role"):
                self.add(ops.MbarInit(here(), self.bar(a), None, size))
        return a

    def named(self, name: str, threads: int, per_warpgroup: int = 1) -> NamedBarrier:
        b = NamedBarrier(name, threads, per_warpgroup)
        self.kernel.named_barriers.append(b)
        return b

    def bar(self, a: BarrierArray, index: object = 0, cta: object = None) -> BarrierRef:
        return BarrierRef(a, ex(index), None if cta is None else ex(cta))

    def tile(
        self,
        b: SmemBuffer,
        index: object = 0,
        row: object = 0,
        col: object = 0,
        rows: int = 0,
        cols: int = 0,
        cta: object = None,
    ) -> Tile:
        return Tile(
            b,
            ex(index),
            ex(row),
            ex(col),
            rows or b.rows,
            cols or b.cols,
            None if cta is None else ex(cta),
        )

    def element(self, base: Tile | TensorParam, *index: object) -> Element:
        return Element(base, tuple(ex(i) for i in index))

    # -- structure ---------------------------------------------------------------------

    def add(self, op: ops.Op) -> None:
        self.block.ops.append(op)

    @contextmanager
    def into(self, block: ops.Block) -> Iterator[None]:
        outer, self.block = self.block, block
        yield
        self.block = outer

    @contextmanager
    def role(
        self, name: str, warps: int = 0, warpgroups: int = 0, registers: int | None = None
    ) -> Iterator[None]:
        body = ops.Block()
        self.kernel.roles.append(
            Role(name, warps or 4 * warpgroups, bool(warpgroups), registers, body, here())
        )
        with self.into(body):
            yield

    @contextmanager
    def elect(self, scope: str = "warp") -> Iterator[None]:
        op = ops.Elect(here(), scope, ops.Block())
        self.add(op)
        with self.into(op.body):
            yield

    @contextmanager
    def when(self, cond: Expr) -> Iterator[ops.If]:
        op = ops.If(here(), cond, ops.Block(), ops.Block())
        self.add(op)
        with self.into(op.then):
            yield op

    @contextmanager
    def loop(self, stop: object, start: object = 0, step: object = 1) -> Iterator[Local]:
        index = self.local("i")
        op = ops.For(here(), index, ex(start), ex(stop), ex(step), ops.Block())
        self.add(op)
        with self.into(op.body):
            yield index

    @contextmanager
    def per_warp(self) -> Iterator[Local]:
        index = self.local("w", vary=Vary.WARP)
        op = ops.PerWarp(here(), index, ops.Block())
        self.add(op)
        with self.into(op.body):
            yield index

    # -- values ------------------------------------------------------------------------

    def local(
        self,
        name: str,
        dtype: DType = dtypes.int32,
        vary: Vary = Vary.UNIFORM,
        shape: tuple[int, ...] = (),
    ) -> Local:
        self.n += 1
        return Local(dtype, vary=vary, nonneg=True, shape=shape, name=f"{name}{self.n}")

    def let(self, x: Expr) -> Local:
        local = self.local("v", x.dtype, x.vary, x.shape)
        self.add(ops.Let(here(), local, x))
        return local

    def var(self, init: object, vary: Vary = Vary.UNIFORM) -> Variable:
        self.n += 1
        x = ex(init)
        v = Variable(f"var{self.n}", x.dtype, vary)
        self.add(ops.Define(here(), v, x))
        return v

    def read(self, var: Variable) -> Local:
        local = self.local("r", var.dtype, var.vary)
        self.add(ops.Read(here(), local, var))
        return local

    def cursor(self, stages: int, start: int = 0) -> Cursor:
        self.n += 1
        c = Cursor(f"cursor{self.n}", stages, start)
        self.add(ops.CursorDefine(here(), c))
        return c

    def at(self, cursor: Cursor) -> tuple[Local, Local]:
        stage, phase = self.local("stage"), self.local("phase", dtypes.phase)
        self.add(ops.CursorRead(here(), cursor, stage, phase))
        return stage, phase

    def step(self, cursor: Cursor, n: object = 1) -> None:
        self.add(ops.CursorStep(here(), cursor, ex(n)))

    def fragment(
        self, name: str, rows: int, cols: int, dtype: DType = dtypes.float32, layout: str = "wgmma"
    ) -> Fragment:
        f = Fragment(name, dtype, rows, cols, layout=layout)
        self.add(ops.FragmentDefine(here(), f))
        return f

    def value(self, f: Fragment, col: int = 0, cols: int = 0) -> Expr:
        shape = (f.rows, cols or f.cols)
        return exprs.FragmentRead(f.dtype, shape=shape, fragment=f, col=col)

    # -- ops: the names and operands of ir.ops, without the location -------------------

    def phase(self, n: int) -> Const:
        return Const(dtypes.phase, value=n)

    def wait(self, bar: BarrierRef, phase: object) -> None:
        self.add(ops.MbarWait(here(), bar, self.phase(phase) if isinstance(phase, int) else phase))  # type: ignore[arg-type]

    def arrive(self, bar: BarrierRef, count: object = 1, sem: str = "release") -> None:
        self.add(ops.MbarArrive(here(), bar, ex(count), sem))

    def expect(self, bar: BarrierRef, nbytes: object, arrive: bool = True) -> None:
        self.add(ops.MbarExpect(here(), bar, ex(nbytes), arrive))

    def load_tile(
        self,
        t: TensorParam,
        coords: tuple[object, ...],
        dst: Tile,
        bar: BarrierRef,
        multicast: object = None,
    ) -> None:
        mask = None if multicast is None else ex(multicast)
        self.add(ops.TmaLoad(here(), t, tuple(ex(c) for c in coords), dst, bar, mask))

    def store_tile(self, t: TensorParam, coords: tuple[object, ...], src: Tile) -> None:
        self.add(ops.TmaStore(here(), t, tuple(ex(c) for c in coords), src))

    def do(self, kind: type[ops.Op], *operands: Any) -> None:
        self.add(kind(here(), *operands))

    def load(self, src: Element) -> Local:
        vary = max([Vary.UNIFORM, *(i.vary for i in src.index)])
        dtype = src.base.dtype if isinstance(src.base, TensorParam) else src.base.buffer.dtype
        result = self.local("x", dtype, vary)
        self.add(ops.Load(here(), result, src))
        return result

    def store(self, dst: Element, value: object) -> None:
        self.add(ops.Store(here(), dst, ex(value)))

    def setup_done(self) -> None:
        self.add(ops.SetupBarrier(here()))

    # -- done --------------------------------------------------------------------------

    def finished(self) -> Kernel:
        place(self.kernel)
        return self.kernel

    def run(self, grid: Any = 1, seed: Any = 0, rules: Any = "practice", **args: Any) -> sim.Run:
        bound = {
            n: TensorArg(a, a.shape) if isinstance(a, np.ndarray) else a for n, a in args.items()
        }
        return sim.run(Launch(self.finished(), grid, bound), seed=seed, rules=rules)
