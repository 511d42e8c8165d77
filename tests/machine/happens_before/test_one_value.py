"""Stores of one value by several warps that nothing orders: excused by what each stores, in
whatever order they come.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilepipe.check import check
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.ptx_front_end import PtxFrontEnd
from tilepipe.check.engine.state_key import StateKeys
from tilepipe.errors import RaceError
from tilepipe.machine.clusters import quiet_numbers
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.memory.byte_sets import LaneBytes
from tilepipe.ptx import Launch, load

# The first lane of each of three warps stores its values in turn, %r3 to %r4, by one instruction.
STORES = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry stores(.param .u64 out) .reqntid 96 {
  .shared .b32 word;
  .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<4>;
  mov.u32 %r0, %tid.x;
  shr.u32 %r1, %r0, 5;
  and.b32 %r2, %r0, 31;
  setp.ne.u32 %p0, %r2, 0;
  FIRST
  setp.le.u32 %p1, %r3, %r4;
  @!%p1 bra JOIN;
LOOP:
  @!%p0 st.shared.b32 [word], %r3;
  add.u32 %r3, %r3, 1;
  BETWEEN
  setp.le.u32 %p1, %r3, %r4;
  @%p1 bra LOOP;
JOIN:
  BEFORE
  bar.sync 0;
  ld.shared.b32 %r5, [word];
  ld.param.u64 %rd1, [out];
  mul.wide.u32 %rd2, %r0, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.b32 [%rd3], %r5;
  ret;
}
"""


def stores(*ranges: tuple[int, int], between: str = "", before: str = "") -> Launch:
    """Warp i stores all values of `ranges[i]`, both ends included."""
    choose = []
    for warp, (first, last) in enumerate(ranges):
        choose += [f"setp.eq.u32 %p2, %r1, {warp};", f"@%p2 mov.u32 %r3, {first};"]
        choose += [f"@%p2 mov.u32 %r4, {last};"]
    text = STORES.replace("FIRST", "\n".join(choose)).replace("BETWEEN", between)
    (kernel,) = load(text.replace("BEFORE", before)).values()
    return kernel.bind([np.zeros(96, np.uint32)], grid=1)


def test_equal_values_are_excused_with_one_line_of_advice() -> None:
    verdict = check(stores((7, 7), (7, 7), (7, 7)))
    assert verdict.ok
    (advice,) = verdict.advice
    assert "one value" in advice
    assert "st.shared.b32 [word], %r3" in advice
    assert "np.arange" in advice


def test_equal_values_race_by_the_strict_rules() -> None:
    (fault,) = check(stores((7, 7), (7, 7), (7, 7)), rules="strict").faults
    assert fault.kind == "RaceError"


@pytest.mark.parametrize("ranges", [((1, 2), (2, 2)), ((2, 2), (1, 2)), ((1, 3), (3, 3))])
def test_an_earlier_value_of_another_warp_is_compared(ranges: tuple[tuple[int, int], ...]) -> None:
    """Memory holds the same value when the second warp stores, and it did not always."""
    launch = stores(*ranges, ranges[1])
    (fault,) = check(launch).faults
    assert fault.kind == "RaceError"
    for seed in range(4):
        with pytest.raises(RaceError, match="nothing orders the second access"):
            launch.run(seed)


def test_values_that_everyone_knows_of_are_not_compared() -> None:
    """All warps meet between the stores of 1 and those of 2."""
    assert check(stores((1, 2), (1, 2), (1, 2), between="bar.sync 0;")).ok


def test_a_store_of_one_value_hides_no_other_store() -> None:
    """Warps 0 and 1 store 7; warp 2 is ordered after warp 1 alone and stores 8 by another
    instruction, which the store of warp 0 may overwrite.
    """
    later = """
      setp.eq.u32 %p2, %r1, 0;
      @%p2 bra DONE;
      bar.sync 1, 64;
      setp.eq.u32 %p2, %r0, 64;
      @%p2 st.shared.b32 [word], 8;
    DONE:
    """
    launch = stores((7, 7), (7, 7), (7, 7), before=later)
    (fault,) = check(launch).faults
    assert fault.kind == "RaceError"
    assert "[word], 8" in fault.message


def test_a_store_that_another_covers_has_a_key_of_its_own() -> None:
    """Both stay live; the key of a state sorts them, and tells what the first has stored."""
    agent: Any = None
    site: Any = SimpleNamespace(id=3)
    live, covered, other = (
        Access(agent, site, 1, (0, 1, 64, 68), True, False, 1 << i, LaneBytes([(1, 64, 4)]))
        for i in range(3)
    )
    live.stored = np.full((1, 4), 2, np.uint8)
    covered.stored, covered.superseded = np.full((1, 4), 1, np.uint8), True
    other.stored, other.superseded = np.full((1, 4), 3, np.uint8), True
    assert len({x.key for x in sorted((live, covered, other), key=lambda x: x.key)}) == 3


# Two lanes of warp 0 store a given number and 9; then the first of them alone stores 7. Warp 1
# stores 7 by the same instruction, after a look at a flag.
PARTS = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry parts(.param .u32 given, .param .u64 flag) .reqntid 64 {
  .shared .align 8 .b32 words[2];
  .reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .pred %p<8>;
  ld.param.u32 %r7, [given];
  ld.param.u64 %rd2, [flag];
  mov.u32 %r0, %tid.x;
  shr.u32 %r1, %r0, 5;
  and.b32 %r2, %r0, 31;
  setp.ge.u32 %p0, %r2, 2;
  @%p0 ret;
  mov.u32 %r4, words;
  mad.lo.u32 %r4, %r2, 4, %r4;
  mov.u32 %r3, 7;
  mov.u32 %r5, 1;
  setp.eq.u32 %p2, %r1, 1;
  @%p2 bra LOOK;
  mov.u32 %r3, %r7;
  setp.eq.u32 %p1, %r2, 1;
  @%p1 mov.u32 %r3, 9;
  mov.u32 %r5, 2;
  bra STORE;
LOOK:
  ld.relaxed.gpu.global.u32 %r6, [%rd2];
STORE:
  setp.lt.u32 %p3, %r2, %r5;
  @%p3 st.shared.b32 [%r4], %r3;
  bar.warp.sync 3;
  mov.u32 %r3, 7;
  sub.u32 %r5, %r5, 1;
  setp.ne.u32 %p4, %r5, 0;
  @%p4 bra STORE;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 st.relaxed.gpu.global.u32 [%rd2], 1;
  ret;
}
"""


def test_a_store_that_another_covers_in_part_has_a_key_of_its_own() -> None:
    """Memory holds the same when warp 1 stores 7, and what warp 0 stored at first decides whether
    that is a race.
    """
    (kernel,) = load(PARTS).values()
    keys = []
    for given in (7, 8):
        launch = kernel.bind([np.uint32(given), np.zeros(1, np.uint32)], grid=1)
        front_end = PtxFrontEnd(launch, "practice")
        with quiet_numbers():
            execution = Execution(front_end, (0,))
            execution.run_agent(0, execution.machines[0].agents[0])
            assert [agent.uid for _, agent in execution.ready()] == [1]
            keys.append(StateKeys(front_end, symmetry=True).of(execution))
            if given == 7:
                execution.run_to_end()
                continue
            with pytest.raises(RaceError, match=r"warp 0 writes bytes 0\.\.7 of 'words'"):
                execution.run_to_end()
    assert keys[0] != keys[1]
