"""Scale factors in tensor memory as a block-scaled MMA finds them, and what it computes.

A product of scaled numbers is exact in float64: an fp8 number has 4 significant bits, and the
exponents of four factors stay within its range. Each instruction along K adds its sum of products
to the accumulator, rounded to float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.ir.hardware.tensor_memory import PIECE_BYTES, SCALE_LANES, Scales, Scaling, pieces
from tilepipe.machine.actors import Actor
from tilepipe.machine.faults import tensor_memory as tensor_faults
from tilepipe.machine.happens_before.accesses import Rect
from tilepipe.machine.memory.tensor_memory import ScalePlace, TensorMemory
from tilepipe.machine.sites import Site

Array = npt.NDArray[Any]


def scale_place(
    ag: Actor,
    site: Site,
    tm: TensorMemory,
    s: Scales,
    address: int,
    first: int = 0,
    *,
    whole: bool = False,
) -> ScalePlace:
    """Where scale factors at an address lie, from row `first` of theirs on; `whole`: their last
    piece too.

    Raises:
        SimFault: not inside one live allocation of this CTA, or not at lane 0.
    """
    lane, column = address >> 16, address & 0xFFFF
    at = column + first // SCALE_LANES
    end = at + (len(pieces(s)) * 4 if whole else s.columns)
    inside = any(a.column <= at and end <= a.column + a.columns for a in tm.allocations.values())
    if not inside or lane:
        raise SimFault(
            tensor_faults.outside(ag, site, tm, s, address + first // SCALE_LANES), site.loc
        )
    return ScalePlace(s, tuple(range(at, at + s.columns, s.stride)), s.used)


def copied_rects(place: ScalePlace) -> list[Rect]:
    """What tcgen05.cp writes: whole pieces."""
    base = place.starts[0]
    return [
        (0, 4 * SCALE_LANES, base + column, base + column + 4) for column, _ in pieces(place.scales)
    ]


def copy_pieces(tm: TensorMemory, place: ScalePlace, raw: npt.NDArray[np.uint8]) -> None:
    """Copies the bytes of a tile of scale factors: each piece to all four groups of 32 lanes."""
    tiles = raw.reshape(-1, PIECE_BYTES).view(np.uint32).reshape(-1, SCALE_LANES, 4)
    for column, piece in pieces(place.scales):
        at = place.starts[0] + column
        tm.columns[at : at + 4] = np.tile(tiles[piece].T, (1, 4))


def scaled_product(
    acc: Array, adds: bool, a: Array, b: Array, sfa: Array, sfb: Array, scaling: Scaling
) -> None:
    """acc (n, m), float32, = or += (B · sfb) (A · sfa)ᵀ, one instruction along K after the
    other.
    """
    # NaN scale factors, sums beyond float32: as the hardware gives them
    with np.errstate(invalid="ignore", over="ignore"):
        left = a.astype(np.float64) * np.repeat(sfa, scaling.block, axis=1)
        right = b.astype(np.float64) * np.repeat(sfb, scaling.block, axis=1)
        for k in range(0, a.shape[1], scaling.k):
            product = np.matmul(right[:, k : k + scaling.k], left[:, k : k + scaling.k].T).astype(
                np.float32
            )
            acc[...] = acc + product if adds or k else product
