"""What parameters may be given, and how what does not fit is refused."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tilepipe import ptx

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def kernel(parameters: str, body: str = "") -> ptx.Kernel:
    registers = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .b16 %h<9>;"
    text = f"{HEAD}.visible .entry k({parameters}) {{\n{registers}\n{body}\nret; }}\n"
    return ptx.load(text)["k"]


def raw(parameter: str, argument: ptx.Argument) -> bytes:
    return kernel(parameter).bind([argument], grid=1, block=1).parameters


@pytest.mark.parametrize(
    ("parameter", "argument", "expected"),
    [
        (".param .u64 x", None, bytes(8)),
        (".param .u32 x", np.int64(7), b"\7\0\0\0"),
        (".param .u32 x", True, b"\1\0\0\0"),
        (".param .u8 x", np.True_, b"\1"),
        (".param .s32 x", -2, b"\xfe\xff\xff\xff"),
        (".param .f32 x", 3, np.float32(3).tobytes()),
        (".param .f32 x", np.int64(3), np.float32(3).tobytes()),
        (".param .f32 x", np.float64(0.5), np.float32(0.5).tobytes()),
        (".param .f64 x", np.float32(0.5), np.float64(0.5).tobytes()),
        (".param .f64 x", 2.5, np.float64(2.5).tobytes()),
        (".param .b32 x", 0.5, np.float32(0.5).tobytes()),
        (".param .b64 x", 0.5, np.float64(0.5).tobytes()),
        (".param .b64 x", np.float64(0.1), np.float64(0.1).tobytes()),
        (".param .b16 x", np.float16(0.1), np.float16(0.1).tobytes()),
        (".param .b16 x", ml_dtypes.bfloat16(0.1), ml_dtypes.bfloat16(0.1).tobytes()),
        (".param .align 2 .b8 x[2]", ml_dtypes.bfloat16(3), ml_dtypes.bfloat16(3).tobytes()),
        (".param .align 4 .b8 x[4]", bytearray(b"abcd"), b"abcd"),
        (".param .align 4 .b8 x[4]", memoryview(b"abcd"), b"abcd"),
    ],
)
def test_values(parameter: str, argument: ptx.Argument, expected: bytes) -> None:
    assert raw(parameter, argument) == expected


@pytest.mark.parametrize(
    ("parameter", "argument", "message"),
    [
        (".param .u32 x", 1 << 32, "'.u32 x': 4294967296 does not fit in 4 bytes"),
        (".param .u32 x", np.float32(1), "'.u32 x' is an integer, and .* a floating-point number"),
        (".param .u64 x", np.float64(1), "'.u64 x' is an integer"),
        (".param .f32 x", 1e300, "beyond the range of float32"),
        (".param .b16 x", 0.5, "does not say which floating-point type it is; .* np.float16 or"),
        (".param .b16 x", np.float32(0.5), "does not say which floating-point type it is"),
        (".param .u32 x", None, "'.u32 x' has 4 bytes, and its argument .NoneType. 8"),
        (".param .f64 x", np.zeros(1), "'.f64 x' is a number; got ndarray"),
        (".param .align 4 .b8 x[12]", 5, r"b8 x\[12\]' is 12 bytes; pass bytes, .* ptx.Struct"),
        (".param .u64 x", [1.0, 2.0], r"got list \(make it an array\)"),
        (".param .u64 x", [np.zeros(1)], "an array of pointers is a ptx.Pointer of it"),
        (".param .u64 x", "text", "expected an array, .* None for a null pointer; got str"),
        (".param .u64 x", np.array([None]), "an array of Python objects"),
        (".param .align 8 .b8 x[16]", b"abc", "has 16 bytes, and its argument .bytes. 3"),
    ],
)
def test_what_does_not_fit_is_refused(parameter: str, argument: Any, message: str) -> None:
    with pytest.raises(tp.BindError, match=message):
        raw(parameter, argument)


def test_arguments_by_name() -> None:
    k = kernel(".param .u32 n, .param .f32 x")
    assert k.bind({"x": 1.0, "n": 5}, grid=1, block=1).parameters == (
        b"\5\0\0\0" + np.float32(1).tobytes()
    )
    declared = r"kernel 'k' has 2 parameters: .u32 n, .f32 x"
    wrong: list[tuple[Mapping[str, ptx.Argument], str]] = [
        ({"n": 5}, f"'x': no argument; {declared}"),
        ({"n": 5, "x": 1.0, "y": 2}, f"'y': no such parameter; {declared}"),
    ]
    for args, message in wrong:
        with pytest.raises(tp.BindError, match=message):
            k.bind(args, grid=1, block=1)
    with pytest.raises(tp.BindError, match=f"1 arguments; {declared}"):
        k.bind([5], grid=1, block=1)
    with pytest.raises(tp.BindError, match="a list in the order of the parameters, or a dict"):
        k.bind(5, grid=1, block=1)  # type: ignore[arg-type]


def test_tensors_of_pytorch_on_the_cpu_share_their_memory() -> None:
    torch = pytest.importorskip("torch")
    body = "ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.global.b16 %h1, [%rd1];"
    copies = kernel(".param .u64 x, .param .u64 y", f"{body} st.global.b16 [%rd2], %h1;")
    whole = torch.tensor([1.0, 2.5, -4.0], dtype=torch.bfloat16, requires_grad=True)
    out = torch.zeros(4, dtype=torch.bfloat16)
    # views of one storage have addresses in one allocation
    launch = copies.bind([whole[1:].detach(), out[2:]], grid=1, block=1)
    launch.run()
    assert out.tolist() == [0, 0, 2.5, 0]
    both = copies.bind([whole[1:].detach(), whole[2:]], grid=1, block=1)
    first, second = np.frombuffer(both.parameters, np.uint64)
    assert second - first == 2
    meta = torch.zeros(4, device="meta")
    with pytest.raises(tp.BindError, match=r"in the memory of meta; .* pass `x.cpu\(\)`, and copy"):
        copies.bind([meta, out], grid=1, block=1)


def test_arrays_in_the_memory_of_a_gpu_are_refused() -> None:
    class OnGpu:
        __cuda_array_interface__ = None

    class ByDlpack:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self) -> None: ...

    for array in (OnGpu(), ByDlpack()):
        with pytest.raises(tp.BindError, match=r"in the memory of a GPU; .* copy it to the host"):
            raw(".param .u64 x", array)  # type: ignore[arg-type]


def test_a_struct_has_addresses_tensor_maps_and_numbers() -> None:
    """A kernel that takes all it needs from one parameter, as those of CUTLASS do."""
    body = """
    .shared .align 128 .b8 tile[512]; .shared .align 8 .b64 full;
    .reg .pred %p;
    mbarrier.init.shared.b64 [full], 1;
    mov.b64 %rd8, params; cvta.param.u64 %rd1, %rd8;
    add.s64 %rd2, %rd1, 64;
    mbarrier.arrive.expect_tx.shared.b64 _, [full], 512;
    mov.u32 %r1, tile; mov.u32 %r2, full; mov.u32 %r3, 0; ld.param.u32 %r4, [params+200];
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
        [%r1], [%rd2, {%r3, %r4}], [%r2];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p, [full], 0; @!%p bra WAIT;
    ld.shared.u32 %r5, [tile];
    ld.param.u64 %rd3, [params+192];
    st.global.u32 [%rd3], %r5;
    ld.param.u64 %rd4, [params];
    st.global.u64 [%rd3+8], %rd4;
    """
    k = kernel(".param .align 64 .b8 params[256]", body)
    source = np.arange(32 * 16, dtype=np.uint32).reshape(32, 16)
    out = np.zeros(4, np.uint32)
    inner = ptx.Struct(16, {0: out, 8: np.int32(3)})
    params = ptx.Struct(256, {64: ptx.TensorMap(source, (8, 16)), 192: inner, 0: None})
    k.bind([params], grid=1, block=1).run()
    assert out.tolist() == [3 * 16, 0, 0, 0]


def test_a_struct_of_ctypes() -> None:
    class Params(ctypes.Structure):
        _fields_ = (("pointer", ctypes.c_void_p), ("count", ctypes.c_int32))

    body = """
    ld.param.u64 %rd1, [params]; ld.param.u32 %r1, [params+8]; st.global.u32 [%rd1], %r1;
    """
    k = kernel(".param .align 8 .b8 params[16]", body)
    out = np.zeros(1, np.uint32)
    given = ptx.Struct(Params(None, 7), {Params.pointer.offset: out})
    k.bind([given], grid=1, block=1).run()
    assert out[0] == 7
    assert (
        raw(".param .align 8 .b8 params[16]", Params(1, 2))[:12] == b"\1" + bytes(7) + b"\2\0\0\0"
    )


def test_a_pointer_is_to_addresses() -> None:
    """As in a grouped GEMM, which finds the matrices of a group through an array of pointers."""
    body = """
    ld.param.u64 %rd1, [x]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 8;
    add.u64 %rd1, %rd1, %rd2; ld.global.u64 %rd3, [%rd1];
    ld.global.u32 %r2, [%rd3]; add.u32 %r2, %r2, 1; st.global.u32 [%rd3], %r2;
    """
    groups = [np.array([10 * n], np.uint32) for n in range(3)]
    for to in (groups, ptx.Struct(24, {8 * n: group for n, group in enumerate(groups)})):
        launch = kernel(".param .u64 x", body).bind([ptx.Pointer(to)], grid=3, block=1)
        assert launch.check().verdict == "verified"
        launch.run()
    assert [int(group[0]) for group in groups] == [2, 12, 22]


def test_a_pointer_is_to_tensor_maps() -> None:
    body = """
    .shared .align 128 .b8 tile[128]; .shared .align 8 .b64 full; .reg .pred %p;
    mbarrier.init.shared.b64 [full], 1;
    mov.u32 %r0, 0; ld.param.u64 %rd1, [maps]; ld.param.u64 %rd2, [out];
    mbarrier.arrive.expect_tx.shared.b64 _, [full], 128;
    cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
        [tile], [%rd1+128, {%r0, %r0}], [full];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p, [full], 0; @!%p bra WAIT;
    ld.shared.u32 %r1, [tile+64]; st.global.u32 [%rd2], %r1;
    """
    a, b = np.zeros((2, 16), np.uint32), np.arange(32, dtype=np.uint32).reshape(2, 16)
    out = np.zeros(1, np.uint32)
    maps = ptx.Pointer([ptx.TensorMap(each, (2, 16)) for each in (a, b)])
    kernel(".param .u64 maps, .param .u64 out", body).bind([maps, out], grid=1, block=1).run()
    assert out[0] == 16


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ([np.zeros(1), 5], r"'.u64 x', element 1: 5 does not say how many bytes it has"),
        ([None, ptx.TensorMap(np.zeros((4, 4), np.float32), (4, 4))], "element 1: at byte 8, and"),
        ([], "a ptx.Pointer to nothing; pass None for a null pointer"),
        (np.zeros(3), "a ptx.Pointer is to a list of arguments or to a ptx.Struct; got ndarray"),
    ],
)
def test_pointers_that_are_refused(to: Any, message: str) -> None:
    with pytest.raises(tp.BindError, match=message):
        raw(".param .u64 x", ptx.Pointer(to))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({0: 5}, r"x\[128\]', offset 0: 5 does not say how many bytes it has; .* np.int32\(5\)"),
        ({0: 0.5}, r"np.float32\(0.5\)"),
        ({4: np.zeros(1), 8: np.int32(1)}, "offset 8: the field at 4 ends at 12"),
        ({124: np.zeros(1)}, "offset 124: 8 bytes, which end beyond the struct's 128"),
        ({-4: np.int32(1)}, "the offset -4 is not a number of bytes"),
        ({8: ptx.Struct(16, {0: ptx.Struct(8, {8: b"a"})})}, "offset 8, offset 0, offset 8: 1 byt"),
        ({32: ptx.TensorMap(np.zeros((4, 4), np.float32), (4, 4))}, "offset 32: "),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields: dict[int, Any], message: str) -> None:
    with pytest.raises(tp.BindError, match=message):
        raw(".param .align 64 .b8 x[128]", ptx.Struct(128, fields))


def test_a_tensor_map_lies_at_a_multiple_of_64() -> None:
    made = ptx.TensorMap(np.zeros((4, 4), np.float32), (4, 4))
    with pytest.raises(tp.BindError, match="offset 32: a tensor map lies at a multiple of 64"):
        raw(".param .align 64 .b8 x[256]", ptx.Struct(256, {32: made}))
    with pytest.raises(tp.BindError, match="begins with its size or its bytes; got 'x'"):
        raw(".param .align 64 .b8 x[256]", ptx.Struct("x"))  # type: ignore[arg-type]
    with pytest.raises(tp.BindError, match="a struct of -1 bytes"):
        raw(".param .align 64 .b8 x[256]", ptx.Struct(-1))
