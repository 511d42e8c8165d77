"""Rules of wgmma and tcgen05.mma for operands, and of copies to tensor memory, used by tracing and
by printing.

wgmma (PTX ISA, wgmma.mma_async): one instruction is 64 × n × 32 bytes of K, n a multiple of 8 up to
256.

tcgen05.mma (PTX ISA, "TensorCore 5th Generation Instructions"): one instruction is m × n × 32 bytes
of K. One CTA: m 64 with n a multiple of 8, or m 128 with n a multiple of 16, up to 256. A pair: m
256 (128 rows in each CTA) with n a multiple of 32 up to 256; m 128 of a pair, which folds the
columns, is not printed. With m 64 an A in tensor memory is in the same 16 of each 32 lanes as the
accumulator (data path layout F). Block-scaled MMAs are in `block_scales`.

Types of A and B for both: both .bf16 or both .f16 (tcgen05's kind::f16); both .tf32, which is
float32 in memory whose low 13 bits are not read (kind::tf32); or .e4m3 and .e5m2 in any mix
(kind::f8f6f4). The accumulator is .f32.
"""

from __future__ import annotations

from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Binary, Const, Expr
from tilepipe.ir.fragment import FOURS, Fragment, row_threads
from tilepipe.ir.hardware.operand_tiles import MMA_K_BYTES, broken_descriptor_rule, mma_k
from tilepipe.ir.hardware.tensor_memory import LANES, half_rule
from tilepipe.ir.memory import Tile, Tmem

MAX_N = 256
# rows of the accumulator in one CTA, CTAs -> step of n. These are the shapes that CUTLASS accepts.
# The table of the PTX ISA allows steps of 8 (one CTA) and 16 (a pair) for any m, which is what
# `machine.memory.instruction_descriptor` takes from others' PTX.
_N_STEP = {(64, 1): 8, (128, 1): 16, (128, 2): 32}
_SAME = (dtypes.bfloat16, dtypes.float16, dtypes.float32)
_MIXED = (dtypes.float8_e4m3, dtypes.float8_e5m2)


def operand_dtype(x: Tile | Fragment | Tmem) -> DType:
    """The element type of A or B."""
    return x.buffer.dtype if isinstance(x, Tile) else x.dtype


