"""Rules of TMA, wgmma, stmatrix and ldmatrix for the position of a tile's rectangle in shared
memory, used by tracing and by printing.

Each rule takes a tile and returns None, or a sentence that says what is broken. Offsets known only
when the kernel runs obey a rule if `divisor` shows it; a rule that cannot be shown counts as
broken, because on the GPU it would be a wrong address and not an error.
"""

from __future__ import annotations

from math import gcd

from tilepipe.ir import expressions as e
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr
from tilepipe.ir.hardware.tma import in_bytes
from tilepipe.ir.layout import panel_elements
from tilepipe.ir.memory import Tile
from tilepipe.ir.printer import expr as text

TMA_ALIGNMENT = 128  # PTX ISA, cp.async.bulk.tensor: bytes, of the address in shared memory
# PTX ISA, stmatrix and core matrices of wgmma: bytes of 8 elements, and their alignment
MATRIX_ROW = 16
ATOM = 8  # lines after which every swizzle repeats
MMA_K_BYTES = 32  # PTX ISA, wgmma.mma_async: K of one instruction, bytes of the operand type


def mma_k(dtype: DType) -> int:
    """Elements of K in one wgmma or tcgen05.mma: 8 of float32, 16 of 16 bits, 32 of 8 bits, 64 of 4
    bits.
    """
    return MMA_K_BYTES * 8 // dtype.bits


def divisor(x: Expr) -> int:
    """A number known to divide `x`, as large as possible; 0 if `x` is known to be 0."""
    match x:
        case e.Const():
            return abs(int(x.value))
        case e.Local():
            return x.multiple
        case e.Unary(op="neg"):
            return divisor(x.a)
        case e.Cast() if x.dtype.is_integer and x.a.dtype.is_integer:
            return divisor(x.a)
        case e.Select():
            return gcd(divisor(x.a), divisor(x.b))
        case e.Binary(op="mul"):
            return divisor(x.a) * divisor(x.b)
        case e.Binary(op="add" | "sub" | "min" | "max" | "mod" | "xor" | "or"):
            common = gcd(divisor(x.a), divisor(x.b))
            return common & -common if x.op in ("xor", "or") else common
        case e.Binary(op="and"):
            return max(_low_bit(x.a), _low_bit(x.b)) if _low_bit(x.a) and _low_bit(x.b) else 0
        case e.Binary(op="shl") if isinstance(x.b, e.Const):
            return divisor(x.a) << int(x.b.value)
        case e.Binary(op="floordiv") if (
            isinstance(x.b, e.Const) and divisor(x.a) % int(x.b.value) == 0
        ):
            return divisor(x.a) // abs(int(x.b.value))
    return 1


def _low_bit(x: Expr) -> int:
    """The largest power of two that divides `divisor(x)`."""
    return divisor(x) & -divisor(x)


def is_multiple(x: Expr, n: int) -> bool:
    """True if `x` is surely a multiple of `n`."""
    return divisor(x) % n == 0


def contiguous(t: Tile) -> tuple[Expr, int]:
    """(start, extent) of a rectangle along the contiguous dimension, elements."""
    return (t.col, t.cols) if t.buffer.order == "row" else (t.row, t.rows)


def lines(t: Tile) -> tuple[Expr, int]:
    """(start, extent) of a rectangle along the other dimension."""
    return (t.row, t.rows) if t.buffer.order == "row" else (t.col, t.cols)


def _where(x: Expr, unit: int, what: str) -> str:
    """The part of a message that `x` is not a multiple of `unit`, or not known to be one."""
    if isinstance(x, e.Const):
        return (
            f"it starts at {what} {x.value}, which is no multiple of {unit} ({x.value} mod {unit} ="
            f" {int(x.value) % unit})"
        )
    return (
        f"it starts at {what} {text(x)}, which is not known to be a multiple of {unit}; write the"
        f" offset as `i * {unit}`, or as `i // {unit} * {unit}`"
    )


