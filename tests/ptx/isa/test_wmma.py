"""Matrices in registers of an order that the ISA leaves open: loads, products, stores."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ptx.isa.programs import run

_RANDOM = np.random.default_rng(7)
_DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f64": np.float64,
    "s8": np.int8, "u8": np.uint8, "f32": np.float32, "s32": np.int32,
}  # fmt: skip


def _vector(bank: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"%{bank}{first + i}" for i in range(count)) + "}"


@pytest.mark.parametrize("layouts", ["row.col", "col.row"])
@pytest.mark.parametrize(
    ("shape", "kind", "to", "counts"),
    [
        ((16, 16, 16), "f16", "f32", (8, 8, 8)), ((8, 32, 16), "f16", "f16", (8, 8, 4)),
        ((32, 8, 16), "bf16", "f32", (8, 2, 8)), ((16, 16, 8), "tf32", "f32", (4, 4, 8)),
        ((16, 16, 16), "s8", "s32", (2, 2, 8)), ((8, 32, 16), "u8", "s32", (1, 4, 8)),
        ((8, 8, 4), "f64", "f64", (1, 1, 2)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shared", [False, True])
def test_a_product_of_matrices_in_memory(
    shape: tuple[int, int, int], kind: str, to: str, counts: tuple[int, int, int], layouts: str,
    shared: bool,
) -> None:  # fmt: skip
    m, n, k = shape
    low = 0 if kind == "u8" else -8
    a, b = (_RANDOM.integers(low, 9, s).astype(_DTYPES[kind]) for s in ((m, k), (k, n)))
    c = _RANDOM.integers(-50, 50, (m, n)).astype(_DTYPES[to])
    a_layout, b_layout = layouts.split(".")
    pad = 8  # between the rows, or columns, of A in memory
    stored = a if a_layout == "row" else a.T
    padded = np.zeros((stored.shape[0], stored.shape[1] + pad), a.dtype)
    padded[:, : stored.shape[1]] = stored
    b_stored = np.ascontiguousarray(b if b_layout == "row" else b.T)
    out = np.zeros((n, m), c.dtype)  # stored by columns
    types = f"{to}.{to}" if kind == "f16" else f"{to}.{kind}.{kind}.{to}"
    bank = "rd" if kind == "f64" else "r"
    fragments = [_vector(bank, 12 + 8 * i, count) for i, count in enumerate(counts)]
    result = _vector(bank, 2, counts[2])
    name = f"m{m}n{n}k{k}"
    copy, source, space = "", "%b0", ".global"
    if shared:
        words = padded.nbytes // 4
        copy = f"""
            .shared .align 16 .b8 tile[{padded.nbytes}];
            mov.u32 %r280, tile;
            {
            "".join(
                f'''
            add.u32 %r281, %t, {at}; setp.lt.u32 %p9, %r281, {words};
            mad.wide.u32 %a9, %r281, 4, %b0; mad.lo.u32 %r282, %r281, 4, %r280;
            @%p9 ld.global.b32 %r283, [%a9]; @%p9 st.shared.b32 [%r282], %r283;
            '''
                for at in range(0, words, 32)
            )
        }
            bar.warp.sync -1; cvta.shared.u64 %rd39, tile;
            """
        source, space = "%rd39", ""
    run(
        f"""
        {copy}
        wmma.load.a.sync.aligned.{a_layout}.{name}{space}.{kind} {fragments[0]}, [{source}],
            {padded.shape[1]};
        wmma.load.b.sync.aligned.{b_layout}.{name}.global.{kind} {fragments[1]}, [%b1];
        wmma.load.c.sync.aligned.row.{name}.global.{to} {fragments[2]}, [%b2], {n};
        wmma.mma.sync.aligned.{layouts}.{name}.{types} {result}, {fragments[0]}, {fragments[1]},
            {fragments[2]};
        wmma.store.d.sync.aligned.col.{name}.global.{to} [%b3], {result}, {m};
        """,
        padded,
        b_stored,
        c,
        out,
    )
    expected = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    np.testing.assert_array_equal(out.T, expected.astype(c.dtype))


@pytest.mark.parametrize(
    ("kind", "depth", "op"), [("s4", 32, ""), ("u4", 32, ""), ("b1", 128, "xor.popc.")]
)
def test_a_product_of_small_integers(kind: str, depth: int, op: str) -> None:
    width = 1 if kind == "b1" else 4
    low, high = {"s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}[kind]
    a, b = _RANDOM.integers(low, high, (2, 8, depth))
    bits = (np.stack([a, b])[..., None] >> np.arange(width) & 1).reshape(2, -1)
    packed = np.packbits(bits.astype(np.uint8), axis=1, bitorder="little").view(np.uint32)
    c, out = np.arange(64, dtype=np.int32), np.zeros((8, 8), np.int32)
    name = f"m8n8k{depth}"
    run(
        f"""
        wmma.load.a.sync.aligned.row.{name}.global.{kind} {{%r1}}, [%b0], {depth};
        wmma.load.b.sync.aligned.col.{name}.global.{kind} {{%r2}}, [%b1], {depth};
        wmma.load.c.sync.aligned.row.{name}.global.s32 {{%r3, %r4}}, [%b2], 8;
        wmma.mma.{op}sync.aligned.row.col.{name}.s32.{kind}.{kind}.s32 {{%r5, %r6}},
            {{%r1}}, {{%r2}}, {{%r3, %r4}};
        wmma.store.d.sync.aligned.row.{name}.global.s32 [%b3], {{%r5, %r6}}, 8;
        """,
        packed[0],
        packed[1],
        c,
        out,
    )
    product = (a[:, None] != b[None]).sum(axis=2) if kind == "b1" else a @ b.T
    np.testing.assert_array_equal(out, product + c.reshape(8, 8))
