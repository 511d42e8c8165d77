"""Comparison and selection (PTX ISA, "Comparison and Selection Instructions")."""

from __future__ import annotations

from tilepipe.ptx.definition import (
    Compute,
    Modifiers,
    OnLanes,
    Operation,
    compute,
    defines,
    not_modelled,
    operands,
    pair,
)
from tilepipe.ptx.numerics import (
    compare,
)
from tilepipe.ptx.numerics.types import TYPES, Array, Unsupported, is_integer
from tilepipe.ptx.syntax.nodes import Instruction, Operand, Pair, Sink

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
    if is_integer(kind):
        scalar = f"({{0}} {_COMPARED[operator]} {{1}})"
    if isinstance(destination, Pair) or combined:
        if isinstance(destination, Pair) and kind in ("f16", "bf16"):
            raise Unsupported(f"setp.{kind} has one destination")
        return _two_predicates(destination, sources, function, scalar, combined)
    return Compute(((destination, "pred"),), tuple(sources), function, scalar)


def _predicates_of_halves(
    instruction: Instruction, kind: str, function: OnLanes, combined: str
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
    function: OnLanes,
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
    if ftz and to == "bf16":
        raise Unsupported(f"set.bf16.{kind} has no .ftz")
    holds, values = compare.compare(operator, kind, ftz=ftz), compare.written(to, kind)
    if not combined:
        return compute(instruction, kind, lambda a, b: values(holds(a, b)), None, to=to)
    both, packed = compare.boolean(combined), TYPES[kind].kind == "packed"

    def lanes(a: Array, b: Array, c: Array) -> Array:
        return values(both(holds(a, b), c[..., None] if packed else c))

    return compute(instruction, kind, lanes, None, kind, kind, "pred", to=to)


_SELECTED = (
    "b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64",
)  # fmt: skip


@defines("selp")
def _selp(instruction: Instruction) -> Operation:
    operands(instruction, 4)
    modifiers = Modifiers(instruction)
    kind = f"b{TYPES[modifiers.need(*_SELECTED)].bits}"
    modifiers.end()
    return compute(instruction, kind, compare.selp(), "({0} if {2} else {1})", kind, kind, "pred")


@defines("slct")
def _slct(instruction: Instruction) -> Operation:
    operands(instruction, 4)
    modifiers = Modifiers(instruction)
    ftz = modifiers.flag("ftz")
    kind = modifiers.need(*_SELECTED)
    chooser = modifiers.need("s32", "f32")
    modifiers.end()
    lanes = compare.slct(chooser, ftz=ftz)
    return compute(instruction, kind, lanes, None, kind, kind, chooser)
