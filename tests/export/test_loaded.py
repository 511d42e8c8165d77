"""An exported kernel in Python, on a driver that runs nothing."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.support.cuda.fake_driver import FakeDriver
from tilepipe.cuda.runtime import interop, launching, staging
from tilepipe.export import loaded

BF16 = np.dtype(ml_dtypes.bfloat16)


@tp.kernel(grid=lambda out, chip: min(-(-out.shape[0] // 4), chip.sms))
def scaled(
    ctx: tp.Context, x: tp.GlobalTensor, out: tp.GlobalTensor, by: tp.Value, *, cols: int
) -> None:
    """out = by * x, a row a CTA and turn."""

    @ctx.role("scale", warps=1)
    def scale() -> None:
        for row in ctx.range(ctx.block_id, out.shape[0], ctx.num_clusters):
            for part in range(cols // 32):
                at = row, part * 32 + ctx.lane
                ctx.store(out[at], ctx.load(x[at]) * by)


def a_program(rows: int = 100) -> tp.Program:
    x, out = (np.zeros((rows, 64), np.float32) for _ in range(2))
    return scaled.bind(x, out, 2.5, cols=64)


EXTENTS: dict[str, tuple[int | str, ...]] = {"x": ("rows", 64), "out": ("rows", 64)}


class Device(FakeDriver):
    """A device of a compute capability and with multiprocessors."""

    major, minor, sms = 9, 0, 132

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[tuple[Any, ...]] = []

    def device_count(self) -> int:
        return 1

    def attribute(self, _ordinal: int, name: str) -> int:
        values = {"COMPUTE_CAPABILITY_MAJOR": self.major, "COMPUTE_CAPABILITY_MINOR": self.minor}
        return values.get(name, self.sms)

    def Function(self, ordinal: int, *given: Any) -> Any:
        self.loaded.append((ordinal, *given))
        return SimpleNamespace(ordinal=ordinal, handle=0x30, max_clusters=1)


class OnGpu:
    """An array at an address of device 0."""

    device = SimpleNamespace(id=0)

    def __init__(self, address: int, shape: tuple[int, ...], dtype: str = "<f4", gap: int = 0):
        size = np.dtype(dtype).itemsize
        self.strides = ((shape[1] + gap) * size, size) if len(shape) == 2 else (size,)
        self.dtype, self.shape = np.dtype(dtype), shape
        self.__cuda_array_interface__: dict[str, Any] = {
            "data": (address, False),
            "shape": shape,
            "typestr": dtype,
            "version": 3,
            "strides": self.strides,
        }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_program().export(tmp_path_factory.mktemp("out"), extents=EXTENTS)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    driver = Device()
    driver.install(monkeypatch, launching, loaded, staging)
    return driver


def passed(device: Device, types: list[Any]) -> list[Any]:
    """The values of the last launch's parameters."""
    places = ctypes.cast(device.launches[-1][4], ctypes.POINTER(ctypes.c_void_p))
    return [kind.from_address(places[i] or 0).value for i, kind in enumerate(types)]


def test_a_launch_on_arrays_in_gpu_memory(files: Path, device: Device) -> None:
    kernel = tp.load_exported(files)
    assert [x.kind for x in kernel.manifest.arguments] == [
        "data", "stride", "data", "stride", "shape", "scalar",
    ]  # fmt: skip
    types = [
        ctypes.c_uint64, ctypes.c_int64, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32,
        ctypes.c_float,
    ]  # fmt: skip
    x, out = OnGpu(0x1000, (41, 64), gap=3), OnGpu(0x9000, (41, 64))
    kernel.launch(x=x, out=out, stream=7)
    assert device.launches[0][:4] == (11, 32, kernel.manifest.smem_bytes, 7)
    assert passed(device, types) == [0x1000, 67, 0x9000, 64, 41, 2.5]
    kernel.launch(x=x, out=out, by=np.float32(0.25), stream=0)
    assert passed(device, types)[-1] == 0.25
    many = OnGpu(0x1000, (10_000, 64)), OnGpu(0x9000, (10_000, 64))
    kernel.launch(x=many[0], out=many[1], stream=0)
    assert device.launches[-1][0] == 132
    (function,) = device.loaded  # loaded once
    cubin = files.with_suffix(".cubin").read_bytes()
    manifest = kernel.manifest
    assert function == (0, cubin, manifest.entry, 32, manifest.smem_bytes, 1)


class Cuda(NamedTuple):
    """A device of PyTorch."""

    index: int  # type: ignore[assignment]


