"""A program as a launch of the PTX that NVRTC makes of its printed CUDA."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe import cuda, ptx
from tilepipe.cuda.codegen.parameters import Argument, arguments
from tilepipe.cuda.runtime.tensormap import tiled_map
from tilepipe.errors import BindError
from tilepipe.ir.memory import TensorParam
from tilepipe.ir.program import Launch, TensorArg

# The last parts of CU_TENSOR_MAP_DATA_TYPE_ and CU_TENSOR_MAP_SWIZZLE_ names, as PTX has them.
_ELEMENTS = {
    "UINT8": "u8", "UINT16": "u16", "UINT32": "u32", "INT32": "s32", "UINT64": "u64",
    "INT64": "s64", "FLOAT16": "f16", "BFLOAT16": "bf16", "FLOAT32": "f32", "FLOAT64": "f64",
}  # fmt: skip
_SWIZZLES = {"NONE": 0, "32B": 32, "64B": 64, "128B": 128}


def printed_launch(program: Launch, arch: str | None = None) -> ptx.Launch:
    """A launch, printed for an architecture and compiled to PTX, on its own arrays.

    Raises:
        BindError: an array is not in the host's memory. CompileError: NVRTC refuses it.
    """
    made = cuda.compile(program.kernel, arch, "ptx")
    return launch_of(program, made.data.decode(), made.smem_bytes)


def launch_of(program: Launch, text: str, smem_bytes: int) -> ptx.Launch:
    """A launch of a program's PTX on its own arrays. `smem_bytes`: of dynamic shared memory."""
    (kernel,) = ptx.load(text).values()
    passed = [given(argument, program) for argument in arguments(program.kernel)]
    return kernel.bind(
        passed, grid=program.grid, cluster=program.kernel.cluster_size, smem=smem_bytes,
        cooperative=program.kernel.cooperative, chip=program.chip,
    )  # fmt: skip


def given(argument: Argument, program: Launch) -> ptx.Argument:
    """What a launch passes for an argument of the printed kernel.

    Raises:
        BindError: an array is not in the host's memory.
    """
    name, axis = argument.param.name, argument.axis
    arg = program.args[name]
    if not isinstance(arg, TensorArg):
        return argument.param.dtype.numpy.type(arg)
    array: Any = arg.array
    if not isinstance(array, np.ndarray):
        raise BindError(
            f"argument '{name}' is {type(array).__name__} in a GPU's memory: PTX is run on NumPy"
            " arrays"
        )
    match argument.kind:
        case "map":
            assert isinstance(argument.param, TensorParam)
            return _tensor_map(argument.param, array, arg.shape)
        case "stride":
            return int(array.strides[axis] // argument.param.dtype.nbytes)
        case "shape":
            return int(arg.shape[axis])
    return array


def _tensor_map(
    param: TensorParam, array: npt.NDArray[Any], shape: tuple[int, ...]
) -> ptx.TensorMap:
    encoded = tiled_map(param, shape, [stride * 8 // param.dtype.bits for stride in array.strides])
    return ptx.TensorMap(
        array,
        encoded.box_dim[::-1],
        _SWIZZLES[encoded.swizzle],
        _ELEMENTS[encoded.data_type],
        encoded.global_dim[::-1],
        encoded.global_strides[::-1],
        encoded.before,
        encoded.element_strides[::-1],
    )
