"""Scale factors of block-scaled MMAs in tensor memory."""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, expressions as exprs, memory
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr
from tilepipe.ir.hardware import block_scales, tensor_memory
from tilepipe.ir.hardware.operand_tiles import is_multiple
from tilepipe.ir.location import caller
from tilepipe.ir.printer import expr
from tilepipe.lang.arguments.annotations import Index
from tilepipe.lang.arguments.rules import require_rule
from tilepipe.lang.handles.linear import Handle
from tilepipe.lang.tracing.scopes import Scope
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, binary, require_integer, to_expr, traced_value


class TmemScales:
    """The scale factors (rows, blocks of K) of A or B of a block-scaled MMA, in tensor memory:
    `sfa` and `sfb` of `ctx.mma`.

    `ctx.tmem_copy(scales, tile)` fills them. Each 128 rows × 4 blocks, or less at the end, take 4
    columns of 32 bits. `s.rows(start, count)` narrows it.
    """

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
        self._tracer = tracer
        self._scales = memory.TmemScales(address, rows, blocks, kind, stride, exprs.const(0))
        self._owner = owner
        self._scope: Scope = tracer.scope
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

    def _is_dead(self) -> bool:
        return self._scope.closed or (self._owner is not None and self._owner._is_dead())

    def ir(self, use: str) -> memory.TmemScales:
        """The scale factors as an operand.

        Raises:
            HandleError: the stage they belong to has been released.
            TraceError: the block that they were made in has closed.
        """
        if self._owner is not None:
            self._owner.check_held(use)
        self._tracer.check_alive(self._scope, "view of tensor memory", self)
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
                f"rows [{expr(at)}, {expr(at)} + {count}) of scale factors of {s.rows} rows: need"
                f" a multiple of {step} inside them, and a"
                f" traced start that is known to be one, such as `i * {step}`",
                caller(),
            )
        part = TmemScales(self._tracer, s.address, (count, s.blocks), s.dtype, self._owner)
        moved = to_expr(
            self._tracer,
            binary(self._tracer, "add", Value(self._tracer, s.first), Value(self._tracer, at)),
        )
        part._scales = memory.TmemScales(s.address, count, s.blocks, s.dtype, s.stride, moved)
        return part

    def __repr__(self) -> str:
        s = self._scales
        return f"<scale factors {s.rows}×{s.blocks} {s.dtype} in tensor memory>"
