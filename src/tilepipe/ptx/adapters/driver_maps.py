"""`cuTensorMapEncodeTiled` for host code that calls it: the 128 bytes, without a driver."""

from __future__ import annotations

import ctypes

from tilepipe.errors import BindError, LimitError
from tilepipe.machine.memory import tensor_map

# CUtensorMapDataType -> the element type as PTX names it
_ELEMENTS = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32",
    "tf32.ftz", "b4x16", "b4x16_p64", "b6x16_p32",
)  # fmt: skip
# CUtensorMapSwizzle -> the codes of the swizzle, and of what it keeps together
_SWIZZLES = ((0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (3, 3))


def encode_tiled(
    out: int, element: int, rank: int, address: int | None, shape: int, strides: int, box: int,
    steps: int, interleave: int, swizzle: int, promotion: int, fill: int,
) -> None:  # fmt: skip
    """The driver's function, with its arguments: pointers are addresses of the process.

    Raises:
        BindError: the driver would refuse the arguments, or they are of no known kind.
    """
    known = 0 <= element < len(_ELEMENTS) and 0 <= swizzle < len(_SWIZZLES)
    if not known or not 1 <= rank <= 5 or fill not in (0, 1):
        raise BindError(
            f"cuTensorMapEncodeTiled is called with type {element}, rank {rank}, swizzle {swizzle}"
            f" and fill {fill}: known are types 0 to {len(_ELEMENTS) - 1}, ranks 1 to 5, swizzles"
            f" 0 to {len(_SWIZZLES) - 1}, fills 0 and 1"
        )
    code, atom = _SWIZZLES[swizzle]
    wide, narrow = ctypes.c_uint64, ctypes.c_uint32
    map_ = tensor_map.TensorMapFields(
        tensor_map.BY_NAME[_ELEMENTS[element]],
        address or 0,
        tuple((wide * rank).from_address(shape)),
        tuple((wide * (rank - 1)).from_address(strides)) if rank > 1 else (),
        tuple((narrow * rank).from_address(box)),
        tuple((narrow * rank).from_address(steps)),
        swizzle=code,
        atom=atom,
        nan=bool(fill),
        interleave=interleave,
        promotion=promotion,
        name="the tensor map that the host code makes with cuTensorMapEncodeTiled",
    )
    try:
        ctypes.memmove(out, tensor_map.encode(map_), tensor_map.MAP_BYTES)
    except LimitError as error:
        raise BindError(str(error)) from None
