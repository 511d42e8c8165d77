"""Logic, shifts and fields of bits (PTX ISA, "Logic and Shift Instructions", and of "Integer
Arithmetic Instructions" those that look at bits).
"""

from __future__ import annotations

from tilepipe.ptx.definition import (
    Compute,
    Modifiers,
    Operation,
    compute,
    constant,
    defines,
    not_modelled,
    operands,
    pair,
    typed,
)
from tilepipe.ptx.numerics import (
    bits,
    compare,
    logic,
)
from tilepipe.ptx.numerics.types import TYPES, Array
from tilepipe.ptx.syntax.nodes import Instruction, Integer, Pair, Sink


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
    return compute(instruction, kind, function(kind), scalar, kind, "u32")


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
    return compute(instruction, "b32", logic.shf(direction, mode), scalar)


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
        return compute(instruction, kind, bits.bfe(kind), scalar, kind, "u32", "u32")
    operands(instruction, 5)
    return compute(
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
            return compute(instruction, kind, bits.popc(kind), "({0}).bit_count()", kind, to="u32")
        case "clz":
            scalar = f"{TYPES[kind].bits} - ({{0}}).bit_length()"
            return compute(instruction, kind, bits.clz(kind), scalar, kind, to="u32")
        case "bfind":
            lanes = bits.bfind(kind, shiftamt=shiftamt)
            return compute(instruction, kind, lanes, None, kind, to="u32")
        case "brev":
            return compute(instruction, kind, bits.brev(kind), None)
        case _:
            return compute(instruction, kind, logic.cnot(kind), "int({0} == 0)")


@defines("fns")
def _fns(instruction: Instruction) -> Operation:
    operands(instruction, 4)
    modifiers = Modifiers(instruction)
    modifiers.need("b32")
    modifiers.end()
    return compute(instruction, "b32", bits.fns(), None)


@defines("bmsk")
def _bmsk(instruction: Instruction) -> Operation:
    operands(instruction, 3)
    modifiers = Modifiers(instruction)
    mode = modifiers.need("clamp", "wrap")
    modifiers.need("b32")
    modifiers.end()
    return compute(instruction, "b32", bits.bmsk(mode), None, "u32")


@defines("szext")
def _szext(instruction: Instruction) -> Operation:
    operands(instruction, 3)
    modifiers = Modifiers(instruction)
    mode = modifiers.need("clamp", "wrap")
    kind = modifiers.need("u32", "s32")
    modifiers.end()
    return compute(instruction, kind, bits.szext(mode, kind), None, kind, "u32")
