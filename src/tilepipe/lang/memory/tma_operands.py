"""What a TMA copy asks of its operands: that the box of the tensor map is the tile, and where the
box lies.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.errors import TraceError
from tilepipe.ir import expressions as exprs
from tilepipe.ir.hardware import operand_tiles as geometry
from tilepipe.ir.hardware.tma import MOST_RAGGED_LOADED, broken_coordinate_rule
from tilepipe.ir.location import caller
from tilepipe.lang.memory.global_tensors import GlobalTensor
from tilepipe.lang.memory.shared_tiles import SmemTile, SmemTileArray
from tilepipe.lang.tracing.tracer import Tracer, require_rule
from tilepipe.lang.values.scalars import require_integer, to_expr


def check_rank_of_loads(tensor: GlobalTensor) -> None:
    """Raises TraceError where a map that loads have no room in: of its five dimensions three stand
    for the lines.
    """
    if tensor.rank > MOST_RAGGED_LOADED:
        raise TraceError(
            f"tma_load by the ragged map of '{tensor.param.name}', of rank {tensor.rank}: a map has"
            " at most 5 dimensions, and one that loads use needs 3 of them for the lines, so its"
            f" tensor has at most {MOST_RAGGED_LOADED}. Bind a view with fewer dimensions.",
            caller(),
        )


def needs_ragged(what: str, tensor: GlobalTensor) -> str:
    """The message where `what`, an argument, takes a ragged map, and this is none."""
    return (
        f"{what} needs a ragged map of '{tensor.param.name}': `tp.tensor_map(array, box=...,"
        " ragged=True)`"
    )


def coordinates(
    tracer: Tracer, tensor: GlobalTensor, coords: Sequence[object], store: bool
) -> tuple[exprs.Expr, ...]:
    """Where the box lies, outermost first. `store`: the copy writes the tensor.

    Raises:
        TraceError: too few or too many coordinates, or one that TMA cannot take.
    """
    if not isinstance(coords, Sequence) or len(coords) != tensor.rank:
        got = len(coords) if isinstance(coords, Sequence) else repr(coords)
        raise TraceError(
            f"{tensor!r} takes {tensor.rank} coordinates, outermost first, got {got}", caller()
        )
    found = tuple(require_integer(to_expr(tracer, c), "a TMA coordinate") for c in coords)
    # 0 breaks no rule; the simulator looks at the others
    known = [int(x.value) if isinstance(x, exprs.Const) else 0 for x in found]
    require_rule(
        broken_coordinate_rule(
            known,
            tensor.param.contiguous_axis,
            tensor.dtype,
            store=store,
            ragged=tensor.param.ragged,
        ),
        repr(tensor),
    )
    return found


def check_box(tensor: GlobalTensor, tile: object, what: str) -> None:
    """Asserts that the box of a map and a tile have the same shape, dtype, order and swizzle.

    Raises:
        TraceError: they differ, there is no box, or it is no tile. `what`: the op, for the message.
    """
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
                f"{what}: the {name} of '{tensor.param.name}' is {theirs}, that of '{buffer.name}'"
                f" is {ours}; they must agree{_turned(tensor, name)}",
                caller(),
            )
    require_rule(geometry.broken_tma_rule(tile._tile), what)


def _turned(tensor: GlobalTensor, fact: str) -> str:
    """What to write where the orders of map and tile differ."""
    if fact != "order":
        return ""
    return (
        f'. TMA turns nothing: allocate the tile with order="{tensor.order}", or, to move the'
        " transposed matrix, bind the map of a transposed view, `tp.tensor_map(array.T, box=...)`"
    )
