"""Expressions of the IR as C++."""

from __future__ import annotations

import math

from tilepipe.cuda.codegen.context import Context
from tilepipe.cuda.codegen.names import is_packed, register_type, small_float
from tilepipe.cuda.codegen.registers import (
    At,
    column_number,
    element,
    joined,
    packed_register,
    registers,
    row_number,
    split,
)
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, expressions as e, ranges
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr

# IR op -> (C++ operator, precedence); a higher precedence binds tighter.
_INFIX = {
    "mul": ("*", 13),
    "div": ("/", 13),
    "floordiv": ("/", 13),
    "mod": ("%", 13),
    "add": ("+", 12),
    "sub": ("-", 12),
    "shl": ("<<", 11),
    "shr": (">>", 11),
    "lt": ("<", 10),
    "le": ("<=", 10),
    "gt": (">", 10),
    "ge": (">=", 10),
    "eq": ("==", 9),
    "ne": ("!=", 9),
    "and": ("&", 8),
    "xor": ("^", 7),
    "or": ("|", 6),
}
_LOGICAL = {"and": ("&&", 5), "or": ("||", 4)}
_UNARY = 14
_ATOM = 16
_SUFFIX = {"uint32": "u", "int64": "ll", "uint64": "ull", "phase": "u"}
_FUNCTIONS = {
    "exp": "expf",
    "log": "logf",
    "sqrt": "sqrtf",
    "rsqrt": "rsqrtf",
    "tanh": "tanhf",
    "sin": "sinf",
    "cos": "cosf",
    "erf": "erff",
    "floor": "floorf",
    "ceil": "ceilf",
    "round": "rintf",
    "abs": "fabsf",
}


def text(ctx: Context, x: Expr, at: At | None = None) -> str:
    """The code of a scalar expression, or of one element of a fragment-shaped one."""
    return _print(ctx, x, at)[0]


def operand(ctx: Context, x: Expr, precedence: int = 13, at: At | None = None) -> str:
    """The code of an expression, in brackets where it binds less tightly than `precedence`."""
    code, own = _print(ctx, x, at)
    return code if own >= precedence else f"({code})"


def parity(ctx: Context, phase: Expr) -> str:
    """The code of the parity of a phase number."""
    if isinstance(phase, e.Const):
        return str(int(phase.value) & 1)
    if isinstance(phase, e.Local) and phase in ctx.bits:
        return text(ctx, phase)
    return f"{operand(ctx, phase, 9)} & 1"


def literal(value: int | float | bool, t: DType) -> str:
    """The code of a constant of a dtype."""
    if t is dtypes.boolean:
        return "true" if value else "false"
    if not t.is_float:
        return f"{int(value)}{_SUFFIX.get(t.name, '')}"
    number = float(value)
    if math.isfinite(number):
        return repr(number) if t is dtypes.float64 else f"{number!r}f"
    bits = 0x7FC00000 if math.isnan(number) else 0x7F800000 if number > 0 else 0xFF800000
    return f"__uint_as_float({bits:#x}u)"


def from_memory(ctx: Context, t: DType, code: str) -> str:
    """The code that converts an element from its form in memory to its form in a register."""
    small = small_float(t)
    return code if small is None else f"{ctx.use(f'from_{small}')}({code})"


def to_memory(ctx: Context, t: DType, code: str) -> str:
    """The code that converts a value in a register to an element in memory. Floats are rounded."""
    small = small_float(t)
    return code if small is None else f"{ctx.use(f'{small}_from')}({code})"


