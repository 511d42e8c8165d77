"""Loads and stores of fragments: shared tiles, of this CTA or of a peer, and global tensors."""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Const, Expr
from tilepipe.ir.hardware import operand_tiles as geometry
from tilepipe.ir.location import caller
from tilepipe.ir.program import Requirement
from tilepipe.lang.fragments.fragment import Fragment, FragmentValue, refuse_columns
from tilepipe.lang.memory.global_tensors import GlobalTensor
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.tracing.convergence import agent_vary, require_fragment
from tilepipe.lang.tracing.tracer import Tracer, require_rule
from tilepipe.lang.values.scalars import require_integer, require_uniform, to_expr

_ELEMENTS = (
    dtypes.float32,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float8_e4m3,
    dtypes.float8_e5m2,
    dtypes.int8,
    dtypes.uint8,
    dtypes.int32,
    dtypes.uint32,
)
_SUMS = (  # PTX ISA, red: .add
    *(dtypes.float32, dtypes.float16, dtypes.bfloat16),
    *(dtypes.int32, dtypes.uint32),
)


def store(tracer: Tracer, tile: object, value: object) -> None:
    """Stores a fragment-shaped value to a shared tile. See `Context.store`.

    Raises:
        TraceError: not a tile or not a fragment; different shapes; only some threads of the
            warpgroup execute it; a tile that stmatrix cannot write.
    """
    if not isinstance(tile, SmemTile):
        raise TraceError(
            "ctx.store writes one element (`tile[r, c]`, `tensor[i, j]`) or a whole shared tile,"
            f" not {tile!r}. A fragment reaches global memory through a shared tile and"
            " ctx.tma_store, or by ctx.store_global.",
            caller(),
        )
    if not isinstance(value, FragmentValue):
        raise TraceError(
            "a whole tile is stored from a fragment; for one element write `ctx.store(tile[r, c],"
            " value)`",
            caller(),
        )
    refuse_columns(value, tile, "a store to a shared tile", "ctx.store_global writes a tensor")
    require_fragment(tracer, "a store of a fragment")
    rows, cols = value.shape
    if tracer.scope.inside("per_warp"):
        if rows == 1:
            raise TraceError(
                "one value a column is stored by the whole warpgroup: move ctx.store out of"
                " per_warp",
                caller(),
            )
        rows //= 4
    if tile.shape != (rows, cols):
        raise TraceError(
            f"the fragment gives {rows}×{cols} here, the tile is {tile.shape[0]}×{tile.shape[1]}",
            caller(),
        )
    require_rule(dtypes.broken_register_rule(tile.dtype), "store")
    dst = tile.fragment_operand("stored into")
    if geometry.takes_stmatrix(dst, value.shape):
        require_rule(geometry.broken_stmatrix_rule(dst), "store")
    if tile.dtype.is_integer and value.dtype is not tile.dtype:
        value = value.to(tile.dtype)  # floats are rounded by the store itself
    tracer.emit(ops.FragmentStore(caller(), dst, value.ir()))


def _place(
    tracer: Tracer, tensor: object, coords: Sequence[object], shape: object, what: str
) -> tuple[GlobalTensor, tuple[Expr, ...]]:
    """The tensor and its coordinates, after the checks of a load or store by a whole warpgroup."""
    require_fragment(tracer, what)
    if tracer.scope.inside("per_warp"):
        raise TraceError(
            f"{what} is made by the whole warpgroup: move it out of per_warp", caller()
        )
    if not isinstance(tensor, GlobalTensor):
        hint = (
            "; a shared tile is read by `f.load(tile)`, written by `ctx.store(tile, f)`"
            if isinstance(tensor, SmemTile)
            else ""
        )
        raise TraceError(
            f"{what} takes a tensor argument of the kernel, got {tensor!r}{hint}", caller()
        )
    if tensor.dtype not in _ELEMENTS:
        raise TraceError(
            f"{what}: '{tensor.param.name}' is {tensor.dtype}; fragments move"
            f" {', '.join(map(str, _ELEMENTS))}",
            caller(),
        )
    if not isinstance(coords, Sequence) or isinstance(coords, str) or len(coords) != tensor.rank:
        got = f"{len(coords)}" if isinstance(coords, Sequence) else repr(coords)
        raise TraceError(
            f"{what}: {tensor!r} takes {tensor.rank} coordinates, outermost first, got {got}",
            caller(),
        )
    exprs = tuple(require_integer(to_expr(tracer, c), "a coordinate") for c in coords)
    exprs = tuple(require_uniform(x, f"a coordinate of {what}", agent_vary(tracer)) for x in exprs)
    if isinstance(shape, tuple) and len(shape) == 2 and 1 not in shape and tensor.rank < 2:
        raise TraceError(
            f"{what}: a fragment {shape[0]}×{shape[1]} lies in the last two dimensions, but"
            f" {tensor!r} has one; one value a column is (1, n), one value a row (m, 1)",
            caller(),
        )
    return tensor, exprs


