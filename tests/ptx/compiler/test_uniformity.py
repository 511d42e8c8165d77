"""Uniform registers: a register kept as one number for the warp holds what each lane's would."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from tilepipe import ptx
from tilepipe.ptx.compiler.control_flow import ControlFlow
from tilepipe.ptx.compiler.uniformity import Uniformity, all_varying, uniformity
from tilepipe.ptx.definition import Operation

_HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
_ANALYSIS = "tilepipe.ptx.compiler.compiled_function.uniformity"
_STALE = """
.visible .entry k(.param .u64 o, .param .u64 in) {{
 .reg .b64 %o,%y,%in; .reg .b32 %i,%l,%r,%t; .reg .pred %p,%q;
 ld.param.u64 %o,[o]; ld.param.u64 %in,[in]; mov.u32 %l,%tid.x; mul.wide.u32 %y,%l,4;
 add.u64 %o,%o,%y; mov.u32 %i,0;
L: setp.gt.u32 %p,%i,%l; {body}
S: add.u32 %i,%i,1; setp.lt.u32 %q,%i,8; @%q bra L;
 st.global.u32 [%o],%r; ret;
}}"""


def _run(text: str, inputs: npt.NDArray[np.int32], stored: int) -> npt.NDArray[np.int32]:
    out = np.zeros(stored, np.int32)
    ptx.load(_HEAD + text).only().bind([out, inputs], grid=1, block=32).run()
    return out


@pytest.mark.parametrize(
    "body",
    [
        "@%p bra S; mov.u32 %r,%i;",
        "@!%p mov.u32 %r,%i;",
        "@%p bra S; mul.lo.u32 %t,%i,3; mov.u32 %r,%t; sub.u32 %r,%r,%i; sub.u32 %r,%r,%i;",
        "@%p bra S; mul.wide.u32 %y,%i,4; add.u64 %y,%y,%in; ld.global.u32 %r,[%y];",
        "@%p bra S; add.u32 %t,%i,0; bra.uni T;\nT: mov.u32 %r,%t;",
        "add.u32 %t,%i,0; @!%p mov.u32 %r,%t;",
    ],
)
def test_a_lane_keeps_what_its_last_execution_wrote(body: str) -> None:
    found = _run(_STALE.format(body=body), np.arange(8, dtype=np.int32), 32)
    assert found.tolist() == [min(lane, 7) for lane in range(32)]


def test_lanes_that_read_a_clock_apart_have_times_of_their_own() -> None:
    body = "@%p bra S; mov.u32 %r,%clock;"
    found = _run(_STALE.format(body=body), np.zeros(1, np.int32), 32)
    assert found[0] != found[7]


_LOCK = """
.visible .entry k(.param .u64 o, .param .u64 lock) {
 .reg .b64 %o,%y,%k; .reg .b32 %i,%l,%r,%s; .reg .pred %p,%q;
 ld.param.u64 %o,[o]; ld.param.u64 %k,[lock]; mov.u32 %l,%tid.x; mul.wide.u32 %y,%l,4;
 add.u64 %o,%o,%y; mov.u32 %i,1; mov.u32 %s,0;
T: atom.acquire.gpu.global.cas.b32 %r,[%k],0,1; setp.ne.u32 %p,%r,0; @%p bra T;
 mad.lo.u32 %s,%s,10,%i;
 atom.release.gpu.global.exch.b32 %r,[%k],0;
 add.u32 %i,%i,1; setp.le.u32 %q,%i,3; @%q bra T;
 st.global.u32 [%o],%s; ret;
}"""


@pytest.mark.slow
def test_lanes_that_part_ways_after_a_spin_lock_keep_counters_of_their_own() -> None:
    found = _run(_LOCK, np.zeros(1, np.int32), 32)
    assert found.tolist() == [123] * 32


class _Program:
    """A random kernel: loops, branches and guards, uniform and not, over registers with several
    writers (`%m`, set at the start) and with one (`%s`, with `%w` set where it is written).
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.singles = self.labels = self.predicates = self.counters = 0
        self.block(3)
        several = 6
        declared = (
            f".reg .b64 %in,%o,%x,%y; .reg .b32 %l,%n,%g,%t,%m<{several}>,"
            f"%s<{self.singles + 1}>,%w<{self.singles + 1}>,%c<{self.counters + 1}>;"
            f" .reg .pred %p<{self.predicates + 1}>,%ok;"
        )
        start = [f"mov.u32 %m{i},{'%laneid' if i > 3 else i};" for i in range(several)]
        start += [f"mov.u32 %w{i},0; " for i in range(self.singles)]
        start += [f"mov.u32 %c{i},0;" for i in range(self.counters)]
        stores = [*(f"st.global.u32 [%o+{4 * i}],%m{i};" for i in range(several))]
        for i in range(self.singles):
            stores.append(f"setp.ne.u32 %ok,%w{i},0; @!%ok bra E{i};")
            stores.append(f"st.global.u32 [%o+{4 * (several + i)}],%s{i};\nE{i}:")
        self.stored = 32 * (several + self.singles)
        self.text = "\n".join(
            [
                ".visible .entry k(.param .u64 o, .param .u64 in) {", declared,
                "ld.param.u64 %o,[o]; ld.param.u64 %in,[in]; mov.u32 %l,%laneid;",
                f"mul.wide.u32 %y,%l,{4 * (several + self.singles)}; add.u64 %o,%o,%y;",
                "setp.gt.u32 %ok,%l,9;", *start, *self.lines, *stores, "ret; }",
            ]
        )  # fmt: skip

    def source(self) -> str:
        some = [f"%m{self.random.randrange(6)}"] * 4 + [str(self.random.randrange(5))]
        some += [f"%c{i}" for i in range(self.counters)] * 2
        return self.random.choice(some)

    def predicate(self) -> str:
        name = f"%p{self.predicates}"
        self.predicates += 1
        right = self.random.choice(["%l", "%laneid", self.source(), self.source()])
        compare = self.random.choice(["gt", "lt", "eq", "ne"])
        self.lines.append(f"and.b32 %n,{self.source()},7; and.b32 %g,{right},7;")
        self.lines.append(f"setp.{compare}.u32 {name},%n,%g;")
        return name

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def write(self) -> None:
        guard = f"@{self.predicate()} " if self.random.random() < 0.3 else ""
        single = self.random.random() < 0.5
        to = f"%s{self.singles}" if single else f"%m{self.random.randrange(6)}"
        a, b = self.source(), self.source()
        self.lines.append(
            self.random.choice(
                [
                    f"{guard}mov.u32 {to},{a};",
                    f"{guard}add.u32 {to},{a},{b};",
                    f"{guard}mad.lo.u32 {to},{a},3,{b};",
                    f"and.b32 %t,{a},15; mul.wide.u32 %x,%t,4; add.u64 %x,%x,%in;"
                    f" {guard}ld.global.u32 {to},[%x];",
                    f"{guard}atom.global.add.u32 %t,[%in+64],1; {guard}mov.u32 {to},{a};",
                    f"{guard}activemask.b32 {to};",
                ]
            )
        )
        if single:
            self.lines.append(f"{guard}mov.u32 %w{self.singles},1;")
            if self.random.random() < 0.6 and not guard:  # read at once
                self.lines.append(f"add.u32 %m{self.random.randrange(6)},%s{self.singles},{b};")
            self.singles += 1

    def block(self, depth: int) -> None:
        for _ in range(self.random.randrange(2, 5)):
            kind = self.random.random()
            if depth == 0 or kind < 0.4:
                self.write()
            elif kind < 0.7:
                skip = self.label()
                self.lines.append(f"@{self.predicate()} bra {skip};")
                self.block(depth - 1)
                self.lines.append(f"{skip}:")
            else:
                self.loop(depth - 1)

    def loop(self, depth: int) -> None:
        counter = f"%c{self.counters}"
        self.lines.append(f"mov.u32 {counter},0;")
        self.counters += 1
        begin, leave = self.label(), self.label()
        self.lines.append(f"{begin}:")
        if self.random.random() < 0.5:
            self.lines.append(f"@{self.predicate()} bra {leave};")
        self.block(depth)
        name = f"%p{self.predicates}"
        self.predicates += 1
        self.lines.append(f"add.u32 {counter},{counter},1; setp.lt.u32 {name},{counter},4;")
        self.lines.append(f"@{name} bra {begin};\n{leave}:")


def _agrees(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs a random program twice; returns how many registers were uniform."""
    program = _Program(seed)
    inputs = np.random.default_rng(seed).integers(0, 9, 17).astype(np.int32)
    kept = 0

    def counted(
        flow: ControlFlow, operations: Sequence[Operation], read_first: int = 0
    ) -> Uniformity:
        nonlocal kept
        found = uniformity(flow, operations, read_first)
        kept = len(all_varying(flow, operations).varying) - len(found.varying)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(_ANALYSIS, counted)
        found = _run(program.text, inputs.copy(), program.stored)
        patched.setattr(_ANALYSIS, lambda flow, operations, _: all_varying(flow, operations))
        expected = _run(program.text, inputs.copy(), program.stored)
    np.testing.assert_array_equal(found, expected, err_msg=program.text)
    return kept


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "count"), [(0, 2), pytest.param(2, 160, marks=pytest.mark.thorough)]
)
def test_random_programs_give_what_they_give_whereall_varying(
    first: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    uniform = sum(_agrees(seed, monkeypatch) for seed in range(first, first + count))
    assert uniform > 3 * count  # else the programs show nothing