def _print(ctx: Context, x: Expr, at: At | None) -> tuple[str, int]:
    match x:
        case e.Const():
            code = literal(x.value, x.dtype)
            return code, _UNARY if code.startswith("-") else _ATOM
        case e.Param():
            return ctx.argument("scalar" if x.axis < 0 else "shape", x.name, x.axis), _ATOM
        case e.Special():
            return ctx.special(x.name), _ATOM
        case e.Local():
            if x in ctx.inlined:
                return _print(ctx, ctx.inlined[x], at)
            name = ctx.name(x, c_type=register_type(x.dtype))
            return (_held(ctx, name, x, at) if x.shape else name), _ATOM
        case e.FragmentRead():
            return _read(ctx, x, at)
        case e.Iota():
            assert at is not None, "row or column numbers were used as a scalar"
            return (
                row_number(ctx, x.layout, at)
                if x.shape[1] == 1
                else column_number(ctx, x.layout, at)
            ), 12
        case e.Cast():
            return _cast(ctx, x, at)
        case e.Bitcast():
            if x.a.dtype.bits == x.dtype.bits:
                return from_bits(ctx, x.dtype, bits_of(ctx, x.a, at)), _ATOM
            assert at is not None, "a fragment was used as a scalar"
            if x.a.dtype.bits < x.dtype.bits:
                return from_bits(ctx, x.dtype, _pair(ctx, x.a, joined(at))), _ATOM
            parts = x.a.dtype.bits // x.dtype.bits
            part, there = split(at, parts)
            word = bits_of(ctx, x.a, there)
            word = word if part == "0" else f"{word} >> ({part}) * {x.dtype.bits}"
            return from_bits(ctx, x.dtype, word), _ATOM
        case e.Interleave():
            assert at is not None, "a fragment was used as a scalar"
            part, there = split(at, 2)
            if part in ("0", "1"):
                return _print(ctx, (x.a, x.b)[int(part)], there)
            return f"{part} ? {operand(ctx, x.b, 4, there)} : {operand(ctx, x.a, 4, there)}", 3
        case e.Select():
            a, b, c = (
                operand(ctx, x.cond, 4, at),
                operand(ctx, x.a, 4, at),
                operand(ctx, x.b, 4, at),
            )
            return f"{a} ? {b} : {c}", 3
        case e.Unary():
            return _rounded(ctx, x.dtype, *_unary(ctx, x, at))
        case e.Binary():
            return _rounded(ctx, x.dtype, *_binary(ctx, x, at))
    raise CompileError(f"no C++ for the expression {type(x).__name__}")


def _pair(ctx: Context, x: Expr, at: At) -> str:
    """The code of two neighbouring columns of 16 bits, from the place of the first on, as 32."""
    if isinstance(x, e.FragmentRead) and is_packed(x.dtype, x.fragment.cols):
        f = x.fragment
        return packed_register(registers(ctx, f), (f.rows, f.cols), at, f.layout, x.col)
    second = At(at.block, at.register + 1, at.half)
    low, high = (text(ctx, x, place) for place in (at, second))
    return f"{ctx.use(f'pack_{small_float(x.dtype)}')}({low}, {high})"


def bits_of(ctx: Context, x: Expr, at: At | None = None) -> str:
    """The code of the bits of an expression, as an integer of its size."""
    t, code = x.dtype, text(ctx, x, at)
    if t is dtypes.float32:
        return f"__float_as_uint({code})"
    if t is dtypes.float64:
        return f"__double_as_longlong({code})"
    if t.is_float:
        return to_memory(ctx, t, code)
    if t.kind == "uint":
        return operand(ctx, x, _ATOM, at)
    return f"static_cast<u{t.bits}>({code})"


def from_bits(ctx: Context, t: DType, code: str) -> str:
    """The code of an element whose bits are the low ones of an integer."""
    if t is dtypes.float32:
        return f"__uint_as_float({code})"
    if t is dtypes.float64:
        return f"__longlong_as_double({code})"
    if t.is_float:
        return from_memory(ctx, t, code)
    return f"static_cast<{register_type(t)}>({code})"


def _rounded(ctx: Context, t: DType, code: str, precedence: int) -> tuple[str, int]:
    """Rounds or wraps a result to its narrow type, since C++ computes narrow types in wide ones."""
    if (small := small_float(t)) is not None:
        return f"{ctx.use(f'round_{small}')}({code})", _ATOM
    if t in (dtypes.int8, dtypes.uint8):
        return f"static_cast<{register_type(t)}>({code})", _ATOM
    return code, precedence


def _held(ctx: Context, array: str, x: e.Local, at: At | None) -> str:
    """The register of an element of a fragment-shaped local, whose registers are never packed."""
    assert at is not None, "a fragment-shaped value was used as a scalar"
    return element(array, dtypes.float32, x.shape, at, ctx.layouts[x])[0]


def _read(ctx: Context, x: e.FragmentRead, at: At | None) -> tuple[str, int]:
    f, name = x.fragment, registers(ctx, x.fragment)
    assert at is not None, "a fragment was used as a scalar"
    register, half = element(name, f.dtype, (f.rows, f.cols), at, f.layout, x.col)
    if half is None:
        return register, _ATOM
    return f"{ctx.use(f'unpack_{small_float(f.dtype)}')}({register}, {half})", _ATOM


def _cast(ctx: Context, x: e.Cast, at: At | None) -> tuple[str, int]:
    if (small := small_float(x.dtype)) is not None:
        return f"{ctx.use(f'round_{small}')}({text(ctx, x.a, at)})", _ATOM
    if isinstance(x.a, e.Const):
        return literal(x.a.value, x.dtype), _UNARY
    if x.dtype.is_integer and x.a.dtype.is_float:  # a C++ cast out of range is undefined
        wide = "f64" if x.a.dtype is dtypes.float64 else "f32"
        return f"{ctx.use(f'{register_type(x.dtype)}_from_{wide}')}({text(ctx, x.a, at)})", _ATOM
    target, source = register_type(x.dtype), register_type(x.a.dtype)
    if target == source:
        return _print(ctx, x.a, at)
    if x.dtype is dtypes.boolean:
        return f"{operand(ctx, x.a, 10, at)} != 0", 9
    return f"static_cast<{target}>({text(ctx, x.a, at)})", _ATOM


