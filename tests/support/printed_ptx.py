"""Programs of tilepipe as launches of the PTX that NVRTC makes of their printed CUDA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilepipe import cuda
from tilepipe.cuda.codegen.parameters import Argument, arguments
from tilepipe.cuda.nvrtc.compiler import nvrtc, options
from tilepipe.cuda.runtime.tensormap import TiledMap, tiled_map
from tilepipe.ir.memory import TensorParam
from tilepipe.ir.program import Launch as Bound, TensorArg
from tilepipe.program import Program
from tilepipe.ptx import launch as ptx

Array = npt.NDArray[Any]

_NUMPY: dict[str, Any] = {
    "UINT8": np.uint8,
    "FLOAT16": np.float16,
    "BFLOAT16": ml_dtypes.bfloat16,
    "FLOAT32": np.float32,
    "FLOAT64": np.float64,
    "INT32": np.int32,
    "UINT32": np.uint32,
    "INT64": np.int64,
    "UINT64": np.uint64,
}
_SWIZZLE_BYTES = {"NONE": 0, "32B": 32, "64B": 64, "128B": 128}


@dataclass(frozen=True)
class Printed:
    """A program, printed and compiled to PTX: it is launched as often as wanted.

    Attributes:
        text: the PTX; tests change it.
    """

    program: Program
    text: str
    smem_bytes: int

    def launch(self) -> ptx.Launch:
        """A launch on the program's arrays."""
        bound = self.program.launch_args
        (kernel,) = ptx.load(self.text).values()
        given = [_given(argument, bound) for argument in arguments(bound.kernel)]
        return kernel.bind(
            given, grid=bound.grid, cluster=bound.kernel.cluster_size, smem=self.smem_bytes
        )

    def run(self, seed: int = 0, timeout: float | None = 120) -> None:
        """Runs it once, on the program's arrays."""
        self.launch().run(seed, timeout=timeout)


def printed(
    program: Program, arch: str | None = None, patch: Callable[[str], str] = lambda source: source
) -> Printed:
    """A program's PTX for an architecture. `patch`: changes the CUDA before it is compiled."""
    made = cuda.compile(program.kernel, arch, "cuda")
    _, text = nvrtc(patch(made.source), "kernel.cu", "ptx", options(made.arch, "ptx"))
    return Printed(program, text.decode(), made.smem_bytes)


def _given(argument: Argument, bound: Bound) -> ptx.Argument:
    arg, axis = bound.args[argument.param.name], argument.axis
    if not isinstance(arg, TensorArg):
        return float(arg) if argument.param.dtype.is_float else int(arg)
    match argument.kind:
        case "map":
            assert isinstance(argument.param, TensorParam)
            return _tensor_map(argument.param, arg)
        case "stride":
            return int(arg.array.strides[axis] // argument.param.dtype.nbytes)
        case "shape":
            return int(arg.shape[axis])
    found: Array = arg.array
    return found


def _tensor_map(param: TensorParam, arg: TensorArg) -> ptx.TensorMap:
    steps = [stride * 8 // param.dtype.bits for stride in arg.array.strides]
    encoded = tiled_map(param, arg.shape, steps)
    box = tuple(reversed(encoded.box_dim))
    return ptx.TensorMap(_mapped(encoded, arg.array), box, _SWIZZLE_BYTES[encoded.swizzle])


class _Memory:
    """What NumPy takes for an array; `keeps`: the owner of the memory."""

    def __init__(self, interface: dict[str, Any], keeps: Array) -> None:
        self.__array_interface__ = interface
        self.keeps = keeps


def _mapped(encoded: TiledMap, array: Array) -> Array:
    """The memory of an array as an encoded map has it; a ragged map begins before it."""
    dtype = np.dtype(_NUMPY[encoded.data_type])
    plain = np.dtype(f"u{dtype.itemsize}")
    interface = {
        "version": 3,
        "typestr": plain.str,
        "shape": tuple(reversed(encoded.global_dim)),
        "strides": (*reversed(encoded.global_strides), plain.itemsize),
        "data": (array.__array_interface__["data"][0] - encoded.before, False),
    }
    return np.asarray(_Memory(interface, array)).view(dtype)
