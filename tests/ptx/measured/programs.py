"""Random small PTX kernels: straight-line code, branches that lanes take differently and jump
tables, loops, early exits, calls, instructions for the lanes of a warp that are there, arrays in
local and shared memory, atomic operations. Only instructions whose results the PTX ISA defines
exactly. Numbers of each type have registers of that type: where a register without a type holds a
float and is then the amount of a 64-bit shift, ptxas 13.0 converts it to an integer.
"""

from __future__ import annotations

from random import Random

import numpy as np

from tests.ptx.measured.case import Bytes, Case, Part, Rule

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
max.ftz.f32 f f f|add.sat.f32 f f f|div.rz.f32 f f f|sqrt.rp.f32 f f
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

# Of lanes that are named by a mask, `m`: those that are here.
WARP = """
shfl.sync.idx.b32 r r r 31 m|shfl.sync.bfly.b32 r|p r #4 31 m|shfl.sync.up.b32 r|p r #4 0 m
shfl.sync.down.b32 r|p r #4 31 m|shfl.sync.idx.b32 r|p r r 6175 m|shfl.sync.up.b32 r|p r #3 4096 m
shfl.sync.down.b32 r|p r #4 7199 m|shfl.sync.bfly.b32 r|p r #5 6175 m
vote.sync.ballot.b32 r p m|vote.sync.any.pred p p m
vote.sync.all.pred p p m|vote.sync.uni.pred p p m|redux.sync.add.s32 r r m
redux.sync.min.u32 r r m|redux.sync.max.s32 r r m|redux.sync.xor.b32 r r m
redux.sync.or.b32 r r m|redux.sync.and.b32 r r m|redux.sync.add.u32 r r m
redux.sync.min.s32 r r m|redux.sync.max.u32 r r m
match.any.sync.b32 r r m|match.any.sync.b64 r l m|match.all.sync.b32 r|p r m
match.all.sync.b64 r|p l m|elect.sync r|p m
"""
# Accesses to what a thread has of its own: 64 bytes of shared memory at %own, of local memory at
# %loc, both read and written anywhere at a multiple of the size.
MEMORY = """
st.S.b8 o1 r|st.S.b16 o2 h|st.S.b32 o4 r|st.S.b64 o8 l|st.S.f32 o4 f
st.S.v2.b32 o8 {r,r}|st.S.v4.b32 o16 {r,r,r,r}|st.S.v2.b64 o16 {l,l}|st.S.v4.f32 o16 {f,f,f,f}
st.S.v4.b8 o4 {r,r,r,r}|st.S.v2.b16 o4 {h,h}
ld.S.b8 r o1|ld.S.u8 r o1|ld.S.s8 r o1|ld.S.u8 l o1|ld.S.s8 l o1|ld.S.u16 r o2|ld.S.s16 r o2
ld.S.b16 h o2|ld.S.s8 h o1|ld.S.s16 l o2|ld.S.u32 l o4|ld.S.s32 l o4|ld.S.b32 r o4|ld.S.b64 l o8
ld.S.f32 f o4|ld.S.v2.b32 {r,r} o8|ld.S.v4.b32 {r,r,r,r} o16|ld.S.v2.b64 {l,l} o16
ld.S.v4.u8 {r,r,r,r} o4|ld.S.v4.s8 {r,r,r,r} o4|ld.S.v2.u16 {r,r} o4|ld.S.v2.s16 {r,r} o4
ld.S.v4.f32 {f,f,f,f} o16
"""
# On a word, or 8 bytes, of shared memory that is the thread's own: what they return is defined.
ATOMIC = """
atom.X.add.u32 r o4 r|atom.X.add.u64 l o8 l|atom.X.min.s32 r o4 r|atom.X.max.u32 r o4 r
atom.X.min.u64 l o8 l|atom.X.max.s64 l o8 l|atom.X.and.b32 r o4 r|atom.X.or.b64 l o8 l
atom.X.xor.b32 r o4 r|atom.X.inc.u32 r o4 r|atom.X.dec.u32 r o4 r|atom.X.exch.b32 r o4 r
atom.X.exch.b64 l o8 l|atom.X.cas.b32 r o4 r r|atom.X.cas.b64 l o8 l l|atom.X.cas.b16 h o2 h h
red.X.add.s32 o4 r|red.X.min.u32 o4 r|red.X.or.b32 o4 r|red.X.inc.u32 o4 r|red.X.xor.b64 o8 l
"""
# On words that all threads share: any order gives the same.
SHARED = "red.shared.add.u32|red.shared.xor.b32|red.shared.max.s32|red.shared.or.b32"
_PLAIN, _WARP, _MEMORY, _ATOMIC = (
    [each for line in table.strip().splitlines() for each in line.split("|")]
    if table is not WARP
    else [each.replace("!", "|") for line in table.strip().splitlines()
          for each in line.replace("r|p", "r!p").split("|")]
    for table in (PLAIN, WARP, MEMORY, ATOMIC)
)  # fmt: skip
# ptxas 13.0 drops the guard of a testp, and of a division by a number of itself.
_GUARDED = [
    each
    for each in _PLAIN
    if ";" not in each and not each.startswith(("testp", "div", "sqrt", "rcp"))
]
_NAMES = {"l": "rd", "d": "fd"}
_OWN = 64  # bytes
_COUNTS = {"r": WORDS, "l": LONGS, "p": 4, "f": FLOATS, "d": DOUBLES, "h": 4}