def _unary(ctx: Context, x: e.Unary, at: At | None) -> tuple[str, int]:
    double = x.dtype is dtypes.float64
    match x.op:
        case "neg":
            return f"-{operand(ctx, x.a, _ATOM, at)}", _UNARY
        case "not":
            return (
                f"{'!' if x.dtype is dtypes.boolean else '~'}{operand(ctx, x.a, _UNARY, at)}",
                _UNARY,
            )
        case "abs" if x.dtype.kind == "uint":
            return text(ctx, x.a, at), _ATOM
        case "abs" if not x.dtype.is_float:
            return f"abs({text(ctx, x.a, at)})", _ATOM
        case "rcp" | "sigmoid" if double:
            a = operand(ctx, x.a, _ATOM, at)
            return f"1.0 / {a}" if x.op == "rcp" else f"1.0 / (1.0 + exp(-{a}))", 13
        case "sigmoid":  # exp(-x) is 2^(-x log2 e)
            rcp, exp2 = ctx.use("fast_rcp"), ctx.use("fast_exp2")
            return f"{rcp}(1.0f + {exp2}(-1.44269504f * {operand(ctx, x.a, 14, at)}))", _ATOM
        case "exp2" | "log2" | "rcp":
            function = x.op if double else ctx.use(f"fast_{x.op}")
        case _:
            function = (
                {"abs": "fabs", "round": "rint"}.get(x.op, x.op) if double else _FUNCTIONS[x.op]
            )
    return f"{function}({text(ctx, x.a, at)})", _ATOM


def _binary(ctx: Context, x: e.Binary, at: At | None) -> tuple[str, int]:
    t = x.a.dtype
    if x.op in ("min", "max"):
        function = f"f{x.op}{'' if t is dtypes.float64 else 'f'}" if t.is_float else x.op
        return f"{function}({text(ctx, x.a, at)}, {text(ctx, x.b, at)})", _ATOM
    if isinstance(x.b, e.Const) and x.op == "pow":
        return f"{ctx.use('power')}<{int(x.b.value)}>({text(ctx, x.a, at)})", _ATOM
    if x.op in ("floordiv", "mod") and not _truncating(x):
        function = ctx.use("floor_div" if x.op == "floordiv" else "floor_mod")
        return f"{function}<{register_type(t)}>({text(ctx, x.a, at)}, {text(ctx, x.b, at)})", _ATOM
    if x.op in ("shl", "shr") and ranges.shifts_out(x):
        function = ctx.use("shift_left" if x.op == "shl" else "shift_right")
        return f"{function}<{register_type(t)}>({text(ctx, x.a, at)}, {text(ctx, x.b, at)})", _ATOM
    if _masked(x):
        assert isinstance(x.a, e.Binary)
        parts = ", ".join(text(ctx, part, at) for part in (x.a.a, x.a.b, x.b))
        code = f"{ctx.use('and_or')}({parts})"
        return code if t is dtypes.uint32 else f"static_cast<i32>({code})", _ATOM
    logical = t is dtypes.boolean and x.op in _LOGICAL
    sign, own = _LOGICAL[x.op] if logical else _INFIX[x.op]
    if logical:
        left, right = operand(ctx, x.a, 9, at), operand(ctx, x.b, 9, at)
    elif own <= 8 or own == 11:  # bitwise operators and shifts: brackets around any operator
        left, right = operand(ctx, x.a, _UNARY, at), operand(ctx, x.b, _UNARY, at)
    else:
        left, right = operand(ctx, x.a, own, at), operand(ctx, x.b, own + 1, at)
    return f"{left} {sign} {right}", own


def _masked(x: e.Binary) -> bool:
    """True of `a & constant | constant` of 32 bits, which is one instruction."""
    return (
        x.op == "or"
        and x.a.dtype in (dtypes.int32, dtypes.uint32)
        and isinstance(x.b, e.Const)
        and isinstance(x.a, e.Binary)
        and x.a.op == "and"
        and isinstance(x.a.b, e.Const)
    )


def _truncating(x: e.Binary) -> bool:
    """True if C++'s truncating division gives the same as Python's division."""
    return x.a.dtype.kind in ("uint", "phase", "bool") or (x.a.nonneg and x.b.nonneg)
