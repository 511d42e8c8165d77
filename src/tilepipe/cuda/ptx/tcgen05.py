"""tcgen05.ld and .st: one device function for each extent that a kernel uses. And instruction
descriptors of tcgen05.mma.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilepipe.cuda.ptx.wrappers import FUNCTION, Snippet, wrapped
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.rules.tensor_memory import Scaling

# dtype -> (kind, its name, its code in the instruction descriptor)
_OPERANDS = {
    dtypes.float16: ("f16", "f16", 0), dtypes.bfloat16: ("f16", "bf16", 1), dtypes.float32: ("tf32", "tf32", 2),
    dtypes.float8_e4m3: ("f8f6f4", "e4m3", 0), dtypes.float8_e5m2: ("f8f6f4", "e5m2", 1),
}  # fmt: skip

# Codes of the block-scaled kinds: E4M3 and E5M2 those of mxf8f6f4, E2M1 that of mxf4 and mxf4nvf4.
_SCALED = {dtypes.float8_e4m3: 0, dtypes.float8_e5m2: 1, dtypes.float4_e2m1: 1}


@dataclass(frozen=True, slots=True)
class MmaShape:
    """What an instruction descriptor says (PTX ISA, "Instruction descriptor", of the kinds tf32,
    f16, f8f6f4).

    Attributes:
        m, n: of the instruction, both CTAs of a pair together. a, b: dtypes.
        transposed_a, transposed_b: the operand is contiguous along M or N (16-bit dtypes only).
    """

    m: int
    n: int
    a: DType
    b: DType
    transposed_a: bool = False
    transposed_b: bool = False

    @property
    def kind(self) -> str:
        """Of the instruction: `f16`."""
        return _OPERANDS[self.a][0]

    @property
    def bits(self) -> int:
        """The descriptor, for a float32 accumulator."""
        types = 1 << 4 | _OPERANDS[self.a][2] << 7 | _OPERANDS[self.b][2] << 10
        return (
            types
            | self.transposed_a << 15
            | self.transposed_b << 16
            | (self.n >> 3) << 17
            | (self.m >> 4) << 24
        )

    @property
    def name(self) -> str:
        """Of the constant: `mma_m128n256_bf16`."""
        a, b = _OPERANDS[self.a][1], _OPERANDS[self.b][1]
        types = a if a == b else f"{a}_{b}"
        return f"mma_m{self.m}n{self.n}_{types}{'_ta' if self.transposed_a else ''}{'_tb' if self.transposed_b else ''}"

    def snippet(self) -> Snippet:
        """The constant."""
        return Snippet(
            self.name,
            f"// tcgen05.mma, Instruction descriptor\nconstexpr u32 {self.name} = {self.bits:#010x};",
        )


@dataclass(frozen=True, slots=True)
class ScaledShape:
    """What an instruction descriptor says, of the kinds mxf8f6f4, mxf4 and mxf4nvf4; the scale
    factor IDs are added for each step.

    Attributes:
        m, n: of the instruction, both CTAs of a pair together. a, b: dtypes. scaling: the kind.
            scale: dtype of the scale factors.
    """

    m: int
    n: int
    a: DType
    b: DType
    scaling: Scaling
    scale: DType

    @property
    def bits(self) -> int:
        """The descriptor with both IDs 0."""
        types = _SCALED[self.a] << 7 | _SCALED[self.b] << 10
        return (
            types
            | (self.n >> 3) << 17
            | (self.scale is dtypes.float8_e8m0) << 23
            | (self.m >> 7) << 27
        )

    @property
    def name(self) -> str:
        """Of the constant: `mma_m128n256_mxf8f6f4_e4m3`."""
        a, b = (t.name.rpartition("_")[2] for t in (self.a, self.b))
        return f"mma_m{self.m}n{self.n}_{self.scaling.kind}_{a if a == b else f'{a}_{b}'}"

    def snippet(self) -> Snippet:
        """The constant."""
        return Snippet(
            self.name,
            f"// tcgen05.mma .block_scale, Instruction descriptor\nconstexpr u32 {self.name} = {self.bits:#010x};",
        )


@dataclass(frozen=True, slots=True)
class TmemAccess:
    """One tcgen05.ld or .st of 16 lanes of a warp, `count` times 8 elements wide.

    Elements of 32 bits take shape .16x256b: registers 4 j .. 4 j + 3 hold columns 8 j + 2 (l % 4) +
    {0, 1} of row l / 4, then of row l / 4 + 8. Pairs of 16 bits take .16x128b: registers 2 j and 2
    j + 1 hold those columns of the two rows. Both are the registers of a row block of a fragment.
    """

    verb: str
    count: int
    register: str

    @property
    def shape(self) -> str:
        """Of one repetition."""
        return "16x128b" if self.register == "u32" else "16x256b"

    @property
    def registers(self) -> int:
        """32-bit registers of a thread."""
        return self.count * registers_a_group(self.register)

    @property
    def name(self) -> str:
        """Of the device function: `tmem_load_16x256b_x8`."""
        return f"tmem_{'load' if self.verb == 'ld' else 'store'}_{self.shape}_x{self.count}"

    def snippet(self) -> Snippet:
        """The device function."""
        loads, n = self.verb == "ld", self.registers
        constraint = "r" if self.register == "u32" else "f"
        signature = (
            f"{self.register}* x, u32 address"
            if loads
            else f"u32 address, const {self.register}* x"
        )
        vector = wrapped([f"%{i + (not loads)}" for i in range(n)])
        operands = wrapped([f'"{"=" if loads else ""}{constraint}"(x[{i}])' for i in range(n)])
        instruction = f"tcgen05.{self.verb}.sync.aligned.{self.shape}.x{self.count}.b32"
        lines = [
            f"// tcgen05.{self.verb}: a whole warp, 16 of its lanes × {8 * self.count} elements;"
            " asynchronous"
        ]
        lines += [f"{FUNCTION} void {self.name}({signature}) {{", "    asm volatile("]
        lines.append(f'        "{instruction} {"{" if loads else "[%0], {"}"')
        lines += [f'        "{row}"' for row in vector]
        lines.append(f'        "}}, [%{n}];"' if loads else '        "};"')
        if loads:
            lines += _listed(operands)
            lines.append('        : "r"(address));')
        else:
            lines += _listed(['"r"(address),', *operands], "::")
            lines.append('        : "memory");')
        return Snippet(self.name, "\n".join([*lines, "}"]))


def registers_a_group(register: str) -> int:
    """Registers that hold a thread's part of two rows of 8 columns: floats, or packed pairs of 16
    bits (`u32`).
    """
    return 2 if register == "u32" else 4


def most_groups(register: str) -> int:
    """8-column groups of the widest access: 128 registers."""
    return 128 // registers_a_group(register)


def pieces(groups: int, most: int) -> Iterator[tuple[int, int]]:
    """(first, count) of accesses that cover `groups` groups of 8 columns; each count is a power of
    two up to `most`.
    """
    first = 0
    while first < groups:
        count = min(most, 1 << ((groups - first).bit_length() - 1))
        yield first, count
        first += count


def _listed(rows: list[str], head: str = ":") -> list[str]:
    return [f"        {head if i == 0 else ' ' * len(head)} {row}" for i, row in enumerate(rows)]
