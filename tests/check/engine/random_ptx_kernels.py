"""Random small kernels in PTX, whose warps hand data on through whatever can order them.

A kernel is a sequence of handovers: one warp writes a word, and says so; another one waits, and
reads it. What it says so with is drawn: an mbarrier (with a peek before the wait, or not), a named
barrier, a flag with a release or a fence, `cp.async.mbarrier.arrive`. Between them come steps that
belong to no handover, and then a line or two is taken out. So about half of the kernels are right.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tilepipe import ptx

BARRIERS = 4
FLAGS = 2  # words that strong accesses reach, in shared and in global memory each
WORDS = 2  # words of data, as many


@dataclass(frozen=True)
class Line:
    """Some instructions of a warp, which are kept or taken out together."""

    text: str
    kept: bool = False  # part of a loop or of a branch: not taken out at random


@dataclass(frozen=True)
class Program:
    """A kernel: the lines of each warp, of the first CTA and then of the second.

    Attributes:
        warps: of a CTA.
        counts: what each mbarrier counts.
        cluster: whether the CTAs are one cluster.
    """

    warps: int
    counts: tuple[int, ...]
    agents: tuple[tuple[Line, ...], ...]
    cluster: bool = False

    @property
    def ctas(self) -> int:
        return len(self.agents) // self.warps

    def without(self, agent: int, line: int) -> Program:
        """The same kernel without a line."""
        lines = self.agents[agent]
        shorter = (*lines[:line], *lines[line + 1 :])
        return replace(self, agents=(*self.agents[:agent], shorter, *self.agents[agent + 1 :]))

    def shorter(self) -> Iterator[Program]:
        """This kernel with one line less, for each line."""
        for agent, lines in enumerate(self.agents):
            for line in range(len(lines)):
                yield self.without(agent, line)

    @property
    def text(self) -> str:
        """The module."""
        dispatch = "\n".join(
            f"setp.eq.u32 %p, %who, {agent}; @%p bra AGENT{agent};"
            for agent in range(len(self.agents))
        )
        bodies = "\n".join(
            f"AGENT{agent}:\n" + "".join(f"  {line.text}\n" for line in lines) + "  ret;"
            for agent, lines in enumerate(self.agents)
        )
        inits = "\n".join(
            f"@%first mbarrier.init.shared.b64 [bars+{8 * bar}], {count};"
            for bar, count in enumerate(self.counts)
        )
        return f"""
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 flags, .param .u64 words, .param .u64 source)
{{
.reg .b64 %gf, %gw, %src;
.reg .b32 %t, %l, %who, %c, %v<60>;
.reg .pred %p, %first, %one, %five, %low, %p<60>;
.shared .align 8 .b64 bars[{BARRIERS}];
.shared .align 16 .b32 staged[{4 * WORDS}];
.shared .align 4 .b32 sf[{FLAGS}];
.shared .align 4 .b32 sw[{WORDS}];
ld.param.u64 %gf, [flags]; ld.param.u64 %gw, [words]; ld.param.u64 %src, [source];
mov.u32 %t, %tid.x; mov.u32 %l, %laneid; mov.u32 %c, %ctaid.x;
setp.eq.u32 %first, %t, 0; setp.eq.u32 %one, %l, 0; setp.eq.u32 %five, %l, 5;
setp.lt.u32 %low, %l, 7;
{inits}
@%first st.shared.u32 [sf], 0; @%first st.shared.u32 [sf+4], 0;
bar.sync 0;
shr.u32 %who, %t, 5; mad.lo.u32 %who, %c, {self.warps}, %who;
{dispatch}
ret;
{bodies}
}}
"""

    def launch(self) -> ptx.Launch:
        arrays = [np.zeros(n, np.int32) for n in (FLAGS, WORDS, 16)]
        cluster = (self.ctas, 1, 1) if self.cluster else None
        return (
            ptx.load(self.text)
            .only()
            .bind(arrays, grid=self.ctas, block=32 * self.warps, cluster=cluster)
        )


def program(seed: int) -> Program:
    """The kernel of a seed. Of each fourth one, all agents use one flag."""
    maker = _Maker(random.Random(seed))
    return maker.contended() if seed % 4 == 3 else maker.program()


class _Maker:
    """A kernel in the making."""

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.ctas = rnd.choice([1, 1, 1, 2])
        self.warps = rnd.choice([2, 2, 3]) if self.ctas == 1 else rnd.choice([1, 2])
        self.lines: list[list[Line]] = [[] for _ in range(self.ctas * self.warps)]
        self.counts: list[int] = []
        self.phases: list[int] = []
        self.fresh = 0
        self.only_flag = False
        self.flag_values = dict.fromkeys(range(2 * FLAGS), 0)

    def program(self) -> Program:
        agents = range(len(self.lines))
        for _ in range(self.rnd.randint(1, 2)):
            writer, reader = self.rnd.sample(agents, 2)
            if self.rnd.random() < 0.5:
                self.step(self.rnd.choice(agents))
            self.handover(writer, reader)
        for _ in range(self.rnd.randint(0, 2)):
            self.step(self.rnd.choice(agents))
        counts = (self.counts + [1] * BARRIERS)[:BARRIERS]
        cluster = self.ctas == 2 and self.rnd.random() < 0.3
        made = Program(self.warps, tuple(counts), tuple(tuple(x) for x in self.lines), cluster)
        for _ in range(self.rnd.choice([0, 0, 1, 1, 2])):
            out = [
                (agent, at)
                for agent, lines in enumerate(made.agents)
                for at, line in enumerate(lines)
                if not line.kept
            ]
            if out:
                made = made.without(*self.rnd.choice(out))
        return made

    def contended(self) -> Program:
        """Strong accesses of all agents to one flag, some in loops that poll it."""
        if len(self.lines) == 1:
            self.warps = 2
        self.lines = [[] for _ in range(self.ctas * self.warps)]
        self.only_flag = True
        _, space, at, scope = self.flag(together=False)
        for agent in range(len(self.lines)):
            for _ in range(self.rnd.randint(1, 2)):
                way, value = self.rnd.random(), self.rnd.randint(1, 3)
                if way < 0.4:
                    self.step(agent)
                elif way < 0.7:
                    self.poll(agent, space, at, scope, value)
                else:
                    write = self.rnd.choice(["st.release", "st.relaxed", "red.relaxed"])
                    add = ".add" if write == "red.relaxed" else ""
                    lane = self.rnd.choice(["%one", "%five"])
                    self.add(agent, f"@{lane} {write}.{scope}.{space}{add}.u32 {at}, {value};")
        return Program(self.warps, (1,) * BARRIERS, tuple(tuple(x) for x in self.lines))

    def number(self) -> int:
        """A number for registers and labels that nothing else uses."""
        self.fresh += 1
        return self.fresh

    def add(self, agent: int, text: str, kept: bool = False) -> None:
        self.lines[agent].append(Line(text, kept))

    # -- a handover ----------------------------------------------------------------------

    def handover(self, writer: int, reader: int) -> None:
        together = writer // self.warps == reader // self.warps
        word = self.word(together)
        lane, elects = self.lane(writer)
        self.add(writer, f"@{lane} st.{word[0]}.u32 {word[1]}, {self.rnd.randint(1, 3)};")
        if self.rnd.random() < 0.5:
            self.add(writer, "bar.warp.sync -1;")
        if elects and self.rnd.random() < 0.3:
            self.number_of_elected(writer, lane)
        ways = [self.by_flag, self.by_flag]
        if together:
            ways += [self.by_mbarrier] * 4 + [self.by_named, self.by_copy]
        self.rnd.choice(ways)(writer, reader, lane, together)
        if self.rnd.random() < 0.3:
            self.add(reader, "bar.warp.sync -1;")
        self.use(reader, word)

    def word(self, together: bool) -> tuple[str, str]:
        at = 4 * self.rnd.randrange(WORDS)
        if together and self.rnd.random() < 0.5:
            return "shared", f"[sw+{at}]"
        return "global", f"[%gw+{at}]"

    def use(self, agent: int, word: tuple[str, str]) -> None:
        n = self.number()
        guard = self.rnd.choice(["", "", "@%one ", "@%five "])
        if self.rnd.random() < 0.25:
            self.add(agent, f"{guard or '@%one '}st.{word[0]}.u32 {word[1]}, 4;")
        else:
            self.add(agent, f"{guard}ld.{word[0]}.u32 %v{n}, {word[1]};")

    def lane(self, agent: int) -> tuple[str, bool]:
        """A predicate that is true for one lane, and whether that one is elected."""
        way = self.rnd.random()
        if way < 0.75:
            return self.rnd.choice(["%one", "%one", "%five"]), False
        n = self.number()
        self.add(agent, f"elect.sync _|%p{n}, -1;", kept=True)
        return f"%p{n}", True

    def number_of_elected(self, agent: int, lane: str) -> None:
        """Something that one of the lanes does if it is the elected one."""
        n, which = self.number(), self.rnd.choice([3, 5, 21, 30])
        made = self.rnd.choice(
            [
                f"setp.eq.and.u32 %p{n}, %l, {which}, {lane};",
                f"setp.eq.and.u32 %p{n}, %l, {which}, {lane}; vote.sync.any.pred %p{n}, %p{n}, -1;",
                f"vote.sync.ballot.b32 %v{n}, {lane}, -1; setp.eq.u32 %p{n}, %v{n}, {1 << which};",
                f"selp.b32 %v{n}, %l, 0, {lane}; redux.sync.add.u32 %v{n}, %v{n}, -1;"
                f" setp.eq.u32 %p{n}, %v{n}, {which};",
                f"selp.b32 %v{n}, %l, 99, {lane}; setp.eq.u32 %p{n}, %v{n}, {which};",
                f"setp.eq.u32 %p{n}, %l, {which}; vote.sync.all.pred %p{n}, %p{n}, -1;",
                f"and.b32 %v{n}, %l, 0; setp.eq.u32 %p{n}, %v{n}, 0; and.pred %p{n}, %p{n}, {lane};"
                f" vote.sync.uni.pred %p{n}, %p{n}, -1;",
            ]
        )
        word = self.word(True)
        then = self.rnd.choice(
            ["trap;", "ret;", f"st.{word[0]}.u32 {word[1]}, 7;", "bra %over;", "bar.warp.sync -1;"]
        )
        if then == "bra %over;":
            other = self.number()
            self.add(agent, f"{made} @%p{n} bra L{other}; st.{word[0]}.u32 {word[1]}, 8; L{other}:")
        else:
            self.add(agent, f"{made} @%p{n} {then}")

    def by_mbarrier(self, writer: int, reader: int, lane: str, together: bool) -> None:
        again = [b for b in range(len(self.counts)) if self.rnd.random() < 0.5]
        if again or len(self.counts) == BARRIERS:
            bar = self.rnd.choice(again or range(BARRIERS))
        else:
            bar = len(self.counts)
            self.counts.append(self.rnd.choice([1, 1, 1, 32, 2]))
            self.phases.append(0)
        at, count, phase = f"[bars+{8 * bar}]", self.counts[bar], self.phases[bar]
        self.phases[bar] += 1
        guard = "" if count == 32 else f"@{lane} "
        form = self.rnd.choice(["", "", ".release.cta"])
        for _ in range(2 if count == 2 else 1):
            self.add(writer, f"{guard}mbarrier.arrive{form}.shared.b64 _, {at};")
        self.wait(reader, at, phase % 2)

    def wait(self, agent: int, at: str, parity: int) -> None:
        n = self.number()
        form = self.rnd.choice(["try_wait", "try_wait", "test_wait"])
        loop = f"W{n}: mbarrier.{form}.parity.shared.b64 %p{n}, {at}, {parity}; @!%p{n} bra W{n};"
        if self.rnd.random() < 0.5:
            self.add(agent, loop)
            return
        m = self.number()
        tested = self.rnd.choice([parity, parity, parity, 1 - parity])
        guard = self.rnd.choice(["", "", "", "!"])  # "!": waits if the test has said "yes"
        look = f"mbarrier.test_wait.parity.shared.b64 %p{m}, {at}, {tested};"
        between = self.rnd.choice(["", "", "bar.warp.sync -1;", "not.pred %p" + f"{m}, %p{m};"])
        if between.startswith("not"):
            guard = "" if guard else "!"
        branch = f"@{guard}%p{m} bra D{m}; {loop} D{m}:"
        if self.rnd.random() < 0.2:  # the answer decides something else, too
            word = self.word(True)
            branch = f"@%p{m} ld.{word[0]}.u32 %v{m}, {word[1]}; {branch}"
        self.add(agent, f"{look} {between} {branch}")

    def by_named(self, writer: int, reader: int, lane: str, together: bool) -> None:
        bar = self.rnd.choice([1, 2])
        way = self.rnd.choice(["sync", "sync", "arrive"])
        self.add(writer, f"bar.{way} {bar}, 64;")
        self.add(reader, f"bar.sync {bar}, 64;")

    def by_copy(self, writer: int, reader: int, lane: str, together: bool) -> None:
        if len(self.counts) == BARRIERS:
            self.by_named(writer, reader, lane, together)
            return
        bar = len(self.counts)
        self.counts.append(1)
        self.phases.append(1)
        at = f"[bars+{8 * bar}]"
        word = 16 * self.rnd.randrange(WORDS)
        self.add(writer, f"@{lane} cp.async.ca.shared.global [staged+{word}], [%src], 16;")
        self.add(writer, f"@{lane} cp.async.mbarrier.arrive.noinc.shared.b64 {at};")
        self.wait(reader, at, 0)
        n = self.number()
        self.add(reader, f"ld.shared.u32 %v{n}, [staged+{word}];")

    # -- strong accesses -----------------------------------------------------------------

    def flag(self, together: bool) -> tuple[int, str, str, str]:
        """A flag: its number, the state space, the address, and a scope."""
        if self.only_flag:
            return FLAGS, "global", "[%gf]", "gpu"
        number = self.rnd.randrange(FLAGS)
        if together and self.rnd.random() < 0.5:
            return number, "shared", f"[sf+{4 * number}]", "cta"
        scope = self.rnd.choice(["gpu", "gpu", "gpu", "cta"]) if together else "gpu"
        return FLAGS + number, "global", f"[%gf+{4 * number}]", scope

    def by_flag(self, writer: int, reader: int, lane: str, together: bool) -> None:
        number, space, at, scope = self.flag(together)
        self.flag_values[number] += 1
        value = self.flag_values[number]
        write = self.rnd.choice(["release", "release", "fence", "atom", "red", "exch"])
        n = self.number()
        if write in ("fence", "red"):
            self.add(writer, f"fence.acq_rel.{scope};")
        text = {
            "release": f"st.release.{scope}.{space}.u32 {at}, {value};",
            "fence": f"st.relaxed.{scope}.{space}.u32 {at}, {value};",
            "atom": f"atom.acq_rel.{scope}.{space}.add.u32 %v{n}, {at}, 1;",
            "red": f"red.relaxed.{scope}.{space}.add.u32 {at}, 1;",
            "exch": f"atom.release.{scope}.{space}.exch.b32 %v{n}, {at}, {value};",
        }
        self.add(writer, f"@{lane} {text[write]}")
        self.poll(reader, space, at, scope, value)

    def poll(self, agent: int, space: str, at: str, scope: str, value: int) -> None:
        n = self.number()
        way = self.rnd.choice(["acquire", "acquire", "relaxed", "once", "cas"])
        test = f"setp.lt.u32 %p{n}, %v{n}, {value};"
        order = "relaxed" if way == "relaxed" else "acquire"
        look = f"ld.{order}.{scope}.{space}.u32 %v{n}, {at};"
        if way == "cas":
            look = f"atom.acquire.{scope}.{space}.cas.b32 %v{n}, {at}, 9, 9;"
            if self.rnd.random() < 0.7:  # one lane looks, and hands on what it has seen
                look = f"mov.u32 %v{n}, 9; @%one {look}"
        if way == "once":  # ends where it is not there yet
            self.add(agent, f"{look} {test} @%p{n} ret;")
        else:
            self.add(agent, f"P{n}: {look} {test} @%p{n} bra P{n};")
        if way == "relaxed":
            self.add(agent, f"fence.acq_rel.{scope};")

    # -- steps of no handover ------------------------------------------------------------

    def step(self, agent: int) -> None:
        """Something that a warp does beside."""
        n = self.number()
        _, space, at, scope = self.flag(True)
        word = self.word(True)
        guard = self.rnd.choice(["", "@%one ", "@%five "])
        look = self.rnd.choice(["ld.relaxed", "ld.acquire"])
        wrong = self.rnd.randint(0, 2)
        then = self.rnd.choice(
            ["trap;", "trap;", "ret;", f"@%p{n} ld.{word[0]}.u32 %v{n}, {word[1]};"]
        )
        then = then if then.startswith("@") else f"@%p{n} {then}"
        lines = [
            f"{look}.{scope}.{space}.u32 %v{n}, {at}; setp.eq.u32 %p{n}, %v{n}, {wrong}; {then}",
            f"{guard}st.relaxed.{scope}.{space}.u32 {at}, {wrong};",
            f"{guard}st.release.{scope}.{space}.u32 {at}, {wrong};",
            f"@%one atom.relaxed.{scope}.{space}.add.u32 %v{n}, {at}, 1;",
            f"mov.u32 %v{n}, 9; @%one atom.relaxed.{scope}.{space}.add.u32 %v{n}, {at}, 1;"
            f" setp.eq.u32 %p{n}, %v{n}, {wrong}; {then}",
            f"@%one atom.acq_rel.{scope}.{space}.cas.b32 %v{n}, {at}, 0, 2;",
            f"@%one red.relaxed.{scope}.{space}.add.u32 {at}, 1;",
            f"fence.acq_rel.{scope};",
            "bar.warp.sync -1;",
            f"@%low bra L{n}; {look}.{scope}.{space}.u32 %v{n}, {at}; L{n}:",
            f"@%low bra L{n}; st.relaxed.{scope}.{space}.u32 {at}, 1; bra M{n};"
            f" L{n}: {look}.{scope}.{space}.u32 %v{n}, {at}; setp.eq.u32 %p{n}, %v{n}, {wrong};"
            f" {then} M{n}: bar.warp.sync -1;",
            f"vote.sync.any.pred %p{n}, %five, -1; @%p{n} ld.{word[0]}.u32 %v{n}, {word[1]};",
            f"@%one ld.{word[0]}.u32 %v{n}, {word[1]};",
            "@%low ret;",
        ]
        if self.counts:
            bar = self.rnd.randrange(len(self.counts))
            lines += [
                f"mbarrier.test_wait.parity.shared.b64 %p{n}, [bars+{8 * bar}],"
                f" {self.rnd.randint(0, 1)}; {then}"
            ] * 3
        self.add(agent, self.rnd.choice(lines))
