"""The tensor maps of host code that calls `cuTensorMapEncodeTiled`."""

from __future__ import annotations

import ctypes
import re

import pytest
from cuda.bindings import driver

import tilepipe as tp
from tilepipe.machine.memory import tensor_map
from tilepipe.ptx.adapters.driver_maps import encode_tiled


def encoded(
    element: int = 9, rank: int = 2, swizzle: int = 3, box: int = 64, fill: int = 1
) -> bytes:
    out = ctypes.create_string_buffer(128)
    shape, strides = (ctypes.c_uint64 * 3)(256, 96, 5), (ctypes.c_uint64 * 2)(512, 49152)
    boxes, steps = (ctypes.c_uint32 * 3)(box, 32, 1), (ctypes.c_uint32 * 3)(1, 1, 1)
    at = ctypes.addressof
    encode_tiled(
        at(out), element, rank, 1 << 20, at(shape), at(strides), at(boxes), at(steps),
        0, swizzle, 2, fill,
    )  # fmt: skip
    return out.raw


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_bytes_are_those_of_the_arguments(rank: int) -> None:
    found = tensor_map.decode(encoded(rank=rank))
    assert (found.address, found.element) == (1 << 20, tensor_map.BY_NAME["bf16"])
    assert (found.shape, found.strides) == ((256, 96, 5)[:rank], (512, 49152)[: rank - 1])
    assert (found.box, found.steps) == ((64, 32, 1)[:rank], (1, 1, 1)[:rank])
    assert (found.swizzle, found.atom, found.promotion, found.nan) == (3, 0, 2, True)


def test_numbers_of_types_are_those_of_the_driver() -> None:
    names = {"f16": "FLOAT16", "bf16": "BFLOAT16", "b4x16": "16U4_ALIGN8B"}
    names |= {"b4x16_p64": "16U4_ALIGN16B", "b6x16_p32": "16U6_ALIGN16B"}
    for element in tensor_map.BY_NAME:
        plain = element.replace(".", "_").upper()
        name = names.get(element) or re.sub("^U(?=[0-9])", "UINT", plain)
        name = re.sub("^S(?=[0-9])", "INT", re.sub("^T?F(?=[0-9])", _float, name))
        code = getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}").value
        box = 128 if element.startswith("b") and element != "bf16" else 16
        found = tensor_map.decode(encoded(code, swizzle=0, box=box, fill=0))
        assert found.element == tensor_map.BY_NAME[element], element


def _float(match: re.Match[str]) -> str:
    return "TFLOAT" if match[0].startswith("T") else "FLOAT"


def test_swizzles_are_those_of_the_driver() -> None:
    codes = driver.CUtensorMapSwizzle
    for name, pair in (
        ("NONE", (0, 0)), ("128B", (3, 0)), ("128B_ATOM_32B", (3, 1)),
        ("128B_ATOM_32B_FLIP_8B", (3, 2)), ("128B_ATOM_64B", (3, 3)),
    ):  # fmt: skip
        found = tensor_map.decode(
            encoded(swizzle=getattr(codes, f"CU_TENSOR_MAP_SWIZZLE_{name}").value)
        )
        assert (found.swizzle, found.atom) == pair


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"element": 16}, "with type 16, rank 2, swizzle 3 and fill 1: known are types 0 to 15"),
        ({"rank": 6}, "rank 6"),
        ({"box": 512}, "that the host code makes with cuTensorMapEncodeTiled: .*512"),
    ],
)
def test_what_the_driver_would_refuse_is_an_error(changes: dict[str, int], said: str) -> None:
    with pytest.raises(tp.BindError, match=said):
        encoded(**changes)
