"""Special registers that the reader knows have values, in the types that the ISA gives them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import run
from tilepipe.ptx.special_registers import MODELLED, OF_DIMENSIONS, widths


def test_each_that_is_modelled_can_be_read_in_each_of_its_types() -> None:
    lines = []
    for name in sorted(MODELLED):
        for component in (".x", ".y", ".z") if name in OF_DIMENSIONS else ("",):
            for bits in widths(name):
                register = {1: "%p1", 16: "%h1", 32: "%r1", 64: "%rd1"}[bits]
                kind = "pred" if bits == 1 else f"u{bits}"
                lines.append(f"mov.{kind} {register}, {name}{component};")
    assert len(lines) > 40
    run("\n".join(lines), np.zeros(32, np.uint32))


def test_a_cluster_is_explicit_where_the_launch_has_one() -> None:
    text = """
        mov.u32 %r2, %cluster_ctarank; setp.ne.u32 %p2, %r2, 0; @%p2 ret;
        mov.pred %p1, %is_explicit_cluster; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%a0], %r1;
        """
    for cluster in (1, 2):
        out = np.full(32, 9, np.uint32)
        run(text, out, cluster=cluster)
        assert set(out.tolist()) == {cluster - 1}


def test_clocks_go_on() -> None:
    """A loop that waits for a clock ends, lane by lane."""
    out = np.zeros(32, np.uint64)
    text = """
        mov.u64 %rd1, %clock64;
        mov.u64 %rd3, %globaltimer;
        LOOP: mov.u64 %rd2, %clock64;
        sub.u64 %rd4, %rd2, %rd1;
        mul.wide.u32 %rd5, %t, 50;
        setp.lt.u64 %p1, %rd4, %rd5;
        @%p1 bra LOOP;
        st.global.b64 [%a0], %rd4;
        """
    run(text, out)
    assert (out >= 50 * np.arange(32)).all()
    assert len(set(out.tolist())) > 4


@pytest.mark.parametrize(
    ("name", "value"),
    [("%smid", 0), ("%dynamic_smem_size", 256), ("WARP_SZ", 32), ("%nwarpid", 1),
     ("%cluster_nctarank", 1), ("%total_smem_size", 1280)],
)  # fmt: skip
def test_special_registers(name: str, value: int) -> None:
    out = np.zeros(32, np.uint32)
    run(f"mov.u32 %r1, {name}; st.global.b32 [%a0], %r1;", out, smem=256)
    assert (out == value).all()