class _Body:
    """Attributes: members: the register with the lanes that are here; None where no warp
    instruction may stand.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.labels = 0
        self.left = False

    def register(self, kind: str) -> str:
        return f"%{_NAMES.get(kind, kind)}{self.random.randrange(_COUNTS[kind])}"

    def operand(self, kind: str, members: str = "", base: str = "") -> str:
        random = self.random
        if kind.startswith("{"):
            kinds = kind[1:-1].split(",")
            chosen = random.sample(range(_COUNTS[kinds[0]]), len(kinds))
            named = ", ".join(f"%{_NAMES.get(kinds[0], kinds[0])}{n}" for n in chosen)
            return f"{{{named}}}"
        if kind.startswith("#"):
            return str(random.randrange(1 << int(kind[1:] or 8)))
        if kind == "m":
            return members
        if "|" in kind:
            return "|".join(self.register(k) for k in kind.split("|"))
        if base and kind[0] == "o" and kind[1:].isdigit():
            step = int(kind[1:])
            return f"[{base}+{step * random.randrange(_OWN // step)}]"
        return self.register(kind) if kind in _COUNTS else kind

    def instruction(self, table: list[str], guard: str = "", members: str = "") -> None:
        for part in self.random.choice(table).split("; "):
            name, *kinds = part.split()
            chosen = [self.operand(kind, members) for kind in kinds]
            if name.startswith("shfl") and (self.left or members != "%all"):
                # of a lane that is here: what others hold nothing says
                self.lines.append(f"    bfind.u32 %r20, {members};")
                name, chosen[2:4] = "shfl.sync.idx.b32", ["%r20", "31"]
            if name.startswith(
                ("min.f32", "max.f32", "min.f64", "max.f64")
            ):  # of one number: ptxas keeps its NaN
                chosen[1:] = self.random.sample(["%f0", "%f1", "%f2"], 2)
                chosen[1:] = (
                    [c.replace("%f", "%fd") for c in chosen[1:]] if "64" in name else chosen[1:]
                )
            operands = ", ".join(chosen)
            self.lines.append(f"    {guard}{name} {operands};")

    def access(self, guard: str = "") -> None:
        """Of a thread's own memory."""
        random = self.random
        if random.random() < 0.3:
            name, *kinds = random.choice(_ATOMIC).split()
            space, base = random.choice([("shared", "%own"), ("global", "%glo")])
            name = name.replace(".X.", f".{space}.")
        else:
            name, *kinds = random.choice(_MEMORY).split()
            space, base = random.choice(
                [("shared", "%own"), ("local", "%loc"), ("global", "%glo"), ("", "%gen"),
                 ("volatile.shared", "%own"), ("relaxed.gpu.global", "%glo")]
            )  # fmt: skip
            name = name.replace(".S.", f".{space}." if space else ".")
            if space.startswith(("volatile", "relaxed")) and ".b8" in name:
                name = name.replace(".b8", ".u8")
        operands = ", ".join(self.operand(kind, base=base) for kind in kinds)
        self.lines.append(f"    {guard}{name} {operands};")

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def predicate(self) -> str:
        return f"%p{self.random.randrange(4)}"

    def block(self, depth: int, members: str, *, exits: bool = False) -> None:
        """Some instructions. `members`: the register of the mask of the lanes that are here; at
        the outermost level lanes may leave.
        """
        random = self.random
        for _ in range(random.randint(3, 8)):
            choice = random.random()
            if choice < 0.08 and depth:
                self.branch(depth - 1, members)
            elif choice < 0.12 and depth:
                self.loop(depth - 1, members)
            elif choice < 0.16 and depth:
                self.table(depth - 1, members)
            elif choice < 0.175 and exits:
                self.leave(members)
            elif choice < 0.3:
                self.instruction(_WARP, members=members)
            elif choice < 0.34:
                self.call()
            elif choice < 0.37:
                self.lines.append(
                    f"    {random.choice(SHARED.split('|'))} [shared_words+"
                    f"{{}}], {self.register('r')};".format("SLOT")
                )
                slot = ["add", "xor", "max", "or"].index(self.lines[-1].split(".")[2])
                self.lines[-1] = self.lines[-1].replace("SLOT", str(4 * slot))
            elif choice < 0.5:
                self.access()
            elif choice < 0.6:
                guard = f"@{random.choice(['', '!'])}{self.predicate()} "
                if random.random() < 0.3:
                    self.access(guard)
                else:
                    self.instruction(_GUARDED, guard)
            else:
                self.instruction(_PLAIN)

    def members(self, condition: str, members: str) -> str:
        """A register with those of some lanes for which a predicate holds."""
        self.labels += 1
        name = f"%m{self.labels}"
        self.lines.append(f"    vote.sync.ballot.b32 {name}, {condition}, {members};")
        return name

    def branch(self, depth: int, members: str) -> None:
        other, end, p = self.label(), self.label(), self.predicate()
        taken = self.members(p, members)
        rest = self.members(f"!{p}", members)
        self.lines.append(f"    @{p} bra {other};")
        self.block(depth, rest)
        self.lines += [f"    bra {end};", f"{other}:"]
        self.block(depth, taken)
        self.lines.append(f"{end}:")
        self.lines.append(f"    bar.warp.sync {members};")

    def table(self, depth: int, members: str) -> None:
        """A jump to one of three labels."""
        labels, end = [self.label() for _ in range(3)], self.label()
        index, targets = f"%n{depth + 3}", f"targets{self.labels}"
        chosen = self.register("r")
        self.lines += [f"    and.b32 {index}, {chosen}, 3;", f"    min.u32 {index}, {index}, 2;"]
        masks = []
        for number in range(3):
            self.lines.append(f"    setp.eq.u32 %q{depth}, {index}, {number};")
            masks.append(self.members(f"%q{depth}", members))
        self.lines += [
            f"{targets}: .branchtargets {', '.join(labels)};",
            f"    brx.idx {index}, {targets};",
        ]
        for label, mask in zip(labels, masks, strict=True):
            self.lines.append(f"{label}:")
            self.block(depth, mask)
            self.lines.append(f"    bra {end};")
        self.lines += [f"{end}:", f"    bar.warp.sync {members};"]

    def leave(self, members: str) -> None:
        """Some lanes go to the end, where all write what they have."""
        p = self.predicate()
        self.left = True
        self.lines += [
            f"    vote.sync.ballot.b32 {members}, !{p}, {members};", f"    @{p} bra END;",
        ]  # fmt: skip

    def call(self) -> None:
        a, b, to = (self.register("r") for _ in range(3))
        self.lines += [
            "    { .param .b32 x; .param .b32 y; .param .b32 z;",
            f"    st.param.b32 [x], {a}; st.param.b32 [y], {b};",
            "    call.uni (z), helper, (x, y);",
            f"    ld.param.b32 {to}, [z]; }}",
        ]

    def loop(self, depth: int, members: str) -> None:
        """A few trips, not as many in each lane."""
        again, counter = self.label(), f"%n{depth}"
        self.labels += 1
        inside = f"%m{self.labels}"
        self.lines += [
            f"    mov.b32 {inside}, {members};",
            f"    and.b32 {counter}, %r{self.random.randrange(WORDS)}, 3;", f"{again}:",
        ]  # fmt: skip
        self.block(depth, inside)
        self.lines += [
            f"    sub.s32 {counter}, {counter}, 1;",
            f"    setp.ge.s32 %q{depth}, {counter}, 0;",
            f"    vote.sync.ballot.b32 {inside}, %q{depth}, {inside};",
            f"    @%q{depth} bra {again};",
            f"    bar.warp.sync {members};",
        ]


