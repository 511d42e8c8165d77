"""What wgmma and tcgen05.mma, with scale factors or without, ask of acc (m, n) += A (m, k) · B (n, k)ᵀ
alike.
"""

from __future__ import annotations

from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.memory import Tile, Tmem
from tilepipe.ir.rules.operand_tiles import broken_descriptor_rule

MAX_N = 256
_SAME = (dtypes.bfloat16, dtypes.float16, dtypes.float32)
_MIXED = (dtypes.float8_e4m3, dtypes.float8_e5m2)


def operand_dtype(x: Tile | Fragment | Tmem) -> DType:
    """The element type of A or B."""
    return x.buffer.dtype if isinstance(x, Tile) else x.dtype


def multiplied_together(a: DType, b: DType) -> bool:
    """Whether tensor cores multiply elements of these types without scale factors: both .bf16, both
    .f16 or both float32, read as tf32; or .e4m3 and .e5m2 in any mix.
    """
    return (a is b and a in _SAME) or (a in _MIXED and b in _MIXED)


def broken_product_rule(
    acc: Fragment | Tmem, a: Tile | Fragment | Tmem, b: Tile, cta_group: int = 1
) -> str | None:
    """Why the shapes do not fit together, or the accumulator is not float32; None if they do and it
    is.
    """
    n = b.rows * cta_group
    if (a.rows, n, a.cols) != (acc.rows, acc.cols, b.cols):
        half = "" if cta_group == 1 else ", of which each CTA of the pair holds half"
        return (
            f"acc {acc.rows}×{acc.cols} += A {a.rows}×{a.cols} · (B {n}×{b.cols})ᵀ; need A"
            f" {acc.rows}×k and B {acc.cols}×k{half}, with the same k"
        )
    if acc.dtype is not dtypes.float32:
        return f"the accumulator must be float32, it is {acc.dtype}"
    return None


def broken_tiles_rule(instruction: str, a: Tile | Fragment | Tmem, b: Tile) -> str | None:
    """Why an instruction cannot read the operands that are tiles; None if it can."""
    for t in (a, b):
        if not isinstance(t, Tile):
            continue
        if t.cta is not None:
            return (
                f"{instruction} reads this CTA's shared memory, not a peer's copy of"
                f" '{t.buffer.name}'"
            )
        broken = broken_descriptor_rule(t, instruction)
        if broken is not None:
            return broken
    return None
