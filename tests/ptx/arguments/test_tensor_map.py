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


def test_addresses_of_a_ragged_descriptor_wrap() -> None:
    """Those of triton.tools.ragged_tma: rows 3 and 4 are a slice, whose first row the box takes and
    whose second one ends it.
    """
    text = """
    .version 8.7
    .target sm_90a
    .address_size 64
    .visible .entry k(.param .align 64 .b8 x[128], .param .u64 y) {
        .reg .b64 %rd<3>; .reg .pred %p; .reg .b32 %r<9>;
        .shared .align 128 .b8 tile[128]; .shared .align 8 .b64 full;
        mov.b64 %rd0, x;
        cvta.param.u64 %rd0, %rd0;
        mbarrier.init.shared.b64 [full], 1;
        mov.u32 %r1, 0;
        mov.u32 %r2, 0x3fffffff;  // 2^30 - rows of the slice + row 1
        mov.u32 %r3, 5;           // where the slice ends
        mov.u32 %r4, 0x40000000;
        mbarrier.arrive.expect_tx.shared.b64 _, [full], 128;
        cp.async.bulk.tensor.4d.shared::cta.global.mbarrier::complete_tx::bytes
            [tile], [%rd0, {%r1, %r2, %r3, %r4}], [full];
    WAIT:
        mbarrier.try_wait.parity.shared.b64 %p, [full], 0;
        @!%p bra WAIT;
        ld.param.u64 %rd1, [y];
        ld.shared.u32 %r5, [tile];
        ld.shared.u32 %r6, [tile+64];
        st.global.v2.u32 [%rd1], {%r5, %r6};
        ret;
    }
    """
    array = np.arange(1, 8 * 16 + 1, dtype=np.uint32).reshape(8, 16)
    out = np.full(2, 99, np.uint32)
    ragged = ptx.TensorMap(
        array, (1, 1, 2, 16), shape=(0x7FFF0000, 0x7FFF0000, 1 << 30, 16),
        strides=(4 * ((1 << 34) - 16), 64, 64),
    )  # fmt: skip
    launch = ptx.load(text)["k"].bind([ragged, out], grid=1, block=1)
    assert launch.check().verdict == "verified"
    launch.run()
    assert out.tolist() == [array[4, 0], 0]


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
