"""Rules of wgmma for shapes and types, used by tracing and by printing.

PTX ISA, wgmma.mma_async: one instruction is 64 × n × 32 bytes of K, n a multiple of 8 up to 256.
Types of A and B: both .bf16 or both .f16, both .tf32 (float32 in memory, whose low 13 bits are not
read), or .e4m3 and .e5m2 in any mix. The accumulator is .f32.
"""

from __future__ import annotations

from tilepipe.ir.fragment import Fragment
from tilepipe.ir.memory import Tile
from tilepipe.ir.rules.operand_tiles import MMA_K_BYTES, mma_k
from tilepipe.ir.rules.products import (
    MAX_N,
    broken_product_rule,
    broken_tiles_rule,
    multiplied_together,
    operand_dtype,
)


def broken_mma_rule(acc: Fragment, a: Tile | Fragment, b: Tile) -> str | None:
    """Why wgmma cannot compute acc (m, n) += A (m, k) · B (n, k)ᵀ; None if it can."""
    broken = broken_product_rule(acc, a, b)
    if broken is not None:
        return broken
    left, right = operand_dtype(a), operand_dtype(b)
    if not multiplied_together(left, right):
        return (
            "wgmma takes bfloat16, float16 or float32 (read as tf32), the same for A and B, or"
            " float8_e4m3 and float8_e5m2 in any mix;"
            f" got {left} and {right}"
        )
    if isinstance(a, Fragment) and left.nbytes != 2:
        return (
            f"A in registers is bfloat16 or float16; fragment '{a.name}' is {left}. Convert it"
            ' (`.to("bfloat16")`), or store it to a'
            " tile with ctx.store, ctx.fence_proxy_async() and ctx.sync_warpgroup(), and multiply"
            " that"
        )
    if a.cols % mma_k(left):
        return f"k = {a.cols} must be a multiple of {mma_k(left)} ({MMA_K_BYTES} bytes of {left})"
    if acc.rows % 64 or acc.cols % 8:
        return f"m = {acc.rows} must be a multiple of 64 and n = {acc.cols} of 8"
    if acc.cols > MAX_N:
        return (
            f"n = {acc.cols}, one wgmma takes at most {MAX_N} columns; split the tile over two"
            " accumulators"
        )
    for f in (acc, a):
        if isinstance(f, Fragment) and f.layout != "wgmma":
            return f"fragment '{f.name}' has layout \"{f.layout}\"; wgmma's operands have its own"
    return broken_tiles_rule("wgmma", a, b)
