"""Rules of block-scaled MMAs on Blackwell: types of operands and scale factors, their numbers and
their positions.

PTX ISA, "Block Scaling for tcgen05.mma": each row of A, and each row of B (n, k), is divided into
blocks along K, and each block is multiplied by its scale factor, (A · sfa) (B · sfb)ᵀ. The scale
factors are in tensor memory (`ir.memory.TmemScales`).

| kind | A and B | scale factors | block | K of an instruction |
|---|---|---|---|---|
| mxf8f6f4 | .e4m3 and .e5m2 in any mix | .ue8m0 | 32 | 32 |
| mxf4 | .e2m1 | .ue8m0 | 32 | 64 |
| mxf4nvf4 | .e2m1 | .ue4m3 | 16 | 64 |

M is 128 rows in each CTA, n a multiple of 8 (16 in a pair) up to 256, K contiguous. In a pair each
CTA holds the scale factors of its own 128 rows of A, and those of all n rows of B. Not printed:
.e2m1 with fp8 (it has a different, padded layout), 6 bits, A in tensor memory, M 128 of a pair.
"""

from __future__ import annotations

from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Const
from tilepipe.ir.hardware.mma import MAX_N, broken_product_rule, broken_tiles_rule
from tilepipe.ir.hardware.operand_tiles import MATRIX_ROW, divisor
from tilepipe.ir.hardware.tensor_memory import (
    PIECE_BYTES,
    PIECE_COLUMNS,
    PIECE_ROWS,
    pieces,
    scaling_of,
)
from tilepipe.ir.memory import Tile, Tmem, TmemScales

ROW_STEP = 64  # of a part of the rows


def broken_scales_rule(rows: object, blocks: object, dtype: DType) -> str | None:
    """Why scale factors (rows, blocks of K) of a dtype are not possible; None if they are."""
    if dtype not in (dtypes.float8_e8m0, dtypes.float8_e4m3):
        return (
            "scale factors are float8_e8m0, of blocks of 32, or float8_e4m3, of blocks of 16"
            f" float4_e2m1; not {dtype}"
        )
    whole = all(isinstance(x, int) and not isinstance(x, bool) and x >= 1 for x in (rows, blocks))
    if whole and isinstance(rows, int) and rows <= MAX_N:
        return None
    return (
        f"scale factors are (rows, blocks of K): 1 to {MAX_N} rows of A or B, and at least one"
        f" block; got ({rows!r}, {blocks!r})"
    )


def broken_scaled_mma_rule(
    acc: Tmem, a: Tile | Tmem, b: Tile, sfa: TmemScales, sfb: TmemScales, cta_group: int
) -> str | None:
    """Why tcgen05.mma cannot compute acc (m, n) += (A (m, k) · sfa) (B (n, k) · sfb)ᵀ; None if it
    can.
    """
    if isinstance(a, Tmem):
        return "A of a block-scaled MMA is a shared tile here, not in tensor memory"
    left, right, n = a.buffer.dtype, b.buffer.dtype, b.rows * cta_group
    if broken := broken_product_rule(acc, a, b, cta_group):
        return broken
    scaling = scaling_of(left, right, sfa.dtype)
    if scaling is None or sfa.dtype is not sfb.dtype:
        return (
            "block-scaled are float8_e4m3 and float8_e5m2 in any mix, or float4_e2m1, with scale"
            " factors of float8_e8m0 (blocks of 32); and float4_e2m1 with float8_e4m3 (blocks of"
            f" 16); got {left} with {sfa.dtype} and {right} with {sfb.dtype}"
        )
    if a.cols % scaling.k:
        return f"k = {a.cols} must be a multiple of {scaling.k}, the K of one instruction of {left}"
    step = 8 * cta_group
    if acc.rows != PIECE_ROWS:
        return f"m = {acc.rows}: a block-scaled accumulator has {PIECE_ROWS} rows in each CTA"
    if acc.cols % step or acc.cols > MAX_N:
        pair = " of a pair" if cta_group == 2 else ""
        return (
            f"n = {acc.cols} must be a multiple of {step} up to {MAX_N} for a block-scaled"
            f" accumulator{pair}"
        )
    for name, scales, matrix, rows in (("sfa", sfa, "A", acc.rows), ("sfb", sfb, "B", n)):
        if (scales.rows, scales.blocks) != (rows, a.cols // scaling.block):
            whole = (
                ", all of them in either CTA of a pair" if matrix == "B" and cta_group == 2 else ""
            )
            return (
                f"{name} has {scales.rows} rows × {scales.blocks} blocks; {matrix} has {rows}"
                f" rows{whole}, and k = {a.cols} in blocks of {scaling.block} is"
                f" {a.cols // scaling.block}"
            )
    return broken_tiles_rule("tcgen05.mma", a, b)


def broken_scales_copy_rule(dst: TmemScales, src: Tile) -> str | None:
    """Why tcgen05.cp cannot copy a tile of scale factors to tensor memory; None if it can."""
    b, count = src.buffer, len(pieces(dst))
    if (
        not isinstance(dst.first, Const)
        or dst.first.value
        or dst.stride != PIECE_COLUMNS * -(-dst.rows // PIECE_ROWS)
    ):
        return (
            "scale factors are copied by whole pieces of 128 rows: copy to the whole matrix, not to"
            " part of its rows"
        )
    if b.dtype is not dst.dtype:
        return f"scale factors of {dst.dtype} are copied from a tile of {b.dtype}; they must agree"
    if src.nbytes != count * PIECE_BYTES:
        return (
            f"scale factors of {dst.rows} rows × {dst.blocks} blocks are {count} pieces (128 rows ×"
            f" 4 blocks) of {PIECE_BYTES} bytes; the tile {src.rows}×{src.cols} of '{b.name}' has"
            f" {src.nbytes}"
        )
    if (
        b.swizzle
        or b.order != "row"
        or src.cols != b.cols
        or src.cta is not None
        or divisor(src.row) * b.cols % MATRIX_ROW
    ):
        return (
            "tcgen05.cp reads whole rows of an unswizzled row-major tile of this CTA, from a"
            f" multiple of {MATRIX_ROW} bytes; '{b.name}' is {b.order} order, swizzle {b.swizzle}"
        )
    return None
