"""Targets: what each has, what it is refused, and the shipped Blackwell kernels compiled for all
four that can take them.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.cases.block_scales import CASES
from tests.support.build import Builder
from tests.support.cuda.blackwell import gemm, tensor_memory
from tests.support.cuda.gemm import gemm as hopper_gemm
from tilepipe import cuda
from tilepipe.cuda.nvrtc import cache, compiler, sass
from tilepipe.cuda.runtime import driver
from tilepipe.errors import BindError, CompileError
from tilepipe.ir import ops
from tilepipe.ir.chip import ARCHITECTURES, B200, BLACKWELL, CHIPS, HOPPER, TARGETS, generation
from tilepipe.registry.catalog import KERNELS

FAMILY = [arch for arch, home in TARGETS.items() if home == BLACKWELL]
SHIPPED = [
    (spec.name, arch) for spec in KERNELS.values() if BLACKWELL in spec.archs for arch in FAMILY
]


def test_the_list_of_targets_is_one() -> None:
    assert ARCHITECTURES == ("sm_90a", "sm_100a", "sm_100f", "sm_103a", "sm_103f")
    assert CHIPS.keys() == set(ARCHITECTURES)
    assert set(driver.ARCHITECTURES.values()) <= set(ARCHITECTURES)
    assert driver.ARCHITECTURES[10, 3] == "sm_103a"


def test_nvrtc_has_them_all() -> None:
    from cuda.bindings import nvrtc

    _, numbers = nvrtc.nvrtcGetSupportedArchs()
    assert {int(re.findall(r"\d+", arch)[0]) for arch in ARCHITECTURES} <= set(numbers)


@pytest.mark.parametrize("arch", ["sm_100", "sm_120a", "SM_90A", "", ["sm_90a"]], ids=str)
def test_what_is_no_target(arch: Any) -> None:
    with pytest.raises(
        BindError,
        match=r"unknown architecture .*; known: sm_90a, sm_100a, sm_100f, sm_103a, sm_103f",
    ):
        generation(arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", FAMILY)
def test_the_family_has_tensor_memory_and_no_wgmma(arch: str) -> None:
    with pytest.raises(
        CompileError,
        match=f"role 'mma' of 'gemm' uses wgmma, which {arch} does not have; compile for sm_90a",
    ):
        cuda.source(hopper_gemm(), arch)
    text = cuda.source(gemm(), arch)
    assert f"// Printed by tilepipe for {arch};" in text
    assert text.replace(f"for {arch};", "for sm_100a;") == cuda.source(gemm(), BLACKWELL), (
        "one text for the family"
    )
    ptx = cuda.compile(gemm(), arch, emit="ptx").data.decode()
    assert f".target {arch}" in ptx


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize("arch", FAMILY)
@pytest.mark.parametrize("kind", ["mxfp8", "mxfp4", "nvfp4"])
def test_scale_factors_compile_for_the_family(kind: str, arch: str) -> None:
    """A family target refuses `.scale_vec`, which `.block32` and `.block16` spell for all."""
    kernel = (
        next(c for c in CASES if c.name.startswith(kind)).make(np.random.default_rng(0))[0].kernel
    )
    code = cuda.compile(kernel, arch)
    found = {i.opcode for i in sass.disassemble(code.data) if i.base in ("UTCQMMA", "UTCOMMA")}
    vector = ".4X" if arch.startswith("sm_100") else ".BLOCK16"
    assert found == {{"mxfp8": "UTCQMMA", "mxfp4": "UTCOMMA", "nvfp4": f"UTCOMMA{vector}"}[kind]}


@pytest.mark.slow
@pytest.mark.parametrize("arch", FAMILY)
def test_every_op_on_tensor_memory_compiles_for_the_family(arch: str) -> None:
    for group in (1, 2):
        code = cuda.compile(tensor_memory(group), arch)
        assert "warning" not in code.log


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arch"), [case for case in SHIPPED if case[1] != BLACKWELL], ids=str
)
def test_shipped_kernels_compile_for_the_family(name: str, arch: str) -> None:
    spec = KERNELS[name]
    assert spec.target({}, arch) == arch
    config, _ = spec.configure({}, CHIPS[arch])
    assert config == spec.configure({}, B200)[0], "the same settings as for sm_100a"
    code = spec.make(config, 0).program.compile(arch)
    assert (code.arch, code.spill_bytes, code.stack_bytes) == (arch, 0, 0)
    assert "C75" not in code.log


@pytest.mark.slow
def test_a_quick_sample_of_shipped_kernels_compiles() -> None:
    spec = KERNELS["gemm"]
    config, _ = spec.configure({}, CHIPS["sm_100f"])
    assert spec.make(config, 0).program.compile("sm_100f").spill_bytes == 0


def test_a_kernel_of_hopper_is_for_none_of_the_family() -> None:
    for arch in FAMILY:
        with pytest.raises(BindError, match=f"kernel 'gemm_grouped' exists for sm_90a, not {arch}"):
            KERNELS["gemm_grouped"].target({}, arch)
        with pytest.raises(BindError, match=f"arch=sm90 of .* is for sm_90a, not {arch}"):
            KERNELS["gemm_blockwise"].target({"arch": "sm90"}, arch)


# -- checks of tensor-memory accesses --------------------------------------------------


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_debug_builds_check_accesses_to_tensor_memory(
    arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, ...]] = []
    keys: list[tuple[str, ...]] = []
    log = (
        "ptxas . 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info : Used 168 registers"
    )

    def nvrtc(_code: str, _file: str, _emit: str, options: tuple[str, ...]) -> tuple[str, bytes]:
        given.append(options)
        return log, b"cubin"

    def key(*parts: str) -> str:
        keys.append(parts)
        return "key"

    monkeypatch.setattr(compiler, "nvrtc", nvrtc)
    monkeypatch.setattr(cache, "key", key)
    monkeypatch.setattr(cache, "read", lambda _: None)
    monkeypatch.setattr(cache, "write", lambda *_: None)
    kernel = gemm() if generation(arch) == BLACKWELL else hopper_gemm()
    for debug in (False, True):
        cuda.compile(kernel, arch, debug=debug)
    wanted = [False, arch != HOPPER]
    assert ["--ptxas-options=-g-tmem-access-check" in options for options in given] == wanted
    assert [compiler.TMEM_CHECK in parts for parts in keys] == wanted, (
        "an entry of the cache is found by its options"
    )
    assert all(f"--gpu-architecture={arch}" in options for options in given)


@pytest.mark.slow
def test_a_kernel_without_tensor_memory_is_not_checked() -> None:
    b = Builder()
    b.setup_done()
    with b.role("one", warps=1):
        b.do(ops.SyncWarp)
    plain = cuda.compile(b.finished(), BLACKWELL, debug=True)
    assert "BPT" not in sass.count(sass.disassemble(plain.data))


@pytest.mark.slow
def test_nvrtc_takes_the_check_and_it_is_in_the_code() -> None:
    """Each tcgen05 instruction calls routines that trap (BPT)."""
    plain, checked = (
        sass.count(sass.disassemble(cuda.compile(gemm(), BLACKWELL, debug=debug).data))
        for debug in (False, True)
    )
    assert checked["BPT"] > plain["BPT"]
    assert checked["CALL"] >= plain["CALL"] + plain["LDTM"] + plain["UTCHMMA"]
