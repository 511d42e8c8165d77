"""Responses of clusterlaunchcontrol in registers of 128 bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import run


@pytest.mark.parametrize("varies", [False, True])
def test_a_response_is_decoded(varies: bool) -> None:
    """Cluster 7 of a grid of 12 × 2 CTAs in clusters of 2 is at x = 2, y = 1."""
    out = np.zeros((32, 3), np.uint32)
    valid = "setp.lt.u32 %p1, %t, 5; selp.u32 %r1, 1, 0, %p1;" if varies else "mov.u32 %r1, 1;"
    query = "clusterlaunchcontrol.query_cancel"
    run(
        f"""
        mov.u32 %r9, %ctaid.x; setp.ne.u32 %p3, %r9, 0; @%p3 ret;
        mov.u32 %r9, %ctaid.y; setp.ne.u32 %p3, %r9, 0; @%p3 ret;
        {valid}
        mov.b64 %rd1, 7; mov.b64 %rd2, {{0, %r1}}; mov.b128 %q1, {{%rd1, %rd2}};
        {query}.is_canceled.pred.b128 %p2, %q1;
        {query}.get_first_ctaid::x.b32.b128 %r2, %q1;
        {query}.get_first_ctaid::y.b32.b128 %r3, %q1;
        selp.u32 %r4, 1, 0, %p2;
        mad.wide.u32 %a0, %t, 12, %b0;
        st.global.b32 [%a0], %r4; st.global.b32 [%a0+4], %r2; st.global.b32 [%a0+8], %r3;
        """,
        out,
        grid=(12, 2),
        cluster=2,
    )
    assert (out[:, 1:] == [2, 1]).all()
    np.testing.assert_array_equal(out[:, 0], np.arange(32) < 5 if varies else 1)
