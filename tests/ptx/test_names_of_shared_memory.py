"""Messages name bytes of shared memory by the variables of the PTX, and parameters as it does."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel, run
from tilepipe.errors import SimFault
from tilepipe.ptx import load

_TILE = "_ZZ6kernelPfE4tile"
_BARS = "_ZZ6kernelPfE4full"


def _said(
    text: str, *, threads: int = 32, arch: str = "sm_90a", smem: int = 0, before: str = ""
) -> str:
    out = np.zeros((64, 4), np.uint32)
    with pytest.raises(SimFault) as fault:
        run(text, out, threads=threads, arch=arch, smem=smem, before=before)
    return str(fault.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "st.shared.b32 [%r1+6], 0;",
            "accesses 4 bytes at 'tile' + 6 (0x406), which is no multiple",
        ),
        (
            "st.shared.b32 [full+16], 0;",
            "bytes 16..19 of 'full' (which has 16 bytes), bytes 0x610..",
        ),
        ("st.shared.b32 [%r1+512], %t;", "store different values to 'full' (0x600) in one"),
        (
            "mbarrier.init.shared.b64 [full+4], 1;",
            "initialises the mbarrier at 'full' + 4: an mbarrier takes 8 bytes",
        ),
        (
            "mbarrier.init.shared.b64 [full+8], 1; mbarrier.arrive.shared.b64 _, [full];",
            "the mbarrier at 'full' before it was initialised. Initialise it before every use."
            " Initialised mbarriers are at: 'full' + 8 (0x608).",
        ),
        (
            "mbarrier.init.shared.b64 [full+8], 1; st.shared.b32 [%r1+520], 0;",
            "writes bytes 8..11 of 'full', which has bytes of the mbarrier at 'full' + 8",
        ),
        (
            "ld.shared.b32 %r2, [%r1+256]; st.global.b32 [%b0], %r2;",
            "warp 0 reads bytes 256..259 of 'tile' with ld.shared.b32 %r2, [%r1+256]",
        ),
        (
            "cp.async.ca.shared.global [%r1+4], [%b0], 16;",
            "copies 16 bytes from 'array0' (0x7f0000000000) to 'tile' + 4 (0x404); both",
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [%b0], [%r1+8], 16;",
            "address 'tile' + 8 (0x408) of a bulk copy is not a multiple of 16",
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [%b0+8], [%r1], 16;",
            "address 'array0' + 8 (0x7f0000000008) of a bulk copy is not a multiple of 16",
        ),
    ],
)
def test_a_fault_at_an_address_names_its_variable(text: str, says: str) -> None:
    one = "setp.ne.u32 %p1, %t, 0; @%p1 bra END;" if "%t" not in text else ""
    declared = ".shared .align 128 .b8 tile[512]; .shared .align 8 .b64 full[2];"
    said = _said(f"{declared} mov.u32 %r1, tile; {one} {text} END:")
    assert says in said


def test_mangled_names_are_read() -> None:
    text = f"""
        .shared .align 128 .b8 {_TILE}[512]; .shared .align 8 .b8 {_BARS}[16];
        setp.eq.u32 %p1, %t, 0; setp.eq.u32 %p2, %t, 32;
        @%p1 st.shared.b32 [{_TILE}+4], 1;
        @%p2 st.shared.b32 [{_TILE}+4], 2;
        """
    said = _said(text, threads=64)
    assert said.startswith("race on 'tile': nothing orders")
    assert len(re.findall(r"warp [01] writes bytes 4\.\.7 of 'tile' \(generic proxy\)", said)) == 2


def test_accesses_that_have_bytes_of_two_variables_in_common_race_on_shared_memory() -> None:
    text = """
        .shared .align 16 .b8 one[16]; .shared .align 16 .b8 two[16];
        setp.eq.u32 %p1, %t, 0; setp.eq.u32 %p2, %t, 32;
        mov.u32 %r1, one;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%b0], [%r1], 32;
        @%p2 cp.async.bulk.global.shared::cta.bulk_group [%b0], [%r1], 32;
        """
    filled = "st.bulk.shared::cta [%r1], 32, 0; fence.proxy.async.shared::cta;"
    said = _said(text.replace("@%p2", filled + " @%p2", 1), threads=64, arch="sm_100a")
    assert "race on shared memory: nothing orders" in said
    assert "bytes from 'one' to 'two' + 15" in said


def test_dynamic_shared_memory_has_the_name_that_the_code_uses() -> None:
    """All dynamic variables are at one address; another kernel's are among them."""
    before = ".extern .shared .align 16 .b8 other[]; .extern .shared .align 16 .b8 smem[];"
    text = ".shared .b32 word; mov.u32 %r1, smem; st.shared.b32 [%r1+66], 0;"
    assert "at 'smem' + 66 (0x452), which is no" in _said(text, smem=1024, before=before)
    text = "mov.u32 %r1, smem; st.shared.b32 [%r1+1024], 0;"
    said = _said(text, smem=1024, before=before)
    assert (
        "accesses bytes 1,024..1,027 of 'smem' (which has 1,024 bytes), bytes 0x800..0x803 of"
        in said
    )


