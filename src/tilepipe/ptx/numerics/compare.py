"""Comparison and selection (section 9.7.6), and of halves (9.7.7)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilepipe.ptx.numerics.modifiers import flush
from tilepipe.ptx.numerics.types import (
    TYPES,
    Array,
    Binary,
    Operation,
    Ternary,
    Unsupported,
    choose,
    pack,
    refuse,
    require,
    type_of,
)

SOURCES = "b16 b32 b64 u16 u32 u64 s16 s32 s64 f16 bf16 f32 f64 f16x2 bf16x2"

_ORDERED: dict[str, Binary] = {
    "eq": np.equal,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
# a comparison is true of NaN exactly if the opposite ordered one is false
_UNORDERED: dict[str, Binary] = {
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def compare(operator: str, type: str, *, ftz: bool = False) -> Binary:
    """The comparison of setp and set (9.7.6.1, 9.7.6.2, 9.7.7): a predicate for each lane.

    For f16x2 and bf16x2 the predicates of the low and the high halves lie along a new last axis.
    """
    kind = require(type, SOURCES, "setp")
    element = TYPES[kind.element or type]
    if element.kind == "float":
        operation = {**_ORDERED, **_UNORDERED}.get(operator)
    elif element.kind == "bits":
        operation = {"eq": np.equal, "ne": np.not_equal}.get(operator)
    elif operator == "ne":
        operation = np.not_equal
    elif element.kind == "unsigned":
        operation = _ORDERED.get(_UNSIGNED.get(operator, operator))
    else:
        operation = _ORDERED.get(operator)
    if operation is None:
        raise Unsupported(f"setp.{type} has no comparison .{operator}")
    chosen = operation
    if ftz:
        if element.name not in ("f32", "f16"):
            refuse("setp", type, ftz=ftz)
        chosen = _of_flushed(operation)
    if kind.kind == "packed":
        dtype = element.dtype
        return lambda a, b: chosen(a[..., None].view(dtype), b[..., None].view(dtype))
    return chosen


def _of_flushed(operation: Binary) -> Binary:
    return lambda a, b: operation(flush(a), flush(b))


def boolean(operator: str) -> Binary:
    """The operator (and, or, xor) that combines a comparison with a predicate."""
    operators: dict[str, Binary] = {
        "and": np.logical_and,
        "or": np.logical_or,
        "xor": np.logical_xor,
    }
    return operators[choose("setp", operator, "and or xor")]


def written(dtype: str, source: str) -> Callable[[Array], Array]:
    """The values that set writes (9.7.6.1, 9.7.7.1) for predicates of operands of type `source`.

    1.0 or all ones for true. A packed source takes predicates along a last axis, as `compare`
    gives them, and packs what it writes: all ones in 16 bits, or 1.0.
    """
    packed = type_of(source).kind == "packed"
    allowed = {"f16": "u16 s16 u32 s32 f16 bf16", "bf16": "u16 s16 u32 s32 bf16"}
    otherwise = f"u32 s32 {source}" if packed else "u32 s32 f16 bf16 f32"
    kind = require(dtype, allowed.get(source, otherwise), f"set from .{source}")
    if packed:
        element = TYPES[kind.element].dtype if kind.element else np.dtype(np.uint16)
    else:
        element = kind.dtype
    true = element.type(1) if element.kind not in "iu" else np.invert(element.type(0))
    false = element.type(0)

    def apply(predicate: Array) -> Array:
        values = np.where(predicate, true, false)
        return pack(values, kind.dtype) if packed else values

    return apply


def selp() -> Ternary:
    """selp (9.7.6.3): (a, b, predicate) to a where the predicate is true, else b."""
    return lambda a, b, predicate: np.where(predicate, a, b)


def slct(type: str, *, ftz: bool = False) -> Operation:
    """slct (9.7.6.4): (a, b, c of this type, s32 or f32) to a where c >= 0, else b."""
    require(type, "s32 f32", "slct")
    if type == "s32":
        refuse("slct", type, ftz=ftz)

    def apply(a: Array, b: Array, c: Array) -> Array:
        return np.where((flush(c) if ftz else c) >= 0, a, b)

    return apply
