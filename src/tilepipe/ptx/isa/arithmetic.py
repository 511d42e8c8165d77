"""Integer and floating-point arithmetic (PTX ISA, "Integer Arithmetic Instructions" to "Mixed
Precision Floating-Point Instructions").
"""

from __future__ import annotations

from collections.abc import Callable

from tilepipe.ptx.definition import (
    CONDITION_CODE,
    Compute,
    Modifiers,
    OnLanes,
    Operation,
    compute,
    defines,
    not_modelled,
    operands,
    typed,
)
from tilepipe.ptx.numerics import (
    carry,
    extrema,
    floating,
    functions,
    integer,
)
from tilepipe.ptx.numerics.rounding import MODES
from tilepipe.ptx.numerics.types import TYPES, Array, Unsupported, is_integer
from tilepipe.ptx.syntax.nodes import Instruction, Operand, Pair

_WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def _arithmetic(modifiers: Modifiers) -> tuple[str, bool, bool]:
    """Rounding, .ftz and .sat of floating-point arithmetic; "": no rounding is given."""
    rounding = modifiers.take(*MODES)
    ftz = modifiers.flag("ftz")
    return rounding, ftz, modifiers.flag("sat")


def _only_of_floats(instruction: Instruction, rounding: str, ftz: bool, sat: bool = False) -> None:
    """Refuses modifiers that no integer instruction has."""
    if rounding or ftz or sat:
        found = rounding or ("ftz" if ftz else "sat")
        not_modelled(instruction, f"the modifier '.{found}' of an integer type")


