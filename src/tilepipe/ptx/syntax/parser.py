"""A parser of PTX (PTX ISA, "Syntax", "State Spaces, Types, and Variables", "Directives").

It reads the language's form, and knows no instruction: which there are, `ptx.isa` says. Recursive
descent over one token of look-ahead; an inner block is a scope, not a recursion, so that depth
costs no stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import NoReturn

import numpy as np

from tilepipe.errors import PtxError
from tilepipe.ptx import special_registers
from tilepipe.ptx.syntax.nodes import (
    TYPE_BYTES,
    Address,
    Arguments,
    Float,
    Function,
    Guard,
    Instruction,
    Integer,
    Module,
    Name,
    Not,
    Operand,
    Pair,
    Position,
    Register,
    Sink,
    SpecialRegister,
    Sum,
    Variable,
    Vector,
)
from tilepipe.ptx.syntax.scopes import Registers, Scope
from tilepipe.ptx.syntax.tokens import Token, tokens

MOST_BYTES = 64 << 20  # of a text: above, it is refused unread
_MOST_NESTED = 64  # brackets within one operand, and blocks within a function
_MOST_DIGITS = 66  # 0b and 64 bits
_MOST_ITEMS = 1024  # operands in one pair of brackets, and of one instruction
_MOST_MODIFIERS = 32
_MOST_DIMENSIONS = 16
_MOST_BYTES = 1 << 62  # of a variable
_VECTOR_BYTES = 16
_LINKING = {".extern", ".visible", ".weak", ".common"}
_SPACES = {f".{space}": space for space in ("global", "const", "shared", "local", "param")}
_BRANCHES = {"bra", "brx"}


def parse(text: str) -> Module:
    """The module that a PTX text describes.

    Raises:
        PtxError: the text is not PTX, or uses a part of the language that is not read (textures,
            vector registers, alternate parameters); it names the line.
    """
    if len(text) > MOST_BYTES:
        raise PtxError(
            f"a PTX text of {len(text) / 1e6:.0f} MB; at most {MOST_BYTES >> 20} MiB are read"
        )
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self._next = tokens(text).__next__
        self.token = self._next()
        self.parsed = Module(text)
        self.files: dict[int, str] = {}
        self.opcodes: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.anywhere = Scope(None, Registers())
        self.at: Position | None = None
        self.positions: dict[tuple[int, int, int], Position] = {}

    # -- tokens ------------------------------------------------------------------------

    def advance(self) -> Token:
        token = self.token
        self.token = self._next()
        return token

    def wrong(self, expected: str) -> NoReturn:
        found = self.token.text
        shown = found if len(found) <= 40 else f"{found[:40]}..."
        raise PtxError(f"PTX line {self.token.line}: expected {expected}, found '{shown}'")

    def expect(self, text: str) -> Token:
        if self.token.text != text:
            self.wrong(f"'{text}'")
        return self.advance()

    def take(self, text: str) -> bool:
        if self.token.text != text:
            return False
        self.advance()
        return True

    def of_kind(self, kind: str, expected: str) -> str:
        if self.token.kind != kind:
            self.wrong(expected)
        return self.advance().text

    def skip_to(self, end: str) -> None:
        while self.token.text != end:
            if self.token.kind == "end":
                self.wrong(f"'{end}'")
            self.advance()
        self.advance()

    # -- module ------------------------------------------------------------------------

    def module(self) -> Module:
        self.expect(".version")
        if not re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", self.token.text):
            self.wrong("a version such as 8.7")
        major, _, minor = self.advance().text.partition(".")
        self.parsed.version = int(major), int(minor)
        directives: dict[str, Callable[[], object]] = {
            ".target": self.target, ".address_size": self.address_size, ".file": self.file,
            ".section": lambda: self.skip_to("}"), ".pragma": lambda: self.skip_to(";"),
            ".loc": self.loc,
        }  # fmt: skip
        while self.token.kind != "end":
            directive = directives.get(self.token.text)
            if directive is not None:
                self.advance()
                directive()
            else:
                self.declaration()
        return self.parsed

    def target(self) -> None:
        targets = [self.of_kind("name", "a target such as sm_90a")]
        while self.take(","):
            targets.append(self.of_kind("name", "a target"))
        self.parsed.targets = tuple(targets)

    def address_size(self) -> None:
        self.parsed.address_size = self.integer()
        if self.parsed.address_size != 64:
            raise PtxError(f".address_size {self.parsed.address_size}: only 64 is read")

    def file(self) -> None:
        number = self.integer()
        self.files[number] = self.of_kind("string", "a path")[1:-1]
        while self.take(","):  # time stamp and size
            self.integer()

    def declaration(self) -> None:
        linking = set()
        while self.token.text in _LINKING:
            linking.add(self.advance().text)
        if self.token.text in (".entry", ".func"):
            self.function(is_entry=self.advance().text == ".entry")
        elif self.token.text in _SPACES:
            for variable in self.variables(self.anywhere, external=".extern" in linking):
                self.parsed.variables[variable.name] = variable
        else:
            self.wrong("a function or a variable")

    # -- variables ---------------------------------------------------------------------

    def variables(self, scope: Scope, *, external: bool) -> list[Variable]:
        """`.shared .align 16 .b8 a[64], b[64];`"""
        space = _SPACES[self.advance().text]
        align, kind, elements = self.type()
        found = []
        while True:
            found.append(self.variable(scope, space, align, kind, elements, external=external))
            if not self.take(","):
                break
        self.expect(";")
        return found

    def type(self) -> tuple[int, str, int]:
        """`.align 16 .v4 .b32`, with what else may stand there: the alignment (0: none), the type,
        and the elements of a vector (1: a scalar).

        PTX ISA, Vectors: of 2 or 4 elements, of any type but .pred, and at most 128 bits.
        """
        align, kind, vector = 0, "", 1
        while self.token.kind == "directive":
            directive = self.advance().text
            if directive == ".align":
                align = self.integer()
            elif directive in (".v2", ".v4"):
                vector = int(directive[2:])
            elif directive == ".ptr":
                self.pointee()
            elif directive == ".attribute":
                self.skip_to(")")
            elif directive[1:] in TYPE_BYTES or directive == ".pred":
                kind = directive[1:]
            else:
                raise PtxError(
                    f"PTX line {self.token.line}: a variable of type {directive} is not read"
                )
        if not kind:
            self.wrong("a type such as .b32")
        if vector > 1 and (kind == "pred" or vector * TYPE_BYTES[kind] > _VECTOR_BYTES):
            raise PtxError(
                f"PTX line {self.token.line}: there is no .v{vector} of .{kind}: a vector has at"
                f" most {_VECTOR_BYTES} bytes, and no predicates"
            )
        if align & (align - 1):
            raise PtxError(f"PTX line {self.token.line}: .align {align} is not a power of two")
        return align, kind, vector

    def pointee(self) -> None:
        """`.ptr .global .align 16`: what the compiler says of a pointer's target."""
        while self.token.text in _SPACES or self.token.text == ".align":
            if self.advance().text == ".align":
                self.integer()

    def variable(
        self, scope: Scope, space: str, align: int, kind: str, elements: int = 1, *,
        external: bool = False,
    ) -> Variable:  # fmt: skip
        line = self.token.line
        name = self.of_kind("name", "a name")
        shape: list[int] = []
        while self.take("["):
            shape.append(0 if self.token.text == "]" else self.integer())
            self.expect("]")
            if len(shape) > _MOST_DIMENSIONS or prod(shape) > _MOST_BYTES:
                raise PtxError(
                    f"PTX line {line}: the array '{name[:40]}' has more than"
                    f" {_MOST_DIMENSIONS} dimensions, or 2^62 elements"
                )
        initial: tuple[Operand, ...] = ()
        if self.take("="):
            initial = self.initial(scope)
            if shape and not shape[0]:
                shape[0] = len(initial) // elements
        if elements > 1:
            shape.append(elements)
        align = align or TYPE_BYTES[kind] * elements
        made = Variable(name, space, kind, align, tuple(shape), initial, external, line)
        scope.declare(name, made, line)
        return made

    def initial(self, scope: Scope) -> tuple[Operand, ...]:
        """`5`, or `{1, 2, generic(x)}`; inner braces are those of rows."""
        if self.token.text != "{":
            return (self.initial_value(scope),)
        values: list[Operand] = []
        depth = 0
        while True:
            if self.take("{"):
                depth += 1
            elif self.take("}"):
                depth -= 1
                if not depth:
                    return tuple(values)
            elif not self.take(","):
                values.append(self.initial_value(scope))

    def initial_value(self, scope: Scope) -> Operand:
        if self.token.text == "generic":
            self.advance()
            self.expect("(")
            value = self.operand(scope)
            self.expect(")")
            return self.with_offset(value)
        return self.operand(scope)

    # -- functions ---------------------------------------------------------------------

    def function(self, *, is_entry: bool) -> None:
        registers = Registers()
        scope = Scope(self.anywhere, registers)
        self.attributes()
        results = self.parameters(scope) if self.token.text == "(" else []
        line = self.token.line
        made = Function(self.of_kind("name", "a function's name"), is_entry, line)
        made.results = results
        made.parameters = self.parameters(scope) if self.token.text == "(" else []
        made.registers = registers.named
        while self.token.kind == "directive":
            name = self.advance().text[1:]
            values: list[int] = []
            if name == "pragma":
                self.skip_to(";")
                continue
            if self.token.kind == "integer":
                values.append(self.integer())
                while self.take(","):
                    values.append(self.integer())
            made.directives[name] = tuple(values)
        before = self.parsed.functions.get(made.name)
        if before is not None and not before.declared_only:
            raise PtxError(f"PTX line {line}: a second function '{made.name}'")
        self.parsed.functions[made.name] = made
        if self.take(";"):
            made.declared_only = True
            return
        self.expect("{")
        self.body(made, Scope(scope, registers))

    def attributes(self) -> None:
        while self.take(".attribute"):
            self.skip_to(")")

    def parameters(self, scope: Scope) -> list[Variable]:
        self.expect("(")
        found: list[Variable] = []
        while not self.take(")"):
            if found:
                self.expect(",")
            if self.token.text == ".reg":
                raise PtxError(f"PTX line {self.token.line}: parameters in registers are not read")
            self.expect(".param")
            align, kind, elements = self.type()
            if elements > 1:
                raise PtxError(f"PTX line {self.token.line}: a vector as a parameter is not read")
            if self.token.text == "_":  # a prototype's
                self.token = Token("name", f"_{len(found)}", self.token.line)
            found.append(self.variable(scope, "param", align, kind))
        return found

    def body(self, made: Function, scope: Scope) -> None:
        """Statements up to the brace that closes the function."""
        self.at = None
        branches: list[tuple[int, Scope]] = []
        outermost = scope
        while True:
            token = self.token
            text = token.text
            if text == "{":
                self.advance()
                scope = Scope(scope, outermost.registers)
                if scope.depth > _MOST_NESTED:
                    raise PtxError(
                        f"PTX line {token.line}: more than {_MOST_NESTED} blocks in each other"
                    )
            elif text == "}":
                self.advance()
                if scope is outermost:
                    break
                assert scope.outer is not None
                scope = scope.outer
            elif token.kind == "directive":
                self.directive(made, scope)
            elif token.kind == "name" or text == "@":
                self.statement(made, scope, branches)
            elif not self.take(";"):
                self.wrong("an instruction")
        for number, where in branches:
            made.instructions[number] = _resolved(made.instructions[number], where)

    def directive(self, made: Function, scope: Scope) -> None:
        text = self.token.text
        if text == ".loc":
            self.advance()
            self.loc()
        elif text == ".reg":
            self.advance()
            self.registers(scope)
        elif text in _SPACES:
            made.variables += self.variables(scope, external=False)
        elif text == ".pragma":
            self.skip_to(";")
        else:
            self.wrong("a directive that may stand in a function")

    def registers(self, scope: Scope) -> None:
        """`.reg .b32 %r<617>, x;`, `.reg .v4 .f32 v;`"""
        _, kind, elements = self.type()
        while True:
            line = self.token.line
            name = self.of_kind("name", "a register's name")
            count = None
            if self.take("<"):
                count = self.integer()
                self.expect(">")
            scope.declare_registers(name, kind, elements, count, line)
            if not self.take(","):
                break
        self.expect(";")

    # -- source positions --------------------------------------------------------------

    def loc(self) -> None:
        """`.loc file line column[, function_name label[+n], inlined_at file line column]`."""
        place = self.place()
        called_at = None
        while self.take(","):
            if self.take("function_name"):
                self.of_kind("name", "a label")
                if self.take("+"):
                    self.integer()
            elif self.take("inlined_at"):
                outer = self.place()
                # The call may stand in an inlined function itself: then a .loc before said where.
                called_at = self.positions.get(outer) or Position(self.files, *outer)
            else:
                self.wrong("'function_name' or 'inlined_at'")
        self.at = self.positions[place] = Position(self.files, *place, called_at)

    def place(self) -> tuple[int, int, int]:
        return self.integer(), self.integer(), self.integer()

    # -- statements --------------------------------------------------------------------

    def statement(self, made: Function, scope: Scope, branches: list[tuple[int, Scope]]) -> None:
        """An instruction, or a label."""
        guard = self.guard(scope)
        token = self.advance()
        if token.kind != "name":
            self.token = token
            self.wrong("an instruction")
        if guard is None and self.take(":"):
            self.label(token, made, scope)
            return
        split = self.opcodes.get(token.text)
        if split is None:
            opcode, *modifiers = token.text.split(".")
            if len(modifiers) > _MOST_MODIFIERS:
                raise PtxError(
                    f"PTX line {token.line}: an instruction with {len(modifiers):,} modifiers"
                )
            split = self.opcodes[token.text] = opcode, tuple(modifiers)
        operands: list[Operand] = []
        while self.token.text != ";":
            if operands:
                self.expect(",")
            operands.append(self.operand(scope))
            self.check_count(operands)
        self.advance()
        if split[0] in _BRANCHES:
            branches.append((len(made.instructions), scope))
        made.instructions.append(
            Instruction(*split, tuple(operands), guard, (), token.line, self.at)
        )

    def guard(self, scope: Scope) -> Guard | None:
        if not self.take("@"):
            return None
        negated = self.take("!")
        register = self.operand(scope)
        if not isinstance(register, Register) or register.type != "pred":
            raise PtxError(f"PTX line {self.token.line}: the guard {register} is not a predicate")
        return Guard(register, negated)

    def label(self, token: Token, made: Function, scope: Scope) -> None:
        """`L:`, or `L: .branchtargets A, B;`, or a prototype of calls."""
        if self.take(".branchtargets"):
            names = [self.of_kind("name", "a label")]
            while self.take(","):
                names.append(self.of_kind("name", "a label"))
            self.expect(";")
            scope.jump_tables[token.text] = tuple(names)
            return
        if self.token.text in (".callprototype", ".calltargets"):
            self.skip_to(";")
            return
        if token.text in scope.labels:
            raise PtxError(f"PTX line {token.line}: a second label '{token.text}' in one block")
        scope.labels[token.text] = made.labels[token.text] = len(made.instructions)

    # -- operands ----------------------------------------------------------------------

    def operand(self, scope: Scope, depth: int = 0) -> Operand:
        first = self.primary(scope, depth)
        if self.take("|"):
            return Pair(first, self.primary(scope, depth))
        return self.with_offset(first)

    def with_offset(self, first: Operand) -> Operand:
        """An operand, and what is added to it: `+64`."""
        while self.token.text in ("+", "-"):
            sign = 1 if self.advance().text == "+" else -1
            if self.token.text == "-":
                self.advance()
                sign = -sign
            offset = sign * self.integer()
            if isinstance(first, Integer):
                first = Integer(first.value + offset)
            elif isinstance(first, Sum):
                first = Sum(first.base, first.offset + offset)
            else:
                first = Sum(first, offset)
        return first

    def primary(self, scope: Scope, depth: int) -> Operand:
        kind, text, line = self.token
        if depth > _MOST_NESTED:
            raise PtxError(
                f"PTX line {line}: an operand with more than {_MOST_NESTED} brackets or signs"
                " within each other"
            )
        if kind == "name":
            self.advance()
            return scope.find(text) or _unbound(text)
        if kind == "integer":
            return Integer(self.integer())
        if kind == "float":
            self.advance()
            return _float(text)
        self.advance()
        match text:
            case "-" | "~":
                value = self.primary(scope, depth + 1)
                if isinstance(value, Integer):
                    return Integer(-value.value if text == "-" else ~value.value)
                if isinstance(value, Float):
                    return Float(value.bits ^ 1 << (value.width - 1), value.width)
            case "!":
                return Not(self.primary(scope, depth + 1))
            case "[":
                return Address(self.items(scope, "]", depth))
            case "{":
                return Vector(self.items(scope, "}", depth))
            case "(":
                return Arguments(self.items(scope, ")", depth))
        self.token = Token(kind, text, line)
        self.wrong("an operand")

    def items(self, scope: Scope, end: str, depth: int) -> tuple[Operand, ...]:
        found: list[Operand] = []
        while not self.take(end):
            if found:
                self.expect(",")
            found.append(self.operand(scope, depth + 1))
            self.check_count(found)
        return tuple(found)

    def check_count(self, items: list[Operand]) -> None:
        if len(items) > _MOST_ITEMS:
            raise PtxError(
                f"PTX line {self.token.line}: more than {_MOST_ITEMS:,} operands in one place"
            )

    def integer(self) -> int:
        """A constant, which has 64 bits (PTX ISA, Integer Constants). ptxas refuses most of those
        that need more ("Constant overflow"), and takes others for the number modulo 2^64.
        """
        line = self.token.line
        text = self.of_kind("integer", "a number").rstrip("U")
        octal = text[0] == "0" and text.isdigit()
        if octal and not set(text).isdisjoint("89"):
            raise PtxError(
                f"PTX line {line}: '{text[:40]}' begins with 0, which makes it octal, and octal"
                " numbers have no digits 8 and 9"
            )
        long = len(text) > _MOST_DIGITS  # which may also be long because of its zeros
        value = 1 << 64 if long else int(text, 8 if octal else 0)
        if value >> 64:
            raise PtxError(
                f"PTX line {line}: the constant {text[:40]}{'...' * (len(text) > 40)} is above"
                f" {(1 << 64) - 1}: integer constants have 64 bits"
            )
        return value


