"""Launching a compiled kernel on one device. The arguments are packed once for each set of
addresses and kept, so that a repeated launch costs one driver call.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tilepipe.cuda.codegen.parameters import Argument, arguments
from tilepipe.cuda.debug.hang import RECORD_BYTES, TIMEOUT_MS, decode, fresh_record, hang_error
from tilepipe.cuda.nvrtc.compiler import Compiled
from tilepipe.cuda.runtime import driver
from tilepipe.cuda.runtime.tensormap import EncodedMap, TiledMap, tiled_map
from tilepipe.errors import BindError, LaunchError
from tilepipe.ir.hardware.tma import ALIGNMENT
from tilepipe.ir.memory import TensorParam
from tilepipe.ir.program import Kernel, Launch, TensorArg

# Sets of addresses that one launcher keeps. A tensor map takes 128 bytes, an entry about 1 KB.
_REMEMBERED = 256
_MAPS = 4096  # tensor maps that the process keeps
_C_TYPES: dict[str, Any] = {
    "boolean": ctypes.c_bool,
    "int8": ctypes.c_int32,
    "uint8": ctypes.c_int32,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


@functools.lru_cache(maxsize=_MAPS)
def encoded(ordinal: int, form: TiledMap, address: int) -> EncodedMap:
    """The tensor map of an array at an address, encoded once and kept."""
    api = driver.api()
    word, dim = api.cuuint64_t, api.cuuint32_t
    with driver.current(ordinal):
        found = driver.call(
            "cuTensorMapEncodeTiled",
            getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{form.data_type}"),
            len(form.global_dim),
            address - form.before,
            [word(x) for x in form.global_dim],
            # A tensor of rank 1 has no stride to pass, but the driver wants a list that is not
            # empty.
            [word(x) for x in form.global_strides or (ALIGNMENT,)],
            [dim(x) for x in form.box_dim],
            [dim(x) for x in form.element_strides],
            api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{form.swizzle}"),
            # Promotion to 256 bytes costs a sixth of the speed where rows are not aligned to 256,
            # and gains nothing measurable where they are.
            api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    return EncodedMap(int(found.getPtr()), form.reach, driver.version())


def wait_for(kernel: str, stream: int | None = None) -> None:
    """Waits for all work on a CUstream or, without one, on the device whose context is current.

    Raises:
        LaunchError: `kernel`, which was queued last, failed.
    """
    (status,) = (
        driver.api().cuCtxSynchronize()
        if stream is None
        else driver.api().cuStreamSynchronize(stream)
    )
    if int(status):
        raise LaunchError(
            f"kernel '{kernel}' failed on the GPU: {driver.describe(status)}. The CUDA context of"
            " this process is lost with it: nothing can be launched until the process is"
            " restarted. `program.run()` simulates the kernel, and says what is wrong and where."
        )


@dataclass(frozen=True, slots=True)
class Packed:
    """The arguments of a launch, laid out as cuLaunchKernel reads them.

    Attributes:
        address: of `pointers`.
        pointers: the array kernelParams, with the address of each argument.
        storage: the arguments themselves, which have to live as long as `pointers`.
    """

    address: int
    pointers: Any
    storage: tuple[Any, ...]


class _Moving(NamedTuple):
    """An argument that depends on the address of a tensor: where it stands among all arguments, and
    the tensor among those of the launcher. `form`: of its tensor map; None: a pointer. `boxed`:
    whether it must be aligned.
    """

    place: int
    tensor: int
    name: str
    form: TiledMap | None
    boxed: bool


class Launcher:
    """A compiled kernel on one device, for tensors of fixed shapes and strides at any addresses.

    Safe to call from several threads, on any stream of the device, and while a CUDA graph is
    captured: a launch allocates nothing on the device and waits for nothing. The context that is
    current in the calling thread stays current.

    Attributes:
        tensors: names of the tensor parameters, in the order in which a call takes their addresses.
        shapes: of the tensors by name.
        ordinal: the device.
        max_clusters: clusters that the device holds at once.
    """

    def __init__(
        self,
        launch: Launch,
        compiled: Compiled,
        function: driver.Function,
        strides: dict[str, tuple[int, ...]],
        passed: Sequence[Argument] | None = None,
    ) -> None:
        """
        Args:
            strides: the strides of each tensor by name, in bytes, outermost first.
            passed: the arguments of the compiled code; found from the kernel's ops unless given.
        """
        self.compiled = compiled
        self.ordinal = function.ordinal
        self.max_clusters = function.max_clusters
        self.tensors = tuple(p.name for p in launch.kernel.params if isinstance(p, TensorParam))
        self._handle = function.handle
        self._launch = driver.api().cuLaunchKernelEx
        self._grid = launch.grid
        self._cooperative = launch.kernel.cooperative
        self._configs: dict[int, Any] = {}  # by stream
        # Not the arguments themselves: a launcher is kept, and would keep arrays alive.
        args = launch.args
        self.shapes = {n: arg.shape for n, arg in args.items() if isinstance(arg, TensorArg)}
        self._numbers = {n: arg for n, arg in args.items() if not isinstance(arg, TensorArg)}
        self._strides = strides
        self._arguments = arguments(launch.kernel) if passed is None else passed
        self._packed: OrderedDict[tuple[int, ...], Packed] = OrderedDict()
        self._lock = threading.Lock()
        self._fixed: list[Any] = []  # values that no address changes
        self._places: list[int] = []  # of all arguments; 0 where an address decides
        self._moving: list[_Moving] = []
        for place, argument in enumerate(self._arguments):
            moves = argument.kind in ("map", "data")
            if moves:
                self._moving.append(self._placed(place, argument))
            else:
                self._fixed.append(self._value(argument))
            self._places.append(0 if moves else ctypes.addressof(self._fixed[-1]))

    def __call__(self, addresses: tuple[int, ...], stream: int = 0) -> None:
        """Launches with the tensors at these addresses, in the order of `tensors`, on a CUstream.

        Raises:
            BindError: too few or too many addresses, or one that TMA cannot take.
            LaunchError: the driver refuses the launch.
        """
        self.launch_packed(self._packed.get(addresses) or self._remember(addresses), stream)

    def _remember(self, addresses: tuple[int, ...]) -> Packed:
        packed = self.pack(addresses)
        with self._lock:
            self._packed[addresses] = packed
            if len(self._packed) > _REMEMBERED:
                self._packed.popitem(last=False)
        return packed

    def pack(self, addresses: tuple[int, ...], extra: tuple[Any, ...] = ()) -> Packed:
        """The packed arguments, followed by `extra`: ctypes values that debug and perturbed builds
        take.

        Raises:
            BindError: as `__call__` does.
        """
        if len(addresses) != len(self.tensors):
            raise BindError(
                f"'{self.compiled.name}' takes the addresses of"
                f" {', '.join(self.tensors) or 'nothing'}; got {len(addresses)}"
            )
        storage: list[Any] = [self._fixed]
        places = list(self._places)
        for place, tensor, name, form, boxed in self._moving:
            address = addresses[tensor]
            if boxed and address % ALIGNMENT:
                raise BindError(
                    f"tensor '{name}' starts at {address:#x};"
                    f" {'TMA needs' if form else 'one with a box starts at'} a multiple of"
                    f" {ALIGNMENT} bytes"
                )
            value: Any
            if form is None:
                value = ctypes.c_void_p(address)
                places[place] = ctypes.addressof(value)
            else:
                value = encoded(self.ordinal, form, address)
                places[place] = value.address
            storage.append(value)
        storage += extra
        places += map(ctypes.addressof, extra)
        pointers = (ctypes.c_void_p * max(len(places), 1))(*places)
        return Packed(ctypes.addressof(pointers), pointers, tuple(storage))

    def launch_packed(self, packed: Packed, stream: int) -> None:
        """Launches with arguments that `pack` returned."""
        if not driver.is_current(self.ordinal):
            with driver.current(self.ordinal):
                return self.launch_packed(packed, stream)
        config = self._configs.get(stream) or self._config(stream)
        (status,) = self._launch(config, self._handle, packed.address, 0)
        if status:
            raise LaunchError(
                f"launching '{self.compiled.name}' on device {self.ordinal} failed:"
                f" {driver.describe(status)}"
            )

    def _config(self, stream: int) -> Any:
        """The launch configuration for a stream, made once and kept.

        It lets the kernel run its set-up while the previous kernel on the stream ends
        (programmatic stream serialisation); the printed code waits for that kernel before it
        touches memory. A cooperative kernel starts after the previous one instead, since all of its
        CTAs have to find room.
        """
        api = driver.api()
        attribute, ids = api.CUlaunchAttribute(), api.CUlaunchAttributeID
        if self._cooperative:
            attribute.id = ids.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            attribute.value.cooperative = 1
        else:
            attribute.id = ids.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
        compiled = self.compiled
        config = driver.launch_configuration(
            self._grid, compiled.threads, compiled.smem_bytes, attribute, stream
        )
        if len(self._configs) >= _REMEMBERED:
            self._configs.clear()
        self._configs[stream] = config
        return config

    def _placed(self, place: int, argument: Argument) -> _Moving:
        param = argument.param
        boxed = isinstance(param, TensorParam) and param.box is not None
        form = self._form(argument) if argument.kind == "map" else None
        tensor = self.tensors.index(param.name)
        return _Moving(place, tensor, param.name, form, boxed or form is not None)

    def _form(self, argument: Argument) -> TiledMap:
        param = argument.param
        assert isinstance(param, TensorParam)
        strides = self._strides[param.name]
        return tiled_map(
            param, self.shapes[param.name], [s * 8 // param.dtype.bits for s in strides]
        )

    def _value(self, argument: Argument) -> Any:
        name, dtype = argument.param.name, argument.param.dtype
        if argument.kind == "stride":
            return ctypes.c_int64(self._strides[name][argument.axis] // dtype.nbytes)
        if argument.kind == "shape":
            return ctypes.c_int32(self.shapes[name][argument.axis])
        if name in self.shapes:
            raise BindError(f"parameter '{name}' is a {dtype}, got an array")
        c_type = _C_TYPES.get(dtype.name, ctypes.c_float)  # small floats are held as float32
        arg = self._numbers[name]
        return c_type(float(np.float32(arg)) if dtype.is_float else int(arg))


def launch_instrumented(
    launcher: Launcher,
    kernel: Kernel,
    addresses: tuple[int, ...],
    stream: int,
    *,
    seed: int = 0,
    timeout_ms: float = TIMEOUT_MS,
) -> None:
    """Launches a debug or perturbed build of `kernel` on a CUstream. The launch of a debug build
    waits for the kernel to end, so a CUDA graph cannot capture it.

    Such a launch passes the address of a record after the program's arguments (debug builds), and
    then the seed of the delays (perturbed builds).

    `addresses`: the addresses of the tensors, as `launcher` takes them. `seed`: chooses the delays;
    only its low 32 bits count.

    Raises:
        HangError: a wait of a debug build blocked for longer than `timeout_ms`.
        BindError, LaunchError: as `Launcher.__call__` raises them, or the kernel failed in another
            way.
    """
    last = (ctypes.c_uint32(seed & 0xFFFFFFFF),) if launcher.compiled.perturbed else ()
    if not launcher.compiled.debug:
        launcher.launch_packed(launcher.pack(addresses, last), stream)
        return
    record: Any = ctypes.create_string_buffer(fresh_record(timeout_ms), RECORD_BYTES)
    with driver.current(launcher.ordinal):
        memory = driver.call("cuMemAlloc", RECORD_BYTES)
        try:
            driver.call("cuMemcpyHtoDAsync", memory, ctypes.addressof(record), RECORD_BYTES, stream)
            launcher.launch_packed(
                launcher.pack(addresses, (ctypes.c_uint64(int(memory)), *last)), stream
            )
            wait_for(kernel.name, stream)
            driver.call("cuMemcpyDtoH", ctypes.addressof(record), memory, RECORD_BYTES)
        finally:
            # After a failed launch this fails too, and would hide the first error.
            driver.api().cuMemFree(memory)
    if (report := decode(record.raw, kernel)) is not None:
        raise hang_error(report, kernel)
