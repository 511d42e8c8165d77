"""Tensor maps of arrays: what is derived from them, and what no tensor map can be of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import ptx
from tilepipe.machine.memory import tensor_map

TEXT = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 x[128]) { ret; }
"""


def decoded(argument: ptx.TensorMap) -> tensor_map.TensorMapFields:
    raw = ptx.load(TEXT)["k"].bind([argument], grid=1, block=1).parameters
    return tensor_map.decode(raw)


def test_strides_are_those_of_the_driver_call_outermost_first() -> None:
    array = np.zeros((4, 8, 32), np.float32)
    whole = decoded(ptx.TensorMap(array, (1, 2, 8)))
    assert whole.strides == (128, 1024)
    given = decoded(ptx.TensorMap(array, (1, 2, 8), shape=(2, 8, 32), strides=(2048, 128)))
    assert given.strides == (128, 2048)
    assert given.shape == (32, 8, 2)


def test_elements_narrower_than_those_of_the_array_are_counted() -> None:
    found = decoded(ptx.TensorMap(np.zeros((8, 64), np.uint8), (8, 64), element="b4x16"))
    assert found.shape == (128, 8)
    assert found.strides == (64,)


def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    found = decoded(ptx.TensorMap(torch.zeros(8, 64, dtype=torch.bfloat16), (8, 64)))
    assert tensor_map.ELEMENTS[found.element].name == "bf16"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            ptx.TensorMap(np.zeros((8, 32), np.float32)[:, ::2], (8, 16)),
            r"the last dimension of a tensor map's array is contiguous; .* strides \(128, 8\)",
        ),
        (ptx.TensorMap(np.zeros((8, 32), np.float32).T, (8, 8)), "the last dimension of a tensor"),
        (
            ptx.TensorMap(np.zeros((8, 32), np.float32), (8, 16), shape=(9, 32)),
            "a tensor of these extents and strides has 1,152 bytes, .* ends after 1,024",
        ),
        (
            ptx.TensorMap(np.zeros((8, 32), np.float32), (8, 16), strides=(256,)),
            "has 1,920 bytes, and the array's memory ends after 1,024",
        ),
        (ptx.TensorMap(np.zeros((8, 3), np.uint8), (8, 3), element="u16"), "not whole elements"),
        (
            ptx.TensorMap(np.zeros((8, 32), np.float32), (8, 16), strides=(128, 4)),
            "it has 2 strides for 2 dimensions",
        ),
        (
            ptx.TensorMap(np.zeros((8, 32), np.float32), (8, 16), 48),
            "and fetches 0, 64, 128 or 256 bytes; got f32, 48, 0",
        ),
        (
            ptx.TensorMap(np.zeros((8, 9), np.float32), (8, 8)),
            "not a valid tensor map, with the contiguous dimension first: its strides .36,. are",
        ),
        (ptx.TensorMap(5, (8, 8)), "a ptx.TensorMap is of an array; got int"),  # type: ignore[arg-type]
    ],
)
def test_what_no_tensor_map_can_be_of(argument: Any, message: str) -> None:
    with pytest.raises(tp.BindError, match=message):
        decoded(argument)