class OfTorch(OnGpu):
    """A tensor of PyTorch at an address of device 0."""

    is_cuda = True
    device = Cuda(0)  # type: ignore[assignment]

    def stride(self) -> tuple[int, ...]:
        return tuple(x // self.dtype.itemsize for x in self.strides)

    def data_ptr(self) -> int:
        return int(self.__cuda_array_interface__["data"][0])


def test_launches_on_tensors_that_are_alike_are_checked_once(
    files: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded, "is_tensor", lambda x: isinstance(x, OfTorch))
    kernel = tp.load_exported(files)
    checked: list[object] = []
    check = kernel._launch

    def counted(given: Any) -> Any:
        checked.append(given)
        return check(given)

    monkeypatch.setattr(kernel, "_launch", counted)
    types = [
        ctypes.c_uint64, ctypes.c_int64, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32,
        ctypes.c_float,
    ]  # fmt: skip

    def launch(x: int, out: int, rows: int = 41, gap: int = 0, **more: float) -> list[Any]:
        kernel.launch(
            x=OfTorch(x, (rows, 64), gap=gap), out=OfTorch(out, (rows, 64)), stream=7, **more
        )
        return passed(device, types)

    assert launch(0x1000, 0x9000) == [0x1000, 64, 0x9000, 64, 41, 2.5]
    assert launch(0x2000, 0x8000) == [0x2000, 64, 0x8000, 64, 41, 2.5]
    assert len(checked) == 1
    assert launch(0x1000, 0x9000, gap=3)[1] == 67
    assert launch(0x1000, 0x9000, rows=7)[4] == 7
    assert launch(0x1000, 0x9000, by=0.0)[-1] == 0.0
    assert math.copysign(1, launch(0x1000, 0x9000, by=-0.0)[-1]) == -1
    assert len(checked) == 5
    launch(0x3000, 0x7000, gap=3)
    assert len(checked) == 5
    x, out = OfTorch(0x1000, (9, 64)), OfTorch(0x9000, (9, 64))
    kernel.launch(x=x, out=out, stream=7)
    kernel.launch(out=out, x=x, stream=7)
    assert len(checked) == 6
    gone = weakref.ref(x)
    checked.clear()
    del x
    assert gone() is None, "a launcher keeps the array that it was made for"
    with pytest.raises(tp.BindError, match="is exported for float32, got float16"):
        kernel.launch(x=OfTorch(0x1000, (41, 64), "<f2"), out=OfTorch(0x9000, (41, 64)))


def test_numpy_arrays_are_copied_there_and_back(
    files: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tp.load_exported(files.parent)
    x, out = np.ones((8, 64), np.float32), np.zeros((8, 64), np.float32)
    monkeypatch.setattr(interop, "_ordinal", lambda x, address: 0)
    launch = device._launch

    def runs(config: Any, handle: Any, parameters: int, extra: int) -> Any:
        places = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))
        found, to = (ctypes.c_uint64.from_address(places[i] or 0).value for i in (0, 2))
        ctypes.memmove(to, found, x.nbytes)
        return launch(config, handle, parameters, extra)

    monkeypatch.setattr(device, "_launch", runs)
    kernel.launch(x=x, out=out)
    assert (out == 1).all()
    assert device.memory == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {},
            "exported kernel 'scaled' needs x: float32 (rows, 64); out: float32 (rows, 64); it"
            " takes x, out, by",
        ),
        ({"y": 1}, "exported kernel 'scaled' does not know y; it takes x, out, by"),
        ({"outs": 1}, "does not know outs; it takes x, out, by. Did you mean out?"),
        ({"x": OnGpu(16, (8, 32))}, "x.shape[1] is 32; it was exported for 64"),
        ({"x": OnGpu(16, (9, 64))}, "out.shape[0] is 8, but x.shape[0] is 9; both are 'rows'"),
        ({"x": OnGpu(16, (64,))}, "argument 'x' has 2 dimensions, got shape (64,)"),
        ({"x": OnGpu(16, (0, 64))}, "x.shape[0] is 0; an extent is at least 1"),
        ({"x": OnGpu(16, (8, 64), "<f2")}, "argument 'x' is exported for float32, got float16"),
        ({"by": "two"}, "argument 'by' is a number, got 'two'"),
        ({"by": True}, "argument 'by' is a number, got True"),
    ],
)
def test_wrong_arguments(files: Path, device: Device, given: dict[str, Any], said: str) -> None:
    kernel = tp.load_exported(files)
    fine = {"x": OnGpu(16, (8, 64)), "out": OnGpu(4096, (8, 64))} if given else {}
    with pytest.raises(tp.BindError) as error:
        kernel.launch(**(fine | given))
    assert said in str(error.value)
    assert device.launches == []


