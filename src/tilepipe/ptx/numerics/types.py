"""The types of PTX (section 5.2): width, NumPy dtype, kind, and views of register bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

Kind = Literal["unsigned", "signed", "bits", "float", "packed", "predicate"]

Array = npt.NDArray[Any]
Operation = Callable[..., Array]
Unary = Callable[[Array], Array]
Binary = Callable[[Array, Array], Array]
Ternary = Callable[[Array, Array, Array], Array]

bfloat16 = np.dtype(ml_dtypes.bfloat16)


class Unsupported(Exception):
    """The ISA has no instruction of this type with these modifiers."""


@dataclass(frozen=True)
class Type:
    """A type of PTX: `element` is what a packed type holds `count` of, else the type itself."""

    name: str
    bits: int
    dtype: np.dtype[Any]
    kind: Kind
    count: int = 1
    element: str = ""


def _types() -> dict[str, Type]:
    found = [Type("pred", 1, np.dtype(np.bool_), "predicate")]
    for bits in (8, 16, 32, 64):
        unsigned = np.dtype(f"u{bits // 8}")
        found += [
            Type(f"u{bits}", bits, unsigned, "unsigned"),
            Type(f"s{bits}", bits, np.dtype(f"i{bits // 8}"), "signed"),
            Type(f"b{bits}", bits, unsigned, "bits"),
        ]
    found += [
        Type("f16", 16, np.dtype(np.float16), "float"),
        Type("bf16", 16, bfloat16, "float"),
        Type("f32", 32, np.dtype(np.float32), "float"),
        Type("f64", 64, np.dtype(np.float64), "float"),
        Type("b128", 128, np.dtype("V16"), "bits"),
        Type("tf32", 32, np.dtype(np.uint32), "bits"),  # a b32 register holds it
    ]
    for element, count, bits in [
        ("u16", 2, 32),
        ("s16", 2, 32),
        ("f16", 2, 32),
        ("bf16", 2, 32),
        ("f32", 2, 64),
        ("u8", 4, 32),
        ("s8", 4, 32),
        ("e4m3", 2, 16),
        ("e5m2", 2, 16),
        ("e2m3", 2, 16),
        ("e3m2", 2, 16),
        ("e2m1", 2, 8),
        ("ue8m0", 2, 16),
    ]:
        dtype = np.dtype(f"u{bits // 8}")
        found.append(Type(f"{element}x{count}", bits, dtype, "packed", count, element))
    return {each.name: each for each in found}


TYPES = _types()


def type_of(name: str) -> Type:
    """The type of this name ("u32", "bf16x2"); `Unsupported` if PTX has none."""
    if name not in TYPES:
        raise Unsupported(f".{name} is not a type of PTX")
    return TYPES[name]


def is_integer(name: str) -> bool:
    """True if a type holds one integer, or bits."""
    return name in TYPES and TYPES[name].kind in ("unsigned", "signed", "bits")


def require(name: str, allowed: str, instruction: str) -> Type:
    """The type of this name, which must be among the names in `allowed` (separated by spaces)."""
    if not name:
        raise Unsupported(f"{instruction}: type missing")
    if name not in allowed.split():
        raise Unsupported(f"{instruction} has no type .{name}")
    return TYPES[name]


def refuse(instruction: str, name: str, **modifiers: object) -> None:
    """Raise `Unsupported` if any of these modifiers is set: the instruction lacks it."""
    for modifier, value in modifiers.items():
        if value:
            raise Unsupported(f"{instruction}.{name} has no .{modifier}")


def choose(instruction: str, modifier: str | None, allowed: str) -> str:
    """The modifier, which must be among those in `allowed` (separated by spaces)."""
    if modifier is None or modifier not in allowed.split():
        given = "no modifier" if modifier is None else f".{modifier}"
        raise Unsupported(f"{instruction} takes one of {allowed}, not {given}")
    return modifier


def view(bits: Array, name: str) -> Array:
    """The register bits (unsigned, as wide as the type) as values of the type."""
    type_ = type_of(name)
    if type_.kind == "predicate":
        return bits.astype(np.bool_)
    return bits.view(type_.dtype)


def bits_of(values: Array) -> Array:
    """The bits of values as unsigned integers of the same width: the inverse of `view`."""
    return values.view(f"u{values.dtype.itemsize}")


def pack(elements: Array, register: npt.DTypeLike) -> Array:
    """Elements along the last axis as packed registers, the first one in the low bits."""
    return np.ascontiguousarray(elements).view(register)[..., 0]


def elementwise(operation: Operation, name: str) -> Operation:
    """The operation on each element of operands and result of the packed type `name`."""
    type_ = type_of(name)
    element, register = TYPES[type_.element].dtype, type_.dtype

    def apply(*operands: Array) -> Array:
        return pack(operation(*[each[..., None].view(element) for each in operands]), register)

    return apply