def _names(t: Tile) -> tuple[str, str]:
    """What the two dimensions are called: (contiguous, other)."""
    return ("column", "row") if t.buffer.order == "row" else ("row", "column")


def _part(t: Tile) -> str:
    b = t.buffer
    swizzle = f"{b.swizzle}-byte swizzle" if b.swizzle else "no swizzle"
    return (
        f"the {t.rows}×{t.cols} part of '{b.name}' ({b.rows}×{b.cols} {b.dtype}, {b.order} order,"
        f" {swizzle})"
    )


def broken_tma_rule(t: Tile) -> str | None:
    """Why TMA cannot copy a box to or from a rectangle; None if it can.

    A copy moves whole panels, line after line without a gap, to or from an address that is a
    multiple of 128 bytes (PTX ISA, cp.async.bulk.tensor; CUDA Driver API, cuTensorMapEncodeTiled).
    """
    b, bits = t.buffer, t.buffer.dtype.bits
    (start, extent), (line, count) = contiguous(t), lines(t)
    panel, (inner, outer) = panel_elements(b), _names(t)
    line_bytes, panel_text = b.dtype.bytes_of(panel), in_bytes(panel, b.dtype)
    if b.swizzle == 0 and count > 1 and extent != panel:
        return (
            f"TMA lays the {count} lines of a box one after the other, {in_bytes(extent, b.dtype)}"
            f" apart; those of {_part(t)} are {panel_text} apart. Take all its {inner}s, or give"
            " each part a buffer of its own."
        )
    if b.swizzle and extent % panel:
        return (
            f"TMA copies whole panels of {panel_text}; {_part(t)} has {extent} {inner}s, which is"
            f" no multiple of {panel}"
        )
    if b.swizzle and not is_multiple(start, panel):
        return (
            f"TMA copies whole panels of {panel_text} of {_part(t)}: {_where(start, panel, inner)}"
        )
    # bits an element of `start` is on
    at = bits if b.swizzle == 0 else bits * (b.rows if b.order == "row" else b.cols)
    if gcd(divisor(line) * line_bytes * 8, divisor(start) * at) % (TMA_ALIGNMENT * 8) == 0:
        return None
    unit = TMA_ALIGNMENT // gcd(TMA_ALIGNMENT, line_bytes)
    if not is_multiple(line, unit):
        return (
            f"TMA needs an address that is a multiple of {TMA_ALIGNMENT} bytes, {unit} lines of"
            f" {line_bytes}, in {_part(t)}: {_where(line, unit, outer)}"
        )
    unit = TMA_ALIGNMENT * 8 // gcd(TMA_ALIGNMENT * 8, at)
    return (
        f"TMA needs an address that is a multiple of {TMA_ALIGNMENT} bytes in {_part(t)}:"
        f" {_where(start, unit, inner)}"
    )


