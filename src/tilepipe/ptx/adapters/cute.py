"""Launches of functions that CuTe DSL has compiled.

The compiled host code is run: it computes the grid, writes the tensor maps and packs the
parameters. The functions of the CUDA runtime that it calls are functions of this module, which keep
what it passes to a launch, so that no driver and no GPU are needed.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError, LimitError
from tilepipe.host_arguments import shown
from tilepipe.ir.chip import B200, H200, Chip
from tilepipe.machine.memory.tensor_map import MAP_BYTES, decode
from tilepipe.ptx.adapters.driver_maps import encode_tiled
from tilepipe.ptx.adapters.host_memory import array_of, from_address, place_of
from tilepipe.ptx.arguments.values import Beside, Struct
from tilepipe.ptx.launch import Kernel, Launch
from tilepipe.ptx.loading import load

Array = npt.NDArray[Any]
Extents = tuple[int, int, int]
_POINTER = 8
# cudaLaunchConfig_t: grid, block, dynamic shared memory, stream, attributes, how many
_CONFIGURATION = struct.Struct("<3I3IQQQI4x")
_ATTRIBUTE = struct.Struct("<I4x3I52x")  # cudaLaunchAttribute, of which the first three numbers
# cudaLaunchAttributeID
_COOPERATIVE, _CLUSTER = 2, 4
_RAGGED = 1 << 30  # rows by which the address of a ragged tensor map lies before the tensor
_ASSERT = "cuda_dialect_assert_success"
# cudaDeviceAttr
_SMS, _MAJOR, _MINOR, _SMEM_OPT_IN = 16, 75, 76, 97


class _Engine(Protocol):
    """A JIT of CuTe's: `cutlass._mlir.execution_engine.ExecutionEngine`."""

    def raw_register_runtime(self, name: str, callback: ctypes.c_void_p) -> None: ...
    def raw_lookup(self, name: str) -> int: ...
    def initialize(self) -> None: ...


class _Artifacts(Protocol):
    @property
    def PTX(self) -> str | None: ...


class CompiledFunction(Protocol):
    """A result of `cute.compile`, as far as it is used here."""

    @property
    def artifacts(self) -> _Artifacts | None: ...
    @property
    def engine(self) -> _Engine | None: ...
    @property
    def ir_module(self) -> object: ...
    @property
    def export_provider(self) -> Any: ...  # has the module of CuTe's JIT
    @property
    def function_name(self) -> str: ...
    def generate_execution_args(
        self, *args: object, **kwargs: object
    ) -> tuple[Sequence[int | ctypes.c_void_p], object]: ...


@dataclass(frozen=True)
class HostLaunch:
    """The arguments of a launch by host code.

    Attributes:
        entry: the kernel's name. grid, block, cluster: extents in CTAs, threads and CTAs.
        smem: bytes of dynamic shared memory. cooperative: whether all CTAs run at once.
        parameters: the bytes of each, with addresses of the process's memory.
    """

    entry: str
    grid: Extents
    block: Extents
    cluster: Extents
    smem: int
    cooperative: bool
    parameters: tuple[bytes, ...]


def from_cute(
    compiled: CompiledFunction, *args: object, memory: Sequence[Array] = (), **kwargs: object
) -> Launch:
    """The launch that a function compiled by CuTe DSL makes for these arguments.

    Args:
        compiled: by `cute.compile`, with its PTX kept: `CUTE_DSL_KEEP=ptx` in the environment.
        args, kwargs: what the function is called with: NumPy arrays, tensors of PyTorch on the
            CPU, what `cute.runtime.from_dlpack` makes of them, pointers, numbers.
        memory: arrays that the arguments point into, where these are pointers.

    Raises:
        BindError: the function makes no launch, or several; its PTX was not kept.
    """
    found = launches_of_cute(compiled, *args, memory=memory, **kwargs)
    if len(found) != 1:
        names = ", ".join(launch.kernel.name for launch in found) or "none"
        raise BindError(
            f"'{compiled.function_name}' launches {len(found)} kernels ({names}); from_cute is for"
            " one: take them from launches_of_cute"
        )
    return found[0]


def launches_of_cute(
    compiled: CompiledFunction, *args: object, memory: Sequence[Array] = (), **kwargs: object
) -> list[Launch]:
    """All launches that a function compiled by CuTe DSL makes, in order: see `from_cute`.

    Raises:
        BindError: this is no compiled function, its PTX was not kept, or the host code failed.
    """
    if not all(hasattr(compiled, n) for n in ("artifacts", "ir_module", "function_name")):
        raise BindError(f"expected what cute.compile returned; got {shown(compiled)}")
    text = compiled.artifacts.PTX if compiled.artifacts is not None else None
    if text is None:
        raise BindError(
            f"'{compiled.function_name}' was compiled without its PTX being kept: set"
            " CUTE_DSL_KEEP=ptx before cutlass is imported"
        )
    kernels = load(text)
    arrays = [*memory]
    for name, value in (*((str(i), a) for i, a in enumerate(args)), *kwargs.items()):
        array = array_of(value, name)
        if array is not None:
            arrays.append(array)
    return [
        bound(kernels[host.entry], host, arrays)
        for host in host_launches(compiled, kernels, args, kwargs)
    ]


