"""Forms of instructions, legal and illegal: each opcode with combinations of modifiers, types and
operands, for a comparison of the reader with an assembler.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

BITS = {
    "pred": "p", "u8": "h", "s8": "h", "b8": "h", "u16": "h", "s16": "h", "b16": "h", "f16": "h",
    "bf16": "h", "u32": "r", "s32": "r", "b32": "r", "f32": "r", "tf32": "r", "u64": "d",
    "s64": "d", "b64": "d", "f64": "d", "b128": "q", "f16x2": "r", "bf16x2": "r", "u16x2": "r",
    "s16x2": "r", "u8x4": "r", "s8x4": "r", "f32x2": "d", "e4m3": "h", "e5m2": "h", "e4m3x2": "h",
    "e5m2x2": "h",
    "e2m3x2": "h", "e3m2x2": "h", "ue8m0x2": "h", "e2m1x2": "b", "s2f6x2": "h", "e4m3x4": "r",
    "e5m2x4": "r", "e2m3x4": "r", "e3m2x4": "r", "e2m1x4": "h",
}  # fmt: skip
REGISTERS = (
    ".reg .pred %p<9>; .reg .b8 %b<9>; .reg .b16 %h<9>; .reg .b32 %r<99>; .reg .b64 %d<99>;"
    " .reg .b128 %q<9>;"
)
# All of these hold something.
WRITTEN = " ".join(
    f"ld.local.b{bits} %{bank}{i}, [0];"
    for bank, bits, count in (
        ("b", 8, 9),
        ("h", 16, 9),
        ("r", 32, 99),
        ("d", 64, 99),
        ("q", 128, 9),
    )
    for i in range(count)
) + " ".join(f"setp.eq.u32 %p{i}, 0, 0;" for i in range(9))
INTEGERS = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")
WORDS = ("b8", "b16", "b32", "b64", "b128")
FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64", "tf32")
PAIRS = ("u16x2", "s16x2", "u8x4", "s8x4")
NARROW = ("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "e2m1x2", "ue8m0x2", "s2f6x2")
QUADS = ("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4", "e2m1x4")
ALL = (*INTEGERS, *WORDS, *FLOATS, *PAIRS, "pred")
ROUNDINGS = ("", "rn", "rz", "rm", "rp")
COMPARISONS = (
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu",
    "geu", "num", "nan",
)  # fmt: skip


def register(kind: str, number: int) -> str:
    """A register of the width of a type."""
    return f"%{BITS[kind]}{number + 1}"


def spelled(opcode: str, modifiers: tuple[str, ...], kinds: tuple[str, ...]) -> str:
    """An instruction with registers of these types."""
    name = ".".join((opcode, *(m for m in modifiers if m)))
    return f"{name} {', '.join(register(kind, i) for i, kind in enumerate(kinds))};"


def of_type(
    opcodes: str, types: tuple[str, ...], operands: str, *slots: tuple[str, ...]
) -> Iterator[str]:
    """Opcodes with one type at the end, T among the types of `operands`."""
    for opcode, kind, *modifiers in product(opcodes.split(), types, *slots):
        kinds = tuple(kind if o == "T" else o for o in operands.split())
        yield spelled(opcode, (*modifiers, kind), kinds)


def arithmetic() -> Iterator[str]:
    """Integer and floating-point arithmetic."""
    ftz, sat, nan, relu = ("", "ftz"), ("", "sat"), ("", "NaN"), ("", "relu")
    yield from of_type("add sub mul", ALL, "T T T", ROUNDINGS, ftz, sat)
    yield from of_type("fma mad", ALL, "T T T T", ROUNDINGS, ftz, ("", "sat", "relu", "oob"))
    yield from of_type("fma", ALL, "T T T T", ROUNDINGS, ftz, ("oob.relu", "relu.oob"))
    for opcode, mode, sat_, kind in product(
        ("mul", "mad", "mul24", "mad24"), ("lo", "hi", "wide"), sat, ALL
    ):
        wide = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}.get(kind, kind)
        to = wide if mode == "wide" else kind
        kinds = (to, kind, kind, to) if opcode[:3] == "mad" else (to, kind, kind)
        yield spelled(opcode, (mode, sat_, kind), kinds)
    for opcode, kind, source, rounding, sat_ in product(
        ("add", "sub"), ("f32", "f16", "f64"), ("f16", "bf16", "f32"), ROUNDINGS, sat
    ):
        yield spelled(opcode, (rounding, sat_, kind, source), (kind, source, kind))
        yield spelled("fma", (rounding, sat_, kind, source), (kind, source, source, kind))
        yield spelled(opcode, (rounding, "ftz", kind, source), (kind, source, kind))
    yield from of_type("add sub addc subc", ALL, "T T T", ("", "cc"))
    yield from of_type("mad madc", ALL, "T T T T", ("lo", "hi", "wide"), ("", "cc"))
    yield from of_type("div", ALL, "T T T", (*ROUNDINGS, "approx", "full"), ftz)
    yield from of_type("rem", ALL, "T T T", ftz)
    yield from of_type("rcp sqrt", ALL, "T T", (*ROUNDINGS, "approx"), ftz)
    yield from of_type("rsqrt sin cos lg2 ex2 tanh", ALL, "T T", ("", "approx", "rn"), ftz)
    yield from of_type("abs neg", ALL, "T T", ftz, sat)
    yield from of_type(
        "min max", ALL, "T T T", ftz, nan, ("", "xorsign.abs", "abs", "xorsign"), relu
    )
    yield from of_type("min max", ALL, "T T T T", ftz, nan, ("", "xorsign.abs", "abs"), relu)
    yield from of_type("min max", ALL, "T T T", relu, ftz)
    yield from of_type("copysign", ALL, "T T T", ftz)
    properties = ("finite", "infinite", "number", "notanumber", "normal", "subnormal", "")
    yield from of_type("testp", ALL, "pred T", properties)
    yield from of_type("sad", ALL, "T T T T")
    for a, b in product(("u32", "s32", "b32"), repeat=2):
        for to in ("u32", "s32"):
            yield spelled("dp4a", (a, b), (to, a, b, to))
            for mode in ("lo", "hi", ""):
                yield spelled("dp2a", (mode, a, b), (to, a, b, to))


def video() -> Iterator[str]:
    """The video instructions, scalar and SIMD."""
    ops = ["vadd", "vsub", "vabsdiff", "vmin", "vmax"]
    for opcode, to, a, b, sat, second in product(
        ops, ("u32", "s32"), ("u32", "s32"), ("u32", "s32"), ("", "sat"), ("", "add", "min", "max")
    ):
        sources = ("b32",) * (3 if second else 2)
        yield spelled(opcode, (to, a, b, sat, second), ("b32", *sources))
    for opcode, a, b in product(("vset",), ("u32", "s32"), ("u32", "s32")):
        for op in ("eq", "lt", "foo"):
            yield spelled(opcode, (a, b, op), ("b32",) * 3)
    for opcode, to, a, mode in product(
        ("vshl", "vshr"), ("u32", "s32"), ("u32", "s32"), ("clamp", "wrap", "")
    ):
        yield spelled(opcode, (to, a, "u32", mode), ("b32",) * 3)
    for to, a, b, scale in product(*(("u32", "s32"),) * 3, ("", "shr7", "shr15", "sat")):
        yield spelled("vmad", (to, a, b, scale), ("b32",) * 4)
    for width, a, b, op, end in product(
        (2, 4), ("u32", "s32"), ("u32", "s32"), ("eq", "ne", "lt", "le", "gt", "ge", ""),
        ("", "add", "sat"),
    ):  # fmt: skip
        yield spelled(f"vset{width}", (a, b, op, end), ("b32",) * 4)
    for width, op in product((2, 4), ("add", "sub", "avrg", "absdiff", "min", "max")):
        for to, a, b, last in product(*(("u32", "s32"),) * 3, ("", "sat", "add")):
            yield spelled(f"v{op}{width}", (to, a, b, last), ("b32",) * 4)


def bits() -> Iterator[str]:
    """Logic, shifts, fields."""
    yield from of_type("and or xor", ALL, "T T T")
    yield from of_type("not cnot", ALL, "T T")
    yield from of_type("shl shr", ALL, "T T b32")
    yield from of_type("shf", ALL, "T T T T", ("l", "r", ""), ("wrap", "clamp", ""))
    yield from of_type("shf", ALL, "T T T b32", ("l", "r"), ("wrap", "clamp"))
    for kind in ALL:
        r = [register(kind, i) for i in range(5)]
        for table in ("0x96", "256", "-1", "%r5"):
            yield f"lop3.{kind} {r[0]}, {r[1]}, {r[2]}, {r[3]}, {table};"
        for op in ("and", "or", "xor"):
            yield f"lop3.{op}.{kind} {r[0]}|%p1, {r[1]}, {r[2]}, {r[3]}, 0x96, %p2;"
            yield f"lop3.{op}.{kind} _|%p1, {r[1]}, {r[2]}, {r[3]}, 0x96, %p2;"
            yield f"lop3.{op}.{kind} {r[0]}, {r[1]}, {r[2]}, {r[3]}, 0x96, %p2;"
            yield f"lop3.{op}.{kind} {r[0]}|%p1, {r[1]}, {r[2]}, {r[3]}, 0x96;"
    modes = ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16", "foo")
    yield from of_type("prmt", ALL, "T T T T")
    for mode in modes:
        yield spelled("prmt", ("b32", mode), ("b32",) * 4)
    yield from of_type("bfe", ALL, "T T b32 b32")
    yield from of_type("bfi", ALL, "T T T b32 b32")
    yield from of_type("popc clz brev", ALL, "b32 T")
    yield from of_type("popc clz brev", ALL, "T T")
    yield from of_type("bfind", ALL, "b32 T", ("", "shiftamt"))
    yield from of_type("bmsk", ALL, "T T T", ("", "clamp", "wrap"))
    yield from of_type("szext", ALL, "T T b32", ("", "clamp", "wrap"))
    yield from of_type("fns", ALL, "T T T T")


def comparison() -> Iterator[str]:
    """Comparison and selection."""
    yield from of_type("setp", ALL, "pred T T", COMPARISONS, ("", "ftz"))
    for kind, op, ftz, both in product(ALL, ("", "and", "or", "xor", "foo"), ("", "ftz"), (0, 1)):
        a, b = register(kind, 1), register(kind, 2)
        name = ".".join(m for m in ("setp", "eq", op, ftz, kind) if m)
        yield f"{name} %p1{'|%p2' if both else ''}, {a}, {b}{', %p3' if op else ''};"
        yield f"{name} {'_|%p2' if both else '_'}, {a}, {b}{', !%p3' if op else ''};"
    for to, kind, op, ftz in product(ALL, ALL, ("", "and", "foo"), ("", "ftz")):
        kinds = (to, kind, kind, *(("pred",) if op else ()))
        yield spelled("set", ("eq", op, ftz, to, kind), kinds)
    for kind, op in product(ALL, COMPARISONS):
        yield spelled("set", (op, "u32", kind), ("u32", kind, kind))
        yield spelled("set", (op, kind, kind), (kind, kind, kind))
    yield from of_type("selp", ALL, "T T T pred", ("", "ftz"))
    for kind, chooser, ftz in product(ALL, ALL, ("", "ftz")):
        yield spelled("slct", (ftz, kind, chooser), (kind, kind, kind, chooser))


def conversion() -> Iterator[str]:
    """cvt, cvt.pack."""
    plain = (*INTEGERS, "f16", "bf16", "f32", "f64", "tf32")
    halves = ("f16x2", "bf16x2")
    integral = ("rni", "rzi", "rmi", "rpi")
    for rounding, ftz, sat in product(
        (*ROUNDINGS, *integral, "rna", "rs"), ("", "ftz"), ("", "sat")
    ):
        for to, source in product(plain, plain):
            yield spelled("cvt", (rounding, ftz, sat, to, source), (to, source))
    ends = ("", "relu", "satfinite", "satfinite.relu", "relu.satfinite", "sat", "ftz")
    for rounding, end in product((*ROUNDINGS, "rna", "rs"), ends):
        for to in ("f16", "bf16", "tf32", *halves, *NARROW):
            yield spelled("cvt", (rounding, end, to, "f32"), (to, "f32"))
            yield spelled("cvt", (rounding, end, to, "f32"), (to, "f32", "f32"))
            yield spelled("cvt", (rounding, end, to, "f32"), (to, "f32", "f32", "b32"))
        for to, source in product((*halves, *NARROW), (*halves, *NARROW)):
            yield spelled("cvt", (rounding, end, to, source), (to, source))
        for to in ("s2f6x2",):
            for source in ("f32", "bf16x2"):
                for scaled in ("", "scaled::n2::ue8m0"):
                    kinds = (to, source, source) if source == "f32" else (to, source)
                    for scale in ((), ("b16",)):
                        yield spelled("cvt", (rounding, end, scaled, to, source), (*kinds, *scale))
        for source in ("s2f6x2", "e4m3x2", "e2m1x2"):
            for scale in ((), ("b16",)):
                yield spelled(
                    "cvt", (rounding, end, "scaled::n2::ue8m0", "bf16x2", source),
                    ("bf16x2", source, *scale),
                )  # fmt: skip
        for to in QUADS:
            yield (
                f"{'.'.join(m for m in ('cvt', rounding, end, to, 'f32') if m)}"
                f" {register(to, 0)}, {{%r2, %r3, %r4, %r5}}, %r6;"
            )
    for to, sat, source in product(
        ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"), ("sat", ""), ("s32", "u32")
    ):
        yield spelled("cvt", ("pack", sat, to, source), ("b32",) * 3)
        yield spelled("cvt", ("pack", sat, to, source, "b32"), ("b32",) * 4)


def movement() -> Iterator[str]:
    """mov, cvta, isspacep, mapa, shuffles, votes."""
    yield from of_type("mov", ALL, "T T")
    for kind, size, count in product(
        (*WORDS, "u32", "f32", "u64", "s64", "f64"), "bhrd", (2, 4, 8)
    ):
        parts = ", ".join(f"%{size}{i + 1}" for i in range(count))
        whole = register(kind, 8 - 1)
        yield f"mov.{kind} {whole}, {{{parts}}};"
        yield f"mov.{kind} {{{parts}}}, {whole};"
        yield f"mov.{kind} {{{parts.replace(f'%{size}1', '_', 1)}}}, {whole};"
    special = (
        "tid", "ntid", "laneid", "warpid", "nwarpid", "ctaid", "nctaid", "smid", "nsmid", "gridid",
        "is_explicit_cluster", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid",
        "cluster_ctarank", "cluster_nctarank", "lanemask_eq", "lanemask_le", "lanemask_lt",
        "lanemask_ge", "lanemask_gt", "clock", "clock_hi", "clock64", "globaltimer",
        "globaltimer_lo", "globaltimer_hi", "reserved_smem_offset_begin",
        "reserved_smem_offset_end", "reserved_smem_offset_cap", "total_smem_size",
        "aggr_smem_size", "dynamic_smem_size", "current_graph_exec",
    )  # fmt: skip
    for name, component, kind in product(special, ("", ".x", ".z", ".w"), ("u16", "u32", "u64")):
        yield f"mov.{kind} {register(kind, 0)}, %{name}{component};"
    yield "mov.u32 %r1, WARP_SZ;"
    spaces = (
        "", "global", "const", "shared", "shared::cta", "shared::cluster", "local", "param",
        "param::entry", "param::func", "generic",
    )  # fmt: skip
    for space, to, kind in product(spaces, ("", "to"), ("u32", "u64", "b64")):
        yield spelled("cvta", (to, space, kind), (kind, kind))
    for space, kind in product(spaces, ("u32", "u64")):
        yield spelled("isspacep", (space,), ("pred", kind))
        yield spelled("isspacep", (space, kind), ("pred", kind))
        yield spelled("mapa", (space, kind), (kind, kind, "u32"))
        yield spelled("mapa", (space, kind), (kind, kind, kind))
        yield spelled("getctarank", (space, kind), ("u32", kind))
    for mode, kind, sync in product(
        ("up", "down", "bfly", "idx", ""), ("b32", "u32", "f32", "b64"), ("sync", "")
    ):
        name = ".".join(m for m in ("shfl", sync, mode, kind) if m)
        first = register(kind, 0)
        for to in (first, f"{first}|%p1"):
            yield f"{name} {to}, {register(kind, 1)}, %r3, %r4, -1;"
            yield f"{name} {to}, {register(kind, 1)}, 1, 0x1f, %r5;"
            yield f"{name} {to}, {register(kind, 1)}, 1, 0x1f;"
    for sync, mode, kind in product(
        ("sync", ""), ("all", "any", "uni", "ballot", "foo"), ("pred", "b32", "u32")
    ):
        name = ".".join(m for m in ("vote", sync, mode, kind) if m)
        for source in ("%p2", "!%p2"):
            yield f"{name} {register(kind, 0)}, {source}, -1;"
            yield f"{name} {register(kind, 0)}, {source};"
    for mode, sync, kind in product(
        ("any", "all", ""), ("sync", ""), ("b32", "b64", "u32", "f32", "b16")
    ):
        name = ".".join(m for m in ("match", mode, sync, kind) if m)
        yield f"{name} %r1, {register(kind, 1)}, -1;"
        yield f"{name} %r1|%p1, {register(kind, 1)}, -1;"
    for op, mark, nan, kind in product(
        ("add", "min", "max", "and", "or", "xor", "inc"), ("", "abs"), ("", "NaN"),
        ("u32", "s32", "b32", "f32", "u64", "f16", "b64"),
    ):  # fmt: skip
        yield spelled("redux", ("sync", op, mark, nan, kind), (kind, kind, "b32"))
    for text in (
        "activemask.b32 %r1", "activemask.u32 %r1", "activemask %r1", "elect.sync %r1|%p1, -1",
        "elect.sync _|%p1, %r2", "elect.sync %p1, -1", "elect.sync %r1, -1", "elect %r1|%p1, -1",
        "elect.sync.b32 %r1|%p1, -1",
    ):  # fmt: skip
        yield f"{text};"


def control() -> Iterator[str]:
    """Exits, hints, waits of a thread."""
    for text in (
        "exit",
        "ret",
        "ret.uni",
        "exit.uni",
        "trap",
        "brkpt",
        "trap.uni",
        "@%p1 trap",
        "@!%p1 brkpt",
        "@%p1 exit",
        "@%p1 ret.uni",
        "nanosleep.u32 20",
        "nanosleep.u32 %r1",
        "nanosleep.u64 %d1",
        "nanosleep 20",
        "pmevent 1",
        "pmevent 15",
        "pmevent 16",
        "pmevent %r1",
        "pmevent.mask 0xff",
        "pmevent.mask 0x10000",
        "pmevent.foo 1",
        "pmevent 1, 2",
        "setmaxnreg.inc.sync.aligned.u32 128",
        "setmaxnreg.dec.sync.aligned.u32 24",
        "setmaxnreg.inc.sync.aligned.u32 129",
        "setmaxnreg.inc.sync.aligned.u32 264",
        "setmaxnreg.dec.sync.aligned.u32 16",
        "setmaxnreg.dec.sync.aligned.u32 %r1",
        "setmaxnreg.sync.aligned.u32 128",
        "setmaxnreg.inc.aligned.u32 128",
        "griddepcontrol.wait",
        "griddepcontrol.launch_dependents",
        "griddepcontrol",
        "griddepcontrol.foo",
        "stacksave.u64 %d1",
        "stackrestore.u64 %d1",
        "alloca.u64 %d1, 64",
        "discard.global.L2 [%d1], 128",
        "discard.L2 [%d1], 128",
        "applypriority.global.L2::evict_normal [%d1], 128",
        "applypriority.L2::evict_normal [%d1], 128",
        "prefetch.global.L1 [%d1]",
        "prefetch.global.L2 [%d1]",
        "prefetch.local.L1 [%d1]",
        "prefetch.L1 [%d1]",
        "prefetch.L2 [%d1]",
        "prefetchu.L1 [%d1]",
        "prefetchu.L2 [%d1]",
        "prefetch.global.L2::evict_last [%d1]",
        "prefetch.global.L2::evict_normal [%d1]",
        "prefetch.const.tensormap [%d1]",
        "prefetch.tensormap [%d1]",
        "prefetch.param.tensormap [%d1]",
        "prefetch.shared.L1 [%r1]",
        "createpolicy.fractional.L2::evict_last.b64 %d1",
        "createpolicy.fractional.L2::evict_last.b64 %d1, 0.5",
        "createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %d1, 1.0",
        "createpolicy.range.L2::evict_last.b64 %d1, [%d2], 64, 128",
        "createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %d1, [%d2], %r3, %r4",
        "createpolicy.cvt.L2.b64 %d1, 0x10000000",
        "createpolicy.cvt.L2.b64 %d1, %d2",
        "createpolicy.fractional.L2::foo.b64 %d1",
        "istypep.texref %p1, %d2",
    ):
        yield f"{text};"


def vectors(letter: str, count: int) -> str:
    """A vector of so many registers; one alone needs no braces."""
    return "{" + ", ".join(f"%{letter}{i}" for i in range(1, count + 1)) + "}"


MMA_TYPES = (
    "f16", "bf16", "tf32", "f64", "e4m3", "e5m2", "s8", "u8", "s4", "u4", "b1", "e2m1", "e2m3",
    "e3m2",
)  # fmt: skip


def matrices() -> Iterator[str]:
    """mma.sync with as many registers as the shape and the types have."""
    width = {
        "f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s4": 4, "u4": 4, "b1": 1,
    }  # fmt: skip
    shapes = [(8, 8, 4), (8, 8, 16), (8, 8, 32), (8, 8, 128)] + [
        (16, 8, k) for k in (4, 8, 16, 32, 64, 128, 256)
    ]
    for (m, n, k), a, b in product(shapes, MMA_TYPES, MMA_TYPES):
        if a != b and {a, b} != {"f16", "bf16"} and a[0] not in "sue":
            continue
        for to, end in product(("f16", "f32", "f64", "s32"), ("", "satfinite")):
            each = 64 if a == "f64" else 32
            d = m * n * {"f16": 16, "f64": 64}.get(to, 32) // 32 // (64 if to == "f64" else 32)
            ra = m * k * width.get(a, 8) // 32 // each
            rb = n * k * width.get(b, 8) // 32 // each
            if not (d and ra and rb):
                continue
            of = "d" if a == "f64" else "r"
            ofd = "d" if to == "f64" else "r"
            ends = ((end,) if end else ("",)) if a != "b1" else ("xor.popc", "and.popc")
            for last in ends:
                for kind in ("", "kind::f8f6f4") if a[0] == "e" else ("",):
                    mods: tuple[str, ...] = (kind, "" if a == "b1" else last, to, a, b, to)
                    if a == "b1":
                        mods += (last,)
                    name = ".".join(
                        x for x in ("mma", "sync", "aligned", f"m{m}n{n}k{k}", "row", "col", *mods)
                        if x
                    )  # fmt: skip
                    yield (
                        f"{name} {vectors(ofd, d)}, {vectors(of, ra)}, {vectors(of, rb)},"
                        f" {vectors(ofd, d)};"
                    )


def fragments() -> Iterator[str]:
    """wmma.load, wmma.store, wmma.mma."""
    shapes = (
        "m16n16k16", "m8n32k16", "m32n8k16", "m16n16k8", "m8n8k4", "m8n8k32", "m8n8k128",
        "m16n8k16",
    )  # fmt: skip
    kinds = (*MMA_TYPES[:11], "f32", "s32")
    for shape, layout, kind, count in product(shapes, ("row", "col", ""), kinds, (1, 2, 4, 8)):
        registers = vectors("d" if kind == "f64" else "r", count)
        name = ".".join(x for x in ("sync.aligned", layout, shape) if x)
        for which in "abcd":
            yield f"wmma.load.{which}.{name}.{kind} {registers}, [%d9];"
        yield f"wmma.load.a.{name}.shared.{kind} {registers}, [%r9], %r8;"
        yield f"wmma.store.d.{name}.global.{kind} [%d9], {registers}, 16;"
    sums = ("f16", "f32", "f64", "s32")
    for shape, a, b, to, from_ in product(shapes, MMA_TYPES[:11], MMA_TYPES[:11], sums, sums):
        if (a != b and (a, b) != ("s8", "u8")) or (to != from_ and {to, from_} != {"f16", "f32"}):
            continue
        if a == "f16" and shape in ("m8n8k32", "m8n8k128"):
            continue  # ptxas 13.0 crashes
        types = (to, from_) if a == "f16" else (to, a, b, from_)
        d, c = (
            vectors("d", 2) if t == "f64" else vectors("r", 4 if t == "f16" else 8)
            for t in (to, from_)
        )
        if shape.startswith("m8n8"):
            d, c = (vectors("d" if t == "f64" else "r", 2) for t in (to, from_))
        letter = "d" if a == "f64" else "r"
        ends = [("", ""), ("", "satfinite")]
        if a == "b1":  # ptxas 13.0 crashes where others have an operation
            ends = [("xor.popc", ""), ("and.popc", "")]
        for op, end in ends:
            name = ".".join(
                x for x in ("wmma.mma", op, "sync.aligned.row.col", shape, *types, end) if x
            )
            for i, j in ((8, 8), (4, 4), (2, 2), (1, 1), (2, 8), (8, 2), (1, 4), (4, 1)):
                yield f"{name} {d}, {vectors(letter, i)}, {vectors(letter, j)}, {c};"


GROUPS = (arithmetic, video, bits, comparison, conversion, movement, control, matrices, fragments)
