"""Device functions around strong accesses to global memory (ld, st, atom, red with an order and a
scope; PTX ISA, Memory Consistency Model), one for each form that a kernel uses.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.cuda.ptx.wrappers import FUNCTION, Snippet
from tilepipe.ir.ops import AtomicOperation

# C++ type of an element -> (PTX type of sums, minima and maxima; of bits; asm constraint)
_TYPES = {
    "i32": ("s32", "b32", "r"),
    "u32": ("u32", "b32", "r"),
    "i64": ("s64", "b64", "l"),
    "u64": ("u64", "b64", "l"),
    "float": ("f32", "b32", "f"),
    "double": ("f64", "b64", "d"),
    "f16": ("f16", "b16", "h"),
    "bf16": ("bf16", "b16", "h"),
}
_PTX_NAMES = {"exchange": "exch"}
_BITWISE = ("and", "or", "xor", "exchange", "cas")
_HALVES = ("f16", "bf16")


def _c_type(kind: str) -> str:
    return "u16" if kind in _HALVES else kind


def load(kind: str, order: str, scope: str) -> Snippet:
    """ld.relaxed, ld.acquire of an element. `kind`: its C++ type, or `f16`, `bf16`."""
    name, c_type = f"load_{order}_{scope}_{kind}", _c_type(kind)
    _, bits, letter = _TYPES[kind]
    return Snippet(
        name,
        f"""// ld.{order}.{scope}
{FUNCTION} {c_type} {name}(const {c_type}* address) {{
    {c_type} x;
    asm volatile("ld.{order}.{scope}.global.{bits} %0, [%1];"
                 : "={letter}"(x) : "l"(address) : "memory");
    return x;
}}""",
    )


def store(kind: str, order: str, scope: str) -> Snippet:
    """st.relaxed, st.release of an element."""
    name, c_type = f"store_{order}_{scope}_{kind}", _c_type(kind)
    _, bits, letter = _TYPES[kind]
    return Snippet(
        name,
        f"""// st.{order}.{scope}
{FUNCTION} void {name}({c_type}* address, {c_type} x) {{
    asm volatile("st.{order}.{scope}.global.{bits} [%0], %1;"
                 ::"l"(address), "{letter}"(x) : "memory");
}}""",
    )


def fence(order: str, scope: str) -> Snippet:
    """fence.acq_rel, fence.sc."""
    name = f"fence_{order}_{scope}"
    return Snippet(
        name,
        f"""// fence.{order}.{scope}
{FUNCTION} void {name}() {{
    asm volatile("fence.{order}.{scope};" ::: "memory");
}}""",
    )


def add_pair(kind: str) -> Snippet:
    """red.add of two aligned neighbours: of two floats, or of two `f16` or `bf16` in a register."""
    name = f"add_pair_{kind}"
    if kind == "float":
        return Snippet(
            name,
            f"""// red.add.v2.f32
{FUNCTION} void {name}(float* address, float x, float y) {{
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {{%1, %2}};"
                 ::"l"(address), "f"(x), "f"(y) : "memory");
}}""",
        )
    return Snippet(
        name,
        f"""// red.add.noftz.{kind}x2
{FUNCTION} void {name}(u16* address, u32 pair) {{
    asm volatile("red.relaxed.gpu.global.add.noftz.{kind}x2 [%0], %1;"
                 ::"l"(address), "r"(pair) : "memory");
}}""",
    )


def add_vector(kind: str) -> Snippet:
    """red.add of eight aligned neighbours: of floats, or of `f16` or `bf16` in four registers."""
    name, wide = f"add_vector_{kind}", kind == "float"
    names = [f"x{i}" for i in range(8 if wide else 4)]
    values = ", ".join(f"{'float' if wide else 'u32'} {x}" for x in names)
    form = "add.v4.f32" if wide else f"add.noftz.v4.{kind}x2"
    letter = "f" if wide else "r"
    accesses = "\n".join(
        f"""    asm volatile("red.relaxed.gpu.global.{form} [%0], {{%1, %2, %3, %4}};"
                 ::"l"(address{f" + {start}" if start else ""}),
                 {", ".join(f'"{letter}"({x})' for x in names[start : start + 4])} : "memory");"""
        for start in range(0, len(names), 4)
    )
    return Snippet(
        name,
        f"""// red.{form}
{FUNCTION} void {name}({"float" if wide else "u16"}* address, {values}) {{
{accesses}
}}""",
    )


@dataclass(frozen=True, slots=True)
class Atomic:
    """One form of atom.global, or of red.global.

    Attributes:
        kind: the C++ type of the element, or `f16`, `bf16`.
        returns: whether the function gives what was there before (atom), or nothing (red).
    """

    operation: AtomicOperation
    kind: str
    order: str
    scope: str
    returns: bool

    @property
    def name(self) -> str:
        """The name of the device function, such as `atomic_add_relaxed_gpu_i32`."""
        stem = "atomic" if self.returns else "reduce"
        return f"{stem}_{self.operation}_{self.order}_{self.scope}_{self.kind}"

    @property
    def ptx(self) -> str:
        """The instruction without its operands."""
        number, bits, _ = _TYPES[self.kind]
        if self.operation in _BITWISE:
            number = bits
        elif self.operation == "add" and number == "s64":
            number = "u64"  # the sums of both are the same bits, and add has no .s64
        if self.kind in _HALVES:
            number = f"noftz.{number}"
        opcode = "atom" if self.returns else "red"
        operation = _PTX_NAMES.get(self.operation, self.operation)
        return f"{opcode}.{self.order}.{self.scope}.global.{operation}.{number}"

    def snippet(self) -> Snippet:
        """The text of the device function."""
        c_type, letter = _c_type(self.kind), _TYPES[self.kind][2]
        names = ["compare", "value"] if self.operation == "cas" else ["value"]
        signature = ", ".join([f"{c_type}* address", *(f"{c_type} {name}" for name in names)])
        first = 1 if self.returns else 0
        given = ", ".join(f"%{first + 1 + i}" for i in range(len(names)))
        inputs = ", ".join(['"l"(address)', *(f'"{letter}"({name})' for name in names)])
        head = f"// {self.ptx}\n{FUNCTION}"
        if not self.returns:
            return Snippet(
                self.name,
                f"""{head} void {self.name}({signature}) {{
    asm volatile("{self.ptx} [%0], {given};" ::{inputs} : "memory");
}}""",
            )
        return Snippet(
            self.name,
            f"""{head} {c_type} {self.name}({signature}) {{
    {c_type} old;
    asm volatile("{self.ptx} %0, [%1], {given};" : "={letter}"(old) : {inputs} : "memory");
    return old;
}}""",
        )
