"""Random small PTX kernels: straight-line code, branches that lanes take differently, loops, and
instructions for the lanes of a warp. Only instructions whose results the PTX ISA defines exactly.
Numbers of each type have registers of that type: where a register without a type holds a float and
is then the amount of a 64-bit shift, ptxas 13.0 converts it to an integer.
"""

from __future__ import annotations

from random import Random

INPUTS, WORDS, LONGS, FLOATS, DOUBLES = 6, 12, 4, 8, 4
# Instructions by the kinds of their registers, the destination first: r is a word, l has 64 bits,
# f and d are floats of 32 and 64 bits, p is a predicate; # is a small constant.
PLAIN = """
add.u32 r r r|sub.s32 r r r|mul.lo.s32 r r r|mul.hi.s32 r r r|mul.hi.u32 r r r|mad.lo.s32 r r r r
mad.hi.u32 r r r r|mul24.lo.s32 r r r|mul24.lo.u32 r r r|sad.s32 r r r r|sad.u32 r r r r
min.s32 r r r|max.s32 r r r|min.u32 r r r|max.u32 r r r|neg.s32 r r|and.b32 r r r|or.b32 r r r
xor.b32 r r r|not.b32 r r|cnot.b32 r r|lop3.b32 r r r r #|shl.b32 r r r|shr.u32 r r r
shr.s32 r r r|shf.l.wrap.b32 r r r r|shf.r.clamp.b32 r r r r|popc.b32 r r|clz.b32 r r
bfind.u32 r r|bfind.s32 r r|bfind.shiftamt.u32 r r|brev.b32 r r|bfe.u32 r r r r|bfe.s32 r r r r
bfi.b32 r r r r r|prmt.b32 r r r r|prmt.b32 r r r #|dp4a.u32.u32 r r r r|dp4a.s32.u32 r r r r
dp2a.lo.s32.s32 r r r r|szext.wrap.s32 r r r|bmsk.clamp.b32 r r r|add.cc.u32 r r r; addc.u32 r r r
sub.cc.u32 r r r; subc.u32 r r r|mul.wide.u32 l r r|mul.wide.s32 l r r|mad.wide.s32 l r r l
add.u64 l l l|sub.s64 l l l|mul.lo.s64 l l l|mul.hi.u64 l l l|mul.hi.s64 l l l|mad.lo.u64 l l l l
min.s64 l l l|max.u64 l l l|shl.b64 l l r|shr.s64 l l r|shr.u64 l l r|xor.b64 l l l|and.b64 l l l
popc.b64 r l|clz.b64 r l|bfe.u64 l l 7 21|brev.b64 l l|cvt.u32.u64 r l|cvt.s64.s32 l r
cvt.u64.u32 l r|mov.b64 l {r,r}|mov.b64 {r,r} l|bfind.s64 r l|not.b64 l l|neg.s64 l l
add.rn.f32 f f f|add.rz.f32 f f f|add.rm.ftz.f32 f f f|sub.rp.f32 f f f|mul.rn.f32 f f f
mul.rz.f32 f f f|mul.rm.sat.f32 f f f|fma.rn.f32 f f f f|fma.rz.f32 f f f f|fma.rp.ftz.f32 f f f f
div.rn.f32 f f f|sqrt.rn.f32 f f|rcp.rn.f32 f f|min.f32 f f f|max.f32 f f f|min.NaN.f32 f f f
abs.f32 f f|neg.f32 f f|max.ftz.f32 f f f|add.sat.f32 f f f|div.rz.f32 f f f|sqrt.rp.f32 f f
add.rn.f64 d d d|mul.rz.f64 d d d|fma.rn.f64 d d d d|div.rn.f64 d d d|sqrt.rn.f64 d d
min.f64 d d d|max.f64 d d d|cvt.f64.f32 d f
cvt.rn.f32.s32 f r|cvt.rz.f32.u32 f r|cvt.rm.f32.s64 f l|cvt.rp.f32.u64 f l|cvt.rni.s32.f32 r f
cvt.rzi.u32.f32 r f|cvt.rmi.s32.f32 r f|cvt.rpi.s64.f32 l f|cvt.rzi.s32.f64 r d
cvt.rni.f32.f32 f f|cvt.rn.f64.s64 d l|cvt.rn.f16x2.f32 r f f|cvt.rn.bf16x2.f32 r f f
cvt.rz.bf16x2.f32 r f f|add.rn.f16x2 r r r|mul.rn.f16x2 r r r|fma.rn.f16x2 r r r r
fma.rn.relu.f16x2 r r r r|fma.rn.bf16x2 r r r r|min.f16x2 r r r|max.NaN.bf16x2 r r r
add.rn.bf16x2 r r r|mul.rn.bf16x2 r r r|sub.rn.f16x2 r r r|setp.lt.s32 p r r|setp.ge.u32 p r r
setp.eq.s32 p r r|setp.lt.f32 p f f|setp.geu.f32 p f f|setp.neu.f32 p f f|setp.num.f32 p f f
setp.gt.s64 p l l|setp.lo.u32 p r r|setp.le.f64 p d d|and.pred p p p|or.pred p p p|xor.pred p p p
not.pred p p|selp.b32 r r r p|selp.b64 l l l p|set.lt.u32.s32 r r r|set.gt.u32.f32 r f f
slct.s32.s32 r r r r|slct.f32.f32 f f f f|testp.finite.f32 p f|testp.subnormal.f32 p f
copysign.f32 f f f|mov.b32 f r|mov.b32 r f|mov.b32 f r|selp.f32 f f f p|selp.f64 d d d p
"""
WARP = """
shfl.sync.idx.b32 r r r 31 -1|shfl.sync.bfly.b32 r r #4 31 -1|shfl.sync.up.b32 r r #4 0 -1
shfl.sync.down.b32 r r #4 31 -1|vote.sync.ballot.b32 r p -1|vote.sync.any.pred p p -1
vote.sync.all.pred p p -1|vote.sync.uni.pred p p -1|redux.sync.add.s32 r r -1
redux.sync.min.u32 r r -1|redux.sync.max.s32 r r -1|redux.sync.xor.b32 r r -1
match.any.sync.b32 r r -1
"""
_PLAIN, _WARP = (
    [each for line in table.strip().splitlines() for each in line.split("|")]
    for table in (PLAIN, WARP)
)


