"""Matrices in tensor memory, and the scale factors of block-scaled MMAs."""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, expressions as exprs, memory, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr
from tilepipe.ir.hardware import block_scales, tensor_memory
from tilepipe.ir.hardware.operand_tiles import is_multiple
from tilepipe.ir.location import caller
from tilepipe.ir.printer import expr
from tilepipe.lang.arguments.annotations import Index
from tilepipe.lang.fragments.fragment import Fragment, FragmentValue, refuse_rows
from tilepipe.lang.handles.linear import Handle, View
from tilepipe.lang.tracing.convergence import require_fragment
from tilepipe.lang.tracing.tracer import Tracer, require_rule
from tilepipe.lang.values.scalars import Value, combined, require_integer, to_expr, traced_value


class TmemTensor(View):
    """A matrix (rows, cols) of 64 or 128 rows in tensor memory: an accumulator, or A of an MMA.

    `t.cols(start, count)` narrows it; `t.load()` loads it into registers, `t.store(x)` writes it.
    """

    _kind = "view of tensor memory"

    def __init__(
        self,
        tracer: Tracer,
        address: Expr,
        shape: tuple[int, int],
        dtype: object = "float32",
        owner: Handle | None = None,
    ) -> None:
        """The matrix at `address`, a uint32: lane << 16 | column (PTX ISA, "Tensor Memory
        Addressing").

        Raises:
            TraceError: a shape or dtype that tensor memory does not hold.
        """
        kind = dtypes.dtype(dtype)
        if (
            not isinstance(shape, tuple)
            or len(shape) != 2
            or not all(type(x) is int for x in shape)
        ):
            raise TraceError(
                "the shape of a matrix in tensor memory is (rows, cols), two static integers, got"
                f" {shape!r}",
                caller(),
            )
        rows, cols = shape
        if not kind.is_float or kind.bits not in (16, 32):
            raise TraceError(
                "tensor memory holds matrices of float32, bfloat16 and float16 here, not of"
                f" {kind}",
                caller(),
            )
        if (
            rows not in (64, 128)
            or cols < 8
            or cols % 8
            or cols * kind.nbytes // 4 > tensor_memory.COLUMNS
        ):
            raise TraceError(
                "a matrix in tensor memory has 64 or 128 rows and a multiple of 8 columns, at most"
                f" {tensor_memory.COLUMNS} columns of 32 bits; got {rows}×{cols} {kind}",
                caller(),
            )
        super().__init__(tracer, owner)
        self._tmem = memory.Tmem(address, rows, cols, kind)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols), elements."""
        return self._tmem.rows, self._tmem.cols

    @property
    def columns(self) -> int:
        """Columns of 32 bits that it takes."""
        return self._tmem.columns

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._tmem.dtype

    def ir(self, use: str) -> memory.Tmem:
        """The matrix as an operand.

        Raises:
            HandleError: the stage it belongs to has been released.
            TraceError: the block that it was made in has closed.
        """
        self._check_usable(use)
        return self._tmem

    def offset(self) -> Value:
        """Its address in tensor memory."""
        return traced_value(self._tracer, self.ir("addressed").address)

    def cols(self, start: Index, count: int) -> TmemTensor:
        """Columns [start, start + count), multiples of 8; `start` may be traced.

        Raises:
            TraceError: they leave the matrix.
        """
        t = self.ir("narrowed")
        at = require_integer(to_expr(self._tracer, start), "a column")
        first = int(at.value) if isinstance(at, exprs.Const) else 0
        if (
            type(count) is not int
            or count < 8
            or count % 8
            or first < 0
            or not is_multiple(at, 8)
            or first + count > t.cols
        ):
            raise TraceError(
                f"columns [{expr(at)}, {expr(at)} + {count}) of a matrix of {t.cols}: need"
                " multiples of 8 inside it, and a traced start that is known to be one, such as `i"
                " * 8`",
                caller(),
            )
        to_columns = exprs.const(4 // t.dtype.nbytes)  # elements of a 32-bit column
        columns = combined(self._tracer, "floordiv", at, to_columns)
        moved = combined(self._tracer, "add", t.address, columns)
        return TmemTensor(self._tracer, moved, (t.rows, count), t.dtype, self._owner)

    def load(self) -> Fragment:
        """tcgen05.ld into a new fragment, by the whole warpgroup: of layout "tmem" where it has 128
        rows. It may be read after `ctx.tmem_wait_load()`. Under `per_warp`, the rows of the warp.
        """
        require_fragment(self._tracer, "a load from tensor memory")
        source = self.ir("loaded")
        result = Fragment.define(self._tracer, self.shape, source.dtype, "tmem_part", "tmem")
        result.load_tmem(source)
        return result

    def store(self, value: FragmentValue) -> None:
        """tcgen05.st, by the whole warpgroup. What is written may be used after
        `ctx.tmem_wait_store()`. Under `per_warp`, the rows of the warp.

        Raises:
            TraceError: not a fragment of this shape, or 128 rows in a layout other than "tmem".
        """
        if not isinstance(value, FragmentValue):
            raise TraceError(f"tensor memory is stored from a fragment, got {value!r}", caller())
        refuse_rows(value, "a store to tensor memory", 'layout="tmem"')
        require_fragment(self._tracer, "a store to tensor memory")
        if value.shape != self.shape or (value.shape[0] == 128 and value.layout != "tmem"):
            raise TraceError(
                f'a fragment {value.shape[0]}×{value.shape[1]} of layout "{value.layout}" does'
                f" not fit {self!r};"
                ' 128 rows need layout="tmem"',
                caller(),
            )
        self._tracer.emit(ops.TmemStore(caller(), self.ir("stored"), value.to(self.dtype).ir()))

    def __repr__(self) -> str:
        t = self._tmem
        return f"<tensor memory {t.rows}×{t.cols} {t.dtype}>"


class TmemScales(View):
    """The scale factors (rows, blocks of K) of A or B of a block-scaled MMA, in tensor memory:
    `sfa` and `sfb` of `ctx.mma`.

    `ctx.tmem_copy(scales, tile)` fills them. Each 128 rows × 4 blocks, or less at the end, take 4
    columns of 32 bits. `s.rows(start, count)` narrows it.
    """

    _kind = "view of tensor memory"

    def __init__(
        self,
        tracer: Tracer,
        address: Expr,
        shape: tuple[int, int],
        dtype: object = "float8_e8m0",
        owner: Handle | None = None,
    ) -> None:
        """The scale factors at `address`, a uint32 of lane 0 (PTX ISA, "Tensor Memory Addressing").

        Raises:
            TraceError: not a dtype of scale factors, or a shape that no MMA takes.
        """
        kind = dtypes.dtype(dtype)
        rows, blocks = shape if isinstance(shape, tuple) and len(shape) == 2 else (shape, None)
        require_rule(block_scales.broken_scales_rule(rows, blocks, kind))
        assert isinstance(rows, int)
        assert isinstance(blocks, int)
        stride = tensor_memory.PIECE_COLUMNS * -(-rows // tensor_memory.PIECE_ROWS)
        super().__init__(tracer, owner)
        self._scales = memory.TmemScales(address, rows, blocks, kind, stride, exprs.const(0))
        if self.columns > tensor_memory.COLUMNS:
            raise TraceError(
                f"{self!r} take {self.columns} columns of tensor memory, which has"
                f" {tensor_memory.COLUMNS}",
                caller(),
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, blocks of K)."""
        return self._scales.rows, self._scales.blocks

    @property
    def columns(self) -> int:
        """Columns of 32 bits that the whole pieces of 128 rows × 4 blocks take."""
        return -(-self._scales.blocks // tensor_memory.SCALES_A_COLUMN) * self._scales.stride

    @property
    def dtype(self) -> DType:
        """float8_e8m0 or float8_e4m3."""
        return self._scales.dtype

    def ir(self, use: str) -> memory.TmemScales:
        """The scale factors as an operand.

        Raises:
            HandleError: the stage they belong to has been released.
            TraceError: the block that they were made in has closed.
        """
        self._check_usable(use)
        return self._scales

    def offset(self) -> Value:
        """Their address in tensor memory."""
        return traced_value(self._tracer, self.ir("addressed").address)

    def rows(self, start: Index, count: int) -> TmemScales:
        """Rows [start, start + count), `start` a multiple of 64, which may be traced: of an n that
        is no multiple of 128, whose scale factors begin inside a piece.

        Raises:
            TraceError: they leave the matrix.
        """
        s = self.ir("narrowed")
        at = require_integer(to_expr(self._tracer, start), "a row")
        first = int(at.value) if isinstance(at, exprs.Const) else 0
        step = block_scales.ROW_STEP
        if (
            type(count) is not int
            or count < 1
            or first < 0
            or not is_multiple(at, step)
            or first + count > s.rows
        ):
            raise TraceError(
                f"rows [{expr(at)}, {expr(at)} + {count}) of scale factors of {s.rows} rows: need a"
                f" multiple of {step} inside them, and a traced start that is known to be one, such"
                f" as `i * {step}`",
                caller(),
            )
        part = TmemScales(self._tracer, s.address, (count, s.blocks), s.dtype, self._owner)
        moved = combined(self._tracer, "add", s.first, at)
        part._scales = memory.TmemScales(s.address, count, s.blocks, s.dtype, s.stride, moved)
        return part

    def __repr__(self) -> str:
        s = self._scales
        return f"<scale factors {s.rows}×{s.blocks} {s.dtype} in tensor memory>"
