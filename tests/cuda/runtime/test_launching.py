"""Launching, as far as it goes without a GPU: where arrays lie, streams, arguments, staging, and
what each failure says.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tilepipe as tp
from tests.support.cuda.fake_driver import FakeDriver
from tilepipe.cuda.codegen.parameters import arguments
from tilepipe.cuda.nvrtc.compiler import Compiled
from tilepipe.cuda.runtime import interop, launching, staging


class OnGpu:
    """An array that says where it is through `__cuda_array_interface__`."""

    def __init__(
        self,
        address: int = 4096,
        shape: tuple[int, ...] = (8, 16),
        dtype: str = "<f4",
        strides: tuple[int, ...] | None = None,
    ):
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": dtype,
            "version": 3,
            "strides": strides,
        }
        self.dtype, self.shape, self.strides = np.dtype(dtype), shape, strides


class Capsule:
    """An array that speaks DLPack alone."""

    def __init__(self, device: tuple[int, int]) -> None:
        self.device, self.dtype, self.shape = device, np.dtype(np.float32), (8, 16)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


@pytest.fixture
def ordinals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses from 0x10000 on are on device 1."""
    monkeypatch.setattr(interop, "_ordinal", lambda x, address: address // 0x10000)


@pytest.mark.parametrize(
    ("x", "there"),
    [
        (np.zeros(3), False),
        (np.float32(1), False),
        (OnGpu(), True),
        (Capsule((2, 0)), True),
        (Capsule((1, 0)), False),
        (Capsule((10, 0)), False),
        ([1], False),
        (None, False),
        (7, False),
    ],
)
def test_what_lies_in_gpu_memory(x: object, there: bool) -> None:
    assert interop.is_device_array(x) is there


@pytest.mark.usefixtures("ordinals")
def test_where_an_array_lies() -> None:
    assert interop.view(OnGpu(0x1234)) == interop.DeviceView(0x1234, (64, 4), 0)
    assert interop.view(OnGpu(0x11234, strides=(4, 32))) == interop.DeviceView(0x11234, (4, 32), 1)
    for x in (np.zeros(2), [1, 2], Capsule((1, 0))):
        with pytest.raises(
            tp.BindError,
            match=f"takes arrays in GPU memory, got {type(x).__name__}; move it to the GPU",
        ):
            interop.view(x)


@pytest.mark.usefixtures("ordinals")
def test_the_device_of_several_arrays() -> None:
    here, there, host = OnGpu(), OnGpu(0x10000), np.zeros(2)
    assert interop.device_of([]) is None
    assert interop.device_of([host, host]) is None
    assert interop.device_of([here, here]) == 0
    assert interop.device_of([there]) == 1
    with pytest.raises(
        tp.BindError, match="the arrays are on devices 0, 1; a launch is on one: move them"
    ):
        interop.device_of([here, there, host])
    with pytest.raises(
        tp.BindError,
        match="some arrays are in GPU memory and some in the host's: move them to the GPU",
    ):
        interop.device_of([here, host])


def test_dlpack_without_cuda_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core.utils", None)
    with pytest.raises(
        tp.UnavailableError,
        match=r"offer DLPack alone need cuda-core: pip install tilepipe\[cuda\]",
    ):
        interop.view(Capsule((2, 0)))


def test_streams() -> None:
    given: list[tuple[Any, int]] = [
        (0, 0),
        (77, 77),
        (SimpleNamespace(cuda_stream=5), 5),
        (SimpleNamespace(ptr=6), 6),
        (SimpleNamespace(handle=7), 7),
        (SimpleNamespace(handle=SimpleNamespace(value=8)), 8),
        (SimpleNamespace(handle=SimpleNamespace(value=None)), 0),
        (SimpleNamespace(__cuda_stream__=lambda: (0, 9)), 9),
        (None, 0),
    ]
    for stream, handle in given:
        assert interop.stream_handle(stream, [OnGpu()], 0) == handle
    for wrong in (True, "a", 1.5, SimpleNamespace(), SimpleNamespace(ptr=None)):
        with pytest.raises(
            tp.BindError,
            match=r"stream= takes an integer, or a stream of PyTorch, CuPy or cuda.core; got ",
        ):
            interop.stream_handle(wrong, [], 0)


# -- arguments -------------------------------------------------------------------------


@tp.kernel(grid=3)
def many_arguments(ctx: tp.Context, a: Any, n: Any, out: Any, x: Any) -> None:
    """A tensor map, an array by pointer and strides, an extent of each, an integer and a float."""
    tile = ctx.smem((8, 16), a.dtype, name="tile")
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            full.expect_bytes(tile[0].nbytes)
            ctx.tma_load(a, (0, a.shape[1] - 16), tile[0], full)
        full.wait(0)
        with ctx.elect_one():
            ctx.store(
                out[n, ctx.block_id], ctx.load(tile[0][1, 2]).to("float32") * x + out.shape[0]
            )


def bound(address: int = 0x2000) -> tp.Program:
    a = OnGpu(address, (8, 32), "<f2", (64, 2))
    out = OnGpu(0x7004, (5, 40), "<f4", (400, 4))
    return many_arguments.bind(tp.tensor_map(a, box=(8, 16)), 3, out, 0.5, chip=tp.H200)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    launching.encoded.cache_clear()
    yield FakeDriver().install(monkeypatch, launching, staging)
    launching.encoded.cache_clear()


def launcher(program: tp.Program) -> launching.Launcher:
    compiled = Compiled("many_arguments", "sm_90a", "cubin", "", "", b"", 4096, 32, 1)
    function: Any = SimpleNamespace(ordinal=2, max_clusters=132, handle="handle")
    return launching.Launcher(
        program.launch_args, compiled, function, {"a": (64, 2), "out": (400, 4)}
    )


def passed(fake: FakeDriver, program: tp.Program, launch: int = -1) -> dict[str, Any]:
    """The arguments of a launch, by name; a tensor map by its first word, which the fake driver
    fills.
    """
    types: dict[str, Any] = {
        "data": ctypes.c_uint64,
        "stride": ctypes.c_int64,
        "shape": ctypes.c_int32,
    }
    wanted = arguments(program.kernel)
    places = (ctypes.c_void_p * len(wanted)).from_address(fake.launches[launch][4])
    found = {}
    for argument, place in zip(wanted, places, strict=True):
        if argument.kind == "map":
            assert place is not None
            assert place % 128 == 0, "as CUtensorMap is aligned since CUDA 13"
            found[argument.name] = ctypes.c_uint64.from_address(place).value
            continue
        scalar = ctypes.c_float if argument.param.dtype.is_float else ctypes.c_int32
        assert place is not None
        found[argument.name] = types.get(argument.kind, scalar).from_address(place).value
    return found


def test_the_arguments_are_the_printed_ones(fake: FakeDriver) -> None:
    program = bound()
    call = launcher(program)
    assert call.tensors == ("a", "out")
    call((0x2000, 0x7004), 55)
    assert fake.launches[0][:4] == (3, 32, 4096, 55)
    assert fake.devices == [2]
    assert passed(fake, program) == {
        "a": 1_000_000 + 0x2000,
        "a_shape_1": 32,
        "n": 3,
        "out_data": 0x7004,
        "out_stride_0": 100,
        "out_shape_0": 5,
        "x": 0.5,
    }
    signature = program.source().split("many_arguments(")[-1].split(") {")[0]
    assert [declared.split()[-1] for declared in signature.split(",")] == list(
        passed(fake, program)
    )


def test_arguments_are_packed_once_for_each_set_of_addresses(fake: FakeDriver) -> None:
    call = launcher(bound())
    for address in (0x2000, 0x3000, 0x2000, 0x2000):
        call((address, 0x7004))
    assert fake.maps == [0x2000, 0x3000]
    places = [launch[4] for launch in fake.launches]
    assert places[0] == places[2] == places[3] != places[1]
    call((0x2000, 0x8000))
    assert fake.maps == [0x2000, 0x3000], "the map depends on its own tensor alone"
    assert passed(fake, bound())["out_data"] == 0x8000
    assert passed(fake, bound(), 1)["a"] == 1_000_000 + 0x3000


def test_arguments_that_no_address_changes_are_made_once(fake: FakeDriver) -> None:
    program = bound()
    call = launcher(program)
    call((0x2000, 0x7004))
    call((0x3000, 0x8000))
    names = [argument.name for argument in arguments(program.kernel)]
    pointers = [(ctypes.c_void_p * len(names)).from_address(x[4]) for x in fake.launches]
    moved = {n for n, x, y in zip(names, *pointers, strict=True) if x != y}
    assert moved == {"a", "out_data"}


def test_what_is_remembered_is_bounded(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "_REMEMBERED", 8)
    call = launcher(bound())
    for i in range(50):
        call((0x2000 + 16 * i, 0x7004))
        assert passed(fake, bound())["a"] == 1_000_000 + 0x2000 + 16 * i
    assert len(call._packed) == 8


def test_extra_arguments_come_last(fake: FakeDriver) -> None:
    call = launcher(bound())
    packed = call.pack((0x2000, 0x7004), (ctypes.c_uint64(123), ctypes.c_uint32(7)))
    call.launch_packed(packed, 9)
    count = len(arguments(bound().kernel))
    places = (ctypes.c_void_p * (count + 2)).from_address(fake.launches[-1][4])
    assert ctypes.c_uint64.from_address(places[count] or 0).value == 123
    assert ctypes.c_uint32.from_address(places[count + 1] or 0).value == 7
    assert fake.launches[-1][3] == 9


def test_an_address_that_tma_cannot_take(fake: FakeDriver) -> None:
    with pytest.raises(
        tp.BindError, match="tensor 'a' starts at 0x2008; TMA needs a multiple of 16 bytes"
    ):
        launcher(bound())((0x2008, 0x7004))
    assert fake.launches == []
    with pytest.raises(tp.BindError, match="'many_arguments' takes the addresses of a, out; got 1"):
        launcher(bound())((0x2000,))


def test_the_device_that_is_current_stays_so(fake: FakeDriver) -> None:
    call = launcher(bound())
    for device in (None, 0, 2):
        fake.device = device
        call((0x2000, 0x7004))
        call((0x3000, 0x7004))
        assert fake.device == device
    assert fake.devices == [2] * 6


def test_a_refused_launch(fake: FakeDriver) -> None:
    call = launcher(bound())
    call((0x2000, 0x7004), 3)
    fake.status = 1
    with pytest.raises(
        tp.LaunchError,
        match=r"launching 'many_arguments' on device 2 failed: CUDA_ERROR_TOO_SAD \(too sad\)",
    ):
        call((0x2000, 0x7004))
    fake.status = 0
    for stream in (3, 4, 3):
        call((0x2000, 0x7004), stream)
        assert fake.launches[-1][3] == stream


@pytest.mark.usefixtures("ordinals")
def test_mixed_arguments_are_refused() -> None:
    program = many_arguments.bind(
        tp.tensor_map(OnGpu(0x2000, (8, 32), "<f2"), box=(8, 16)),
        3,
        np.zeros((5, 40), np.float32),
        0.5,
        chip=tp.H200,
    )
    with pytest.raises(tp.BindError, match="some arrays are in GPU memory and some in the host's"):
        program.launch()


# -- NumPy arguments -------------------------------------------------------------------


@tp.kernel()
def doubled(ctx: tp.Context, a: Any, out: Any) -> None:
    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            ctx.store(out[0, 0], ctx.load(a[0, 0]) * 2)


VIEWS: dict[str, Any] = {
    "plain": lambda x: x,
    "transposed": lambda x: x.T,
    "rows apart": lambda x: x[::2],
    "columns apart": lambda x: x[:, 1::3],
    "backwards": lambda x: x[::-1],
    "both backwards": lambda x: x[::-1, ::-1],
    "part": lambda x: x[2:5, 3:7],
    "one": lambda x: x[3:4, 4:5],
}


@pytest.mark.parametrize("name", VIEWS)
def test_staged_and_copied_back(fake: FakeDriver, name: str) -> None:
    base, other = (
        np.arange(120, dtype=np.float32).reshape(8, 15),
        np.arange(120, dtype=np.float32).reshape(8, 15),
    )
    out, a = VIEWS[name](base), VIEWS[name](other)
    launch = doubled.bind(
        tp.TensorMap(tp.float32, 2, array=a), tp.TensorMap(tp.float32, 2, array=out)
    ).launch_args
    before = base.copy()
    with staging.staged(launch, 0) as places:
        on_gpu = {n: strided(places[n], x) for n, x in (("a", a), ("out", out))}
        np.testing.assert_array_equal(on_gpu["a"], a)
        np.testing.assert_array_equal(on_gpu["out"], out)
        on_gpu["out"][...] = on_gpu["a"] * 2 + 1
        on_gpu["a"][...] = -1
    np.testing.assert_array_equal(a, VIEWS[name](before))
    np.testing.assert_array_equal(out, VIEWS[name](before) * 2 + 1)
    VIEWS[name](before)[...] = out
    np.testing.assert_array_equal(
        base, before, err_msg="what lies between the elements is untouched"
    )
    assert fake.memory == {}


def strided(address: int, like: Any) -> Any:
    """The array at an address, with the strides of another."""
    low = address + sum(min((n - 1) * s, 0) for n, s in zip(like.shape, like.strides, strict=True))
    size = (
        sum(abs((n - 1) * s) for n, s in zip(like.shape, like.strides, strict=True)) + like.itemsize
    )
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(low))
    return np.ndarray(like.shape, like.dtype, raw, address - low, like.strides)


