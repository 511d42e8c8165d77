"""The source of a segment: Python that a warp runs between two requests to the machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilepipe.ptx.compiler.segments import SegmentedFunction
from tilepipe.ptx.compiler.uniformity import operands_read
from tilepipe.ptx.definition import Compute, Jump, Leave, Operation, Perform, Typed
from tilepipe.ptx.lanes import lane_mask, merged, spread
from tilepipe.ptx.numerics.scalars import SCALAR_FUNCTIONS
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.syntax.nodes import (
    Float,
    Instruction,
    Integer,
    Not,
    Operand,
    Register,
    Sink,
    SpecialRegister,
    Sum,
    Variable,
)

_BITS = {name: t.bits for name, t in TYPES.items()}


def _names_all(members: Operand) -> bool:
    """True if a mask of lanes is a constant that names all of them."""
    return isinstance(members, Integer) and ~members.value & 0xFFFFFFFF == 0


def _as_type(value: int, kind: str) -> int:
    bits = _BITS[kind]
    value &= (1 << bits) - 1
    return value - (1 << bits) if _is_signed(kind) and value >> (bits - 1) else value


def _plain(kind: str) -> str:
    """The type in which numbers are read where only their bits matter: of floats, their bits."""
    return f"b{_BITS[kind]}" if kind in TYPES and TYPES[kind].kind in ("float", "packed") else kind


def _is_signed(kind: str) -> bool:
    return kind in TYPES and TYPES[kind].kind == "signed"


class Writer:
    """The source of one segment."""

    def __init__(self, made: SegmentedFunction, number: int, *, partial: bool) -> None:
        self.made = made
        self.number = number
        self.span = made.spans[number]
        self.partial = partial
        self.names: dict[str, Any] = {
            "merged": merged, "spread": spread, "lane_mask": lane_mask, **SCALAR_FUNCTIONS,
        }  # fmt: skip
        self.lines: list[str] = []
        self.origins: list[int] = []
        self.at = 0  # the instruction that is being written

    def segment(self) -> str:
        self.at = self.span.begin
        self.line("def segment(w, r, answer):", indent=0)
        if self.span.answered:
            self.take_answer()
        elif self.span.begin in self.made.unwritten:
            self.look_for_nothing(self.made.unwritten[self.span.begin])
        for number in range(self.span.begin, self.span.end):
            self.at = number
            self.instruction(self.made.function.instructions[number], self.made.operations[number])
        self.line(f"return {self.following()}")
        return "\n".join(self.lines)

    def look_for_nothing(self, numbers: list[int]) -> None:
        """A line that makes poison of registers which hold nothing; the segment is run again then,
        in the form that keeps track of poison.
        """
        instruction = self.made.function.instructions[self.at]
        used = {r.number for r in operands_read(self.made.operations[self.at])
                if isinstance(r, Register)}  # fmt: skip
        if instruction.guard is not None:
            used.add(instruction.guard.register.number)
        for number in numbers:
            in_part = number in self.made.uniform.varying and (
                self.partial or instruction.guard is not None
            )
            if number in used or in_part:
                again = f"w.holds_nothing({number}, {self.number}, {self.constant(instruction)})"
                self.line(f"if r[{number}] is None: return {again}")

    def line(self, text: str, indent: int = 1) -> None:
        self.lines.append("    " * indent + text)
        self.origins.append(min(self.at, len(self.made.function.instructions) - 1))

    def constant(self, value: Any) -> str:
        """A name for an object in the generated code."""
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def following(self) -> int:
        """The segment after this one in the text's order."""
        span = self.span
        if span.end < span.block.end or (
            self.number + 1 < len(self.made.spans)
            and self.made.spans[self.number + 1].block is span.block
        ):
            return self.number + 1
        return self.made.first[span.block.successors[-1]]

    # -- instructions ------------------------------------------------------------------

    def gather(self, instruction: Instruction, op: Compute | Perform, named_lanes: Operand) -> None:
        """Lines that wait for the lanes which an instruction names."""
        if instruction.guard is None and not isinstance(named_lanes, Integer):
            members = self.read(named_lanes, "u32")
            self.line(f"parked = w.divide({members}, {self.following()}, {self.number})")
            self.line("if parked is not None: return parked")
        if instruction.guard is None and not _names_all(named_lanes):
            named = self.constant(instruction)
            self.line(f"w.must_be_named({self.read(named_lanes, 'u32')}, {named})")
        if self.partial:
            members = self.read(named_lanes, "u32")
            match op.anywhere if isinstance(op, Perform) else "":
                case "warp":
                    meet = f"gather_anywhere({self.following()}"
                case "mask" if instruction.guard is None:
                    meet = f"gather_by_mask({members}, {self.following()}"
                case _:
                    meet = f"gather({members}"
            self.line(f"parked = w.{meet}, {self.number})")
            self.line("if parked is not None: return parked")

    def instruction(self, instruction: Instruction, op: Operation) -> None:
        if isinstance(op, Compute | Perform) and op.members is not None:
            self.gather(instruction, op, op.members)
        unfenced = self.made.unfenced
        if self.at in unfenced.accesses and self.at not in unfenced.names:
            accesses = self.constant(unfenced.accesses[self.at])
            note = f"w.wgmma.unfenced.update({accesses})"
            if instruction.opcode == "mov":  # the rule COPIES_BEFORE_WGMMA: hides no other access
                note = f"w.wgmma.unfenced = {accesses} | w.wgmma.unfenced"
            self.where_executed(instruction, note)
        for register in self.made.early_uses.registers.get(self.at, ()):
            use = f"{self.constant(instruction)}, {self.constant(register)}"
            self.where_executed(instruction, f"w.used_early({use})")
        if over := self.made.early_uses.ends.get(self.at):
            sites = frozenset(self.made.sites[number].number for number in over)
            self.where_executed(instruction, f"w.loads_are_over({self.constant(sites)})")
        match op:
            case Compute():
                self.compute(instruction, op)
            case Perform():
                self.perform(instruction, op)
            case Jump():
                self.jump(instruction, op)
            case Leave():
                self.leave(instruction, op)

    def where_executed(self, instruction: Instruction, statement: str) -> None:
        """A line for an instruction that some lane executes."""
        condition, lanes = self.guard(instruction)
        if instruction.guard is not None and not condition:
            condition = f"{lanes}.any()"
        self.line(f"if {condition}: {statement}" if condition else statement)

    def guard(self, instruction: Instruction) -> tuple[str, str]:
        """(condition on which anything happens at all, array of the lanes that do it); "" where
        there is none: always, all that run.
        """
        guard = instruction.guard
        if guard is None:
            return "", "w.active" if self.partial else ""
        register = f"r[{guard.register.number}]"
        if guard.register.number not in self.made.uniform.varying:
            return (
                f"{'not ' if guard.negated else ''}{register}",
                "w.active" if self.partial else "",
            )
        # of the active lanes even where all run, as lanes that have left keep what they had
        return "", f"(w.active & {'~' if guard.negated else ''}{register})"

    def compute(self, instruction: Instruction, op: Compute) -> None:
        if not op.results:
            return  # that its lanes meet is all that it does
        condition, lanes = self.guard(instruction)
        indent = 1
        if condition:
            self.line(f"if {condition}:")
            indent = 2
        uniform = self.made.uniform
        same = all(uniform.of(operand) for operand, _ in op.sources)
        if same and op.scalar is not None:
            sources = [self.read(operand, _plain(kind)) for operand, kind in op.sources]
            templates = (op.scalar,) if isinstance(op.scalar, str) else op.scalar
            for result, template in zip(op.results, templates, strict=True):
                destination, kind = result
                value = template.format(*sources)
                if isinstance(destination, Register) and destination.number in uniform.varying:
                    self.put(result, self.in_all_lanes(value, kind), lanes, indent)
                elif isinstance(destination, Register):
                    value = self.reduced(value, destination, kind)
                    self.line(f"r[{destination.number}] = {value}", indent)
            return
        value = self.lanes_value(op, lanes)
        if len(op.results) == 1:
            self.put(op.results[0], value, lanes, indent)
            return
        self.line(f"values = {value}", indent)
        for i, result in enumerate(op.results):
            self.put(result, f"values[{i}]", lanes, indent)

    def in_all_lanes(self, value: str, kind: str) -> str:
        """A number, of which the bits of a type count, as an array of that type."""
        dtype = TYPES[kind].dtype
        if dtype.kind in "bV":
            return f"spread({value}, {self.constant(dtype)})"
        bits = self.constant(np.dtype(f"u{dtype.itemsize}"))
        masked = f"({value}) & {(1 << 8 * dtype.itemsize) - 1:#x}"
        return f"spread({masked}, {bits}).view({self.constant(dtype)})"

    def lanes_value(self, op: Compute, lanes: str) -> str:
        if isinstance(op.lanes, str):
            value = op.lanes.format(*(self.read(o, kind) for o, kind in op.sources))
            if all(self.made.uniform.of(o) for o, _ in op.sources):
                dtype = self.constant(TYPES[op.results[0][1]].dtype)
                value = f"spread({value}, {dtype})"
            return value
        sources = [self.read_array(o, kind) for o, kind in op.sources]
        if op.active:
            sources.insert(0, lanes or "w.active")
        return f"{self.constant(op.lanes)}({', '.join(sources)})"

    def put(self, result: Typed, value: str, lanes: str, indent: int) -> None:
        """Writes lanes of a register; or, where all have one value, the first active lane's."""
        destination, kind = result
        if isinstance(destination, Sink):
            self.line(value, indent)
            return
        assert isinstance(destination, Register)
        number = destination.number
        if number not in self.made.uniform.varying:
            self.line(f"r[{number}] = {self.reduced(f'w.one({value})', destination, kind)}", indent)
            return
        value = self.converted(value, TYPES[kind].dtype, kind, self.made.content[number])
        if lanes:
            value = f"merged({lanes}, {value}, r[{number}])"
        self.line(f"r[{number}] = {value}", indent)

    def converted(self, value: str, dtype: np.dtype[Any], kind: str, to: np.dtype[Any]) -> str:
        """An array in another dtype: the same bits, cut off, or extended by sign or zeros."""
        if dtype == to:
            return value
        if dtype.itemsize == to.itemsize:
            return f"({value}).view({self.constant(to)})"
        signed = "i" if kind[0] == "s" and dtype.itemsize < to.itemsize else "u"
        own, wanted = (self.constant(np.dtype(f"{signed}{d.itemsize}")) for d in (dtype, to))
        return f"({value}).view({own}).astype({wanted}).view({self.constant(to)})"

    def reduced(self, value: str, destination: Register, kind: str) -> str:
        """A number as the bits of a register: reduced to its type, then extended."""
        if kind == "pred":
            return value
        own, bits = _BITS[destination.type], _BITS[kind]
        value = f"({value}) & {(1 << min(own, bits)) - 1:#x}"
        if bits < own and _is_signed(kind):
            sign = 1 << (bits - 1)
            value = f"((({value}) ^ {sign:#x}) - {sign:#x}) & {(1 << own) - 1:#x}"
        return value

    def perform(self, instruction: Instruction, op: Perform) -> None:
        condition, lanes = self.guard(instruction)
        after = self.following()
        site = self.made.sites[self.at]
        self.line(f"w.at = {after}")
        mask = "w.met" if op.anywhere and self.partial else "w.mask"
        if condition:
            self.line(f"if not ({condition}): return {after}")
        elif instruction.guard is not None:
            self.line(f"w.chosen = {lanes}")
            self.line("mask = lane_mask(w.chosen)")
            self.line(f"if not mask: return {after}")
            mask = "mask"
        sources = [self.read(o, kind) for o, kind in op.sources]
        start = op.waits if site.spins and op.waits is not None else op.start
        made = f"{self.constant(start)}(w, w.sites[{site.number}], {mask}"
        self.line(f"return {self.sent(op, made, sources)}")

    def sent(self, op: Perform, made: str, sources: list[str]) -> str:
        """The expression of a request that the segment returns; `made`: the same without its
        sources.
        """
        return f"{', '.join((made, *sources))})"

    def take_answer(self) -> None:
        """The results of the request before, of which nothing came where no lane made it."""
        number = self.span.begin - 1
        self.at = number
        instruction = self.made.function.instructions[number]
        op = self.made.operations[number]
        assert isinstance(op, Perform)
        assert op.finish is not None
        lanes = "w.active" if self.partial else ""
        indent = 1
        if instruction.guard is not None:
            self.line("if answer is not None:")
            indent = 2
            if instruction.guard.register.number in self.made.uniform.varying:
                lanes = "w.chosen"
        self.line(f"values = {self.constant(op.finish)}(w, answer)", indent)
        for i, result in enumerate(op.results):
            self.put(result, f"values[{i}]", lanes, indent)

    def jump(self, instruction: Instruction, op: Jump) -> None:
        first = self.made.first
        targets = [first[self.made.flow.of_instruction[t]] for t in instruction.targets]
        meets = first[self.span.block.meets]
        condition, lanes = self.guard(instruction)
        if op.index is not None:
            chosen = self.read(op.index, "u32")
            named = self.constant(instruction)
            if self.made.uniform.of(op.index):
                self.line(f"at = {chosen}")
                self.line(f"if at >= {len(targets)}: w.no_such_target(at, {named})")
                self.line(f"return {tuple(targets)}[at]")
            else:
                self.line(f"return w.split_by({chosen}, {tuple(targets)}, {meets}, {named})")
            return
        (target,) = targets
        following = first[self.span.block.successors[-1]]
        if instruction.guard is None:
            self.line(f"return {target}")
        elif condition:
            self.line(f"return {target} if {condition} else {following}")
        else:
            if "uni" in instruction.modifiers:
                self.line(f"w.must_agree({lanes}, {self.constant(instruction)})")
            self.line(f"return w.split({lanes}, {target}, {following}, {meets})")

    def leave(self, instruction: Instruction, op: Leave) -> None:
        condition, lanes = self.guard(instruction)
        following = self.made.first[self.span.block.successors[-1]]
        if op.fault:
            some = condition or (f"{lanes}.any()" if instruction.guard is not None else "")
            self.line(f"{f'if {some}: ' if some else ''}w.trap({self.constant(instruction)})")
            return
        if condition:
            self.line(f"if {condition}: return w.leave(w.mask, {following})")
        elif instruction.guard is None:
            self.line(f"return w.leave(w.mask, {following})")
        else:
            self.line(f"return w.leave(lane_mask({lanes}), {following})")

    # -- operands ----------------------------------------------------------------------

    def read_array(self, operand: Operand, kind: str) -> str:
        """An operand as an array of 32."""
        if not self.made.uniform.of(operand):
            return self.read(operand, kind)
        dtype = TYPES[kind].dtype
        value = self.read(operand, kind)
        if isinstance(operand, Integer | Float):
            number = self.names.get(value, value)
            return self.constant(spread(eval(number) if isinstance(number, str) else number, dtype))
        return f"spread({value}, {self.constant(dtype)})"

    def read(self, operand: Operand, kind: str) -> str:
        """An operand as a number where it has one value for all lanes, else as an array."""
        match operand:
            case Register(number=number) if number in self.made.uniform.varying:
                content = self.made.content[number]
                return self.converted(f"r[{number}]", content, "b", TYPES[kind].dtype)
            case Register(number=number, type=own):
                return self.typed_number(f"r[{number}]", kind, _BITS[own])
            case Integer(number):
                if kind == "pred":
                    return str(bool(number))
                if kind in TYPES and TYPES[kind].kind == "float":
                    # the bits of a register that a `mov` of an integer has written
                    bits = np.dtype(f"u{TYPES[kind].bits // 8}").type(number % (1 << _BITS[kind]))
                    return self.constant(bits.view(TYPES[kind].dtype))
                return str(_as_type(number, kind))
            case Float():
                return self.float_constant(operand, kind)
            case SpecialRegister():
                lanes = not self.made.uniform.of(operand)
                value = f"w.{'special_by_lane' if lanes else 'special'}[{str(operand)!r}]"
                if lanes:
                    return self.converted(value, np.dtype(np.uint32), "u", TYPES[kind].dtype)
                return self.typed_number(value, kind, 64)
            case Variable():
                return f"w.addresses[{self.address_number(operand)}]"
            case Sum(base, offset):
                bits = _BITS[kind]
                value = f"({self.read(base, kind)} + {offset & (1 << bits) - 1})"
                return f"({value} & {(1 << bits) - 1:#x})" if self.made.uniform.of(base) else value
            case Not(inner):
                value = self.read(inner, kind)
                return f"(not {value})" if self.made.uniform.of(inner) else f"~{value}"
        raise AssertionError(f"{operand} is not a value")  # which `undefined_operands` has refused

    def typed_number(self, value: str, kind: str, bits: int) -> str:
        """The bits of a uniform register as a Python number of a type."""
        if kind == "pred":
            return value
        wanted = _BITS[kind]
        if wanted < bits:
            value = f"({value} & {(1 << wanted) - 1:#x})"
        if _is_signed(kind):
            sign = 1 << (wanted - 1)
            return f"(({value} ^ {sign:#x}) - {sign:#x})"
        dtype = TYPES[kind].dtype if kind in TYPES else None
        if dtype is not None and dtype.kind not in "ubV":
            unsigned = self.constant(np.dtype(f"u{dtype.itemsize}").type)
            return f"{unsigned}({value}).view({self.constant(dtype)})"
        return value

    def float_constant(self, operand: Float, kind: str) -> str:
        bits, width = operand.bits, operand.width
        if kind == "f32" and width == 64:
            value = np.uint64(bits).view(np.float64).astype(np.float32)
        elif kind == "f64" and width == 32:
            value = np.uint32(bits).view(np.float32).astype(np.float64)
        elif kind in ("f32", "f64"):
            value = np.dtype(f"u{width // 8}").type(bits).view(TYPES[kind].dtype)
        elif width != _BITS[kind]:  # a decimal constant for a register of 32 bits
            return str(int(np.uint64(bits).view(np.float64).astype(np.float32).view(np.uint32)))
        else:
            return str(bits)
        return self.constant(value)

    def address_number(self, variable: Variable) -> int:
        numbers = self.made.numbers
        if variable not in numbers:
            numbers[variable] = len(numbers)
            self.made.variables.append(variable)
        return numbers[variable]