def test_an_array_in_another_order(files: Path, device: Device) -> None:
    x = OnGpu(16, (8, 64))
    x.strides = (4, 32)
    x.__cuda_array_interface__["strides"] = x.strides
    with pytest.raises(tp.BindError) as error:
        tp.load_exported(files).launch(x=x, out=OnGpu(4096, (8, 64)))
    assert str(error.value) == (
        "argument 'x' is exported with dimension 1 contiguous; here its stride is 32 bytes"
    )


def test_what_is_written_has_memory_of_its_own(files: Path, device: Device) -> None:
    """As `bind` asks of a program's arguments."""
    kernel, x = tp.load_exported(files), np.zeros((8, 64), np.float32)
    once = np.lib.stride_tricks.as_strided(np.zeros(64, np.float32), (8, 64), (0, 4))
    with pytest.raises(tp.BindError, match="'out', which kernel 'scaled' writes, has elements th"):
        kernel.launch(x=x, out=once)
    with pytest.raises(tp.BindError, match="'out', which kernel 'scaled' writes, and 'x' share m"):
        kernel.launch(x=x, out=x)
    expanded = OnGpu(4096, (8, 64))
    expanded.strides = expanded.__cuda_array_interface__["strides"] = (0, 4)
    with pytest.raises(tp.BindError, match=r"'out', .* dimension 0 has a stride of 0"):
        kernel.launch(x=OnGpu(16, (8, 64)), out=expanded)
    assert device.launches == []
    kernel.launch(x=once, out=x)  # what is read may be a broadcast view
    assert len(device.launches) == 1


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ({"major": 10}, "is compiled for compute capability 9.0; device 0 has 10.0. Export it for"),
        ({"major": 8, "minor": 9}, "is compiled for compute capability 9.0; device 0 has 8.9."),
        ({"sms": 78}, "counts on 132 multiprocessors; device 0 has 78. Export it with a program"),
    ],
)
def test_another_gpu(files: Path, device: Device, gpu: dict[str, int], said: str) -> None:
    for name, x in gpu.items():
        setattr(device, name, x)
    kernel = tp.load_exported(files)
    with pytest.raises(tp.ExportError) as error:
        kernel.launch(x=OnGpu(16, (8, 64)), out=OnGpu(4096, (8, 64)))
    assert said in str(error.value)
    assert device.launches == []


def test_what_runs_on_which_gpu(files: Path) -> None:
    from dataclasses import replace

    manifest = tp.load_exported(files).manifest
    runs = {
        arch: [cc for cc in ((9, 0), (10, 0), (10, 3), (11, 0)) if m.runs_on(*cc)]
        for arch in ("sm_90a", "sm_100a", "sm_100f", "sm_103a", "sm_103f")
        for m in (replace(manifest, arch=arch),)
    }
    assert runs == {
        "sm_90a": [(9, 0)],
        "sm_100a": [(10, 0)],
        "sm_100f": [(10, 0), (10, 3)],
        "sm_103a": [(10, 3)],
        "sm_103f": [(10, 3)],
    }


def test_the_grid_of_a_launch(files: Path) -> None:
    kernel = tp.load_exported(files)
    assert [kernel.grid({"rows": n}) for n in (1, 4, 5, 528, 529)] == [1, 1, 2, 132, 132]


@pytest.mark.slow
def test_loading_and_checking_need_neither_nvrtc_nor_a_kernel(files: Path) -> None:
    code = f"""
import sys
sys.modules["cuda.bindings.nvrtc"] = None
import numpy as np, tilepipe as tp
from tilepipe.lang.tracing import kernel as tracing
tracing.trace = None
k = tp.load_exported({str(files)!r})
try:
    k.launch(x=np.zeros((8, 64), np.float32), out=np.zeros((8, 64), np.float32))
except tp.UnavailableError as error:
    print("no GPU" if "driver" in str(error) else error)
else:
    print("launched")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout in ("no GPU\n", "launched\n")


@pytest.mark.parametrize("path", [None, 0, b"x.json", True, ["x.json"]])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(tp.BindError) as error:
        tp.load_exported(path)
    assert str(error.value) == (
        "load_exported takes the path of a manifest, NAME.json, or of its directory, as a str or a"
        f" Path; got {path!r}"
    )


def test_arguments_are_named(files: Path, device: Device) -> None:
    x = np.zeros((8, 64), np.float32)
    with pytest.raises(tp.BindError) as error:
        tp.load_exported(files).launch(x, x)
    assert str(error.value) == (
        "exported kernel 'scaled' takes its arguments by name, got 2 without: launch(x=..., "
        "out=..., by=...)"
    )
    assert not device.launches