def _require_rows(
    tracer: Tracer,
    tensor: GlobalTensor,
    coords: Sequence[Expr],
    shape: tuple[int, int],
    what: str,
) -> None:
    """Has a launch refuse a column of a matrix (m, 1) in the place of one value a row, at (row,
    column), where row is a multiple of the fragment's rows: it is then meant as a row and a
    column, but the fragment lies along the row, and its rest outside.

    A fragment that begins at a multiple of its rows, other than 0, may be the last part of a row.
    """
    height, width = shape
    if width != 1 or height == 1 or tensor.rank < 2:
        return
    first = coords[-1]
    if not isinstance(first, Const) or not geometry.is_multiple(coords[-2], height):
        return
    start = int(first.value)
    if start < 0 or (start > 0 and start % height == 0):
        return
    rows, columns = tensor.shape[-2], tensor.shape[-1]
    short = (rows < height) | (columns >= start + height)  # or it lies inside
    if start == 0:
        short = (rows == 1) | ((columns != 1) & short)
    place = f", from {start} on" if start else ""
    found = Requirement(
        caller(),
        to_expr(tracer, short),
        f"{what}: the rows of a fragment {height}×1 lie in the last dimension of"
        f" '{tensor.param.name}'{place}, which is {{}} long here, beside {{}} in the one"
        f" before: a row is {'read' if what == 'load_global' else 'written'}, and the rest of the"
        f" fragment would be outside. For a column of a matrix, bind the vector x[..., {start}] and"
        f" drop the last coordinate, {start}; for a row, bind x[i]",
        (to_expr(tracer, columns), to_expr(tracer, rows)),
    )
    known = tracer.kernel.requirements
    if all((x.loc, x.message) != (found.loc, found.message) for x in known):
        known.append(found)


def load_global(
    tracer: Tracer,
    tensor: GlobalTensor,
    coords: Sequence[object],
    shape: tuple[int, int],
    layout: str = "wgmma",
) -> Fragment:
    """See `Context.load_global`."""
    source, where = _place(tracer, tensor, coords, shape, "load_global")
    small_float = source.dtype.is_float and source.dtype.bits == 8
    dtype = dtypes.float32 if small_float else source.dtype
    result = Fragment.define(tracer, shape, dtype, f"{source.param.name}_part", layout)
    _require_rows(tracer, source, where, result.shape, "load_global")
    tracer.emit(ops.FragmentLoadGlobal(caller(), result.operand(), source.param, where))
    result.written()
    return result


def store_global(
    tracer: Tracer,
    tensor: GlobalTensor,
    coords: Sequence[object],
    value: FragmentValue,
    rows: object = None,
    reduce: str | None = None,
) -> None:
    """See `Context.store_global`."""
    if not isinstance(value, FragmentValue):
        raise TraceError(
            "store_global writes a fragment; for one element write `ctx.store(tensor[i, j],"
            " value)`",
            caller(),
        )
    destination, where = _place(tracer, tensor, coords, value.shape, "store_global")
    given = value.to(destination.dtype).ir()
    count = None if rows is None else _rows(tracer, rows, value)
    if count is None:
        _require_rows(tracer, destination, where, value.shape, "store_global")
    if reduce is None:
        tracer.emit(ops.FragmentStoreGlobal(caller(), destination.param, where, given, count))
        return
    if destination.dtype not in _SUMS:
        raise TraceError(
            f"store_global with reduce=: '{destination.param.name}' is {destination.dtype};"
            f" fragments are added to {', '.join(map(str, _SUMS))}",
            caller(),
        )
    tracer.emit(ops.FragmentReduceGlobal(caller(), destination.param, where, given, "add", count))


def _rows(tracer: Tracer, rows: object, value: FragmentValue) -> Expr:
    """How many rows of a fragment are written."""
    if value.shape[0] == 1:
        raise TraceError(
            f"store_global: rows= says how many rows of a fragment are written; this one,"
            f" 1×{value.shape[1]}, has one value a column",
            caller(),
        )
    count = require_integer(to_expr(tracer, rows), "rows= of store_global")
    return require_uniform(count, "rows= of store_global", agent_vary(tracer))
