"""Registers and variables of a vector type (PTX ISA, "Vectors"): what they hold, and which forms
there are; ptxas takes and refuses the same.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.ptx.isa.programs import run
from tilepipe.errors import PtxError

PTXAS = shutil.which("ptxas")

ELEMENTS = """
    .reg .v4 .f32 v, w;
    .reg .v2 .b32 %c<4>;
    .shared .v4 .f32 words[32];
    mul.wide.u32 %rd1, %t, 16;
    add.u64 %rd2, %b0, %rd1;
    add.u64 %rd3, %b1, %rd1;
    ld.global.v4.f32 v, [%rd2];
    add.f32 v.x, v.x, v.w;
    mov.v4.f32 w, {v.w, v.z, v.g, v.r};
    mov.v2.b32 %c3, {w.x, w.y};
    mov.v2.b32 %c3, {%c3.y, %c3.x};
    mov.b64 %rd5, %c3;
    mov.b64 {w.x, w.y}, %rd5;
    mov.u32 %r1, words;
    mad.lo.u32 %r1, %t, 16, %r1;
    st.shared.v4.f32 [%r1], w;
    ld.shared.v4.f32 v, [%r1];
    st.global.v4.f32 [%rd3], v;
    """
TAKEN = (
    ".reg .v2 .b64 v; ld.global.v2.b64 v, [%b0];",
    ".reg .v2 .b32 v; ld.global.v2.f32 v, [%b0];",
    ".reg .v4 .b32 v; ld.global.v2.b32 {v.x, v.a}, [%b0];",
    ".reg .v4 .b32 v; mov.u32 %r1, 7; mov.v4.u32 v, {%r1, %r1, %r1, %r1};"
    " st.global.v4.b32 [%b0], {v.b, v.x, v.w, %r1};",
    ".reg .v2 .b32 v, w; ld.global.v2.f32 v, [%b0]; mov.v2.b32 w, v; mov.v2.b32 {%r1, _}, w;",
    ".shared .v2 .u8 pairs[8]; .reg .v4 .u8 v;",
)
REFUSED = {
    ".reg .v4 .b64 v;": "there is no .v4 of .b64: a vector has at most 16 bytes",
    ".reg .v2 .pred v;": "there is no .v2 of .pred",
    ".reg .v2 .b32 v; add.u32 v, v, v;": "is not a value",
    ".reg .v4 .b32 v; ld.global.b32 v, [%b0];": "4 registers where there are 1",
    ".reg .v2 .b32 v; ld.global.v4.b32 v, [%b0];": "2 registers where there are 4",
    ".reg .v4 .b32 v; mov.v2.b32 v, v;": "mov.v2.b32 has vectors of 2 as its operands",
}


def test_elements_are_registers() -> None:
    given = np.arange(128, dtype=np.float32)
    out = np.zeros(128, np.float32)
    run(ELEMENTS, given, out)
    x, y, z, w = given.reshape(32, 4).T
    np.testing.assert_array_equal(out.reshape(32, 4).T, [z, w, y, x + w])


def test_a_vector_in_memory_is_aligned_to_its_size() -> None:
    text = """
        .shared .b8 first;
        .shared .v4 .f32 words[2];
        mov.u32 %r1, words;
        st.global.u32 [%a0], %r1;
        """
    out = np.ones(32, np.uint32)
    run(text, out)
    assert not (out % 16).any()


@pytest.mark.parametrize("text", TAKEN)
def test_forms_of_vectors(text: str) -> None:
    run(text, np.zeros(32, np.uint32))


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_form_of_a_vector(text: str) -> None:
    with pytest.raises(PtxError, match=REFUSED[text]):
        run(text, np.zeros(32, np.uint32))


@pytest.mark.skipif(PTXAS is None, reason="there is no ptxas")
@pytest.mark.parametrize("text", [ELEMENTS, *TAKEN, *REFUSED])
def test_ptxas_takes_the_same(text: str, tmp_path: Path) -> None:
    bases = ", ".join(f".param .u64 array{i}" for i in range(2))
    path = tmp_path / "k.ptx"
    path.write_text(f"""
        .version 8.7
        .target sm_90a
        .address_size 64
        .visible .entry k({bases}) {{
        .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b64 %b<2>; .reg .b32 %t;
        mov.u32 %t, %tid.x;
        ld.param.u64 %b0, [array0];
        ld.param.u64 %b1, [array1];
        {text}
        ret;
        }}
        """)
    command = ["ptxas", "-arch=sm_90a", str(path), "-o", str(tmp_path / "k.cubin")]
    took = subprocess.run(command, capture_output=True, text=True, check=False).returncode == 0
    assert took == (text not in REFUSED)
