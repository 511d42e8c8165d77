"""Which integer expressions may leave the range of their dtype: those are checked where they are computed."""

from __future__ import annotations

from tilepipe.ir import exprs as e
from tilepipe.ir.dtypes import DType

Range = tuple[int, int]

_GROWS = ("add", "sub", "mul", "shl")
_LARGEST = {"lane": 31, "warp": 31, "warp_in_group": 3, "thread": 1023, "warpgroup": 7, "cta_rank": 15}


def limits(dtype: DType) -> Range:
    """The integers that a dtype holds."""
    if dtype.kind == "bool":
        return 0, 1
    if dtype.kind == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def grows(x: e.Expr) -> bool:
    """Whether this node is signed arithmetic, whose exact value may not fit its dtype."""
    if x.shape or x.dtype.kind != "int" or x.dtype.bits < 32:
        return False
    return (isinstance(x, e.Binary) and x.op in _GROWS) or (isinstance(x, e.Unary) and x.op == "neg")


def narrows(x: e.Expr) -> bool:
    """Whether this node converts a signed integer to a smaller dtype of 32 bits."""
    return isinstance(x, e.Cast) and not x.shape and x.dtype.name == "int32" and x.a.dtype.name == "int64"


def overflows(x: e.Expr) -> bool:
    """Whether the exact value of this node may not fit its dtype, as far as is known before the kernel runs."""
    if not grows(x) and not narrows(x):
        return False
    low, high = _fitting(x.a) if isinstance(x, e.Cast) else exact(x)
    least, most = limits(x.dtype)
    return not least <= low <= high <= most


def checked(x: e.Expr) -> bool:
    """Whether computing `x` takes a check anywhere in it."""
    return overflows(x) or any(checked(c) for c in e.children(x))


def exact(x: e.Expr) -> Range:
    """Bounds of the exact integer that a scalar expression stands for; of no use for other expressions."""
    match x:
        case e.Const():
            return int(x.value), int(x.value)
        case e.Special():
            return 0, _LARGEST.get(x.name, limits(x.dtype)[1])
        case e.Unary(op="neg", a=a):
            low, high = exact(a)
            return -high, -low
        case e.Binary(op=op, a=a, b=b) if not x.dtype.is_float and not a.dtype.is_float:
            bounds = exact if grows(x) else _fitting  # operands of what does not grow have been checked
            return _binary(op, bounds(a), bounds(b)) or limits(x.dtype)
    return _fitting_leaf(x)


def _fitting_leaf(x: e.Expr) -> Range:
    low, high = limits(x.dtype)
    return (0 if x.nonneg and not isinstance(x, (e.Binary, e.Unary)) else low), high


def _fitting(x: e.Expr) -> Range:
    """Bounds of an expression that has been checked to fit its dtype."""
    (low, high), (least, most) = exact(x), limits(x.dtype)
    return min(max(low, least), most), max(min(high, most), least)


def _binary(op: str, a: Range, b: Range) -> Range | None:
    match op:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            corners = [p * q for p in a for q in b]
            return min(corners), max(corners)
        case "shl" if 0 <= b[0] <= b[1] < 64:
            corners = [p << q for p in a for q in b]
            return min(corners), max(corners)
        case "shl":
            return -(1 << 64), 1 << 64
        case "floordiv" if b[0] > 0:
            corners = [p // q for p in a for q in b]
            return min(corners), max(corners)
        case "mod" if b[0] > 0:
            return (a[0], a[1]) if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)
        case "min" | "max":
            pick = min if op == "min" else max
            return pick(a[0], b[0]), pick(a[1], b[1])
    return None