def test_a_kernel_starts_when_its_arguments_have_arrived(fake: FakeDriver) -> None:
    """cuMemcpyHtoD of pageable memory returns early, and only the default stream waits for it by
    itself.
    """
    a, out = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    with staging.staged(doubled.bind(a, out).launch_args, 0):
        assert fake.calls == ["cuMemAlloc", "cuMemcpyHtoD"] * 2 + ["cuStreamSynchronize"]


def test_the_current_stream_of_cupy_is_that_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    class Device:
        def __init__(self, ordinal: int) -> None:
            self.ordinal = ordinal

        def __enter__(self) -> None:
            now.append(self.ordinal)

        def __exit__(self, *_: object) -> None:
            now.pop()

    class Array(OnGpu):
        pass

    cuda = SimpleNamespace(
        Device=Device, get_current_stream=lambda: SimpleNamespace(ptr=100 + now[-1])
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=Array, cuda=cuda))
    assert interop.stream_handle(None, [Array()], 1) == 101
    assert now == [0]


def test_nothing_is_copied_back_after_an_error(fake: FakeDriver) -> None:
    a, out = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    launch = doubled.bind(a, out).launch_args

    def fails() -> None:
        with staging.staged(launch, 0) as places:
            strided(places["out"], out)[...] = 5
            raise tp.LaunchError("planted")

    with pytest.raises(tp.LaunchError, match="planted"):
        fails()
    assert (out == 0).all()
    assert fake.memory == {}


def test_a_kernel_that_fails_is_named(fake: FakeDriver) -> None:
    a, out = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    launch = doubled.bind(a, out).launch_args
    fake.ends = 719

    def fails() -> None:
        with staging.staged(launch, 0) as places:
            strided(places["out"], out)[...] = 5

    words = (
        r"kernel 'doubled' failed on the GPU: CUDA_ERROR_TOO_SAD \(too sad\). The CUDA "
        r"context of this process is lost"
    )
    with pytest.raises(tp.LaunchError, match=words):
        fails()
    assert (out == 0).all()
    assert fake.memory == {}


@pytest.mark.slow
@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=4), data=st.data())
def test_bounds_of_any_view(shape: list[int], data: st.DataObject) -> None:
    array = np.zeros(shape, np.int16)
    cut = tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1, -2]))) for _ in shape)
    view = array[cut].transpose(data.draw(st.permutations(range(len(shape)))))
    assert staging._bounds("x", view) == np.lib.array_utils.byte_bounds(view)


def test_an_argument_that_is_no_array() -> None:
    with pytest.raises(
        tp.BindError, match="argument 'a': expected a NumPy array like the others, got OnGpu"
    ):
        staging._bounds("a", OnGpu())
