"""Instruction descriptors of tcgen05.mma, and device functions around tcgen05.ld and tcgen05.st,
one for each extent that a kernel uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilepipe.cuda.ptx.wrappers import FUNCTION, Snippet, wrapped
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.hardware.tensor_memory import Scaling

# dtype -> (kind, its name, its code in the instruction descriptor)
_OPERANDS = {
    dtypes.float16: ("f16", "f16", 0),
    dtypes.bfloat16: ("f16", "bf16", 1),
    dtypes.float32: ("tf32", "tf32", 2),
    dtypes.float8_e4m3: ("f8f6f4", "e4m3", 0),
    dtypes.float8_e5m2: ("f8f6f4", "e5m2", 1),
}

# Codes of the operand types in a block-scaled instruction descriptor: those of kind mxf8f6f4 for
# E4M3 and E5M2, that of kinds mxf4 and mxf4nvf4 for E2M1.
_SCALED = {dtypes.float8_e4m3: 0, dtypes.float8_e5m2: 1, dtypes.float4_e2m1: 1}


@dataclass(frozen=True, slots=True)
class MmaShape:
    """The content of an instruction descriptor of kind tf32, f16 or f8f6f4 (PTX ISA, "Instruction
    descriptor").

    Attributes:
        m, n: extents of the instruction, both CTAs of a pair together.
        a, b: dtypes of the operands.
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
        """The kind of the instruction, such as `f16`."""
        return _OPERANDS[self.a][0]

    @property
    def bits(self) -> int:
        """The descriptor as a number, for a float32 accumulator."""
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
        """The name of the constant, such as `mma_m128n256_bf16`."""
        a, b = _OPERANDS[self.a][1], _OPERANDS[self.b][1]
        types = a if a == b else f"{a}_{b}"
        transposed = ("_ta" if self.transposed_a else "") + ("_tb" if self.transposed_b else "")
        return f"mma_m{self.m}n{self.n}_{types}{transposed}"

    def snippet(self) -> Snippet:
        """The declaration of the constant."""
        return Snippet(
            self.name,
            "// tcgen05.mma, Instruction descriptor\n"
            f"constexpr u32 {self.name} = {self.bits:#010x};",
        )


@dataclass(frozen=True, slots=True)
class ScaledShape:
    """The content of an instruction descriptor of kind mxf8f6f4, mxf4 or mxf4nvf4. The printed code
    adds the scale factor IDs at each step along K.

    Attributes:
        m, n: extents of the instruction, both CTAs of a pair together.
        a, b: dtypes of the operands.
        scaling: the kind of the instruction.
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
        """The descriptor as a number, with both scale factor IDs 0."""
        types = _SCALED[self.a] << 7 | _SCALED[self.b] << 10
        return (
            types
            | (self.n >> 3) << 17
            | (self.scale is dtypes.float8_e8m0) << 23
            | (self.m >> 7) << 27
        )

    @property
    def name(self) -> str:
        """The name of the constant, such as `mma_m128n256_mxf8f6f4_e4m3`."""
        a, b = (t.name.rpartition("_")[2] for t in (self.a, self.b))
        return f"mma_m{self.m}n{self.n}_{self.scaling.kind}_{a if a == b else f'{a}_{b}'}"

    def snippet(self) -> Snippet:
        """The declaration of the constant."""
        return Snippet(
            self.name,
            "// tcgen05.mma .block_scale, Instruction descriptor\n"
            f"constexpr u32 {self.name} = {self.bits:#010x};",
        )


@dataclass(frozen=True, slots=True)
class TmemAccess:
    """One tcgen05.ld or tcgen05.st of 16 lanes of tensor memory, `count` times 8 elements wide.

    The shapes are those whose registers agree with a row block of a fragment, so that no register
    has to move. Elements of 32 bits take shape .16x256b: registers 4 j .. 4 j + 3 of lane l hold
    columns 8 j + 2 (l % 4) + {0, 1} of row l / 4, then of row l / 4 + 8. Pairs of 16-bit elements
    take .16x128b: registers 2 j and 2 j + 1 hold the same columns of the two rows.

    Attributes:
        verb: "ld" or "st".
        count: groups of 8 columns.
        register: C++ type of a register, "float" or "u32".
    """

    verb: str
    count: int
    register: str

    @property
    def shape(self) -> str:
        """The shape of one repetition, as the instruction names it."""
        return "16x128b" if self.register == "u32" else "16x256b"

    @property
    def registers(self) -> int:
        """The number of 32-bit registers that each thread passes."""
        return self.count * registers_a_group(self.register)

    @property
    def name(self) -> str:
        """The name of the device function, such as `tmem_load_16x256b_x8`."""
        return f"tmem_{'load' if self.verb == 'ld' else 'store'}_{self.shape}_x{self.count}"

    def snippet(self) -> Snippet:
        """The text of the device function."""
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
    """The registers that hold a thread's part of two rows of 8 columns: 4 floats, or 2 packed pairs
    of 16-bit elements (`u32`).
    """
    return 2 if register == "u32" else 4


def most_groups(register: str) -> int:
    """The groups of 8 columns of the widest access, which takes 128 registers."""
    return 128 // registers_a_group(register)


def pieces(groups: int, most: int) -> Iterator[tuple[int, int]]:
    """The (first, count) of accesses that together cover `groups` groups of 8 columns. Each count
    is a power of two up to `most`, as the instructions require.
    """
    first = 0
    while first < groups:
        count = min(most, 1 << ((groups - first).bit_length() - 1))
        yield first, count
        first += count


def _listed(rows: list[str], head: str = ":") -> list[str]:
    return [f"        {head if i == 0 else ' ' * len(head)} {row}" for i, row in enumerate(rows)]
