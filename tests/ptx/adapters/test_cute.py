"""Launches of functions that CuTe DSL has compiled: their host code is run, with functions of the
CUDA runtime that only keep what they are given.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import ptx
from tilepipe.machine.memory import tensor_map
from tilepipe.ptx.adapters import cute

TEXT = """
.version 8.7
.target sm_100a
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .align 8 .b8 p0[16], .param .u32 p1) {
    .reg .b64 %rd<2>; .reg .b32 %r<4>; .reg .pred %q;
    ld.param.u64 %rd1, [p0+8]; ld.param.u32 %r1, [p1]; mov.u32 %r2, %nctaid.x;
    mad.lo.u32 %r1, %r1, %r2, %cluster_nctarank;
    mov.u32 %r3, %ctaid.x; setp.ne.u32 %q, %r3, 0; @%q ret;
    st.global.u32 [%rd1], %r1; ret;
}
"""


class Host:
    """An engine whose host code is in Python: it launches `k` as CuTe's host code does."""

    def __init__(self, module: Any, opt_level: int = 0, shared_libs: Any = ()) -> None:
        self.module = module
        self._functions: dict[str, int] = {}
        self._kept: list[Any] = []
        assert (opt_level, list(shared_libs)) == (0, [])

    def raw_register_runtime(self, name: str, callback: ctypes.c_void_p) -> None:
        self._functions[name] = callback.value or 0

    def initialize(self) -> None:
        assert "_cudaLaunchKernelEx" in self._functions

    def _runtime(self, name: str, *arguments: Any) -> int:
        kinds = [ctypes.c_char_p if isinstance(a, bytes) else ctypes.c_void_p for a in arguments]
        return int(ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(self._functions[name])(*arguments))

    def raw_lookup(self, name: str) -> int:
        body = {"cuda_load_to_device": self._load, "_mlir_ciface_f": self._run}.get(name)
        if body is None:
            return 0
        made = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p))(body)
        self._kept.append(made)
        return ctypes.cast(made, ctypes.c_void_p).value or 0

    def _load(self, packed: Any) -> None:
        self.handle = ctypes.c_uint64()
        number = ctypes.c_int32(-1)
        asked = {}
        for attribute in (97, 75, 16):
            where = ctypes.addressof(number)
            assert self._runtime("_cudaDeviceGetAttribute", where, attribute, 0) == 0
            asked[attribute] = number.value
        assert asked == {97: 227 << 10, 75: 10, 16: 148}
        handle = ctypes.addressof(self.handle)
        assert self._runtime("_cudaLibraryGetKernel", handle, None, b"k") == 0

    def _run(self, packed: Any) -> None:
        if self.module < 0:  # CuTe's own function ends the process here
            failed = self._functions["cuda_dialect_assert_success"]
            ctypes.CFUNCTYPE(None, ctypes.c_int32)(failed)(999)
        status = ctypes.c_int32.from_address(packed[2])
        pointer = ctypes.c_uint64.from_address(packed[0]).value
        first = ctypes.create_string_buffer(struct.pack("<QQ", 1, pointer), 16)
        places = (ctypes.c_void_p * 2)(ctypes.addressof(first), packed[1])
        other = struct.pack("<I4x3I52x", 6, 1, 0, 0)
        cluster = struct.pack("<I4x3I52x", 4, 2, 1, 1)
        attributes = ctypes.create_string_buffer(other + cluster, 144)
        raw = struct.pack("<6IQQQI4x", 4, 1, 1, 32, 1, 1, 96, 0, ctypes.addressof(attributes), 2)
        configuration = ctypes.create_string_buffer(raw, len(raw))
        for _ in range(self.module):
            status.value = self._runtime(
                "_cudaLaunchKernelEx", ctypes.addressof(configuration), self.handle.value,
                ctypes.addressof(places),
            )  # fmt: skip


def compiled(launches: int = 1, text: str | None = TEXT) -> Any:
    def arguments(x: np.ndarray[Any, Any], number: int) -> tuple[list[Any], list[Any]]:
        held = [ctypes.c_uint64(x.ctypes.data), ctypes.c_int32(number)]
        addresses = [ctypes.addressof(value) for value in held]
        return [addresses[0], ctypes.c_void_p(addresses[1])], held

    return SimpleNamespace(
        artifacts=SimpleNamespace(PTX=text), engine=Host(1), export_provider=None,
        ir_module=launches,
        function_name="f", generate_execution_args=arguments,
    )  # fmt: skip