@defines("add", "sub")
def _add_sub(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    if modifiers.flag("cc"):
        return _chained(instruction, modifiers, writes=True)
    operands(instruction, 3)
    rounding, ftz, sat = _arithmetic(modifiers)
    kind = modifiers.any()
    source = modifiers.take("f16", "bf16") or None
    modifiers.end()
    name = instruction.opcode
    if is_integer(kind) or kind in ("u16x2", "s16x2"):
        _only_of_floats(instruction, rounding, ftz)
        lanes = (integer.add if name == "add" else integer.sub)(kind, sat=sat)
        sign = "+" if name == "add" else "-"
        plain = is_integer(kind) and not sat
        return compute(instruction, kind, lanes, f"{{0}} {sign} {{1}}" if plain else None)
    function = floating.add if name == "add" else floating.sub
    lanes = function(kind, rounding=rounding or "rn", ftz=ftz, sat=sat, source=source)
    return compute(instruction, kind, lanes, None, source or kind, kind)


@defines("addc", "subc")
def _add_carry(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    return _chained(instruction, modifiers, writes=modifiers.flag("cc"), reads=True)


def _chained(
    instruction: Instruction, modifiers: Modifiers, *, writes: bool, reads: bool = False
) -> Operation:
    """add.cc, addc, sub.cc, subc, mad.cc and madc: the condition code is a predicate of each lane,
    which the compiler has put among the operands (`compiler.carries`).
    """
    kind = modifiers.any()
    modifiers.end()
    product = instruction.opcode in ("mad", "madc")
    mode = instruction.modifiers[0] if product else ""
    destination, a, b, *rest = operands(instruction, 3 + product, 4 + product)
    third = rest[: int(product)]
    into: Operand = CONDITION_CODE
    out: Operand = CONDITION_CODE
    if len(rest) > product and isinstance(rest[-1], Pair):
        into, out = rest[-1].first, rest[-1].second
    function: Callable[..., tuple[Array, Array]]
    if product:
        function = (carry.madc if reads else carry.mad_cc)(kind, mode)
    elif instruction.opcode[:3] == "add":
        function = (carry.addc if reads else carry.add_cc)(kind)
    else:
        function = _differences(kind, reads=reads)
    sources = typed((a, b, *third), kind) + (((into, "pred"),) if reads else ())
    if not writes:
        return Compute(
            ((destination, kind),), sources, lambda *values: function(*values)[0],
            _chain_scalar(instruction, kind, mode, reads=reads)[0],
        )  # fmt: skip
    templates = _chain_scalar(instruction, kind, mode, reads=reads)
    return Compute(((destination, kind), (out, "pred")), sources, function, templates)


def _differences(kind: str, *, reads: bool) -> Callable[..., tuple[Array, Array]]:
    """sub.cc and subc. The condition code is the carry of a + ~b + 1, that is: no borrow. The ISA
    calls it a borrow; on an H100 an addc after sub.cc, and a subc after add.cc, show it.
    """
    function = (carry.subc if reads else carry.sub_cc)(kind)

    def apply(a: Array, b: Array, *carried: Array) -> tuple[Array, Array]:
        difference, borrow = function(a, b, *(~c for c in carried))
        return difference, ~borrow

    return apply


def _chain_scalar(
    instruction: Instruction, kind: str, mode: str, *, reads: bool
) -> tuple[str, str]:
    """The result and the condition code, on Python numbers."""
    bits = TYPES[kind].bits
    mask = (1 << bits) - 1
    a, b = f"({{0}} & {mask:#x})", f"({{1}} & {mask:#x})"
    if mode:
        shift = f" >> {bits}" if mode == "hi" else ""
        a, b = f"(({{0}} * {{1}}){shift} & {mask:#x})", f"({{2}} & {mask:#x})"
    carried = f" + {{{3 if mode else 2}}}" if reads else ""
    if instruction.opcode[:3] == "sub":
        borrowed = " + (not {2})" if reads else ""
        return f"{a} - ({b}{borrowed})", f"({a} >= {b}{borrowed})"
    return f"{a} + {b}{carried}", f"({a} + {b}{carried}) >> {bits} != 0"


@defines("mul")
def _mul(instruction: Instruction) -> Operation:
    operands(instruction, 3)
    modifiers = Modifiers(instruction)
    mode = modifiers.take("lo", "hi", "wide")
    rounding, ftz, sat = _arithmetic(modifiers)
    kind = modifiers.any()
    modifiers.end()
    if mode:
        _only_of_floats(instruction, rounding, ftz, sat)
        scalar = "({0} * {1})" + (f" >> {TYPES[kind].bits}" if mode == "hi" else "")
        to = _WIDE.get(kind, kind) if mode == "wide" else kind
        return compute(instruction, kind, integer.mul(kind, mode), scalar, to=to)
    return compute(
        instruction, kind, floating.mul(kind, rounding=rounding or "rn", ftz=ftz, sat=sat), None
    )


@defines("mad")
def _mad(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    mode = modifiers.take("lo", "hi", "wide")
    if not mode:
        return _fma(instruction)
    if mode != "wide" and modifiers.flag("cc"):
        return _chained(instruction, modifiers, writes=True)
    operands(instruction, 4)
    sat = modifiers.flag("sat")
    kind = modifiers.any()
    modifiers.end()
    to = _WIDE.get(kind, kind) if mode == "wide" else kind
    scalar = "(({0} * {1})" + (f" >> {TYPES[kind].bits}" if mode == "hi" else "") + ") + {2}"
    return compute(
        instruction, kind, integer.mad(kind, mode, sat=sat), None if sat else scalar,
        kind, kind, to, to=to,
    )  # fmt: skip


@defines("madc")
def _mad_carry(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    modifiers.need("lo", "hi")
    return _chained(instruction, modifiers, writes=modifiers.flag("cc"), reads=True)


@defines("fma")
def _fma(instruction: Instruction) -> Operation:
    operands(instruction, 4)
    modifiers = Modifiers(instruction)
    rounding = modifiers.need(*MODES)
    _, ftz, sat = _arithmetic(modifiers)
    ends = [modifiers.take("relu", "oob") for _ in range(2)]  # assemblers take either order
    relu, oob = "relu" in ends, "oob" in ends
    kind = modifiers.any()
    if instruction.opcode == "mad" and kind not in ("f32", "f64"):
        raise Unsupported(f"mad has no type .{kind}")
    source = modifiers.take("f16", "bf16") or None
    modifiers.end()
    lanes = floating.fma(
        kind, rounding=rounding, ftz=ftz, sat=sat, relu=relu, oob=oob, source=source
    )
    narrow = source or kind
    return compute(instruction, kind, lanes, None, narrow, narrow, kind)


@defines("mul24", "mad24")
def _mul24(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    mode = modifiers.need("lo", "hi")
    sat = instruction.opcode == "mad24" and modifiers.flag("sat")
    kind = modifiers.need("u32", "s32")
    modifiers.end()
    if instruction.opcode == "mul24":
        operands(instruction, 3)
        return compute(instruction, kind, integer.mul24(kind, mode), None)
    operands(instruction, 4)
    return compute(instruction, kind, integer.mad24(kind, mode, sat=sat), None)


@defines("sad")
def _sad(instruction: Instruction) -> Operation:
    operands(instruction, 4)
    modifiers = Modifiers(instruction)
    kind = modifiers.any()
    modifiers.end()
    return compute(instruction, kind, integer.sad(kind), "abs({0} - {1}) + {2}")


@defines("dp4a")
def _dp4a(instruction: Instruction) -> Operation:
    operands(instruction, 4)
    modifiers = Modifiers(instruction)
    a, b = modifiers.need("u32", "s32"), modifiers.need("u32", "s32")
    modifiers.end()
    to = "s32" if "s32" in (a, b) else "u32"
    return compute(instruction, to, integer.dp4a(a, b), None, a, b, to)


@defines("dp2a")
def _dp2a(instruction: Instruction) -> Operation:
    operands(instruction, 4)
    modifiers = Modifiers(instruction)
    mode = modifiers.need("lo", "hi")
    a, b = modifiers.need("u32", "s32"), modifiers.need("u32", "s32")
    modifiers.end()
    to = "s32" if "s32" in (a, b) else "u32"
    return compute(instruction, to, integer.dp2a(mode, a, b), None, a, b, to)


@defines("div")
def _div(instruction: Instruction) -> Operation:
    operands(instruction, 3)
    modifiers = Modifiers(instruction)
    rounding = modifiers.take(*MODES, "approx", "full")
    ftz = modifiers.flag("ftz")
    kind = modifiers.any()
    modifiers.end()
    if is_integer(kind):
        _only_of_floats(instruction, rounding, ftz)
        scalar = f"quotient({{0}}, {{1}}, {TYPES[kind].bits})"
        return compute(instruction, kind, integer.div(kind), scalar)
    return compute(instruction, kind, functions.div(kind, rounding=rounding, ftz=ftz), None)


@defines("rem")
def _rem(instruction: Instruction) -> Operation:
    operands(instruction, 3)
    modifiers = Modifiers(instruction)
    kind = modifiers.any()
    modifiers.end()
    scalar = f"remainder({{0}}, {{1}}, {TYPES[kind].bits})"
    return compute(instruction, kind, integer.rem(kind), scalar)


@defines("rcp", "sqrt")
def _rcp(instruction: Instruction) -> Operation:
    operands(instruction, 2)
    modifiers = Modifiers(instruction)
    rounding = modifiers.take(*MODES, "approx")
    ftz = modifiers.flag("ftz")
    kind = modifiers.any()
    modifiers.end()
    function = functions.rcp if instruction.opcode == "rcp" else functions.sqrt
    return compute(instruction, kind, function(kind, rounding=rounding, ftz=ftz), None)


@defines("rsqrt", "sin", "cos", "lg2", "ex2")
def _approximate(instruction: Instruction) -> Operation:
    operands(instruction, 2)
    modifiers = Modifiers(instruction)
    modifiers.need("approx")
    ftz = modifiers.flag("ftz")
    kind = modifiers.any()
    modifiers.end()
    function = {
        "rsqrt": functions.rsqrt, "sin": functions.sin, "cos": functions.cos,
        "lg2": functions.lg2, "ex2": functions.ex2,
    }[instruction.opcode]  # fmt: skip
    return compute(instruction, kind, function(kind, ftz=ftz), None)


@defines("tanh")
def _tanh(instruction: Instruction) -> Operation:
    operands(instruction, 2)
    modifiers = Modifiers(instruction)
    modifiers.need("approx")
    kind = modifiers.any()
    modifiers.end()
    return compute(instruction, kind, functions.tanh(kind), None)


@defines("min", "max")
def _min_max(instruction: Instruction) -> Operation:
    operands(instruction, 3, 4)
    modifiers = Modifiers(instruction)
    relu = modifiers.flag("relu")
    ftz = modifiers.flag("ftz")
    nan = modifiers.flag("NaN")
    magnitude = modifiers.take("xorsign", "abs")
    if magnitude == "xorsign":
        modifiers.need("abs")
    kind = modifiers.any()
    modifiers.end()
    name = instruction.opcode
    if is_integer(kind) or kind in ("u16x2", "s16x2"):
        operands(instruction, 3)
        _only_of_floats(instruction, "NaN" if nan else magnitude, ftz)
        lanes: OnLanes = (integer.min if name == "min" else integer.max)(kind, relu=relu)
        plain = is_integer(kind) and not relu
        return compute(instruction, kind, lanes, f"{name}({{0}}, {{1}})" if plain else None)
    if relu:
        not_modelled(instruction, "the modifier '.relu' of a floating-point type")
    function = extrema.min if name == "min" else extrema.max
    lanes = function(
        kind, ftz=ftz, nan=nan, xorsign_abs=magnitude == "xorsign", abs=magnitude == "abs",
        inputs=len(instruction.operands) - 1,
    )  # fmt: skip
    return compute(instruction, kind, lanes, None)


@defines("abs", "neg")
def _abs_neg(instruction: Instruction) -> Operation:
    operands(instruction, 2)
    modifiers = Modifiers(instruction)
    ftz = modifiers.flag("ftz")
    kind = modifiers.any()
    modifiers.end()
    name = instruction.opcode
    if is_integer(kind):
        _only_of_floats(instruction, "", ftz)
        scalar = "abs({0})" if name == "abs" else "-{0}"
        return compute(
            instruction, kind, (integer.abs if name == "abs" else integer.neg)(kind), scalar
        )
    return compute(
        instruction, kind, (extrema.abs if name == "abs" else extrema.neg)(kind, ftz=ftz), None
    )


@defines("copysign")
def _copysign(instruction: Instruction) -> Operation:
    operands(instruction, 3)
    modifiers = Modifiers(instruction)
    kind = modifiers.any()
    modifiers.end()
    return compute(instruction, kind, extrema.copysign(kind), None)


@defines("testp")
def _testp(instruction: Instruction) -> Operation:
    operands(instruction, 2)
    modifiers = Modifiers(instruction)
    what = modifiers.any()
    kind = modifiers.any()
    modifiers.end()
    return compute(instruction, kind, extrema.testp(what, kind), None, to="pred")
