"""Device functions around wgmma.mma_async, one for each instruction shape that a kernel uses."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.cuda.ptx.wrappers import FUNCTION, Snippet, wrapped
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.hardware.operand_tiles import mma_k

_TYPES = {
    dtypes.bfloat16: "bf16",
    dtypes.float16: "f16",
    dtypes.float32: "tf32",
    dtypes.float8_e4m3: "e4m3",
    dtypes.float8_e5m2: "e5m2",
}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One shape of wgmma.mma_async: m = 64, n columns, and 32 bytes of K.

    Attributes:
        a, b: dtypes of the operands.
        a_in_registers: A is passed in four registers of each thread, not by a descriptor.
        transposed_a, transposed_b: the operand is contiguous along M or N (16-bit dtypes only).
        scale_d: a last argument says whether the product is added to d or replaces it; without the
            argument it is added.
    """

    n: int
    a: DType
    b: DType
    a_in_registers: bool = False
    transposed_a: bool = False
    transposed_b: bool = False
    scale_d: bool = False

    @property
    def name(self) -> str:
        """The name of the device function, such as `wgmma_m64n256k16_bf16`."""
        types = _TYPES[self.a] if self.a is self.b else f"{_TYPES[self.a]}_{_TYPES[self.b]}"
        name = f"wgmma_m64n{self.n}k{mma_k(self.b)}_{types}"
        name += "_ra" if self.a_in_registers else "_ta" if self.transposed_a else ""
        name += "_tb" if self.transposed_b else ""
        return name + ("_scale_d" if self.scale_d else "")

    def snippet(self) -> Snippet:
        """The text of the device function."""
        count = self.n // 2
        if self.a_in_registers:
            inputs, signature = [f'"r"(a{i})' for i in range(4)], "u32 a0, u32 a1, u32 a2, u32 a3"
            a = f"{{{', '.join(f'%{count + i}' for i in range(4))}}}"
        else:
            inputs, signature, a = ['"l"(a)'], "u64 a", f"%{count}"
        b = f"%{count + len(inputs)}"
        inputs.append('"l"(b)')
        signature += ", u64 b"
        formula, scale = "d += a · b", "1"
        if self.scale_d:
            formula, scale = "d = a · b + (scale_d ? d : 0)", f"%{count + len(inputs)}"
            inputs.append('"r"(scale_d)')
            signature += ", i32 scale_d"
        flags = ["p", "1", "1"]
        if self.b.nbytes == 2:  # only 16-bit types have imm-trans-a and imm-trans-b
            flags += [] if self.a_in_registers else [str(int(self.transposed_a))]
            flags.append(str(int(self.transposed_b)))
        shape = f"m64n{self.n}k{mma_k(self.b)}.f32.{_TYPES[self.a]}.{_TYPES[self.b]}"
        lines = [
            f"// wgmma.mma_async: {formula}",
            f"{FUNCTION} void {self.name}(float (&d)[{count}], {signature}) {{",
            "    asm volatile(",
        ]
        lines.append(f'        "{{ .reg .pred p; setp.ne.b32 p, {scale}, 0; "')
        lines.append(f'        "wgmma.mma_async.sync.aligned.{shape} {{"')
        lines += [f'        "{row}"' for row in wrapped([f"%{i}" for i in range(count)])]
        lines.append(f'        "}}, {a}, {b}, {", ".join(flags)}; }}"')
        outputs = wrapped([f'"+f"(d[{i}])' for i in range(count)])
        lines += [f"        {': ' if i == 0 else '  '}{row}" for i, row in enumerate(outputs)]
        lines += [f"        : {', '.join(inputs)});", "}"]
        return Snippet(self.name, "\n".join(lines))