def _helper(random: Random) -> str:
    """A function of two words that takes one of two ways."""
    ways = [each for each in _PLAIN if set(each.split()[1:]) <= {"r"} and ";" not in each]
    body = []
    for _ in range(4):
        name, *kinds = random.choice(ways).split()
        body.append(f"{name} {', '.join(f'%r{random.randrange(3)}' for _ in kinds)};")
    return "\n".join([
        ".func (.param .b32 z) helper(.param .b32 x, .param .b32 y)", "{",
        ".reg .b32 %r<3>; .reg .pred %p;",
        "ld.param.b32 %r0, [x]; ld.param.b32 %r1, [y]; mov.b32 %r2, 77;",
        "setp.lt.s32 %p, %r0, %r1;", "@%p bra OTHER;", *body[:2], "OTHER:", *body[2:],
        f"st.param.b32 [z], %r{random.randrange(3)};", "ret;", "}",
    ])  # fmt: skip


def kernel(seed: int, threads: int) -> str:
    """A kernel that reads INPUTS words of each thread, and writes all its registers (WORDS words,
    LONGS 64-bit numbers, a word of predicates), its own bytes of three kinds of memory, and the
    words that all threads share.
    """
    random = Random(seed)
    body = _Body(random)
    for _ in range(4):
        body.block(2, "%all", exits=True)
    read = [f"    ld.global.b32 %r{i}, [%rd9+{4 * i}];" for i in range(INPUTS)]
    read += [f"    xor.b32 %r{i}, %r{i - INPUTS}, {seed % 97 + i};" for i in range(INPUTS, WORDS)]
    read += [f"    mov.b64 %rd{i}, {{%r{i}, %r{i + 3}}};" for i in range(LONGS)]
    read += [f"    mov.b32 %f{i}, %r{i};" for i in range(FLOATS)]
    read += [f"    cvt.f64.f32 %fd{i}, %f{i + 1};" for i in range(DOUBLES)]
    read += [f"    setp.lt.s32 %p{i}, %r{i}, %r{i + 1};" for i in range(4)]
    read += [f"    cvt.u16.u32 %h{i}, %r{i + 2};" for i in range(4)]
    for space, base in (("shared", "%own"), ("local", "%loc"), ("global", "%glo")):
        read += [
            f"    st.{space}.b32 [{base}+{4 * i}], %r{(i * 5 + len(space)) % WORDS};"
            for i in range(_OWN // 4)
        ]
    size = result_bytes(1) - 3 * _OWN
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
    # bytes of doubles may hold the NaN that is left open: only what integers wrote is compared
    for place, (space, base) in enumerate(
        (("shared", "%own"), ("local", "%loc"), ("global", "%glo"))
    ):
        for i in range(_OWN // 8):
            write += [
                f"    ld.{space}.b64 %rd8, [{base}+{8 * i}];",
                f"    st.global.b64 [%rd10+{size + place * _OWN + 8 * i}], %rd8;",
            ]
    shared = [
        "    bar.sync 0;", "    setp.lt.u32 %q0, %me, 4;", "    @!%q0 bra DONE;",
        "    mov.u32 %r20, shared_words;", "    mad.lo.u32 %r20, %me, 4, %r20;",
        "    ld.shared.b32 %r19, [%r20];", "    mad.wide.u32 %rd8, %me, 4, %rd11;",
        f"    st.global.b32 [%rd8+{threads * result_bytes(1)}], %r19;", "DONE:",
    ]  # fmt: skip
    return "\n".join([
        ".version 8.7", ".target sm_90a", ".address_size 64",
        ".shared .align 16 .b8 shared_words[16];",
        f".shared .align 16 .b8 shared_own[{threads * _OWN}];",
        _helper(random),
        ".visible .entry k(.param .u64 a, .param .u64 b)",
        f".maxntid {threads}",
        "{",
        f"    .reg .pred %p<5>, %q<4>; .reg .b32 %r<21>, %n<8>, %m<{body.labels + 1}>;",
        "    .reg .b32 %all, %own, %loc, %me; .reg .b64 %rd<12>, %glo, %gen; .reg .b16 %h<4>;",
        f"    .reg .f32 %f<{FLOATS + DOUBLES}>; .reg .f64 %fd<{DOUBLES}>;",
        f"    .local .align 16 .b8 local_own[{_OWN}];",
        "    ld.param.u64 %rd9, [a];", "    ld.param.u64 %rd10, [b];", "    mov.u64 %rd11, %rd10;",
        "    mov.u32 %me, %tid.x;",
        f"    mad.wide.u32 %rd9, %me, {4 * INPUTS}, %rd9;",
        f"    mad.wide.u32 %rd10, %me, {result_bytes(1)}, %rd10;",
        f"    mov.u32 %own, shared_own; mad.lo.u32 %own, %me, {_OWN}, %own;",
        "    mov.u32 %loc, local_own; mov.b32 %all, -1;",
        "    setp.lt.u32 %q0, %me, 4; mov.u32 %r20, shared_words;",
        "    mad.lo.u32 %r20, %me, 4, %r20; mov.b32 %r19, 0;",
        "    @%q0 st.shared.b32 [%r20], %r19;",
        "    bar.sync 0;",
        f"    mad.wide.u32 %glo, %me, {_OWN}, %rd11; add.u64 %glo, %glo, "
        f"{threads * result_bytes(1) + 16};",
        # a generic address: of shared memory in some kernels, of local memory in others
        *(["    cvt.u64.u32 %gen, %own; cvta.shared.u64 %gen, %gen;"] if seed % 3 == 0 else
          ["    cvt.u64.u32 %gen, %loc; cvta.local.u64 %gen, %gen;"] if seed % 3 == 1 else
          ["    mov.b64 %gen, %glo;"]),
        *read, *body.lines, "END:", *write, *shared,
        "    ret;", "}", "",
    ])  # fmt: skip


def result_bytes(threads: int) -> int:
    """The size of what the threads write."""
    return threads * (4 * (WORDS + FLOATS + DOUBLES) + 8 * LONGS + 8 + 3 * _OWN)


THREADS = 64


def words(random: np.random.Generator) -> Bytes:
    """Random bits, small numbers, floats of all magnitudes and special ones."""
    shape = THREADS * INPUTS
    special = np.array(
        [0, 1, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3F800000, 0x7F800000, 0x7FC00000,
         0x00000001, 0x807FFFFF, 0x00800000, 0x4F000000, 0x3C003C00],
        np.uint32,
    )  # fmt: skip
    kinds = [
        random.integers(0, 2**32, shape, dtype=np.uint64).astype(np.uint32),
        random.integers(-40, 40, shape).astype(np.int32).view(np.uint32),
        random.standard_normal(shape).astype(np.float32).view(np.uint32),
        random.choice(special, shape),
    ]
    return np.choose(random.integers(0, len(kinds), shape), kinds).astype(np.uint32).view(np.uint8)


def case(seed: int) -> Case:
    """The kernel of a seed with its input."""
    size = result_bytes(THREADS) + 16
    return Case(
        f"programs/{seed}", kernel(seed, THREADS), words(np.random.default_rng(seed)),
        np.zeros(size + THREADS * _OWN, np.uint8), (Part("random program", 0, size, Rule()),),
        THREADS,
    )  # fmt: skip
