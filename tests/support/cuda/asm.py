"""Reads the inline assembly of printed wrappers: which instruction, with which operand where, and
what the compiler is told of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Operand:
    """One operand of an asm statement: `"+f"(d[0])` has constraint `f`, direction `+`, and is
    `d[0]`. `cast`: the type it is cast to.
    """

    direction: str
    constraint: str
    value: str
    cast: str = ""


@dataclass(frozen=True)
class Asm:
    """One asm statement.

    Attributes:
        volatile: the compiler neither drops it nor moves it past another one. memory: it clobbers
            memory.
        instructions: `[@p] opcode operand, ...`, with the C++ operands in the place of their
            numbers. Predicates stand for what they
        are: of `setp.ne.b32 p, x, 0` it is x, of `selp.u32 y, 1, 0, p` it is y.
        operands: outputs, then inputs. clobbers: all.
    """

    volatile: bool
    memory: bool
    instructions: tuple[str, ...]
    operands: tuple[Operand, ...]
    clobbers: tuple[str, ...]


@dataclass(frozen=True)
class Wrapper:
    """A device function: parameters as (C++ type, name) in order, its type, its asm statements, and
    the text of its body.
    """

    name: str
    result: str
    parameters: tuple[tuple[str, str], ...]
    asm: tuple[Asm, ...]
    body: str


def split(text: str, at: str) -> list[str]:
    """Parts between separators that are inside no bracket and no string."""
    parts, depth, quoted, start = [], 0, False, 0
    for i, c in enumerate(text):
        quoted ^= c == '"'
        if not quoted:
            depth += (c in "([{") - (c in ")]}")
            if c == at and depth == 0:
                parts.append(text[start:i].strip())
                start = i + 1
    return [*parts, text[start:].strip()]


def _closing(text: str, start: int) -> int:
    """The place of the bracket that closes the one before `start`."""
    depth, quoted = 1, False
    for i in range(start, len(text)):
        quoted ^= text[i] == '"'
        depth += 0 if quoted else (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    raise AssertionError(f"a bracket stays open: {text}")


def _operand(text: str) -> Operand:
    found = re.fullmatch(r'"([=+]?)(\w)"\s*\((.*)\)', text, re.DOTALL)
    assert found is not None, f"no operand: {text}"
    value = found[3].strip().removeprefix("&")
    cast = re.fullmatch(r"static_cast<(\w+)>\((\w+)\)", value)
    return (
        Operand(found[1], found[2], cast[2], cast[1])
        if cast
        else Operand(found[1], found[2], value)
    )


def _instructions(template: str, operands: list[Operand]) -> Iterator[str]:
    """The statements of a template, without declarations; predicates resolved."""
    whole = template.strip()
    if whole.startswith("{ .reg") and whole.endswith("}"):
        whole = whole[1:-1]
    named = re.sub(
        r"%(\d+)", lambda m: operands[int(m[1])].value, whole.replace("%%", "\0")
    ).replace("\0", "%")
    means: dict[str, str] = {}
    kept = []
    for statement in (s for s in split(named, ";") if s and not s.startswith(".reg")):
        test = re.fullmatch(r"setp\.ne\.b32 (\w+), (\w+), 0", statement)
        choice = re.fullmatch(r"selp\.u32 (\w+), 1, 0, (\w+)", statement)
        if test is not None:
            means[test[1]] = "true" if test[2] == "1" else test[2]
        elif choice is not None:
            means[choice[2]] = choice[1]
        else:
            kept.append(re.sub(r",\s*", ", ", re.sub(r"\s+", " ", statement)))
    for statement in kept:
        for predicate, value in means.items():
            statement = re.sub(rf"(?<![\w.%:]){predicate}(?![\w.:])", value, statement)
        yield statement


def _asm(text: str) -> Iterator[Asm]:
    for found in re.finditer(r"\basm( volatile)?\(", text):
        inside = text[found.end() : _closing(text, found.end())]
        template, *sections = split(inside, ":")
        outputs, inputs, clobbers = (
            [x for x in split(part, ",") if x] for part in [*sections, "", "", ""][:3]
        )
        operands = [_operand(x) for x in (*outputs, *inputs)]
        assert all(o.direction for o in operands[: len(outputs)]), "an output is = or +"
        assert not any(o.direction for o in operands[len(outputs) :]), "an input is neither = nor +"
        told = tuple(x.strip('"') for x in clobbers)
        strings = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', template))
        yield Asm(
            found[1] is not None,
            "memory" in told,
            tuple(_instructions(strings, operands)),
            tuple(operands),
            told,
        )


def functions(code: str) -> list[Wrapper]:
    """The device functions of a text."""
    found = []
    heads = list(
        re.finditer(
            r"__device__ __forceinline__ (?:constexpr )?([\w&* ]+?) (\w+)\((.*)\) \{\n", code
        )
    )
    for i, head in enumerate(heads):
        end = heads[i + 1].start() if i + 1 < len(heads) else len(code)
        body = code[head.end() : end]
        parameters = []
        for text in split(head[3], ",") if head[3] else []:
            array = re.fullmatch(r"(\w+) \(&(\w+)\)(?:\[\w+\])+", text)
            named = array or re.fullmatch(r"(.*?)\s*(\w+)", text)
            assert named is not None, text
            parameters.append((named[1], named[2]))
        found.append(Wrapper(head[2], head[1], tuple(parameters), tuple(_asm(body)), body))
    return found