def test_what_the_host_code_passes_is_launched() -> None:
    x = np.zeros(6, np.int32)
    launch = ptx.from_cute(compiled(), x[2:], 10)
    assert (launch.grid, launch.block, launch.cluster) == ((4, 1, 1), (32, 1, 1), (2, 1, 1))
    assert launch.smem == 96
    launch.run()
    np.testing.assert_array_equal(x, [0, 0, 42, 0, 0, 0])


def test_a_function_for_another_gpu_is_run_by_a_jit_of_its_own() -> None:
    x = np.zeros(6, np.int32)
    provider = SimpleNamespace(mlirExecutionEngine=SimpleNamespace(ExecutionEngine=Host))
    other = SimpleNamespace(**vars(compiled()) | {"engine": None, "export_provider": provider})
    ptx.from_cute(other, x, 1).run()
    np.testing.assert_array_equal(x, [6, 0, 0, 0, 0, 0])


def test_several_launches_come_in_order() -> None:
    x = np.zeros(1, np.int32)
    with pytest.raises(tp.BindError, match=r"'f' launches 2 kernels \(k, k\)"):
        ptx.from_cute(compiled(2), x, 10)
    found = ptx.launches_of_cute(compiled(2), x, 10)
    assert [launch.kernel.name for launch in found] == ["k", "k"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: compiled(text=None), "without its PTX being kept: set CUTE_DSL_KEEP=ptx"),
        (lambda: compiled(0), r"'f' launches 0 kernels \(none\)"),
        (lambda: SimpleNamespace(**vars(compiled()) | {"engine": None}), "no host code that can"),
        (
            lambda: SimpleNamespace(**vars(compiled()) | {"function_name": "g"}),
            "host code cannot be run: there is no '_mlir_ciface_g'",
        ),
        (lambda: compiled(-1), "calls a function of CUDA that is not modelled; it failed with 999"),
    ],
)
def test_what_cannot_be_launched_is_refused(made: Callable[[], Any], said: str) -> None:
    with pytest.raises(tp.BindError, match=said):
        ptx.from_cute(made(), np.zeros(1, np.int32), 10)


def test_a_kernel_that_the_text_lacks_is_an_error() -> None:
    with pytest.raises(tp.PtxError, match=r"no entry point 'k'\. It has 1 entry point: other"):
        ptx.from_cute(compiled(text=TEXT.replace(" k(", " other(")), np.zeros(1, np.int32), 10)


RAGGED = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 p0[128]) {
    .reg .b64 %x; .reg .b32 %r<4>; .reg .pred %p;
    .shared .align 128 .b8 tile[64];
    mov.b64 %x, p0; cvta.param.u64 %x, %x;
    mov.u32 %r1, %tid.x; mov.u32 %r2, tile;
    setp.ne.u32 %p, %r1, 0; @%p ret;
    st.shared.v4.u32 [%r2], {1, 2, 3, 4}; st.shared.v4.u32 [%r2+16], {5, 6, 7, 8};
    st.shared.v4.u32 [%r2+32], {9, 9, 9, 9}; st.shared.v4.u32 [%r2+48], {9, 9, 9, 9};
    fence.proxy.async.shared::cta;
    // two rows, from row 3 on
    cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%x, {0, 1073741822, 5}], [%r2];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    ret;
}
"""


def test_a_tensor_map_may_begin_far_before_its_tensor() -> None:
    x = np.zeros((8, 4), np.uint32)
    rows = 1 << 30
    raw = tensor_map.encode(
        tensor_map.TensorMapFields(
            tensor_map.BY_NAME["u32"],
            x.ctypes.data - rows * 16,
            (4, rows, 2 * rows),
            (16, 16),
            (4, 4, 1),
            name="ragged",
        )
    )
    host = cute.HostLaunch("k", (1, 1, 1), (32, 1, 1), (1, 1, 1), 0, False, (raw,))
    launch = cute.bound(ptx.load(RAGGED)["k"], host, [np.ones(4, np.uint32), x])
    verdict = launch.check()
    assert (verdict.verdict, verdict.faults) == ("verified", [])
    launch.run()
    np.testing.assert_array_equal(x[3:5], [[1, 2, 3, 4], [5, 6, 7, 8]])
    assert not x[:3].any()
    assert not x[5:].any()
