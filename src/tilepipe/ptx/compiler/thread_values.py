"""Registers whose values the number of a thread alone decides, and those values in each warp."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tilepipe.ptx.compiler.control_flow import ControlFlow
from tilepipe.ptx.compiler.uniformity import results
from tilepipe.ptx.definition import Compute, Operation
from tilepipe.ptx.lanes import WARP, Array, spread
from tilepipe.ptx.numerics.scalars import SCALAR_FUNCTIONS
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.special_registers import lane_values
from tilepipe.ptx.syntax.nodes import Instruction, Integer, Not, Operand, Register, SpecialRegister

_Values = tuple[Array, ...]  # of the 32 lanes, for each warp of a CTA


class ThreadValues:
    """Registers that every writer sets to the same value, computed only from constants, thread
    indices and other such registers.
    """

    def __init__(
        self, flow: ControlFlow, operations: Sequence[Operation], block: tuple[int, int, int]
    ) -> None:
        self._given = [lane_values(block, warp) for warp in range(-(-prod(block) // WARP))]
        self._known: dict[int, _Values] = {}
        self._written: dict[int, dict[int, _Values | None]] = {}
        for number, op in enumerate(operations):
            for register in results(op):
                self._written.setdefault(register.number, {})[number] = None
        more = True
        while more:
            before = len(self._known)
            for number, op in enumerate(operations):
                self._follow(number, flow.instructions[number], op)
            more = len(self._known) > before

    def differ(self, register: int) -> bool | None:
        """True if a register has different values in the lanes of some warp; None if it is not
        known.
        """
        found = self._known.get(register)
        return None if found is None else any((v != v[0]).any() for v in found)

    def _follow(self, number: int, instruction: Instruction, op: Operation) -> None:
        if instruction.guard is not None or not isinstance(op, Compute) or op.active:
            return
        if len(op.results) != 1 or not isinstance(register := op.results[0][0], Register):
            return
        written = self._written[register.number]
        if register.number in self._known or written[number] is not None:
            return
        values = []
        for warp in range(len(self._given)):
            sources = [self._value(operand, kind, warp) for operand, kind in op.sources]
            if any(source is None for source in sources):
                return
            values.append(_computed(op, sources))
        kind = TYPES[op.results[0][1]]
        own = TYPES[register.type].dtype
        found = written[number] = tuple(
            v if own.kind == "b" else _resized(v.astype(kind.dtype), own, kind.kind == "signed")
            for v in values
        )
        if all(v is not None and np.array_equal(v, found) for v in written.values()):
            self._known[register.number] = found

    def _value(self, operand: Operand, kind: str, warp: int) -> Array | None:
        """An operand in all lanes of a warp; None where it is not known."""
        dtype = TYPES[kind].dtype
        found: Array | None = None
        match operand:
            case Integer(value) if dtype.kind in "uib":
                bits = value if dtype.kind == "b" else value & ((1 << 8 * dtype.itemsize) - 1)
                if dtype.kind == "b":
                    return spread(bool(bits), dtype)
                return spread(bits, np.dtype(f"u{dtype.itemsize}")).view(dtype)
            case Register():
                values = self._known.get(operand.number)
                found = None if values is None else values[warp]
            case SpecialRegister():
                found = self._given[warp].get(str(operand))
            case Not(inner):
                inverted = self._value(inner, kind, warp)
                return None if inverted is None else ~inverted
        if found is None or dtype.kind not in "uib" or (dtype.kind == "b") != (found.dtype == bool):
            return None
        return found if dtype.kind == "b" else _resized(found, dtype, False)


def _computed(op: Compute, sources: Sequence[Any]) -> Array:
    if not isinstance(op.lanes, str):
        found: Array = op.lanes(*sources)
        return found
    names = {f"v{i}": source for i, source in enumerate(sources)}
    found = eval(op.lanes.format(*names), {"np": np, **SCALAR_FUNCTIONS, **names})
    # one number where nothing is read: the policy that createpolicy makes
    return found if isinstance(found, np.ndarray) else spread(found, TYPES[op.results[0][1]].dtype)


def _resized(values: Array, to: np.dtype[Any], signed: bool) -> Array:
    """The bits of integers in another dtype, cut off or extended."""
    prefix = "i" if signed else "u"
    own, wanted = (np.dtype(f"{prefix}{d.itemsize}") for d in (values.dtype, to))
    return values.view(own).astype(wanted).view(to)