def multiplied_together(a: DType, b: DType) -> bool:
    """True if tensor cores multiply elements of these types without scale factors: both .bf16, both
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
        if broken := broken_descriptor_rule(t, instruction):
            return broken
    return None


def broken_wgmma_rule(acc: Fragment, a: Tile | Fragment, b: Tile) -> str | None:
    """Why wgmma cannot compute acc (m, n) += A (m, k) · B (n, k)ᵀ; None if it can."""
    for f in (acc, a):
        if isinstance(f, Fragment) and row_threads(f.layout):
            return f'fragment \'{f.name}\' has layout "{f.layout}"; wgmma takes layout "wgmma"'
    if broken := broken_product_rule(acc, a, b):
        return broken
    left, right = operand_dtype(a), operand_dtype(b)
    if not multiplied_together(left, right):
        return (
            "wgmma takes bfloat16, float16 or float32 (read as tf32), the same for A and B, or"
            f" float8_e4m3 and float8_e5m2 in any mix; got {left} and {right}"
        )
    if isinstance(a, Fragment) and left.nbytes != 2 and a.layout != FOURS:
        cure = (
            ' Load it to one of layout "fours" (`f.load(tile)`), or pack what it was made of into'
            " one (`f.pack(x)`), whose columns have an order of their own,"
            if left in _MIXED
            else ' Convert it (`.to("bfloat16")`),'
        )
        return (
            f"A in registers is bfloat16 or float16; fragment {a.named} is {left}.{cure} or store"
            " it to a tile with ctx.store, ctx.fence_proxy_async() and ctx.sync_warpgroup(), and"
            " multiply that"
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
    for f, own in ((acc, "wgmma"), (a, FOURS if left.nbytes == 1 else "wgmma")):
        if isinstance(f, Fragment) and f.layout != own:
            return f'fragment {f.named} has layout "{f.layout}"; wgmma\'s operands have its own'
    return broken_tiles_rule("wgmma", a, b)


def broken_group_rule(cta_group: object, cluster_size: int) -> str | None:
    """Why the CTAs of a cluster cannot share MMAs in groups of `cta_group`; None if they can."""
    if cta_group not in (1, 2) or isinstance(cta_group, bool):
        return f"cta_group is 1, or 2 for a pair of CTAs; got {cta_group!r}"
    if cta_group == 2 and cluster_size % 2:
        return (
            f"cta_group=2 pairs CTAs 2 i and 2 i + 1 of a cluster; a cluster of {cluster_size} has"
            " no pairs"
        )
    return None


def _based(address: Expr) -> tuple[Expr | None, int]:
    """An address as (base, constant offset); the base is None where the address is constant."""
    base, offset = address, 0
    while isinstance(base, Binary) and base.op == "add" and isinstance(base.b, Const):
        offset += int(base.b.value)
        base = base.a
    return (None, offset + int(base.value)) if isinstance(base, Const) else (base, offset)


def _broken_half_rule(acc: Tmem, a: Tmem) -> str | None:
    """The rule about halves of tensor memory, where both addresses have the same base, so that
    tracing can tell. Otherwise the simulator compares the lanes.
    """
    (base, a_offset), (other, acc_offset) = _based(a.address), _based(acc.address)
    if acc.rows == LANES or base is not other or a_offset >> 16 == acc_offset >> 16:
        return None
    return half_rule(a_offset >> 16, acc_offset >> 16)


def broken_tcgen05_rule(acc: Tmem, a: Tile | Tmem, b: Tile, cta_group: int) -> str | None:
    """Why tcgen05.mma cannot compute acc (m, n) += A (m, k) · B (n, k)ᵀ; None if it can."""
    if broken := broken_product_rule(acc, a, b, cta_group):
        return broken
    left, right = operand_dtype(a), operand_dtype(b)
    if not multiplied_together(left, right):
        return (
            "tcgen05.mma takes bfloat16, float16 or float32 (read as tf32), the same for A and B,"
            f" or float8_e4m3 and float8_e5m2 in any mix; got {left} and {right}"
            + (
                ", which takes scale factors: sfa=, sfb="
                if left is right is dtypes.float4_e2m1
                else ""
            )
        )
    if isinstance(a, Tmem) and (left.nbytes != 2 or cta_group != 1):
        return (
            f"A in tensor memory is bfloat16 or float16, of one CTA; this is {left} with"
            f" cta_group={cta_group}"
        )
    if isinstance(a, Tmem) and (broken := _broken_half_rule(acc, a)) is not None:
        return broken
    if a.cols % mma_k(left):
        return f"k = {a.cols} must be a multiple of {mma_k(left)} ({MMA_K_BYTES} bytes of {left})"
    step = _N_STEP.get((acc.rows, cta_group))
    if step is None:
        takes = "64 or 128 rows" if cta_group == 1 else "128 rows in each CTA of a pair"
        return f"m = {acc.rows}: an accumulator has {takes}"
    if acc.cols % step or acc.cols > MAX_N:
        pair = " of a pair" if cta_group == 2 else ""
        return (
            f"n = {acc.cols} must be a multiple of {step} up to {MAX_N} where an accumulator{pair}"
            f" has {acc.rows} rows"
        )
    return broken_tiles_rule("tcgen05.mma", a, b)


def broken_copy_rule(dst: Tmem, src: Tile) -> str | None:
    """Why tcgen05.cp cannot copy a tile to tensor memory; None if it can."""
    b = src.buffer
    if src.rows not in (32, LANES) or dst.rows != LANES:
        return (
            f"tcgen05.cp copies tiles of {LANES} rows, or of 32 to each group of 32 lanes; got"
            f" {src.rows}×{src.cols} of '{b.name}'"
        )
    wide = src.cols * b.dtype.nbytes
    if wide != dst.columns * 4 or wide % 16:
        return (
            f"tcgen05.cp copies rows of a multiple of 16 bytes; {wide} bytes of '{b.name}' to"
            f" {dst.columns} columns of 4"
        )
    if b.swizzle or b.order != "row" or src.cols != b.cols or src.cta is not None:
        return (
            f"tcgen05.cp reads whole rows of an unswizzled row-major tile of this CTA; '{b.name}'"
            f" is {b.order} order, swizzle {b.swizzle}"
        )
    if wide != 16:
        return (
            f"rows of '{b.name}' have {wide} bytes; a core matrix of tcgen05.cp has rows of 16:"
            " give the tile 16 bytes a row"
        )
    return None
