"""Register fragments: wgmma accumulators, A operands, and vectors of one value a row or a column,
with elementwise arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, fragment as registers, memory, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Bitcast, Expr, FragmentRead
from tilepipe.ir.fragment import FOURS, VECTOR, row_threads
from tilepipe.ir.hardware.operand_tiles import broken_operand_load_rule
from tilepipe.ir.location import assigned_to, caller
from tilepipe.lang.fragments.columns import columns, refuse_traced_columns
from tilepipe.lang.fragments.layouts import checked_shape, layout_of
from tilepipe.lang.fragments.reductions import FragmentReductions
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.tracing import other_names
from tilepipe.lang.tracing.convergence import agent_vary, require_fragment
from tilepipe.lang.tracing.missing_members import missing
from tilepipe.lang.tracing.scopes import Scope
from tilepipe.lang.tracing.tracer import Tracer, require_rule
from tilepipe.lang.values.operators import Operators
from tilepipe.lang.values.powers import raised
from tilepipe.lang.values.scalars import (
    FUNCTIONS,
    Value,
    binary,
    bitcast,
    cast,
    require_finite,
    to_expr,
    traced_value,
    unary,
)


def scalar_operand(tracer: Tracer, x: object) -> Expr:
    """A scalar operand of fragment arithmetic, checked to be the same in the whole warpgroup."""
    expr = to_expr(tracer, x)
    if expr.vary > agent_vary(tracer):
        raise TraceError(
            f"a scalar that varies by {expr.vary.name.lower()} cannot be combined with a fragment,"
            " whose layout alone decides which elements a thread holds. Values of a row come from a"
            " (m, 1) fragment, those of a column from a (1, n) one (`ctx.load_global`); others go"
            " through a shared tile (`fragment.load`).",
            caller(),
        )
    return expr


class FragmentValue(Operators["FragmentValue"], FragmentReductions["Fragment"]):
    """A fragment-shaped expression: the result of arithmetic on fragments. It is consumed by a
    fragment's `set`, a store or a reduction, before any fragment that it reads is written again.
    Shapes broadcast: (m, n) with (m, 1), one value a row, and with (1, n), one value a column.
    """

    _elementwise = True

    def __init__(self, tracer: Tracer, expr: Expr, reads: dict[Fragment, int]) -> None:
        self._tracer = tracer
        self._expr = expr
        self._reads = reads
        self._scope: Scope = tracer.scope

    if not TYPE_CHECKING:  # a type checker knows the members
        __getattr__ = missing("a fragment", "f", other_names.FRAGMENT)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols)."""
        rows, cols = self._expr.shape
        return rows, cols

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._expr.dtype

    @property
    def layout(self) -> str:
        """The layout (`ir.fragment.Fragment`): "tmem" where each warp holds 32 consecutive rows of
        128; "rows:T" where T threads hold a row; "fours" of an operand A of 8 bits; else "wgmma".
        """
        found = (f._ir for f in self._dependencies())
        return next((f.layout for f in found if f.rows > 1 or row_threads(f.layout)), "wgmma")

    @property
    def _step(self) -> int:
        """The multiple of columns at which a fragment of this layout is cut."""
        return VECTOR * (row_threads(self.layout) or 1)

    def _require_together(self, what: str) -> None:
        """Raises TraceError unless all threads that hold the value execute this block."""
        require_fragment(self._tracer, what)
        layout = self.layout
        if row_threads(layout) and self._tracer.scope.inside("per_warp"):
            raise TraceError(
                f'{what} of layout "{layout}" is executed by all threads that hold it: move it out'
                " of per_warp, or write it in a role of warps (`warps=`)",
                caller(),
            )

    def ir(self) -> Expr:
        """The expression.

        Raises:
            TraceError: a fragment that it reads has been written since, so its value would differ.
        """
        self._tracer.check_alive(self._scope, "fragment expression", self)
        for fragment, version in self._reads.items():
            if fragment.version != version:
                raise TraceError(
                    f"this expression reads {fragment._ir.named}, which was written after the"
                    " expression was made; keep the value first with `ctx.fragment(expression)`",
                    caller(),
                )
        return self._expr

    def to(self, dtype: object) -> FragmentValue:
        """The expression converted to another dtype by the rules of `Value.to`."""
        t = dtypes.dtype(dtype)
        require_rule(dtypes.broken_register_rule(t))
        x = self.ir()
        return self if t is x.dtype else self._new(cast(x, t))

    def bitcast(self, dtype: object) -> FragmentValue:
        """The bits as another dtype of the same size; or of a half or a quarter of the size, which
        makes a value (m, c) one of (m, 2 c) or (m, 4 c); or, of 16-bit floats, of 32 bits, which
        makes (m, 2 c) one of (m, c).

        The bits stay in their thread, so that smaller elements are not neighbours in the order of
        the bits: word 2 t + i of eight words (t = 0..3, i = 0, 1) becomes columns 8 i + 2 t and
        8 i + 2 t + 1 of sixteen of 16 bits, and these become that word.

        Raises:
            TraceError: a dtype of another size; of (m, 1), whose column cannot become several; of
                16-bit columns whose number is no multiple of 16.
        """
        t = dtypes.dtype(dtype)
        require_rule(dtypes.broken_register_rule(t))
        x = self.ir()
        if t is x.dtype:
            return self
        if x.dtype.is_float and x.dtype.bits == 16 and t.bits == 32:
            return self._joined(x, t)
        parts = x.dtype.bits // t.bits
        if "bool" in (x.dtype.kind, t.kind) or parts < 2 or x.dtype.bits > 32:
            return self._new(bitcast(x, t))
        rows, cols = x.shape
        if cols == 1:
            raise TraceError(
                f"bitcast of a value of {rows}×1 from {x.dtype} to {t} would make {parts} columns"
                " of one; a fragment has 1 column, or a multiple of 8",
                caller(),
            )
        refuse_rows(self, "a bitcast that splits elements", 'layout="wgmma"')
        shape = (rows, parts * cols)
        return self._new(Bitcast(t, x.vary, t.kind == "uint", shape, x.size + 1, a=x))

    def _joined(self, x: Expr, t: dtypes.DType) -> FragmentValue:
        """Pairs of 16-bit columns as 32 bits."""
        rows, cols = x.shape
        if cols % 16:
            raise TraceError(
                f"bitcast of a value of {rows}×{cols} from {x.dtype} to {t} joins two columns of"
                f" sixteen to one of eight; {cols} is no multiple of 16",
                caller(),
            )
        refuse_rows(self, "a bitcast that joins elements", 'layout="wgmma"')
        return self._new(Bitcast(t, x.vary, t.kind == "uint", (rows, cols // 2), x.size + 1, a=x))

    def _dependencies(self) -> dict[Fragment, int]:
        """The fragments that the expression reads, each with the version that it read."""
        return self._reads

    def _new(self, expr: Expr, other: object = None) -> FragmentValue:
        reads = dict(self._dependencies())
        if isinstance(other, FragmentValue):
            reads.update(other._dependencies())
        return FragmentValue(self._tracer, expr, of_one_layout(reads))

    def _binary(self, op: str, other: object, swap: bool = False) -> FragmentValue:
        if op == "**":
            return raised(self, other, swap)
        a: Value = Value(self._tracer, self.ir())
        if isinstance(other, FragmentValue):
            b: object = Value(self._tracer, other.ir())
        else:
            b = Value(self._tracer, scalar_operand(self._tracer, other))
        result = binary(self._tracer, op, b, a) if swap else binary(self._tracer, op, a, b)
        return self._new(result._expr, other)

    def _unary(self, op: str) -> FragmentValue:
        return self._new(unary(self._tracer, op, Value(self._tracer, self.ir()))._expr)

    def cols(self, start: int, count: int) -> FragmentValue:
        """Columns [start, start + count), both multiples of 8; of 8 T in layout "rows:T". Of an
        expression, only these columns are computed. They are the same registers: nothing moves.

        Raises:
            TraceError: other columns, or outside the value.
        """
        step, cols = self._step, self.shape[1]
        if not isinstance(start, int) or not isinstance(count, int):
            refuse_traced_columns(f"f.cols({start!r}, {count!r})", start, count)
        if start % step or count % step or count < step or start < 0 or start + count > cols:
            raise TraceError(
                f"columns [{start}, {start + count}) of a fragment of {cols}: need multiples of"
                f" {step} inside it",
                caller(),
            )
        return self._new(columns(self.ir(), start, count))

    def __getitem__(self, key: object) -> FragmentValue:
        if key is Ellipsis:
            return self._new(self.ir())
        match key:
            case (_, slice(start=a, stop=b)) if isinstance(a, Value) or isinstance(b, Value):
                refuse_traced_columns(f"f[:, {a!r}:{b!r}]", a, b)
            case (slice(start=None, stop=None), slice(start=a, stop=b, step=None)) if (
                type(a or 0) is int and type(b) is int
            ):
                part = f"these are `f.cols({a or 0}, {b - (a or 0)})`"
            case _:
                part = "the first 64 are `f.cols(0, 64)`"
        raise TraceError(
            f"a part of a fragment is some of its columns: {part}. They are set by `f.set(x,"
            " col=)`.",
            caller(),
        )

    def maximum(self, other: object) -> FragmentValue:
        """Elementwise maximum."""
        return self._binary("max", other)

    def minimum(self, other: object) -> FragmentValue:
        """Elementwise minimum."""
        return self._binary("min", other)

    def apply(self, function: str) -> FragmentValue:
        """A unary function of each element: neg, abs, exp, exp2, log, log2, sqrt, rsqrt, rcp, tanh,
        sin, cos, erf, sigmoid, floor, ceil, round (to nearest even).

        Raises:
            TraceError: there is no such function.
        """
        if function not in FUNCTIONS:
            raise TraceError(
                f"a fragment applies {', '.join(sorted(FUNCTIONS))}; not {function!r}", caller()
            )
        return self._unary(function)

    def _vector(self, shape: tuple[int, int], dtype: DType, name: str) -> Fragment:
        return Fragment.define(self._tracer, shape, dtype, name, self.layout)

    def __repr__(self) -> str:
        rows, cols = self.shape
        of = ", ".join(f._ir.named for f in self._reads)
        return f"<fragment expression {rows}×{cols} {self.dtype} of {of or 'no fragment'}>"

    def __bool__(self) -> bool:
        raise TraceError(
            "the truth of a fragment is not known while tracing: `if`, `assert`, `and`, `or`,"
            " `not`, `max(f, g)`, `min(f, g)` cannot use it. Write `ctx.select(cond, f, g)`,"
            " `f.maximum(g)`, `f.minimum(g)`, and `&`, `|`, `~` for and, or, not.",
            caller(),
        )


def of_one_layout(reads: dict[Fragment, int]) -> dict[Fragment, int]:
    """Raises TraceError where fragments with different layouts are combined, whose registers hold
    different elements. Of one row, "wgmma" and "tmem" are the same.
    """
    by_layout = {f._ir.layout: f._ir for f in reads if f._ir.rows > 1 or row_threads(f._ir.layout)}
    if any(map(row_threads, by_layout)):
        by_layout |= {f._ir.layout: f._ir for f in reads}
    if len(by_layout) > 1:
        named = ", ".join(f'{f.named} has layout "{layout}"' for layout, f in by_layout.items())
        raise TraceError(
            f"these fragments hold different elements in the same registers: {named}. Make them"
            " alike: `layout=`.",
            caller(),
        )
    return reads


class Fragment(FragmentValue):
    """A matrix (m, n) in the registers of one warpgroup, m a multiple of 64 and n of 8; or one
    value a row, (m, 1); or one value a column, (1, n). With layout "rows:T", of which T threads
    hold a row, in the registers of a warpgroup or a warp. Changes in place: `f.set(x)`,
    `f[...] = x`, `f.fill(0)`, `f += x`, `f -= x`, `f *= x`, `f /= x`.
    """

    # identity: a fragment is a place, not a value
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self, tracer: Tracer, ir: registers.Fragment) -> None:
        self._ir = ir
        self.version = 0
        whole = FragmentRead(ir.dtype, shape=(ir.rows, ir.cols), fragment=ir)
        super().__init__(tracer, whole, {})

    @classmethod
    def define(
        cls, tracer: Tracer, shape: tuple[int, int], dtype: DType, name: str, layout: str = "wgmma"
    ) -> Fragment:
        """Creates a fragment with undefined contents in the current role. Of 64 rows, or one,
        "wgmma" and "tmem" are one layout.

        Raises:
            TraceError: not in a warpgroup role, or a shape that the layout does not have.
        """
        role = tracer.role.role
        threads = row_threads(layout) if isinstance(layout, str) else 0
        if not role.is_warpgroup and not threads:
            raise TraceError(
                f"fragments live in the registers of a warpgroup; role '{role.name}' needs"
                ' warpgroups=, not warps=. Fragments of layout "rows:T" live in a warp, too.',
                caller(),
            )
        rows, cols = checked_shape(shape)
        require_rule(dtypes.broken_register_rule(dtype))
        layout = layout_of((rows, cols), dtype, layout, role.agent_threads)
        ir = registers.Fragment(
            tracer.name(name), dtype, rows, cols, caller(), layout, assigned_to()
        )
        tracer.emit(ops.FragmentDefine(caller(), ir))
        return cls(tracer, ir)

    def written(self) -> None:
        """Records a register write: earlier expressions become stale, and the next wgmma needs a
        fence.
        """
        self.version += 1
        for scope in self._tracer.scope.outward:
            scope.group_open = False

    def ir(self) -> Expr:
        self._refuse_fours(
            "it is not read otherwise: keep the value, or load the tile to another fragment"
        )
        self._tracer.check_alive(self._scope, "fragment", self)
        return self._expr

    def _refuse_fours(self, why: str) -> None:
        if self._ir.layout == FOURS:
            raise TraceError(
                f'fragment {self._ir.named} of layout "fours" is operand A of ctx.mma, whose'
                f" registers f.pack(x) or f.load(tile) fills; {why}",
                caller(),
            )

    def _dependencies(self) -> dict[Fragment, int]:
        return {self: self.version}

    def operand(self) -> registers.Fragment:
        """The fragment as an operand."""
        self._tracer.check_alive(self._scope, "fragment", self)
        return self._ir

    def set(self, value: object, col: int | None = None) -> None:
        """Replaces the fragment by a value of its shape, converted to its dtype, or with `col` the
        columns [col, col + n) by a value (m, n); a value (1, n) goes to every row. A scalar, or one
        value a row (m, 1), fills all columns, or those from `col` on.

        Args:
            col: a multiple of 8. Without it a value of fewer columns is an error: it would leave
                the others as they are.

        Raises:
            TraceError: the shapes do not match.
        """
        whole, col = col is None, 0 if col is None else col
        self._refuse_fours("write f.pack(x) here, whose columns come in another order")
        step = self._step
        if not isinstance(col, int):
            refuse_traced_columns(f"f.set(x, col={col!r})", col)
        if col % step or not 0 <= col < self._ir.cols:
            raise TraceError(
                f"columns of a fragment of {self._ir.cols} are set from a multiple of {step} on,"
                f" got {col!r}",
                caller(),
            )
        if isinstance(value, FragmentValue):
            x = value.to(self.dtype).ir()
            rows, cols = x.shape
            if (
                rows not in (self._ir.rows, 1)
                or col + cols > self._ir.cols
                or (cols not in (self._ir.cols, 1) and cols % step)
            ):
                raise TraceError(
                    f"a value of {rows}×{cols} at column {col} does not fit a fragment of"
                    f" {self._ir.rows}×{self._ir.cols}",
                    caller(),
                )
            if whole and cols not in (self._ir.cols, 1):
                raise TraceError(
                    f"a value of {rows}×{cols} is set in a fragment of"
                    f" {self._ir.rows}×{self._ir.cols}, whose other {self._ir.cols - cols} columns"
                    " would stay: write f.set(x, col=0) if they are to, or give a value of all",
                    caller(),
                )
            if rows > 1 or row_threads(self._ir.layout) or row_threads(value.layout):
                of_one_layout({self: 0, **value._dependencies()})
        else:
            scalar = require_finite(scalar_operand(self._tracer, value), self.dtype)
            x = to_expr(self._tracer, traced_value(self._tracer, scalar).to(self.dtype))
        self.operand()
        self._require_together("a write to a fragment")
        if self._ir.rows == 1 and self._tracer.scope.inside("per_warp"):
            raise TraceError(
                "one value a column is the same in all warps: move the write to it out of per_warp",
                caller(),
            )
        self._tracer.emit(ops.FragmentSet(caller(), self._ir, x, col))
        self.written()

    def pack(self, value: FragmentValue, col: int = 0) -> None:
        """Rounds a value (m, n) of an accumulator's layout to the 8 bits of this fragment, which
        has layout "fours": operand A of `ctx.mma`. Nothing moves between threads, so of each 16
        columns, column p of the fragment is column `tp.FOURS_ORDER[p]` of the value, 8 j + 2 t + i
        for p = 4 t + 2 j + i. A product is the one of the values where the columns of B (n, k)
        come in that order as well.

        Args:
            col: the fragment's column from which on they are written, a multiple of 16.

        Raises:
            TraceError: a fragment or a value of another layout, shapes that do not fit.
        """
        f = self._ir
        if f.layout != FOURS:
            raise TraceError(
                f"f.pack(x) fills a fragment of 8 bits that ctx.mma takes as A: make {f.named} by"
                ' `ctx.fragment(shape=(m, n), dtype="float8_e4m3", layout="fours")`; others are'
                " written by f.set(x)",
                caller(),
            )
        if not isinstance(value, FragmentValue):
            raise TraceError(f"f.pack(x) takes a fragment expression, got {value!r}", caller())
        if not isinstance(col, int):
            refuse_traced_columns(f"f.pack(x, col={col!r})", col)
        x = value.to(f.dtype).ir()
        rows, cols = x.shape
        if rows != f.rows or cols % 16 or col % 16 or not 0 <= col <= f.cols - cols:
            raise TraceError(
                f"a value of {rows}×{cols} at column {col} cannot be packed into a fragment of"
                f" {f.rows}×{f.cols}: it needs {f.rows} rows, and multiples of 16 columns inside",
                caller(),
            )
        if value.layout != "wgmma":
            raise TraceError(
                'f.pack(x) takes a value of the layout of accumulators, "wgmma"; this one has'
                f' layout "{value.layout}"',
                caller(),
            )
        self.operand()
        self._require_together("a write to a fragment")
        self._tracer.emit(ops.FragmentPack(caller(), f, x, col))
        self.written()

    def fill(self, value: object) -> None:
        """Sets every element to a scalar."""
        self.set(value)

    def load(self, tile: SmemTile) -> None:
        """Reads a shared tile of the same shape and dtype, of this CTA or (`tile.on(cta)`) of a
        peer. A fragment (m, 1) also reads a tile (1, m), whose column i becomes row i: the tile
        that TMA fills from a vector along the rows. A fragment of layout "fours", operand A of 8
        bits, has the columns of the tile in their order: B's need no other.
        """
        refuse_columns(self, tile, "f.load(tile)", "ctx.load_global reads a tensor")
        turned = self._ir.cols == 1 and tile.shape == (1, self._ir.rows)
        turned = turned and not row_threads(self._ir.layout)
        if (tile.shape != self.shape and not turned) or tile.dtype is not self.dtype:
            raise TraceError(
                f"cannot load {tile!r} into a fragment of {self._ir.rows}×{self._ir.cols}"
                f" {self.dtype}",
                caller(),
            )
        require_fragment(self._tracer, "a load of a fragment")
        if self._tracer.scope.inside("per_warp"):
            raise TraceError(
                "a fragment is loaded by its whole warpgroup: move f.load(tile) out of per_warp",
                caller(),
            )
        source = tile.fragment_operand("loaded")
        if self._ir.layout == FOURS:
            require_rule(broken_operand_load_rule(source), "a load of operand A")
        self._tracer.emit(ops.FragmentLoad(caller(), self._ir, source))
        self.written()

    def load_tmem(self, source: memory.Tmem) -> None:
        """Reads a matrix of the same shape and dtype in tensor memory; see `TmemTensor.load`."""
        self._refuse_fours("tensor memory holds none")
        refuse_rows(self, "a load from tensor memory", 'layout="tmem"')
        self._tracer.emit(ops.TmemLoad(caller(), self.operand(), source))
        self.written()

    def __setitem__(self, key: object, value: object) -> None:
        if key is not Ellipsis:
            raise TraceError(
                "a fragment is assigned as `f[...] = x` or `f.set(x)`; columns from c on as"
                " `f.set(x, col=c)`",
                caller(),
            )
        self.set(value)

    def __iadd__(self, other: object) -> Fragment:
        self.set(self + other)
        return self

    def __isub__(self, other: object) -> Fragment:
        self.set(self - other)
        return self

    def __imul__(self, other: object) -> Fragment:
        self.set(self * other)
        return self

    def __itruediv__(self, other: object) -> Fragment:
        self.set(self / other)
        return self

    def _no_such_update(self, other: object) -> NoReturn:
        raise TraceError(
            "a fragment is updated in place by `+=`, `-=`, `*=` and `/=`; write anything else as"
            " `f.set(...)`",
            caller(),
        )

    __ifloordiv__ = __imod__ = __ipow__ = __imatmul__ = _no_such_update
    __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = _no_such_update

    def __repr__(self) -> str:
        return f"<fragment {self._ir.named} {self._ir.rows}×{self._ir.cols} {self.dtype}>"


def refuse_rows(value: FragmentValue, what: str, instead: str) -> None:
    """Raises TraceError for a fragment of layout "rows:T", where the hardware or the library has no
    such access.
    """
    if row_threads(value.layout):
        raise TraceError(
            f'{what} takes no fragment of layout "{value.layout}"; use {instead}', caller()
        )


def refuse_columns(value: FragmentValue, tile: SmemTile, what: str, instead: str) -> None:
    """Raises TraceError for a fragment of layout "rows:T" that meets a shared tile, unless it has
    one value a row, (m, 1), and the tile is not swizzled.
    """
    if not row_threads(value.layout):
        return
    if value.shape[1] > 1:
        raise TraceError(
            f'{what} takes one value a row, (m, 1), of layout "{value.layout}", and no matrix; use'
            f" {instead}",
            caller(),
        )
    if tile.ir("addressed").buffer.swizzle:
        raise TraceError(
            f'{what} of layout "{value.layout}" takes a tile without swizzle:'
            " ctx.smem(..., swizzle=0)",
            caller(),
        )