def test_dynamic_shared_memory_that_nothing_declares() -> None:
    said = _said("mov.u32 %r1, 1036; st.shared.b32 [%r1+2], 0;", smem=64)
    assert "at dynamic shared memory + 14 (0x40e), which is no multiple" in said


def test_what_the_system_has_goes_by_its_address() -> None:
    assert "accesses 4 bytes at 0x6, which" in _said("mov.u32 %r1, 6; st.shared.b32 [%r1], 0;")


def test_a_flag_in_shared_memory_is_named() -> None:
    text = """
        .shared .align 8 .b32 flags[2]; .shared .b32 box;
        setp.eq.u32 %p1, %t, 0; setp.ne.u32 %p2, %t, 32;
        @%p1 st.shared.b32 [flags+4], 0;
        bar.sync 0;
        @%p1 st.shared.b32 [box], 7;
        @%p1 st.relaxed.cta.shared.b32 [flags+4], 1;
        @%p2 bra END;
        READ: ld.relaxed.cta.shared.b32 %r1, [flags+4];
        setp.eq.u32 %p3, %r1, 0; @%p3 bra READ;
        ld.shared.b32 %r2, [box];
        END:
        """
    said = _said(text, threads=64)
    assert "race on 'box': " in said
    assert "the flag 'flags' + 4 is written relaxed" in said


def test_an_allocation_of_tensor_memory_names_where_its_address_is() -> None:
    text = """
        .shared .align 4 .b32 columns[2];
        tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [columns+4], 32;
        """
    said = _said(text, arch="sm_100a")
    assert "with 32 columns allocated: columns 0..31 (address in 'columns' + 4) by warp 0" in said


@pytest.mark.slow
def test_module_variables_are_named() -> None:
    before = ".shared .align 8 .b8 _ZN4tile4dataE[64]; .global .align 4 .b8 _ZN4tile5countE[4];"
    said = _said("st.shared.b32 [_ZN4tile4dataE+2], 0;", before=before)
    assert "at 'data' + 2 (0x402), which" in said
    said = _said("mov.u64 %rd1, _ZN4tile5countE; st.global.b32 [%rd1+4], 0;", before=before)
    assert "which is not all of 'count'" in said


def test_parameters_are_counted_from_one_where_they_have_no_name() -> None:
    text = """
        .version 8.7
        .target sm_90a
        .address_size 64
        .visible .entry gemm(.param .u64 gemm_param_0, .param .u64 gemm_param_1) {
        .reg .b64 %rd<3>;
        ld.param.u64 %rd1, [gemm_param_1];
        st.global.b32 [%rd1+16], 0;
        ret;
        }
        """
    made = load(text).only().bind([np.zeros(4, np.uint32)] * 2, grid=1, block=32)
    with pytest.raises(SimFault, match="not all of 'parameter 1'"):  # one array, named once
        made.run()
    arrays = [np.zeros(4, np.uint32), np.zeros(4, np.uint32)]
    with pytest.raises(SimFault, match="not all of 'parameter 2'"):
        load(text).only().bind(arrays, grid=1, block=32).run()


def test_parameters_keep_the_names_that_they_have() -> None:
    with pytest.raises(SimFault, match="not all of 'array0'"):
        kernel("st.global.b32 [%b0+16], 0;", 1).bind(
            [np.zeros(4, np.uint32)], grid=1, block=32
        ).run()
