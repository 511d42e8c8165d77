"""All forms of the instructions on values in registers: every combination of modifiers and types
that ptxas takes for sm_90a, each on 128 threads, with values at the edges and random ones.

`python -m tests.ptx.measured.enumerate_forms` asks ptxas which these are; what an H100 has computed
is in tests/golden/ptx_measured_h100.npz.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from random import Random
from typing import Any
from zlib import crc32

import ml_dtypes
import numpy as np

from tests.ptx.measured.case import BITS, Array, Case, Part, Rule, module

THREADS = 128
ROUNDINGS = ("", "rn", "rz", "rm", "rp")
FTZ, SAT = ("", "ftz"), ("", "sat")
WORDS = ("u16", "s16", "u32", "s32", "u64", "s64")
SCALARS = ("f32", "f64", "f16", "bf16")
FLOATS = (*SCALARS, "f16x2", "bf16x2")
_REGISTERS = {"f32": "f", "f64": "d", "pred": "p"}


def register(kind: str) -> str:
    """The letter of the registers of a type; of 8 bits, in those of 16."""
    if kind in _REGISTERS:
        return _REGISTERS[kind]
    halves = {"f16": 16, "bf16": 16, "e4m3x2": 16, "e5m2x2": 16, "tf32": 32}
    bits = halves.get(kind) or (32 if "x2" in kind else max(16, int(re.sub(r"\D", "", kind)[:2])))
    return {16: "h", 32: "r", 64: "l"}[bits]


@dataclass(frozen=True)
class Form:
    """An instruction with types of operands.

    Attributes:
        name: with its modifiers. to: type of the result; "p|q": two predicates, "d|p": a word and a
            predicate. sources: types, or classes of values, or constants as they are written.
    """

    name: str
    to: str
    sources: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.name} {self.to} {' '.join(self.sources)}"


def _names(*parts: tuple[str, ...] | str) -> Iterator[str]:
    for chosen in product(*((p,) if isinstance(p, str) else p for p in parts)):
        yield ".".join(c for c in chosen if c)


def _forms() -> Iterator[Form]:
    yield from _arithmetic()
    yield from _logic()
    yield from _comparisons()
    yield from _conversions()


def _alike(names: Iterator[str], count: int, to: str = "") -> Iterator[Form]:
    for name in names:
        kind = name.rsplit(".", 1)[1]
        yield Form(name, to or kind, (kind,) * count)


_WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64", "u64": "u64", "s64": "s64"}


def _arithmetic() -> Iterator[Form]:
    for name in ("add", "sub", "mul"):
        yield from _alike(_names(name, ROUNDINGS, FTZ, SAT, FLOATS), 2)
    for name in ("add", "sub"):
        yield from _alike(_names(name, SAT, (*WORDS, "u16x2", "s16x2")), 2)
    for mode, kind in product(("lo", "hi", "wide"), WORDS):
        to = _WIDE[kind] if mode == "wide" else kind
        yield Form(f"mul.{mode}.{kind}", to, (kind, kind))
        yield Form(f"mad.{mode}.{kind}", to, (kind, kind, to))
        yield Form(f"mad.{mode}.sat.{kind}", to, (kind, kind, to))
    yield from _alike(_names("mad", ROUNDINGS, FTZ, SAT, ("f32", "f64")), 3)
    yield from _alike(_names("fma", ROUNDINGS, FTZ, ("", "sat", "relu"), FLOATS), 3)
    yield from _alike(_names("mul24", ("lo", "hi"), ("u32", "s32")), 2)
    yield from _alike(_names("mad24", ("lo", "hi"), SAT, ("u32", "s32")), 3)
    yield from _alike(_names(("div", "rem"), WORDS), 2)
    for mode in ("approx", "full", *ROUNDINGS):
        yield from _alike(_names("div", mode, FTZ, ("f32", "f64")), 2)
    for name in ("rcp", "sqrt", "rsqrt", "tanh", "lg2", "ex2"):
        yield from _alike(_names(name, ("approx", *ROUNDINGS), FTZ, FLOATS), 1)
    for name in _names(("sin", "cos"), "approx", FTZ, "f32"):
        yield Form(name, "f32", ("angle",))
    for magnitude, nan in product(("", "xorsign.abs"), ("", "NaN")):
        yield from _alike(_names(("min", "max"), FTZ, nan, magnitude, FLOATS), 2)
    yield from _alike(_names(("min", "max"), ("", "relu"), (*WORDS, "u16x2", "s16x2")), 2)
    yield from _alike(_names(("abs", "neg"), FTZ, (*FLOATS, "s16", "s32", "s64")), 1)
    yield from _alike(_names("copysign", ("f32", "f64")), 2)
    tests = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    yield from _alike(_names("testp", tests, ("f32", "f64")), 1, "pred")
    yield from _alike(_names("sad", WORDS), 3)
    for a, b in product(("u32", "s32"), repeat=2):
        to = "s32" if "s32" in (a, b) else "u32"
        for name in ("dp4a", "dp2a.lo", "dp2a.hi"):
            yield Form(f"{name}.{a}.{b}", to, ("b32", "b32", to))
    # two instructions by the condition code
    for kind in ("u32", "s32", "u64", "s64"):
        for low, high in (("add.cc", "addc"), ("add.cc", "subc"), ("sub.cc", "subc"),
                          ("sub.cc", "addc"), ("add.cc", "addc.cc"),
                          ("sub.cc", "subc.cc")):  # fmt: skip
            yield Form(f"{low}.{kind};{high}.{kind}", kind, (kind,) * 2)
        for low, high in (("mad.lo.cc", "madc.hi"), ("mad.hi.cc", "madc.lo.cc")):
            yield Form(f"{low}.{kind};{high}.{kind}", kind, (kind,) * 3)


def _logic() -> Iterator[Form]:
    yield from _alike(_names(("and", "or", "xor"), ("b16", "b32", "b64", "pred")), 2)
    yield from _alike(_names("not", ("b16", "b32", "b64", "pred")), 1)
    yield from _alike(_names("cnot", ("b16", "b32", "b64")), 1)
    for kind in ("b16", "b32", "b64"):
        yield Form(f"shl.{kind}", kind, (kind, "amount"))
    for kind in (*WORDS, "b16", "b32", "b64"):
        yield Form(f"shr.{kind}", kind, (kind, "amount"))
    for way, mode in product("lr", ("wrap", "clamp")):
        yield Form(f"shf.{way}.{mode}.b32", "b32", ("b32", "b32", "amount"))
    for code in (0x80, 0xFE, 0x96, 0xCA, 0xE8, 0x01, 0x5B, 0x00, 0xFF):
        yield Form("lop3.b32", "b32", ("b32", "b32", "b32", f"{code:#x}"))
        for mode in ("and", "or"):
            yield Form(f"lop3.{mode}.b32", "d|p", ("few", "few", "few", f"{code:#x}", "pred"))
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        yield Form(f"prmt.b32{mode}", "b32", ("b32", "b32", "b32"))
        for code in (0x5410, 0x7632, 0x8F01, 0x0123, 3, 1, 2):
            yield Form(f"prmt.b32{mode}", "b32", ("b32", "b32", f"{code:#x}"))
    for kind in ("u32", "s32", "u64", "s64"):
        yield Form(f"bfe.{kind}", kind, (kind, "field", "field"))
    for kind in ("b32", "b64"):
        yield Form(f"bfi.{kind}", kind, (kind, kind, "field", "field"))
        for name in ("popc", "clz"):
            yield Form(f"{name}.{kind}", "u32", (kind,))
        yield Form(f"brev.{kind}", kind, (kind,))
    for name in _names("bfind", ("", "shiftamt"), ("u32", "s32", "u64", "s64")):
        yield Form(name, "u32", (name.rsplit(".", 1)[1],))
    for mode in ("clamp", "wrap"):
        yield Form(f"bmsk.{mode}.b32", "b32", ("amount", "amount"))
        for kind in ("u32", "s32"):
            yield Form(f"szext.{mode}.{kind}", kind, (kind, "amount"))
    yield Form("fns.b32", "b32", ("b32", "place", "offset"))
    for kind in ("b16", "b32", "b64", "u16", "s64", "f32", "f64"):
        yield Form(f"mov.{kind}", kind, (kind,))
    for kind in (*WORDS, "b16", "b32", "b64", "f32", "f64"):
        yield Form(f"selp.{kind}", kind, (kind, kind, "pred"))
        for chooser in ("s32", "f32"):
            yield Form(f"slct.{kind}.{chooser}", kind, (kind, kind, chooser))
            yield Form(f"slct.ftz.{kind}.{chooser}", kind, (kind, kind, chooser))


_OPERATORS = ("eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu",
              "leu", "gtu", "geu", "num", "nan")  # fmt: skip
_COMPARED = ("b16", "b32", "b64", *WORDS, *FLOATS)


def _comparisons() -> Iterator[Form]:
    for operator, ftz, kind in product(_OPERATORS, FTZ, _COMPARED):
        to = "p|q" if "x2" in kind else "pred"
        name = ".".join(filter(None, ("setp", operator, ftz, kind)))
        yield Form(name, to, (kind, kind))
    for operator, mode, kind in product(("eq", "lt", "geu"), ("and", "or", "xor"), _COMPARED):
        yield Form(f"setp.{operator}.{mode}.{kind}", "p|q", (kind, kind, "pred"))
        yield Form(f"setp.{operator}.{mode}.{kind}", "pred", (kind, kind, "pred"))
        for to in ("u32", "f32"):
            yield Form(f"set.{operator}.{mode}.{to}.{kind}", to, (kind, kind, "pred"))
    kinds = ("u32", "s32", "f32", "u16", "s16", "f16", "bf16", "f16x2", "bf16x2")
    for operator, ftz, to, kind in product(("ne", "lt", "gtu", "num", "hi"), FTZ, kinds, _COMPARED):
        yield Form(".".join(filter(None, ("set", operator, ftz, to, kind))), to, (kind, kind))


_CONVERTED = ("u8", "s8", *WORDS, *SCALARS, "tf32")
_PAIRS = ("f16x2", "bf16x2", "e4m3x2", "e5m2x2")


def _conversions() -> Iterator[Form]:
    roundings = (*ROUNDINGS, "rna", "rni", "rzi", "rmi", "rpi")
    for to, source in product(_CONVERTED, _CONVERTED[:-1]):
        for rounding, ftz, sat in product(roundings, FTZ, SAT):
            name = ".".join(filter(None, ("cvt", rounding, ftz, sat, to, source)))
            yield Form(name, to, (source,))
    for rounding, sat, relu in product(roundings, ("", "satfinite"), ("", "relu")):
        for to in ("f16", "bf16", "tf32"):
            if sat or relu:
                yield Form(".".join(filter(None, ("cvt", rounding, relu, sat, to, "f32"))), to,
                           ("f32",))  # fmt: skip
        for to in _PAIRS:
            first = (sat, relu) if to[0] == "e" else (relu, sat)
            head = ".".join(filter(None, ("cvt", rounding, *first, to)))
            yield Form(f"{head}.f32", to, ("f32", "f32"))
            for source in _PAIRS:
                yield Form(f"{head}.{source}", to, (source,))
    for to in ("u16", "s16"):
        yield Form(f"cvt.pack.sat.{to}.s32", "b32", ("s32", "s32"))
    for to in ("u8", "s8"):
        yield Form(f"cvt.pack.sat.{to}.s32.b32", "b32", ("s32", "s32", "b32"))


@cache
def candidates() -> tuple[Form, ...]:
    """All combinations, most of which no assembler takes."""
    return tuple({form.key: form for form in _forms()}.values())


# -- values ------------------------------------------------------------------------------

_SMALL = {"amount": 70, "field": 40, "place": 32}
_SPECIAL: dict[str, list[float]] = {
    "f32": [
        2.0**-149,
        2.0**-126,
        3e-39,
        -(2.0**-149),
        -3e-39,
        3.4028235e38,
        16777216,
        8388609.5,
        1.17549e-38,
    ],
    "f64": [
        5e-324,
        -5e-324,
        -1e-310,
        2.0**-1022,
        1e-310,
        1.7e308,
        2.0**53,
        4503599627370497.5,
        1e40,
        1e-40,
    ],
    "f16": [6e-8, -6e-8, 6.1e-5, 65504, 2048, 0.333],
    "bf16": [9.2e-41, -9.2e-41, 1.2e-38, 3.38e38, 256, 0.3330078125],
}
_COMMON = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 3.5, -0.75, np.inf, -np.inf, np.nan, 255.5, -128.5,
           65535.5, 2147483648.0, -2147483904.0, 4294967296.0, 9.3e18, -3e19]  # fmt: skip


def _dtype(kind: str) -> Any:
    return {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
            "f64": np.float64}[kind]  # fmt: skip


@cache
def values(kind: str, slot: int) -> Array:
    """What operand number `slot` of a type or class has in each thread, in 64 bits."""
    seed = crc32(f"{kind} {slot}".encode())
    random, numpy = Random(seed), np.random.default_rng(seed)
    if kind in _SMALL or kind == "offset":
        most = _SMALL.get(kind, 0)
        found = [random.randrange(most) if most else random.randrange(-8, 9) & 0xFFFFFFFF
                 for _ in range(THREADS)]  # fmt: skip
        if kind in ("amount",):
            found[::9] = [0xFFFFFFFF, 255, 32, 64, 31, 63, 33, 0, 16, 15, 256, 1, 1 << 31, 65,
                          17][: len(found[::9])]  # fmt: skip
        return np.array(found, np.uint64)
    if kind == "few":
        return np.array(random.choices([0, 1, 0xFFFFFFFF, 0x0F0F0F0F], k=THREADS), np.uint64)
    if kind == "pred":
        return np.array(random.choices([0, 1], k=THREADS), np.uint64)
    if kind == "angle":
        angles = numpy.uniform(-np.pi, np.pi, THREADS).astype(np.float32)
        angles[:4] = [0, -0.0, 1e-39, np.nan]
        return angles.view(np.uint32).astype(np.uint64)
    if kind in ("e4m3x2", "e5m2x2"):
        pairs: Array = numpy.integers(0, 1 << 16, THREADS).astype(np.uint64)
        return pairs
    if kind in ("f16x2", "bf16x2"):
        low, high = values(kind[:-2], 10 + slot), values(kind[:-2], 20 + slot)
        both: Array = low | high << np.uint64(16)
        return both
    if kind in SCALARS:
        return _floats(kind, numpy)
    bits = int(kind[1:3]) if kind not in ("u16x2", "s16x2") else 32
    edges = [0, 1, 2, 3, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, 5, 7, 100]
    found = []
    for _ in range(THREADS):
        choice = random.random()
        if choice < 0.35:
            found.append(random.choice(edges))
        elif choice < 0.55:
            found.append(random.randrange(-40, 40) & ((1 << bits) - 1))
        else:
            found.append(random.getrandbits(random.randint(1, bits)))
    return np.array(found, np.uint64)


def _floats(kind: str, numpy: np.random.Generator) -> Array:
    """Special values, numbers of all magnitudes, random bits, multiples of a quarter."""
    dtype = _dtype(kind)
    bits = 8 * np.dtype(dtype).itemsize
    with np.errstate(over="ignore"):
        special = np.array(_COMMON + _SPECIAL[kind]).astype(dtype)
        scaled = (numpy.standard_normal(THREADS) * 2.0 ** numpy.integers(-20, 30, THREADS)
                  ).astype(dtype)  # fmt: skip
    raw = numpy.integers(0, 1 << 63, THREADS).astype(np.uint64) * np.uint64(2)
    patterns = (raw >> np.uint64(64 - bits)).astype(f"u{bits // 8}").view(dtype)
    near = numpy.integers(-300, 300, THREADS).astype(dtype) / dtype(4)
    choice = numpy.integers(0, 4, THREADS)
    unsigned = f"u{bits // 8}"
    picked = special[numpy.integers(0, len(special), THREADS)]
    kinds = [each.view(unsigned) for each in (picked, scaled, patterns, near)]
    found: Array = np.choose(choice, kinds).astype(np.uint64)
    return found


# -- comparison --------------------------------------------------------------------------

# Bounds of the PTX ISA; on results with subnormal operands, as `ulp` has it.
_BOUNDS: list[tuple[str, Rule]] = [
    (r"div\.approx.*f32|div\.full", Rule("f32", ulp=2)),
    (r"div(\.ftz)?\.f32", Rule("f32", ulp=2)),
    (r"(rcp|sqrt|rsqrt)(\.approx)?(\.ftz)?\.f32", Rule("f32", ulp=1.5)),
    (r"rsqrt\.approx(\.ftz)?\.f64|rcp\.approx.*f64", Rule("f64", relative=2.0**-18)),
    (r"(sin|cos)\.", Rule("f32", absolute=2.0**-20.5)),
    (r"lg2\..*f32", Rule("f32", absolute=2.0**-22, relative=2.0**-22)),
    (r"ex2\..*f32", Rule("f32", relative=2.0**-22)),
    (r"ex2\..*\.f16", Rule("f16", relative=2.0**-9.9)),
    (r"ex2\..*\.bf16", Rule("bf16", relative=2.0**-7)),
    (r"tanh\..*f32", Rule("f32", relative=2.0**-11)),
    (r"tanh\..*\.f16", Rule("f16", absolute=2.0**-10.987)),
    (r"tanh\..*\.bf16", Rule("bf16", absolute=2.0**-8)),
]


def rule_of(form: Form) -> Rule:
    """How results are compared: bit for bit, but that NaN of f64 and tf32 are alike."""
    for pattern, rule in _BOUNDS:
        if re.match(pattern, form.name):
            return rule
    if form.to == "f64":
        return Rule("f64")
    if form.to == "tf32" or ("f64" in form.sources and form.to == "f32"):
        return Rule("f32")
    if "f64" in form.sources and form.to in ("f16", "bf16"):
        return Rule(form.to)
    return BITS


# -- kernels -----------------------------------------------------------------------------

EACH = 16  # forms of a kernel


def instructions(form: Form, sources: list[str], into: list[str]) -> list[str]:
    """The lines of a form: sources and destinations are registers."""
    names = form.name.split(";")
    if form.to in ("p|q", "d|p"):
        return [f"{names[0]} {into[0]}|{into[1]}, {', '.join(sources)};"]
    lines = [f"{name} {d}, {', '.join(sources)};" for name, d in zip(names, into, strict=False)]
    if names[-1].split(".")[1:2] == ["cc"] or ".cc." in names[-1]:
        kind = names[-1].rsplit(".", 1)[1]
        lines.append(f"addc.{kind} {into[1]}, {into[1]}, {into[1]};")
    return lines


def results(form: Form) -> list[str]:
    """Types of the results."""
    if form.to == "p|q":
        return ["pred", "pred"]
    if form.to == "d|p":
        return ["b32", "pred"]
    return [form.to] * len(form.name.split(";"))


def size(kind: str) -> int:
    """Bytes of a result in memory."""
    return {"h": 2, "r": 4, "f": 4, "p": 4, "l": 8, "d": 8}[register(kind)]


def case(name: str, forms: tuple[Form, ...]) -> Case:
    """A kernel of some forms, each of which writes its results of all threads side by side."""
    columns: dict[tuple[str, int], int] = {}
    lines: list[str] = []
    parts: list[Part] = []
    at = 0
    body: list[str] = []
    for form in forms:
        sources = []
        for slot, kind in enumerate(form.sources):
            if kind[0].isdigit():
                sources.append(kind)
                continue
            number = columns.setdefault((kind, slot), len(columns))
            sources.append(_load(kind, number, body))
        types = results(form)
        into = [f"%{register(kind)}{10 + i}" for i, kind in enumerate(types)]
        body += instructions(form, sources, into)
        begin = at
        for kind, d in zip(types, into, strict=True):
            letter, nbytes = register(kind), size(kind)
            if letter == "p":
                body.append(f"selp.b32 %r10, 1, 0, {d};")
                d = "%r10"
            body.append(f"mad.wide.u32 %q1, %t, {nbytes}, %b;")
            body.append(f"st.global.b{8 * nbytes} [%q1+{at}], {d};".replace(".b32", ".f32")
                        if letter == "f" else
                        f"st.global.f64 [%q1+{at}], {d};" if letter == "d" else
                        f"st.global.b{8 * nbytes} [%q1+{at}], {d};")  # fmt: skip
            at += -(-nbytes * THREADS // 8) * 8
        rule = rule_of(form)
        parts.append(Part(form.key, begin, at, rule))
    lines = [f"mad.wide.u32 %q0, %t, {8 * len(columns)}, %a;", *body]
    given = np.stack([values(kind, slot) for kind, slot in columns], axis=1)
    return Case(
        name, module("\n".join(lines), THREADS),
        np.ascontiguousarray(given).view(np.uint8).reshape(-1),
        np.zeros(at, np.uint8), tuple(parts), THREADS,
    )  # fmt: skip


def _load(kind: str, column: int, body: list[str]) -> str:
    known = kind if kind in ("angle",) else ""
    letter = "f" if known else register(
        {"amount": "b32", "field": "b32", "place": "b32", "offset": "b32", "few": "b32"}.get(
            kind, kind)
    )  # fmt: skip
    name = f"%{letter}{20 + column % 20}" if letter != "d" else f"%d{column % 10}"
    if letter == "p":
        body += [f"ld.global.b32 %r11, [%q0+{8 * column}];", f"setp.ne.b32 {name}, %r11, 0;"]
        return name
    typed = {"h": "b16", "r": "b32", "l": "b64", "f": "f32", "d": "f64"}[letter]
    body.append(f"ld.global.{typed} {name}, [%q0+{8 * column}];")
    return name


def cases(forms: list[Form]) -> Iterator[Case]:
    """Kernels of forms of one opcode each."""
    groups: dict[str, list[Form]] = {}
    for form in forms:
        groups.setdefault(form.name.split(".")[0], []).append(form)
    for opcode, found in groups.items():
        for number, begin in enumerate(range(0, len(found), EACH)):
            yield case(f"forms/{opcode}-{number}", tuple(found[begin : begin + EACH]))