_NAMES = {"l": "rd", "d": "fd"}


class _Body:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.labels = 0

    def operand(self, kind: str) -> str:
        random = self.random
        if kind.startswith("{"):
            low, high = random.sample(range(WORDS), 2)
            return f"{{%r{low}, %r{high}}}"
        if kind.startswith("#"):
            return str(random.randrange(1 << int(kind[1:] or 8)))
        counts = {"r": WORDS, "l": LONGS, "p": 4, "f": FLOATS, "d": DOUBLES}
        if kind not in counts:
            return kind
        return f"%{_NAMES.get(kind, kind)}{random.randrange(counts[kind])}"

    def instruction(self, table: list[str], guard: str = "") -> None:
        for part in self.random.choice(table).split("; "):
            name, *kinds = part.split()
            chosen = [self.operand(kind) for kind in kinds]
            if name.startswith(
                ("min.f32", "max.f32", "min.f64", "max.f64")
            ):  # of one number: ptxas keeps its NaN
                chosen[1:] = self.random.sample(["%f0", "%f1", "%f2"], 2)
                chosen[1:] = (
                    [c.replace("%f", "%fd") for c in chosen[1:]] if "64" in name else chosen[1:]
                )
            operands = ", ".join(chosen)
            self.lines.append(f"    {guard}{name} {operands};")

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def block(self, depth: int, *, whole: bool) -> None:
        """Some instructions; `whole`: all lanes are here."""
        for _ in range(self.random.randint(3, 8)):
            choice = self.random.random()
            if choice < 0.1 and depth:
                self.branch(depth - 1)
            elif choice < 0.15 and depth:
                self.loop(depth - 1)
            elif choice < 0.3 and whole:
                self.instruction(_WARP)
            elif choice < 0.4:
                self.instruction(
                    [each for each in _PLAIN if ";" not in each],
                    f"@{self.random.choice(['', '!'])}%p{self.random.randrange(4)} ",
                )
            else:
                self.instruction(_PLAIN)

    def branch(self, depth: int) -> None:
        other, end = self.label(), self.label()
        self.lines.append(f"    @%p{self.random.randrange(4)} bra {other};")
        self.block(depth, whole=False)
        self.lines += [f"    bra {end};", f"{other}:"]
        self.block(depth, whole=False)
        self.lines.append(f"{end}:")

    def loop(self, depth: int) -> None:
        """A few trips, not as many in each lane."""
        again, counter = self.label(), f"%n{depth}"
        self.lines += [f"    and.b32 {counter}, %r{self.random.randrange(WORDS)}, 3;", f"{again}:"]
        self.block(depth, whole=False)
        self.lines += [
            f"    sub.s32 {counter}, {counter}, 1;",
            f"    setp.ge.s32 %q{depth}, {counter}, 0;",
            f"    @%q{depth} bra {again};",
        ]