def bound(kernel: Kernel, host: HostLaunch, arrays: Sequence[Array]) -> Launch:
    """A launch with what host code passed; addresses in the arrays become simulated ones."""
    return kernel.bind(
        [Struct(raw, pointers(raw, arrays)) for raw in host.parameters],
        grid=host.grid,
        block=host.block,
        cluster=host.cluster,
        smem=host.smem,
        cooperative=host.cooperative,
    )


def pointers(raw: bytes, arrays: Sequence[Array]) -> dict[int, npt.NDArray[np.uint8] | Beside]:
    """The addresses in a parameter's bytes: offset -> the memory from there on.

    A tensor map begins with its address, so that this finds those too.
    """
    found: dict[int, npt.NDArray[np.uint8] | Beside] = {}
    places = [(*place_of(array), array) for array in arrays]

    def memory_at(address: int) -> npt.NDArray[np.uint8] | None:
        for low, high, array in places:
            if low <= address < high:
                return from_address(array, address)
        return None

    for at in range(0, len(raw) - _POINTER + 1, _POINTER):
        word = int.from_bytes(raw[at : at + _POINTER], "little")
        memory = memory_at(word)
        if memory is not None:
            found[at] = memory
    if 0 not in found and len(raw) == MAP_BYTES:
        for distance in _distances(raw):
            memory = memory_at((int.from_bytes(raw[:_POINTER], "little") + distance) % (1 << 64))
            if memory is not None:
                found[0] = Beside(memory, -distance)
                break
    return found


def _distances(raw: bytes) -> list[int]:
    """How far the tensor may lie behind the address of a tensor map: rows of any length are stored
    through one whose address is that of row -2^30, so that its bounds cut off the rows after the
    last one (`create_ragged_tensor_for_tma` of QuACK and FlashAttention, after Triton's
    ragged_tma). None where the bytes are no tensor map.
    """
    try:
        map_ = decode(raw)
    except LimitError:
        return []
    return [stride * _RAGGED for stride in dict.fromkeys(map_.strides)]


def host_launches(
    compiled: CompiledFunction,
    kernels: dict[str, Kernel],
    args: Sequence[object],
    kwargs: dict[str, object],
) -> list[HostLaunch]:
    """Runs the host code and returns what it passes to its launches.

    Raises:
        BindError: it failed, or needs more of the CUDA runtime than is there.
    """
    values, held = compiled.generate_execution_args(*map(_plain, args), **_plain_all(kwargs))
    engine = _engine(compiled)(compiled.ir_module, opt_level=0, shared_libs=[])
    runtime = _Runtime(kernels)
    for name, function in runtime.functions.items():
        engine.raw_register_runtime(name, ctypes.cast(function, ctypes.c_void_p))
    engine.initialize()
    library, device, status = ctypes.c_void_p(), ctypes.c_int32(0), ctypes.c_int32(0)
    at_library = ctypes.pointer(library)
    loaded = [ctypes.addressof(value) for value in (at_library, device, status)]
    passed = [value if isinstance(value, int) else value.value for value in values]
    try:
        _call(engine, "cuda_load_to_device", loaded)
        _call(engine, f"_mlir_ciface_{compiled.function_name}", [*passed, loaded[-1]])
    except RuntimeError as error:
        raise BindError(
            f"'{compiled.function_name}': its host code cannot be run: {error}"
        ) from None
    del held
    if runtime.error is not None:
        raise runtime.error
    if status.value:
        raise BindError(f"'{compiled.function_name}': its host code failed with {status.value}")
    return runtime.launches


def _engine(compiled: CompiledFunction) -> Callable[..., _Engine]:
    """The class of CuTe's JIT. The function's own one is linked with CUDA's functions, and there is
    none where it was compiled for another GPU than CUTE_DSL_ARCH says.

    Raises:
        BindError: the function was loaded from a file.
    """
    if compiled.engine is not None:
        return type(compiled.engine)
    if compiled.export_provider is None:
        raise BindError(f"'{compiled.function_name}' has no host code that can be run here")
    found: Callable[..., _Engine] = compiled.export_provider.mlirExecutionEngine.ExecutionEngine
    return found


def _call(engine: _Engine, name: str, addresses: Sequence[int | None]) -> None:
    """Calls a compiled function, which takes the addresses of its arguments, in an array."""
    function = engine.raw_lookup(name)
    if not function:
        raise RuntimeError(f"there is no '{name}'")
    packed = (ctypes.c_void_p * len(addresses))(*addresses)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(ctypes.addressof(packed))


def _plain(value: object) -> object:
    """An array as DLPack takes it: integers for dtypes that it does not know."""
    if isinstance(value, np.ndarray) and value.dtype.kind not in "biufc":
        return value.view(f"u{value.itemsize}")
    return value


def _plain_all(values: dict[str, object]) -> dict[str, object]:
    return {name: _plain(value) for name, value in values.items()}