def _unbound(text: str) -> Operand:
    """The meaning of a name without a declaration: the sink, a special register, a label."""
    if text == "_":
        return Sink()
    name, _, component = text.partition(".")
    if name in special_registers.DECLARED:
        return SpecialRegister(name, component)
    return Name(text)


def _float(text: str) -> Float:
    if text[:2] in ("0f", "0F"):
        return Float(int(text[2:], 16), 32)
    if text[:2] in ("0d", "0D"):
        return Float(int(text[2:], 16), 64)
    return Float(int(np.float64(text).view(np.uint64)), 64)


def _resolved(branch: Instruction, scope: Scope) -> Instruction:
    """A branch with the numbers of the instructions that it may jump to."""
    last = branch.operands[-1] if branch.operands else None
    names: tuple[str, ...] | None = None
    if isinstance(last, Name):
        names = scope.jump_table(last.name) if branch.opcode == "brx" else (last.name,)
    if names is None:
        raise PtxError(f"PTX line {branch.line}: {branch}: there is no such list of labels")
    targets = tuple(scope.label(name) for name in names)
    for name, target in zip(names, targets, strict=True):
        if target is None:
            raise PtxError(f"PTX line {branch.line}: {branch}: there is no label '{name}'")
    return replace(branch, targets=tuple(t for t in targets if t is not None))
