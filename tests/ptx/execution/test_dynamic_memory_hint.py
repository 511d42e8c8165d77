"""What a kernel is told that reaches beyond its dynamic shared memory."""

from __future__ import annotations

import pytest

import tilepipe as tp
from tilepipe import ptx

TEXT = """
.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 room[];
.visible .entry k() .reqntid 32 {
    .reg .b32 %r;
    mov.u32 %r, room;
    st.shared.u32 [%r+4096], 1;
    ret;
}
"""


def test_the_message_says_how_much_is_dynamic() -> None:
    kernel = ptx.load(TEXT).only()
    with pytest.raises(tp.SimFault, match=r"Of these 64 are dynamic: bind\(smem=\)"):
        kernel.bind([], grid=1, smem=64).run()
    kernel.bind([], grid=1, smem=8192).run()
