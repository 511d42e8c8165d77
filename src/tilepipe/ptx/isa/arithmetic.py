"""Arithmetic, logic, comparison and conversion (PTX ISA, "Integer Arithmetic Instructions" to "Data
Movement and Conversion Instructions: cvt").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilepipe.ptx.definition import (
    CONDITION_CODE,
    Compute,
    Modifiers,
    Operation,
    constant,
    defines,
    not_modelled,
    operands,
    pair,
    typed,
)
from tilepipe.ptx.numerics import (
    bits,
    carry,
    compare,
    conversions,
    extrema,
    floating,
    functions,
    integer,
    logic,
    narrow,
)
from tilepipe.ptx.numerics.types import TYPES, Array, Unsupported
from tilepipe.ptx.syntax.nodes import Instruction, Integer, Operand, Pair, Sink

Lanes = Callable[..., Array]
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def _is_integer(kind: str) -> bool:
    return kind in TYPES and TYPES[kind].kind in ("unsigned", "signed", "bits")


def _compute(
    instruction: Instruction,
    kind: str,
    lanes: Lanes,
    scalar: str | None,
    *kinds: str,
    to: str = "",
) -> Compute:
    """d = lanes(sources): sources of `kinds`, or all of `kind`; d of type `to`, or `kind`."""
    kinds = kinds or (kind,)
    destination, *sources = instruction.operands
    return Compute(typed([destination], to or kind), typed(sources, *kinds), lanes, scalar)


def _arithmetic(modifiers: Modifiers) -> tuple[str, bool, bool]:
    """Rounding, .ftz and .sat of floating-point arithmetic; "": no rounding is given."""
    rounding = modifiers.take(*_ROUNDINGS)
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
    if _is_integer(kind) or kind in ("u16x2", "s16x2"):
        _only_of_floats(instruction, rounding, ftz)
        lanes = (integer.add if name == "add" else integer.sub)(kind, sat=sat)
        sign = "+" if name == "add" else "-"
        plain = _is_integer(kind) and not sat
        return _compute(instruction, kind, lanes, f"{{0}} {sign} {{1}}" if plain else None)
    function = floating.add if name == "add" else floating.sub
    lanes = function(kind, rounding=rounding or "rn", ftz=ftz, sat=sat, source=source)
    return _compute(instruction, kind, lanes, None, source or kind, kind)


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
        function = (carry.subc if reads else carry.sub_cc)(kind)
    sources = typed((a, b, *third), kind) + (((into, "pred"),) if reads else ())
    if not writes:
        return Compute(
            ((destination, kind),), sources, lambda *values: function(*values)[0],
            _chain_scalar(instruction, kind, mode, reads=reads)[0],
        )  # fmt: skip
    templates = _chain_scalar(instruction, kind, mode, reads=reads)
    return Compute(((destination, kind), (out, "pred")), sources, function, templates)


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
        return f"{a} - ({b}{carried})", f"({a} < {b}{carried})"
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
        return _compute(instruction, kind, integer.mul(kind, mode), scalar, to=to)
    return _compute(
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
    return _compute(
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
    rounding, ftz, sat = _arithmetic(modifiers)
    relu = not sat and modifiers.flag("relu")
    kind = modifiers.any()
    source = modifiers.take("f16", "bf16") or None
    modifiers.end()
    lanes = floating.fma(
        kind, rounding=rounding or "rn", ftz=ftz, sat=sat, relu=relu, source=source
    )
    narrow = source or kind
    return _compute(instruction, kind, lanes, None, narrow, narrow, kind)


@defines("mul24", "mad24")
def _mul24(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    mode = modifiers.need("lo", "hi")
    sat = instruction.opcode == "mad24" and modifiers.flag("sat")
    kind = modifiers.need("u32", "s32")
    modifiers.end()
    if instruction.opcode == "mul24":
        operands(instruction, 3)
        return _compute(instruction, kind, integer.mul24(kind, mode), None)
    operands(instruction, 4)
    return _compute(instruction, kind, integer.mad24(kind, mode, sat=sat), None)


@defines("div")
def _div(instruction: Instruction) -> Operation:
    operands(instruction, 3)
    modifiers = Modifiers(instruction)
    rounding = modifiers.take(*_ROUNDINGS, "approx", "full")
    ftz = modifiers.flag("ftz")
    kind = modifiers.any()
    modifiers.end()
    if _is_integer(kind):
        _only_of_floats(instruction, rounding, ftz)
        scalar = f"quotient({{0}}, {{1}}, {TYPES[kind].bits})"
        return _compute(instruction, kind, integer.div(kind), scalar)
    return _compute(instruction, kind, functions.div(kind, rounding=rounding, ftz=ftz), None)


@defines("rem")
def _rem(instruction: Instruction) -> Operation:
    operands(instruction, 3)
    modifiers = Modifiers(instruction)
    kind = modifiers.any()
    modifiers.end()
    scalar = f"remainder({{0}}, {{1}}, {TYPES[kind].bits})"
    return _compute(instruction, kind, integer.rem(kind), scalar)


@defines("rcp", "sqrt")
def _rcp(instruction: Instruction) -> Operation:
    operands(instruction, 2)
    modifiers = Modifiers(instruction)
    rounding = modifiers.take(*_ROUNDINGS, "approx")
    ftz = modifiers.flag("ftz")
    kind = modifiers.any()
    modifiers.end()
    function = functions.rcp if instruction.opcode == "rcp" else functions.sqrt
    return _compute(instruction, kind, function(kind, rounding=rounding, ftz=ftz), None)


@defines("rsqrt", "sin", "cos", "lg2", "ex2")
def _approximate(instruction: Instruction) -> Operation:
    operands(instruction, 2)
    modifiers = Modifiers(instruction)
    modifiers.take("approx")
    ftz = modifiers.flag("ftz")
    kind = modifiers.any()
    modifiers.end()
    function = {
        "rsqrt": functions.rsqrt, "sin": functions.sin, "cos": functions.cos,
        "lg2": functions.lg2, "ex2": functions.ex2,
    }[instruction.opcode]  # fmt: skip
    return _compute(instruction, kind, function(kind, ftz=ftz), None)


@defines("tanh")
def _tanh(instruction: Instruction) -> Operation:
    operands(instruction, 2)
    modifiers = Modifiers(instruction)
    modifiers.need("approx")
    kind = modifiers.any()
    modifiers.end()
    return _compute(instruction, kind, functions.tanh(kind), None)


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
    if _is_integer(kind) or kind in ("u16x2", "s16x2"):
        operands(instruction, 3)
        _only_of_floats(instruction, "NaN" if nan else magnitude, ftz)
        lanes: Lanes = (integer.min if name == "min" else integer.max)(kind, relu=relu)
        plain = _is_integer(kind) and not relu
        return _compute(instruction, kind, lanes, f"{name}({{0}}, {{1}})" if plain else None)
    if relu:
        not_modelled(instruction, "the modifier '.relu' of a floating-point type")
    function = extrema.min if name == "min" else extrema.max
    lanes = function(
        kind, ftz=ftz, nan=nan, xorsign_abs=magnitude == "xorsign", abs=magnitude == "abs",
        inputs=len(instruction.operands) - 1,
    )  # fmt: skip
    return _compute(instruction, kind, lanes, None)


@defines("abs", "neg")
def _abs_neg(instruction: Instruction) -> Operation:
    operands(instruction, 2)
    modifiers = Modifiers(instruction)
    ftz = modifiers.flag("ftz")
    kind = modifiers.any()
    modifiers.end()
    name = instruction.opcode
    if _is_integer(kind):
        _only_of_floats(instruction, "", ftz)
        scalar = "abs({0})" if name == "abs" else "-{0}"
        return _compute(
            instruction, kind, (integer.abs if name == "abs" else integer.neg)(kind), scalar
        )
    return _compute(
        instruction, kind, (extrema.abs if name == "abs" else extrema.neg)(kind, ftz=ftz), None
    )


@defines("copysign")
def _copysign(instruction: Instruction) -> Operation:
    operands(instruction, 3)
    modifiers = Modifiers(instruction)
    kind = modifiers.any()
    modifiers.end()
    return _compute(instruction, kind, extrema.copysign(kind), None)


@defines("testp")
def _testp(instruction: Instruction) -> Operation:
    operands(instruction, 2)
    modifiers = Modifiers(instruction)
    what = modifiers.any()
    kind = modifiers.any()
    modifiers.end()
    return _compute(instruction, kind, extrema.testp(what, kind), None, to="pred")


# -- bits --------------------------------------------------------------------------------


@defines("and", "or", "xor")
def _logic(instruction: Instruction) -> Operation:
    operands(instruction, 3)
    modifiers = Modifiers(instruction)
    kind = modifiers.need("pred", "b16", "b32", "b64")
    modifiers.end()
    mark = {"and": "&", "or": "|", "xor": "^"}[instruction.opcode]
    template = f"{{0}} {mark} {{1}}"
    destination, a, b = instruction.operands
    return Compute(((destination, kind),), ((a, kind), (b, kind)), template, template)


@defines("not")
def _not(instruction: Instruction) -> Operation:
    destination, source = operands(instruction, 2)
    modifiers = Modifiers(instruction)
    kind = modifiers.need("pred", "b16", "b32", "b64")
    modifiers.end()
    scalar = "not {0}" if kind == "pred" else "~{0}"
    return Compute(((destination, kind),), ((source, kind),), "~{0}", scalar)


@defines("shl", "shr")
def _shift(instruction: Instruction) -> Operation:
    operands(instruction, 3)
    modifiers = Modifiers(instruction)
    kind = modifiers.any()
    modifiers.end()
    function = logic.shl if instruction.opcode == "shl" else logic.shr
    mark = "<<" if instruction.opcode == "shl" else ">>"
    scalar = f"{{0}} {mark} min({{1}}, 64)"
    return _compute(instruction, kind, function(kind), scalar, kind, "u32")


@defines("shf")
def _funnel(instruction: Instruction) -> Operation:
    operands(instruction, 4)
    modifiers = Modifiers(instruction)
    direction, mode = modifiers.need("l", "r"), modifiers.need("wrap", "clamp")
    modifiers.need("b32")
    modifiers.end()
    amount = "({2} & 31)" if mode == "wrap" else "min({2}, 32)"
    if direction == "l":
        scalar = f"(({{1}} << 32 | {{0}}) << {amount}) >> 32"
    else:
        scalar = f"({{1}} << 32 | {{0}}) >> {amount}"
    return _compute(instruction, "b32", logic.shf(direction, mode), scalar)


@defines("lop3")
def _lop3(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    combined = modifiers.take("and", "or")
    modifiers.need("b32")
    modifiers.end()
    destination, a, b, c, table, *rest = operands(instruction, 6 if combined else 5)
    code = constant(instruction, table)
    function, scalar = logic.lop3(code), f"lop3({{0}}, {{1}}, {{2}}, {code})"
    if not combined:
        return Compute(((destination, "b32"),), typed((a, b, c), "b32"), function, scalar)
    # `lop3.or.b32 d|p, a, b, c, table, q`: p = (d != 0) or q
    if not isinstance(destination, Pair):
        not_modelled(instruction, f"the destination {destination}")
    both = compare.boolean(combined)
    wanted = [i for i, o in enumerate(pair(destination)) if not isinstance(o, Sink)]

    def lanes(a: Array, b: Array, c: Array, q: Array) -> tuple[Array, ...] | Array:
        value = function(a, b, c)
        found = value, both(value != 0, q)
        return found if len(wanted) == 2 else found[wanted[0]]

    mark = "&" if combined == "and" else "|"
    templates = f"{scalar} & 0xffffffff", f"(({scalar} & 0xffffffff) != 0) {mark} {{3}}"
    results = (destination.first, "b32"), (destination.second, "pred")
    return Compute(
        tuple(results[i] for i in wanted), (*typed((a, b, c), "b32"), (rest[0], "pred")), lanes,
        tuple(templates[i] for i in wanted),
    )  # fmt: skip


@defines("prmt")
def _prmt(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    modifiers.need("b32")
    mode = modifiers.any() or None
    modifiers.end()
    destination, a, b, selector = operands(instruction, 4)
    if isinstance(selector, Integer):
        lanes = logic.prmt(mode, selector=selector.value & 0xFFFFFFFF)
        scalar = f"permuted({{0}}, {{1}}, {selector.value & 0xFFFF})" if mode is None else None
        return Compute(((destination, "b32"),), typed((a, b), "b32"), lanes, scalar)
    scalar = "permuted({0}, {1}, {2})" if mode is None else None
    return Compute(
        ((destination, "b32"),), typed((a, b, selector), "b32"), logic.prmt(mode), scalar
    )


@defines("bfe", "bfi")
def _field(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    kind = modifiers.any()
    modifiers.end()
    if instruction.opcode == "bfe":
        operands(instruction, 4)
        width = TYPES[kind].bits
        scalar = f"extracted({{0}}, {{1}}, {{2}}, {width}, {kind[0] == 's'})"
        return _compute(instruction, kind, bits.bfe(kind), scalar, kind, "u32", "u32")
    operands(instruction, 5)
    return _compute(
        instruction, kind, bits.bfi(kind), "inserted({0}, {1}, {2}, {3})", kind, kind, "u32", "u32"
    )


@defines("popc", "clz", "brev", "bfind", "cnot")
def _bit_function(instruction: Instruction) -> Operation:
    operands(instruction, 2)
    modifiers = Modifiers(instruction)
    shiftamt = instruction.opcode == "bfind" and modifiers.flag("shiftamt")
    kind = modifiers.any()
    modifiers.end()
    match instruction.opcode:
        case "popc":
            return _compute(instruction, kind, bits.popc(kind), "({0}).bit_count()", kind, to="u32")
        case "clz":
            scalar = f"{TYPES[kind].bits} - ({{0}}).bit_length()"
            return _compute(instruction, kind, bits.clz(kind), scalar, kind, to="u32")
        case "bfind":
            lanes = bits.bfind(kind, shiftamt=shiftamt)
            return _compute(instruction, kind, lanes, None, kind, to="u32")
        case "brev":
            return _compute(instruction, kind, bits.brev(kind), None)
        case _:
            return _compute(instruction, kind, logic.cnot(kind), "int({0} == 0)")


@defines("bmsk")
def _bmsk(instruction: Instruction) -> Operation:
    operands(instruction, 3)
    modifiers = Modifiers(instruction)
    mode = modifiers.need("clamp", "wrap")
    modifiers.need("b32")
    modifiers.end()
    return _compute(instruction, "b32", bits.bmsk(mode), None, "u32")


@defines("szext")
def _szext(instruction: Instruction) -> Operation:
    operands(instruction, 3)
    modifiers = Modifiers(instruction)
    mode = modifiers.need("clamp", "wrap")
    kind = modifiers.need("u32", "s32")
    modifiers.end()
    return _compute(instruction, kind, bits.szext(mode, kind), None, kind, "u32")


@defines("sad")
def _sad(instruction: Instruction) -> Operation:
    operands(instruction, 4)
    modifiers = Modifiers(instruction)
    kind = modifiers.any()
    modifiers.end()
    return _compute(instruction, kind, integer.sad(kind), "abs({0} - {1}) + {2}")


@defines("dp4a")
def _dp4a(instruction: Instruction) -> Operation:
    operands(instruction, 4)
    modifiers = Modifiers(instruction)
    a, b = modifiers.need("u32", "s32"), modifiers.need("u32", "s32")
    modifiers.end()
    to = "s32" if "s32" in (a, b) else "u32"
    return _compute(instruction, to, integer.dp4a(a, b), None, a, b, to)


@defines("dp2a")
def _dp2a(instruction: Instruction) -> Operation:
    operands(instruction, 4)
    modifiers = Modifiers(instruction)
    mode = modifiers.need("lo", "hi")
    a, b = modifiers.need("u32", "s32"), modifiers.need("u32", "s32")
    modifiers.end()
    to = "s32" if "s32" in (a, b) else "u32"
    return _compute(instruction, to, integer.dp2a(mode, a, b), None, a, b, to)


# -- comparison and selection ------------------------------------------------------------

_COMPARED = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=",
    "hi": ">", "hs": ">=",
}  # fmt: skip


@defines("setp")
def _setp(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    operator = modifiers.any()
    combined = modifiers.take("and", "or", "xor")
    ftz = modifiers.flag("ftz")
    kind = modifiers.any()
    modifiers.end()
    destination, a, b, *rest = operands(instruction, 4 if combined else 3)
    function = compare.compare(operator, kind, ftz=ftz)
    if TYPES[kind].kind == "packed":
        return _predicates_of_halves(instruction, kind, function, combined)
    sources = [(a, kind), (b, kind), *((p, "pred") for p in rest)]
    scalar = None
    if _is_integer(kind):
        scalar = f"({{0}} {_COMPARED[operator]} {{1}})"
    if isinstance(destination, Pair) or combined:
        return _two_predicates(destination, sources, function, scalar, combined)
    return Compute(((destination, "pred"),), tuple(sources), function, scalar)


def _predicates_of_halves(
    instruction: Instruction, kind: str, function: Lanes, combined: str
) -> Compute:
    """`setp.op.f16x2 p|q, a, b`: p of the low halves, q of the high ones."""
    destination, a, b, *rest = instruction.operands
    targets = pair(destination)
    if len(targets) != 2:
        not_modelled(instruction, f"the destination {destination}")
    wanted = [i for i, target in enumerate(targets) if not isinstance(target, Sink)]

    def lanes(a: Array, b: Array, *other: Array) -> tuple[Array, ...] | Array:
        holds = function(a, b)
        if other:
            holds = compare.boolean(combined)(holds, other[0][..., None])
        return tuple(holds[..., i] for i in wanted) if len(wanted) == 2 else holds[..., wanted[0]]

    return Compute(
        tuple((targets[i], "pred") for i in wanted),
        ((a, kind), (b, kind), *((p, "pred") for p in rest)),
        lanes,
    )


def _two_predicates(
    destination: Operand,
    sources: list[tuple[Operand, str]],
    function: Lanes,
    scalar: str | None,
    combined: str,
) -> Compute:
    """`setp.op.bool p|q, a, b, c`: p = (a op b) bool c, q = not (a op b) bool c."""
    targets = tuple((target, "pred") for target in pair(destination))

    def lanes(*values: Array) -> tuple[Array, ...] | Array:
        holds = function(values[0], values[1])
        both = [holds, ~holds]
        if combined:
            other = values[2]
            both = [
                h & other if combined == "and" else h | other if combined == "or" else h ^ other
                for h in both
            ]
        return tuple(both) if len(targets) == 2 else both[0]

    templates = None
    if scalar is not None:
        mark = {"and": " & {2}", "or": " | {2}", "xor": " ^ {2}", "": ""}[combined]
        templates = (f"{scalar}{mark}", f"(not {scalar}){mark}")[: len(targets)]
    return Compute(targets, tuple(sources), lanes, templates)


@defines("set")
def _set(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    operator = modifiers.any()
    combined = modifiers.take("and", "or", "xor")
    ftz = modifiers.flag("ftz")
    to = modifiers.any()
    kind = modifiers.any()
    modifiers.end()
    operands(instruction, 4 if combined else 3)
    holds, values = compare.compare(operator, kind, ftz=ftz), compare.written(to, kind)
    if not combined:
        return _compute(instruction, kind, lambda a, b: values(holds(a, b)), None, to=to)
    both, packed = compare.boolean(combined), TYPES[kind].kind == "packed"

    def lanes(a: Array, b: Array, c: Array) -> Array:
        return values(both(holds(a, b), c[..., None] if packed else c))

    return _compute(instruction, kind, lanes, None, kind, kind, "pred", to=to)


@defines("selp")
def _selp(instruction: Instruction) -> Operation:
    operands(instruction, 4)
    modifiers = Modifiers(instruction)
    kind = modifiers.any()
    modifiers.end()
    scalar = "({0} if {2} else {1})" if _is_integer(kind) or kind[0] == "f" else None
    bits_kind = f"b{TYPES[kind].bits}"
    return _compute(
        instruction, bits_kind if scalar else kind, compare.selp(), scalar,
        bits_kind, bits_kind, "pred",
    )  # fmt: skip


@defines("slct")
def _slct(instruction: Instruction) -> Operation:
    operands(instruction, 4)
    modifiers = Modifiers(instruction)
    ftz = modifiers.flag("ftz")
    kind = modifiers.any()
    chooser = modifiers.need("s32", "f32")
    modifiers.end()
    lanes = compare.slct(chooser, ftz=ftz)
    return _compute(instruction, kind, lanes, None, kind, kind, chooser)


# -- conversion --------------------------------------------------------------------------

_PAIRS = ("f16x2", "bf16x2", "e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2")


@defines("cvt")
def _cvt(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    if modifiers.flag("pack"):
        return _pack(instruction, modifiers)
    rounding = modifiers.take(*_ROUNDINGS, "rna", "rni", "rzi", "rmi", "rpi", "rs") or None
    ftz = modifiers.flag("ftz")
    sat = modifiers.flag("sat")
    satfinite = modifiers.flag("satfinite")
    relu = modifiers.flag("relu")
    satfinite = satfinite or modifiers.flag("satfinite")
    to, source = modifiers.any(), modifiers.any()
    modifiers.end()
    if rounding == "rs":
        raise Unsupported("stochastic rounding is not modelled")
    if to in _PAIRS and source == "f32":
        operands(instruction, 3)
        pair = narrow.cvt_pair(to, rounding=rounding or "rn", relu=relu, satfinite=satfinite)
        return _compute(instruction, to, pair, None, "f32")
    operands(instruction, 2)
    if source in _PAIRS or to in _PAIRS:
        packed = narrow.cvt_packed(
            to, source, rounding=rounding or "rn", relu=relu, satfinite=satfinite
        )
        return _compute(instruction, to, packed, None, source)
    lanes = conversions.cvt(
        to, source, rounding=rounding, ftz=ftz, sat=sat, relu=relu, satfinite=satfinite
    )
    plain = _is_integer(to) and _is_integer(source) and not sat
    return _compute(instruction, to, lanes, "{0}" if plain else None, source)


_PACKED = {"u16": (0, 0xFFFF), "s16": (-0x8000, 0x7FFF), "u8": (0, 0xFF), "s8": (-0x80, 0x7F)}


def _pack(instruction: Instruction, modifiers: Modifiers) -> Operation:
    """`cvt.pack.sat.u8.s32.b32 d, a, b, c`: b in the lowest bits, a above it, and of types of 8
    bits the low half of c above both.
    """
    modifiers.need("sat")
    to = modifiers.need(*_PACKED)
    modifiers.need("s32")
    bits = TYPES[to].bits
    if bits == 8:
        modifiers.need("b32")
    modifiers.end()
    operands(instruction, 4 if bits == 8 else 3)
    low, high = _PACKED[to]

    def lanes(a: Array, b: Array, *c: Array) -> Array:
        upper, lower = (np.clip(v, low, high).view(np.uint32) & ((1 << bits) - 1) for v in (a, b))
        packed = upper << np.uint32(bits) | lower
        return packed | c[0] << np.uint32(16) if c else packed

    return _compute(instruction, "b32", lanes, None, "s32", "s32", "b32")
