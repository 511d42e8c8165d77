"""Binding arguments to a kernel of PTX: sizes that no GPU has are refused before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import ptx

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


@pytest.mark.parametrize(
    ("before", "inside", "smem", "message"),
    [
        ("", ".shared .b8 x[300000];", 0, "300,000 bytes of static shared memory"),
        ("", "", 300000, "300,000 of dynamic; a CTA has 232,448"),
        ("", ".local .b8 x[99999999999];", 0, "99,999,999,999 bytes of local memory"),
        (".global .b8 x[99999999999];", "", 0, "99,999,999,999 bytes; at most"),
    ],
)
def test_absurd_sizes_are_refused(before: str, inside: str, smem: int, message: str) -> None:
    kernel = ptx.load(f"{HEAD}{before}\n.visible .entry k() {{ {inside} ret; }}")["k"]
    with pytest.raises(tp.BindError, match=message):
        kernel.bind([], grid=1, block=32, smem=smem)


def test_a_cut_off_text_gives_one_error() -> None:
    text = HEAD + ".visible .entry k(.param .u64 p) { .reg .b32 %r<9>; mov.u32 %r1, %tid.x; ret; }"
    errors = []
    for end in range(len(HEAD) + 1, len(text) - 1, 7):
        try:
            ptx.load(text[:end] + "\n")
        except tp.PtxError as error:
            errors.append(str(error))
    assert len(errors) > 5
    assert all("PTX line" in error for error in errors)


def test_numbers_have_the_type_of_their_parameter() -> None:
    text = (
        HEAD
        + """
    .visible .entry k(.param .u64 out, .param .f32 x, .param .u32 n) {
    .reg .b64 %a; .reg .f32 %f; .reg .b32 %r;
    ld.param.u64 %a, [out]; ld.param.f32 %f, [x]; ld.param.u32 %r, [n];
    st.global.f32 [%a], %f; st.global.u32 [%a+4], %r; ret;
    }
    """
    )
    kernel = ptx.load(text)["k"]
    out = np.zeros(2, np.float32)
    kernel.bind([out, 3, 7], grid=1, block=1).run()
    assert out[0] == 3.0
    assert out.view(np.int32)[1] == 7
    with pytest.raises(
        tp.BindError, match=r"'.u32 n' is an integer, and 3.5 a floating-point number"
    ):
        kernel.bind([out, 3, 3.5], grid=1, block=1)
