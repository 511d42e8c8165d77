"""TMA: tensor copies between global and shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.errors import TraceError
from tilepipe.ir import expressions as exprs, ops
from tilepipe.ir.hardware import operand_tiles as geometry
from tilepipe.ir.hardware.tma import broken_coordinate_rule
from tilepipe.ir.location import caller
from tilepipe.lang.asynchronous.commits import Mbar, check_mask
from tilepipe.lang.memory.global_tensors import GlobalTensor
from tilepipe.lang.memory.shared_tiles import SmemTile, SmemTileArray
from tilepipe.lang.tracing.convergence import require_one_lane
from tilepipe.lang.tracing.tracer import Tracer, require_rule
from tilepipe.lang.values.scalars import require_integer, require_uniform, to_expr


def _coords(
    tracer: Tracer, tensor: GlobalTensor, coords: Sequence[object], store: bool
) -> tuple[exprs.Expr, ...]:
    if not isinstance(coords, Sequence) or len(coords) != tensor.rank:
        got = len(coords) if isinstance(coords, Sequence) else repr(coords)
        raise TraceError(
            f"{tensor!r} takes {tensor.rank} coordinates, outermost first, got {got}", caller()
        )
    found = tuple(require_integer(to_expr(tracer, c), "a TMA coordinate") for c in coords)
    # 0 breaks no rule; the simulator looks at the others
    known = [int(x.value) if isinstance(x, exprs.Const) else 0 for x in found]
    require_rule(
        broken_coordinate_rule(known, tensor.param.contiguous_axis, tensor.dtype, store=store),
        repr(tensor),
    )
    return found


def _check_box(tensor: GlobalTensor, tile: object, what: str) -> None:
    if tensor.box is None:
        raise TraceError(
            f"{what} needs a tensor map with a box: pass `tp.tensor_map(array, box=...)`, not the"
            " bare array",
            caller(),
        )
    if not isinstance(tile, SmemTile):
        one = (
            " Of an array of tiles take one: `tiles[i]`." if isinstance(tile, SmemTileArray) else ""
        )
        raise TraceError(f"{what} moves one tile of shared memory, got {tile!r}.{one}", caller())
    box = (1, *tensor.box)[-2:]
    outer = tensor.box[:-2]
    if box != tile.shape or any(extent != 1 for extent in outer):
        raise TraceError(
            f"the box of '{tensor.param.name}' is {'×'.join(map(str, tensor.box))}, the tile is"
            f" {tile.shape[0]}×{tile.shape[1]}",
            caller(),
        )
    buffer = tile._tile.buffer
    facts = {
        "dtype": (tensor.dtype, tile.dtype),
        "order": (tensor.order, tile.order),
        "swizzle": (tensor.swizzle, buffer.swizzle),
    }
    for name, (theirs, ours) in facts.items():
        if theirs != ours:
            raise TraceError(
                f"{what}: the {name} of '{tensor.param.name}' is {theirs}, that of"
                f" '{buffer.name}' is {ours}; they must agree",
                caller(),
            )
    require_rule(geometry.broken_tma_rule(tile._tile), what)


def tma_load(
    tracer: Tracer,
    tensor: GlobalTensor,
    coords: Sequence[object],
    tile: SmemTile,
    mbar: Mbar,
    multicast: object = None,
) -> None:
    """See `Context.tma_load`."""
    require_one_lane(tracer, "tma_load")
    _check_box(tensor, tile, "tma_load")
    if tensor.param.ragged:
        raise TraceError(
            f"tma_load: the map of '{tensor.param.name}' is ragged, which only stores take: load"
            " by another map",
            caller(),
        )
    mask = (
        None
        if multicast is None
        else require_uniform(to_expr(tracer, multicast), "a multicast mask")
    )
    if isinstance(mask, exprs.Const):
        check_mask(tracer, int(mask.value))
    dst, ref = tile.ir("loaded into"), mbar.ref()
    tracer.emit(
        ops.TmaLoad(
            caller(), tensor.param, _coords(tracer, tensor, coords, store=False), dst, ref, mask
        )
    )


def tma_store(
    tracer: Tracer,
    tensor: GlobalTensor,
    coords: Sequence[object],
    tile: SmemTile,
    rows: object = None,
) -> None:
    """See `Context.tma_store`."""
    require_one_lane(tracer, "tma_store")
    _check_box(tensor, tile, "tma_store")
    if rows is not None and not tensor.param.ragged:
        raise TraceError(
            f"tma_store: rows= needs a ragged map of '{tensor.param.name}': `tp.tensor_map(array,"
            " box=..., ragged=True)`",
            caller(),
        )
    count = None if rows is None else require_integer(to_expr(tracer, rows), "rows= of tma_store")
    tracer.emit(
        ops.TmaStore(
            caller(),
            tensor.param,
            _coords(tracer, tensor, coords, store=True),
            tile.ir("stored"),
            count,
        )
    )
