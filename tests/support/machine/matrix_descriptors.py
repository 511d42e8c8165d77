"""Matrix descriptors of wgmma, as a kernel would write them."""

from __future__ import annotations

from tilepipe.machine.memory.matrix_operands import MatrixDescriptor

_SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}


def wgmma_bits(d: MatrixDescriptor) -> int:
    """The 64 bits that wgmma takes (PTX ISA, matrix descriptor format)."""
    fields = (d.start >> 4) | (d.leading >> 4) << 16 | (d.stride >> 4) << 32
    return fields | _SWIZZLES[d.swizzle] << 62