class _Runtime:
    """The functions of the CUDA runtime that compiled host code calls.

    Attributes:
        functions: by name, for the JIT. launches: those made. error: what went wrong in one; no
            exception can pass through compiled code.
    """

    def __init__(self, kernels: dict[str, Kernel]) -> None:
        self._kernels = kernels
        self._names: list[str] = []
        self.launches: list[HostLaunch] = []
        self.error: Exception | None = None
        number, pointer = ctypes.c_int32, ctypes.c_void_p
        declared: list[tuple[str, Callable[..., None], list[Any]]] = [
            ("cudaGetDevice", self._zero, [pointer]),
            ("cudaDeviceGetAttribute", self._device_attribute, [pointer, number, number]),
            ("cudaLibraryLoadData", self._one,
             [*[pointer] * 4, number, pointer, pointer, number]),
            ("cudaLibraryGetKernel", self._kernel, [pointer, pointer, ctypes.c_char_p]),
            ("cuKernelGetAttribute", self._zero, [pointer, number, pointer, number]),
            ("cudaFuncSetAttribute", self._nothing, [pointer, number, number]),
            ("cudaKernelSetAttributeForDevice", self._nothing, [pointer, *[number] * 3]),
            ("cudaOccupancyMaxActiveBlocksPerMultiprocessor", self._one,
             [pointer, pointer, number, ctypes.c_size_t]),
            ("cudaLaunchKernelEx", self._launch, [pointer] * 3),
            ("cudaLaunchKernel", self._plain_launch,
             [pointer, *[number] * 6, pointer, ctypes.c_size_t, pointer]),
            ("cuTensorMapEncodeTiled", encode_tiled,
             [pointer, number, number, *[pointer] * 5, *[number] * 4]),
        ]  # fmt: skip
        self.functions = {
            f"_{name}": ctypes.CFUNCTYPE(number, *kinds)(self._guarded(function))
            for name, function, kinds in declared
        }
        # CuTe's own function ends the process where a call has failed
        self.functions[_ASSERT] = ctypes.CFUNCTYPE(None, number)(self._assert_success)

    def _guarded(self, function: Callable[..., None]) -> Callable[..., int]:
        def called(*arguments: Any) -> int:
            try:
                function(*arguments)
            except Exception as error:
                self.error = error
                return 1
            return 0

        return called

    def _assert_success(self, status: int) -> None:
        if status and self.error is None:
            self.error = BindError(
                f"the host code calls a function of CUDA that is not modelled; it failed with"
                f" {status}"
            )

    def _nothing(self, *_: Any) -> None:
        pass

    def _zero(self, out: int, *_: Any) -> None:
        ctypes.c_int32.from_address(out).value = 0

    def _one(self, out: int, *_: Any) -> None:
        ctypes.c_int32.from_address(out).value = 1

    def _device_attribute(self, out: int, attribute: int, _: int) -> None:
        chip = self._chip()
        values = {
            _SMS: chip.sms, _SMEM_OPT_IN: chip.smem_per_cta, _MAJOR: 10 if chip is B200 else 9,
            _MINOR: 0,
        }  # fmt: skip
        ctypes.c_int32.from_address(out).value = values.get(attribute, 0)

    def _chip(self) -> Chip:
        targets = next(iter(self._kernels.values())).module.targets
        return B200 if targets and targets[0].startswith("sm_10") else H200

    def _kernel(self, out: int, _: int, name: bytes) -> None:
        self._names.append(name.decode())
        ctypes.c_uint64.from_address(out).value = len(self._names)

    def _launch(self, configuration: int, kernel: int, parameters: int) -> None:
        raw = ctypes.string_at(configuration, _CONFIGURATION.size)
        numbers = _CONFIGURATION.unpack(raw)
        grid, block, (smem, _, attributes, count) = numbers[:3], numbers[3:6], numbers[6:]
        cluster: Extents = (1, 1, 1)
        cooperative = False
        for at in range(count):
            there = attributes + at * _ATTRIBUTE.size
            code, *values = _ATTRIBUTE.unpack(ctypes.string_at(there, _ATTRIBUTE.size))
            if code == _CLUSTER:
                cluster = values[0], values[1], values[2]
            elif code == _COOPERATIVE:
                cooperative = values[0] != 0
        self._made(kernel, grid, block, cluster, smem, parameters, cooperative)

    def _plain_launch(self, kernel: int, *rest: int) -> None:
        (gx, gy, gz, bx, by, bz), parameters, smem, _ = rest[:6], *rest[6:]
        self._made(kernel, (gx, gy, gz), (bx, by, bz), (1, 1, 1), smem, parameters)

    def _made(
        self,
        kernel: int,
        grid: Extents,
        block: Extents,
        cluster: Extents,
        smem: int,
        given: int,
        cooperative: bool = False,
    ) -> None:
        name = self._names[kernel - 1]
        declared = self._kernels[name].function.parameters
        places = (ctypes.c_void_p * len(declared)).from_address(given)
        parameters = tuple(
            ctypes.string_at(place, variable.nbytes)
            for place, variable in zip(places, declared, strict=True)
            if place is not None
        )
        self.launches.append(HostLaunch(name, grid, block, cluster, smem, cooperative, parameters))