def broken_descriptor_rule(t: Tile, reader: str = "wgmma") -> str | None:
    """Why a matrix descriptor cannot describe a rectangle, (m, k) or (n, k); None if it can.

    A descriptor steps through swizzle atoms of 8 lines (PTX ISA, "Matrix Descriptor Format" of
    wgmma, "Shared memory descriptor" of tcgen05); `reader` is the instruction, for the message.
    Contiguous along K: each 32 bytes of K are in one line. Contiguous along M or N, which only
    16-bit elements may be (PTX ISA, wgmma.mma_async: imm-trans is for .f16 and .bf16): the
    rectangle starts at a panel.
    """
    b = t.buffer
    (start, extent), (line, _) = contiguous(t), lines(t)
    panel, (inner, outer) = panel_elements(b), _names(t)
    k, has = mma_k(b.dtype), in_bytes(panel, b.dtype).removesuffix(" bytes")
    if b.order == "col" and b.dtype.bits != 16:
        return (
            f"{reader} reads {b.dtype} only where K is contiguous (it transposes 16-bit elements,"
            f" no others); in {_part(t)} rows, which are"
            " M or N, are contiguous. Keep K contiguous in global memory and the tile in"
            ' order="row", or load the operand in 16 bits.'
        )
    if b.swizzle == 0 or b.dtype.bytes_of(panel) != b.swizzle:
        line_bytes = b.dtype.bytes_of(b.cols if b.order == "row" else b.rows)
        wide = max((s for s in (32, 64, 128) if line_bytes % s == 0), default=0)
        remedy = (
            f"Give the buffer swizzle={wide}" if wide else f"Pad its {inner}s to a multiple of {k}"
        )
        return (
            f"{reader} reads lines of 32, 64 or 128 swizzled bytes; those of {_part(t)} have {has}."
            f" {remedy}."
        )
    if not is_multiple(line, ATOM):
        return (
            f"{reader} reads {_part(t)} by swizzle atoms of {ATOM} {outer}s:"
            f" {_where(line, ATOM, outer)}"
        )
    if b.order == "col":
        if is_multiple(start, panel):
            return None
        return (
            f"{reader} reads {_part(t)} by panels of {has} bytes along M or N:"
            f" {_where(start, panel, inner)}"
        )
    if not is_multiple(start, k):
        return (
            f"one {reader} takes {k} elements of K, {MMA_K_BYTES} bytes within a line, of"
            f" {_part(t)}: {_where(start, k, inner)}"
        )
    known = gcd(divisor(start), panel)
    if isinstance(start, e.Const) or known == panel or extent <= known:
        return None  # where it crosses from one panel to the next, if it does, is known now
    unit = extent if panel % extent == 0 else panel
    return (
        f"{extent} elements of K of {_part(t)} could cross a panel of {panel} anywhere:"
        f" {_where(start, unit, inner)}"
    )


def takes_stmatrix(t: Tile, shape: tuple[int, ...]) -> bool:
    """True if a fragment-shaped value is stored to a tile by stmatrix: a matrix of 16-bit elements,
    to this CTA's memory (PTX ISA, stmatrix: .shared::cta only).
    """
    return t.buffer.dtype.bits == 16 and t.cta is None and 1 not in shape


def broken_stmatrix_rule(t: Tile) -> str | None:
    """Why stmatrix cannot store a fragment to a rectangle of 16-bit elements; None if it can."""
    return _broken_matrix_rule(t, "stmatrix writes")


def broken_operand_load_rule(t: Tile) -> str | None:
    """Why ldmatrix cannot load a rectangle of 8-bit elements as operand A of wgmma; None if it can:
    pairs of 16 bits, of this CTA's memory (PTX ISA, ldmatrix), so that four neighbours along K come
    to one register.
    """
    if t.cta is not None:
        return f"ldmatrix reads this CTA's shared memory, not a peer's copy of '{t.buffer.name}'"
    if t.buffer.order != "row":
        return (
            f"an operand A of 8 bits has four neighbours along K in a register; in {_part(t)} rows"
            ' are contiguous. Keep K contiguous: a tile in order="row".'
        )
    return _broken_matrix_rule(t, "ldmatrix reads")


def _broken_matrix_rule(t: Tile, does: str) -> str | None:
    """Each row of a matrix is 16 bytes at a multiple of 16 bytes (PTX ISA, stmatrix, ldmatrix).
    `does`: instruction and verb, for the message.
    """
    b, nbytes = t.buffer, t.buffer.dtype.nbytes
    start, (inner, _) = contiguous(t)[0], _names(t)
    line_bytes = panel_elements(b) * nbytes
    unit = MATRIX_ROW // nbytes
    if line_bytes % MATRIX_ROW:
        return (
            f"{does} at multiples of {MATRIX_ROW} bytes; the lines of {_part(t)} are"
            f" {line_bytes} bytes apart. Pad its {inner}s to a multiple of {unit}."
        )
    if not is_multiple(start, unit):
        return (
            f"{does} {unit} elements at a multiple of {MATRIX_ROW} bytes of {_part(t)}:"
            f" {_where(start, unit, inner)}"
        )
    return None
