"""Binding arguments to a kernel of PTX: sizes that no GPU has are refused before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.ptx.isa.programs import kernel
from tilepipe import ptx
from tilepipe.check.engine.ptx_front_end import PtxFrontEnd

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
    made = ptx.load(f"{HEAD}{before}\n.visible .entry k() {{ {inside} ret; }}")["k"]
    with pytest.raises(tp.BindError, match=message):
        made.bind([], grid=1, block=32, smem=smem)


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


@pytest.mark.parametrize(
    ("directives", "extents", "message"),
    [
        ("", {"block": 2048}, "2048 threads; a CTA has 1 to 1024"),
        ("", {"block": (1, 1, 128)}, "at most (1024, 1024, 64) in each dimension"),
        ("", {"block": 0}, "block is one to three integers of at least 1; got 0"),
        ("", {"block": True}, "block is one to three integers of at least 1; got True"),
        ("", {"grid": (1, 2, 3, 4)}, "grid is one to three integers of at least 1; got (1, 2, 3"),
        ("", {"grid": 1.0}, "grid is one to three integers of at least 1; got 1.0"),
        ("", {"grid": "2"}, "grid is one to three integers of at least 1; got '2'"),
        ("", {"grid": (1, 1 << 17)}, "at most (2147483647, 65535, 65535) CTAs in each dimension"),
        ("", {"grid": 1 << 30}, "1,073,741,824 CTAs; the simulated machine"),
        ("", {"cluster": 64, "grid": 64}, "64 CTAs; a cluster has at most 16"),
        ("", {"cluster": 2, "grid": 3}, "grid (3, 1, 1) is not a multiple of the cluster"),
        ("", {"smem": -5}, "smem is an integer of at least 0; got -5"),
        ("", {"block": None}, "block: kernel 'k' does not say how many threads it has"),
        (".reqntid 128", {"block": 64}, "the kernel requires (128, 1, 1) (.reqntid)"),
        (".maxntid 16, 2", {"block": 33}, "compiled for at most 32 (.maxntid)"),
        (".reqnctapercluster 2", {"cluster": 1}, "requires (2, 1, 1) (.reqnctapercluster)"),
        (".maxclusterrank 2", {"cluster": 4, "grid": 4}, "at most 2 CTAs (.maxclusterrank)"),
        (".explicitcluster", {}, "requires one to be given (.explicitcluster)"),
    ],
)
def test_launches_that_no_gpu_or_kernel_takes(
    directives: str, extents: dict[str, Any], message: str
) -> None:
    kernel = ptx.load(f"{HEAD}.visible .entry k() {directives} {{ ret; }}").only()
    with pytest.raises(tp.BindError) as raised:
        kernel.bind([], **{"grid": 1, "block": 32} | extents)
    assert message in str(raised.value)


def test_extents_may_be_numpy_integers_and_default_to_those_of_the_kernel() -> None:
    text = f"{HEAD}.visible .entry k() .maxntid 64 .reqnctapercluster 2 {{ ret; }}"
    launch = ptx.load(text).only().bind([], grid=np.int64(4))
    assert (launch.grid, launch.block, launch.cluster) == ((4, 1, 1), (64, 1, 1), (2, 1, 1))
    launch = ptx.load(text).only().bind([], grid=[np.int32(4), 3], block=(32, 2))
    assert (launch.grid, launch.block) == ((4, 3, 1), (32, 2, 1))


@pytest.mark.parametrize("chip", [tp.Chip(), tp.Chip(sms=2, clusters=())])
def test_multiprocessors_are_those_of_the_chip(chip: tp.Chip) -> None:
    text = (
        HEAD
        + """.visible .entry k(.param .u64 out) {
    .reg .b64 %a; .reg .b32 %r<4>;
    ld.param.u64 %a, [out]; mov.u32 %r0, %ctaid.x; mad.wide.u32 %a, %r0, 8, %a;
    mov.u32 %r1, %smid; mov.u32 %r2, %nsmid; st.global.v2.u32 [%a], {%r1, %r2}; ret;
    }
    """
    )
    out = np.zeros((3, 2), np.uint32)
    ptx.load(text).only().bind([out], grid=3, block=1, chip=chip).run()
    assert out.tolist() == [[n % chip.sms, chip.sms] for n in range(3)]


def test_variables_begin_with_numbers_and_addresses() -> None:
    before = """
    .global .align 8 .u32 numbers[4] = {1, 2, 3};
    .global .f32 half = 0.5;
    .global .u64 places[2] = {numbers, generic(numbers)+8};
    """
    text = f"""{HEAD}{before}.visible .entry k(.param .u64 out) {{
    .reg .b64 %a, %b; .reg .b32 %r<4>;
    ld.param.u64 %a, [out]; ld.global.u64 %b, [places+8]; ld.global.u32 %r1, [%b];
    ld.global.u32 %r2, [half]; st.global.v2.u32 [%a], {{%r1, %r2}}; ret; }}
    """
    out = np.zeros(2, np.uint32)
    ptx.load(text).only().bind([out], grid=1, block=1).run()
    assert out[0] == 3
    assert out[1:].view(np.float32)[0] == 0.5


@pytest.mark.parametrize(
    ("text", "adds"),
    [
        ("red.global.add.u32 [%b0], %r1;", "integers"),
        ("atom.global.add.s32 %r2, [%b0], %r1;", "integers"),
        ("red.global.add.f32 [%b0], %f1;", "floats"),
        ("atom.global.add.noftz.f16x2 %r2, [%b0], %r1;", "floats"),
        ("red.global.add.noftz.bf16x2 [%b0], %r1;", "floats"),
        ("red.global.max.s32 [%b0], %r1;", ""),
        ("atom.global.exch.b32 %r2, [%b0], %r1;", ""),
        ("st.relaxed.gpu.global.u32 [%b0], %r1;", ""),
    ],
)
def test_what_an_instruction_adds_to_memory(text: str, adds: str) -> None:
    """The checker takes additions to commute, and warns of float ones, by this alone."""
    before = "mov.u32 %r1, 0; .reg .f32 %f1; mov.f32 %f1, 0f00000000; "
    launch = kernel(before + text, 1).bind([np.zeros(4, np.int32)], grid=1, block=1)
    (site,) = launch.sites
    assert site.adds == adds
    assert PtxFrontEnd(launch, "practice").adds == (frozenset({site.id}) if adds else frozenset())
