"""Integer expressions that may leave the range of their dtype, and are checked where they are
computed.
"""

from __future__ import annotations

from tilepipe.ir import expressions as e
from tilepipe.ir.numbers import limits, shl, shr

Range = tuple[int, int]

_GROWS = ("add", "sub", "mul", "shl")
_LARGEST = {
    "lane": 31,
    "warp": 31,
    "warp_in_group": 3,
    "thread": 1023,
    "warpgroup": 7,
    "cta_rank": 15,
}


def grows(x: e.Expr) -> bool:
    """True if this node is signed arithmetic, whose exact value may not fit its dtype."""
    if x.shape or x.dtype.kind != "int":
        return False
    return (isinstance(x, e.Binary) and x.op in _GROWS) or (
        isinstance(x, e.Unary) and x.op in ("neg", "abs")
    )


def divides(x: e.Expr) -> bool:
    """True if this node is an integer division, or a remainder, that is undefined for some
    operands: a divisor of 0, or the least integer divided by -1.
    """
    if not isinstance(x, e.Binary) or x.op not in ("floordiv", "mod") or x.dtype.is_float:
        return False
    (least, _), (low, high) = _fitting(x.a), _fitting(x.b)
    by_zero = low <= 0 <= high
    return by_zero or (x.dtype.kind == "int" and least == limits(x.dtype)[0] and low <= -1 <= high)


def shifts_out(x: e.Expr) -> bool:
    """True if this node is a shift whose amount may be negative, or the width of the operand or
    more.
    """
    if not isinstance(x, e.Binary) or x.op not in ("shl", "shr"):
        return False
    low, high = _fitting(x.b)
    # narrower operands are shifted in 32 bits
    return not 0 <= low <= high < max(x.a.dtype.bits, 32)


def narrows(x: e.Expr) -> bool:
    """True if this node converts a signed integer to a smaller dtype of 32 bits."""
    return (
        isinstance(x, e.Cast)
        and not x.shape
        and x.dtype.name == "int32"
        and x.a.dtype.name == "int64"
    )


def overflows(x: e.Expr) -> bool:
    """True if the exact value of this node may not fit its dtype, by what is known before the
    kernel runs.
    """
    if not grows(x) and not narrows(x):
        return False
    low, high = _fitting(x.a) if isinstance(x, e.Cast) else exact(x)
    least, most = limits(x.dtype)
    return not least <= low <= high <= most


def checked(x: e.Expr) -> bool:
    """True if computing `x` takes a check anywhere in it."""
    return overflows(x) or divides(x) or any(checked(c) for c in e.children(x))


def exact(x: e.Expr) -> Range:
    """Bounds of the exact integer value of a scalar expression; meaningless for any other."""
    match x:
        case e.Const():
            return int(x.value), int(x.value)
        case e.Special():
            return 0, _LARGEST.get(x.name, limits(x.dtype)[1])
        case e.Unary(op="neg", a=a):
            low, high = exact(a)
            return _wrapping(x, (-high, -low))
        case e.Unary(op="abs", a=a) if not x.dtype.is_float:
            low, high = exact(a)
            return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        case e.Cast(a=a) if a.dtype.is_integer and x.dtype.is_integer:
            (low, high), (least, most) = _fitting(a), limits(x.dtype)
            if least <= low <= high <= most:
                return low, high
        case e.Binary(op=op, a=a, b=b) if not x.dtype.is_float and not a.dtype.is_float:
            # operands of what does not grow have been checked
            bounds = exact if grows(x) else _fitting
            return _wrapping(x, _binary(op, bounds(a), bounds(b)) or limits(x.dtype))
    low, high = limits(x.dtype)
    return (0 if x.nonneg and not isinstance(x, (e.Binary, e.Unary)) else low), high


def _wrapping(x: e.Expr, bounds: Range) -> Range:
    """The bounds of a node's value, given those of its exact result: unsigned arithmetic wraps
    round.
    """
    low, high = limits(x.dtype)
    fits = low <= bounds[0] <= bounds[1] <= high
    return bounds if fits or x.dtype.kind != "uint" else (low, high)


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
        case "shl" if b[0] >= 0:
            corners = [shl(p, q) for p in a for q in b]
            return min(corners), max(corners)
        case "shl":
            return shl(min(a[0], -1), -1), shl(max(a[1], 1), -1)
        case "shr" if b[0] >= 0:
            corners = [shr(p, q) for p in a for q in b]
            return min(corners), max(corners)
        case "and" if a[0] >= 0 or b[0] >= 0:
            return 0, min(r[1] for r in (a, b) if r[0] >= 0)
        case "floordiv" if b[0] > 0:
            corners = [p // q for p in a for q in b]
            return min(corners), max(corners)
        case "mod" if b[0] > 0:
            return (a[0], a[1]) if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)
        case "min" | "max":
            pick = min if op == "min" else max
            return pick(a[0], b[0]), pick(a[1], b[1])
    return None
