"""What kernels of Triton rely on is allowed in practice and refused by the strict rules."""

from __future__ import annotations

import numpy as np
import pytest

from tilepipe.check import check
from tilepipe.errors import RaceError, SimFault
from tilepipe.ptx import Launch, load

HEADER = ".version 8.7\n.target sm_100a\n.address_size 64\n"

STATE = """
.visible .entry state(.param .u64 out) .reqntid 64 {
  .shared .b32 word;
  .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<2>;
  VALUE
  st.shared.b32 [word], %r1;
  bar.sync 0;
  ld.shared.b32 %r2, [word];
  ld.param.u64 %rd1, [out];
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %rd2, %r3, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.b32 [%rd3], %r2;
  ret;
}
"""

LOADS = """
.visible .entry loads(.param .u64 out) .reqntid 32 {
  .shared .b32 word;
  .reg .b32 %r<8>; .reg .b64 %rd<4>;
  mov.u32 %r1, word;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;
  bar.sync 0;
  ld.shared.b32 %r2, [word];
  mov.u32 %r3, %tid.x;
  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2], {%r3};
  tcgen05.wait::st.sync.aligned;
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r4}, [%r2];
  EARLY
  ld.param.u64 %rd1, [out];
  mul.wide.u32 %rd2, %r3, 4;
  add.s64 %rd3, %rd1, %rd2;
  add.u32 %r5, %r4, 1;
  LATE
  st.global.b32 [%rd3], %r5;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;
  ret;
}
"""


def bound(text: str, out: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> Launch:
    (kernel,) = load(HEADER + text).values()
    return kernel.bind([out], grid=1)


def test_warps_may_store_one_value_by_one_instruction() -> None:
    out = np.zeros(64, np.uint32)
    launch = bound(STATE.replace("VALUE", "mov.u32 %r1, 33554689;"), out)
    for seed in range(4):
        launch.run(seed)
        assert (out == 33554689).all()
    with pytest.raises(RaceError, match="nothing orders the second access"):
        launch.run(rules="strict")


def test_warps_that_store_different_values_race() -> None:
    different = "mov.u32 %r1, %tid.x; shr.u32 %r1, %r1, 5;"
    with pytest.raises(RaceError, match="nothing orders the second access"):
        bound(STATE.replace("VALUE", different), np.zeros(64, np.uint32)).run()


def test_a_use_before_the_wait_of_a_load_is_advice() -> None:
    out = np.zeros(32, np.uint32)
    wait = "tcgen05.wait::ld.sync.aligned;"
    launch = bound(LOADS.replace("EARLY", "").replace("LATE", wait), out)
    launch.run()
    np.testing.assert_array_equal(out, np.arange(32) + 1)
    (advice,) = [line for line in launch.advice if "loaded registers" in line]
    assert "add.u32 %r5, %r4, 1: %r4 is used before its wait" in advice
    with pytest.raises(SimFault, match="strict rules, loaded registers: PTX line 20"):
        launch.run(rules="strict")
    (fault,) = check(launch, rules="strict").faults
    assert fault.message.startswith("strict rules, loaded registers: PTX line 20")
    assert isinstance(launch.replay(fault, rules="strict"), SimFault)


def test_a_move_before_the_wait_of_a_load_is_such_a_use() -> None:
    early, late = "mov.u32 %r6, %r4; tcgen05.wait::ld.sync.aligned;", "add.u32 %r5, %r6, 1;"
    launch = bound(LOADS.replace("EARLY", early).replace("LATE", late), np.zeros(32, np.uint32))
    assert check(launch).ok
    with pytest.raises(SimFault, match=r"mov.u32 %r6, %r4: %r4 is used before its wait"):
        launch.run(rules="strict")


def test_a_use_after_the_wait_of_a_load_is_none() -> None:
    out = np.zeros(32, np.uint32)
    wait = "tcgen05.wait::ld.sync.aligned;"
    launch = bound(LOADS.replace("EARLY", wait).replace("LATE", ""), out)
    launch.run()
    np.testing.assert_array_equal(out, np.arange(32) + 1)
    assert not [line for line in launch.advice if "loaded registers" in line]
