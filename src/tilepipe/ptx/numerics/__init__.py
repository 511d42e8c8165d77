"""The arithmetic of PTX as pure functions over NumPy arrays of lanes.

Each instruction has a factory, named after it, that takes the instruction's type and modifiers and
returns a callable on arrays of any shape. The factory runs once, when an instruction is compiled;
a combination that the ISA does not have raises `Unsupported` there.

The functions do not write to their operands; a result may be an operand itself.

Integer types are np.int8 to np.uint64 (a b-type is unsigned), f16, f32 and f64 NumPy's floats, bf16
`ml_dtypes.bfloat16`. A packed type (f16x2, s16x2, e4m3x2, f32x2, ...) is an unsigned integer as
wide as its register, with the first element in the low bits. Predicates are np.bool_. The host is
little-endian. NumPy may warn of overflow and invalid operations; `np.errstate` is the caller's.

Section numbers are those of the PTX ISA 9.0.
"""

from tilepipe.ptx.numerics.types import Unsupported

__all__ = ["Unsupported"]
