"""Matrix descriptors as the PTX ISA defines them, to check printed ones against the one definition
of layouts in `ir.layout`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilepipe.ir import layout
from tilepipe.ir.memory import SmemBuffer

Offsets = npt.NDArray[np.int64]
A_START, B_START = 0x10000, 0x20000


@dataclass
class Descriptor:
    """A shared-memory matrix as wgmma and tcgen05 take it."""

    start: int
    leading: int
    stride: int
    swizzle: int

    @classmethod
    def of_wgmma(cls, bits: int) -> Descriptor:
        assert bits & ~(0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 3 << 62) == 0, (
            "reserved bits and base offset are zero"
        )
        return cls(*_offsets(bits), {0: 0, 1: 128, 2: 64, 3: 32}[bits >> 62])

    @classmethod
    def of_tcgen05(cls, bits: int) -> Descriptor:
        assert bits & ~(0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 61) == 1 << 46, (
            "bits 46-48 are 0b001, the other fields zero"
        )
        return cls(*_offsets(bits), {0: 0, 2: 128, 4: 64, 6: 32}[bits >> 61])

    def addresses(self, mn: Offsets, k: Offsets, transposed: bool, nbytes: int = 2) -> Offsets:
        """Byte addresses of elements (mn, k) of one instruction: the canonical layouts of the PTX
        ISA.
        """
        line = self.swizzle
        if transposed:
            assert nbytes == 2, "only 16-bit elements are transposed"
            span = line // 2
            linear = mn % span * 2 + mn // span * self.leading + k % 8 * line + k // 8 * self.stride
        else:
            linear = mn % 8 * line + mn // 8 * self.stride + k * nbytes
            assert (self.start % line + k.max() * nbytes) < line, "32 bytes of K stay in a line"
        return layout.swizzle_offset(self.start + linear, self.swizzle)


def _offsets(bits: int) -> tuple[int, int, int]:
    return bits << 4 & 0x3FFF0, bits >> 12 & 0x3FFF0, bits >> 28 & 0x3FFF0


def constants(code: str) -> dict[str, int]:
    return {
        m[1]: int(m[2], 16) for m in re.finditer(r"constexpr u64 (\w+_format) = (0x\w+)ull;", code)
    }


def evaluate(code: str, names: dict[str, object]) -> int:
    return int(eval(code.replace(" / ", " // "), {}, names))


def addresses(buffer: SmemBuffer, base: int, rows: Offsets, cols: Offsets) -> Offsets:
    return base + layout.byte_offsets(buffer, rows, cols)
