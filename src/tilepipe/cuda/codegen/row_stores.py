"""Stores of fragments of layout "rows:T" to global memory, and reductions into it: accesses to
vectors of 16 bytes where they are aligned and inside the tensor, which the printed code tests, else
to elements. `row_global` has the walk.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from tilepipe.cuda.codegen.context import Context
from tilepipe.cuda.codegen.expressions import text, to_memory
from tilepipe.cuda.codegen.fragments import packed
from tilepipe.cuda.codegen.names import memory_type, small_float
from tilepipe.cuda.codegen.registers import group_of_thread, groups_of, thread_of_row
from tilepipe.cuda.codegen.row_global import (
    Walk,
    added,
    all_inside,
    kind_of,
    line_of,
    place_of,
    vector_inside,
    walk,
)
from tilepipe.cuda.ptx import strong_accesses
from tilepipe.ir import dtypes, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Shape
from tilepipe.ir.fragment import VECTOR, row_threads

_PAIRS = VECTOR // 2
Op = ops.FragmentStoreGlobal | ops.FragmentReduceGlobal


@dataclass(frozen=True, slots=True)
class _Access:
    """The accesses of an op: ordinary stores, or `red.global`."""

    ctx: Context
    reduces: bool
    dtype: DType

    @property
    def _reduced(self) -> str:
        return small_float(self.dtype) or memory_type(self.dtype)

    def element(self, place: str, x: str) -> str:
        """The C++ statement that writes, or adds to, the element at an address."""
        if not self.reduces:
            return f"*({place}) = {x};"
        one = strong_accesses.Atomic("add", self._reduced, "relaxed", "gpu", returns=False)
        return f"{self.ctx.module.add_snippet(one.snippet())}({place}, {x});"

    def vector(self, place: str, values: str, kind: str) -> str:
        """The C++ that stores an aligned vector, as `element` gives it for one element."""
        if not self.reduces:
            return f"{self.ctx.use(f'store_vector_{kind}')}({place}, {values});"
        added_to = self.ctx.module.add_snippet(strong_accesses.add_vector(self._reduced))
        return f"{added_to}({place}, {values});"


def row_writers(ctx: Context, shape: Shape, layout: str) -> AbstractContextManager[None]:
    """A body that only the threads execute that write: of a fragment of one column the first of
    each row, of one row the first group.
    """
    tests = []
    if shape[1] == 1 and row_threads(layout) > 1:
        tests.append(f"{thread_of_row(ctx, layout)} == 0")
    if shape[0] == 1 and groups_of(ctx, layout) > 1:
        tests.append(f"{group_of_thread(ctx, layout)} == 0")
    return ctx.out.block(f"if ({' && '.join(tests)})") if tests else nullcontext()


def store_rows(ctx: Context, op: Op, layout: str) -> None:
    """Prints a store, or a reduction, of a fragment-shaped value."""
    tensor, shape = op.tensor, op.value.shape
    access = _Access(ctx, isinstance(op, ops.FragmentReduceGlobal), tensor.dtype)
    with ctx.out.block():
        w = walk(ctx, tensor, op.coords, shape, layout, op)
        with row_writers(ctx, shape, layout), w.loops.rows(ctx):
            line, end = line_of(ctx, w)
            if w.col_axis is None:
                x = to_memory(ctx, tensor.dtype, text(ctx, op.value, w.loops.at()))
                ctx.out(f"if ({end}) {access.element(line, x)}")
                return
            if not w.vectors:
                with w.loops.columns(ctx):
                    _store_elements(ctx, op, access, w, line, end)
                return
            whole = ctx.temporary("whole")
            ctx.out(f"const bool {whole} = {all_inside(ctx, w, line, end)};")
            with w.loops.columns(ctx):
                _store_vector(ctx, op, access, w, line, end, whole)


def _store_elements(ctx: Context, op: Op, access: _Access, w: Walk, line: str, end: str) -> None:
    for low in range(VECTOR):
        x = to_memory(ctx, w.tensor.dtype, text(ctx, op.value, w.loops.at(low)))
        inside = f"{ctx.use('inside')}({added(w.col, str(w.column(low)))}, {end})"
        ctx.out(f"if ({inside}) {access.element(place_of(ctx, w, line, low), x)}")


def _store_vector(
    ctx: Context, op: Op, access: _Access, w: Walk, line: str, end: str, whole: str
) -> None:
    """Computes a vector, and stores it by one access or two, or, at an edge, by elements."""
    wide, tensor = w.tensor.dtype is dtypes.float32, w.tensor
    out = ctx.temporary("out")
    if wide:
        values = [text(ctx, op.value, w.loops.at(low)) for low in range(VECTOR)]
    else:
        pair = w.loops.v * _PAIRS
        values = [
            packed(ctx, tensor.dtype, op.value, str(w.loops.i), pair + q, by_rows=True)
            for q in range(_PAIRS)
        ]
    with ctx.out.block():
        ctx.out(f"const {'float' if wide else 'u32'} {out}[{len(values)}] = {{")
        ctx.out.depth += 1
        for x in values:
            ctx.out(f"{x},")
        ctx.out.depth -= 1
        ctx.out("};")
        all_of = ", ".join(f"{out}[{i}]" for i in range(len(values)))
        with ctx.out.block(f"if ({whole} || ({vector_inside(ctx, w, line, end)}))", "} else {"):
            ctx.out(access.vector(place_of(ctx, w, line), all_of, kind_of(tensor)))
        ctx.out.depth += 1
        for low in range(VECTOR):
            inside = f"{ctx.use('inside')}({added(w.col, str(w.column(low)))}, {end})"
            x = (
                f"{out}[{low}]"
                if wide
                else f"static_cast<u16>({out}[{low // 2}] >> {low % 2 * 16})"
            )
            ctx.out(f"if ({inside}) {access.element(place_of(ctx, w, line, low), x)}")
        ctx.out.depth -= 1
        ctx.out("}")
