"""Arguments that are structs: numbers, pointers and tensor maps at offsets of one parameter."""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import ptx

STRUCT = ptx.load("""
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 p[192]) {
    .reg .b64 %rd<4>; .reg .b32 %r<3>; .reg .pred %q; .shared .align 128 .b8 box[128];
    .shared .align 8 .b64 bar;
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.arrive.expect_tx.shared.b64 %rd3, [bar], 128;
    mov.b64 %rd1, p;
    cvta.param.u64 %rd1, %rd1;
    add.u64 %rd1, %rd1, 64;
    mov.u32 %r1, box;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [box], [%rd1, {0, 0}], [bar];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %q, [bar], 0;
    @!%q bra WAIT;
    ld.param.u64 %rd2, [p+16];
    ld.param.u32 %r1, [p+8];
    ld.shared.u32 %r2, [box+20];
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd2], %r1;
    ret;
}
""")["k"]


def test_a_struct_has_pointers_and_maps_among_its_fields() -> None:
    x = np.arange(32, dtype=np.int32).reshape(4, 8)
    out = np.zeros(4, np.int32)
    inner = ptx.Struct(16, {0: np.int32(100), 8: out[2:]})
    given = ptx.Struct(192, {64: ptx.TensorMap(x, (4, 8)), 8: inner})
    STRUCT.bind([given], grid=1, block=1).run()
    np.testing.assert_array_equal(out, [0, 0, 105, 0])
    raw = bytes(8) + (7).to_bytes(4, "little") + bytes(180)
    STRUCT.bind([ptx.Struct(raw, {16: out, 64: ptx.TensorMap(x, (4, 8))})], grid=1, block=1).run()
    np.testing.assert_array_equal(out, [12, 0, 105, 0])


def test_a_field_that_does_not_fit_is_refused() -> None:
    with pytest.raises(
        tp.BindError, match="'p', offset 188: a field of 8 bytes in a struct of 192"
    ):
        STRUCT.bind([ptx.Struct(192, {188: np.zeros(1)})], grid=1, block=1)
    number: np.generic = 3  # type: ignore[assignment]
    with pytest.raises(tp.BindError, match=r"offset 0: a field is an array, .* NumPy.*; got int"):
        STRUCT.bind([ptx.Struct(192, {0: number})], grid=1, block=1)
    with pytest.raises(tp.BindError, match=r"'p' has 192 bytes, and its argument \(Struct\) 100"):
        STRUCT.bind([ptx.Struct(100, {})], grid=1, block=1)