def kernel(seed: int, threads: int) -> str:
    """A kernel that reads INPUTS words and as many 64-bit numbers of each thread, and writes all
    its registers: WORDS words, LONGS 64-bit numbers, and a word of predicates.
    """
    body = _Body(Random(seed))
    for _ in range(4):
        body.block(2, whole=True)
    read = [f"    ld.global.b32 %r{i}, [%rd9+{4 * i}];" for i in range(INPUTS)]
    read += [f"    xor.b32 %r{i}, %r{i - INPUTS}, {seed % 97 + i};" for i in range(INPUTS, WORDS)]
    read += [f"    mov.b64 %rd{i}, {{%r{i}, %r{i + 3}}};" for i in range(LONGS)]
    read += [f"    mov.b32 %f{i}, %r{i};" for i in range(FLOATS)]
    read += [f"    cvt.f64.f32 %fd{i}, %f{i + 1};" for i in range(DOUBLES)]
    read += [f"    setp.lt.s32 %p{i}, %r{i}, %r{i + 1};" for i in range(4)]
    size = result_bytes(1)
    write = [f"    st.global.b64 [%rd10+{8 * i}], %rd{i};" for i in range(LONGS)]
    write += [f"    st.global.b32 [%rd10+{8 * LONGS + 4 * i}], %r{i};" for i in range(WORDS)]
    # of doubles, as floats, but for NaN: the ISA leaves open which arithmetic on doubles gives
    for i in range(DOUBLES):
        write += [
            f"    testp.number.f64 %q0, %fd{i};",
            f"    selp.f64 %fd{i}, %fd{i}, 0d0000000000000000, %q0;",
            f"    cvt.rn.f32.f64 %f{FLOATS + i}, %fd{i};",
        ]
    write += [
        f"    st.global.f32 [%rd10+{8 * LONGS + 4 * (WORDS + i)}], %f{i};"
        for i in range(FLOATS + DOUBLES)
    ]
    at = size - 8
    for i in range(4):
        write += [
            f"    selp.b32 %r20, 1, 0, %p{i};",
            f"    st.global.b8 [%rd10+{at + i}], %r20;",
        ]
    return "\n".join([
        ".version 8.7", ".target sm_90a", ".address_size 64",
        ".visible .entry k(.param .u64 a, .param .u64 b)",
        f".maxntid {threads}",
        "{",
        "    .reg .pred %p<5>, %q<3>; .reg .b32 %r<21>, %n<3>; .reg .b64 %rd<12>;",
        f"    .reg .f32 %f<{FLOATS + DOUBLES}>; .reg .f64 %fd<{DOUBLES}>;",
        "    ld.param.u64 %rd9, [a];", "    ld.param.u64 %rd10, [b];",
        "    mov.u32 %r20, %tid.x;",
        f"    mad.wide.u32 %rd9, %r20, {4 * INPUTS}, %rd9;",
        f"    mad.wide.u32 %rd10, %r20, {size}, %rd10;",
        *read, *body.lines, *write,
        "    ret;", "}", "",
    ])  # fmt: skip


def result_bytes(threads: int) -> int:
    """The size of what a kernel writes."""
    return threads * (4 * (WORDS + FLOATS + DOUBLES) + 8 * LONGS + 8)
