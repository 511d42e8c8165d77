"""Kernels around matrices: ldmatrix, stmatrix, movmatrix, mma.sync; wgmma, whose descriptors have
random offsets, so that nothing but their meaning decides which bytes are read.

Numbers are whole and small: their sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

from tests.ptx.measured.case import Array, Bytes, Case, Part, module

_DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip


def _numbers(kind: str, count: int, seed: int, most: int = 3) -> Bytes:
    low = 0 if kind == "u8" else -most
    found: Array = np.random.default_rng(seed).integers(low, most + 1, count).astype(_DTYPES[kind])
    return found.view(np.uint8)


def moves() -> Iterator[Case]:
    """ldmatrix and stmatrix at random rows, movmatrix."""
    raw = np.random.default_rng(2).integers(0, 256, 4096, dtype=np.uint8)
    for number, (count, trans) in enumerate(product((1, 2, 4), ("", ".trans"))):
        rows = np.random.default_rng(number).permutation(256)[:32].astype(np.uint32) * 16
        for name in ("ldmatrix", "stmatrix"):
            registers = ", ".join(f"%r{20 + i}" for i in range(count))
            form = f"{name}.sync.aligned.m8n8.x{count}{trans}.shared.b16"
            body = [
                "mad.wide.u32 %q0, %t, 128, %a; mov.u32 %r300, own;"
                " mad.lo.u32 %r301, %t, 128, %r300;",
                *(f"ld.global.b32 %r{50 + i}, [%q0+{4 * i}]; st.shared.b32 [%r301+{4 * i}], "
                  f"%r{50 + i};" for i in range(32)),
                "bar.sync 0;", "mad.wide.u32 %q0, %t, 4, %a; ld.global.b32 %r1, [%q0+4096];",
                "add.u32 %r302, %r300, %r1;",
                *(f"ld.global.b32 %r{20 + i}, [%q0+{128 * i}];" for i in range(4)),
            ]  # fmt: skip
            if name == "ldmatrix":
                body += [f"{form} {{{registers}}}, [%r302];", "mad.wide.u32 %q1, %t, 16, %b;"]
                body += [f"st.global.b32 [%q1+{4 * i}], %r{20 + i};" for i in range(count)]
                size = 512
            else:
                body += [f"{form} [%r302], {{{registers}}};", "bar.sync 0;",
                         "mad.wide.u32 %q1, %t, 128, %b;"]  # fmt: skip
                body += [f"ld.shared.b32 %r1, [%r301+{4 * i}]; st.global.b32 [%q1+{4 * i}], %r1;"
                         for i in range(32)]  # fmt: skip
                size = 4096
            yield Case(
                f"matrices/{name}-x{count}{trans}",
                module("\n".join(body), 32, ".shared .align 128 .b8 own[4096];"),
                np.concatenate([raw, rows.view(np.uint8)]), np.zeros(size, np.uint8),
                (Part(name, 0, size),), 32,
            )  # fmt: skip
    body = ["mad.wide.u32 %q0, %t, 4, %a; ld.global.b32 %r1, [%q0];",
            "movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1;",
            "mad.wide.u32 %q1, %t, 4, %b; st.global.b32 [%q1], %r2;"]  # fmt: skip
    yield Case("matrices/movmatrix", module("\n".join(body), 32), raw[:128],
               np.zeros(128, np.uint8),
               (Part("movmatrix", 0, 128),), 32)  # fmt: skip


_WARP_FORMS = [
    *((k, to, t, t, to) for k in (8, 16) for t in ("f16",) for to in ("f16", "f32")),
    *((k, "f32", "bf16", "bf16", "f32") for k in (8, 16)),
    *((k, "f32", "tf32", "tf32", "f32") for k in (4, 8)),
    *((32, "f32", a, b, "f32") for a, b in product(("e4m3", "e5m2"), repeat=2)),
    *((k, "s32", a, b, "s32") for k in (16, 32) for a, b in product(("s8", "u8"), repeat=2)),
]


def warp_products() -> Iterator[Case]:
    """mma.sync of each shape and type."""
    for number, (k, to, a, b, c) in enumerate(_WARP_FORMS):
        for sat in ("", ".satfinite") if to == "s32" else ("",):
            width = np.dtype(_DTYPES[a]).itemsize
            left, right = 16 * k * width // 128, 8 * k * width // 128
            given = np.zeros((32, 16), np.uint32)
            given[:, :left] = _numbers(a, 32 * left * 4 // width, number).view(np.uint32).reshape(
                32, left)  # fmt: skip
            given[:, 4 : 4 + right] = _numbers(b, 32 * right * 4 // width, 50 + number).view(
                np.uint32).reshape(32, right)  # fmt: skip
            if to == "s32":
                third = np.random.default_rng(number).integers(-100, 100, (32, 4)).astype(np.int32)
                third[::3] = 0x7FFFFFF0
                third[1::5] = -0x7FFFFFF0
                given[:, 8:12] = third.view(np.uint32)
            elif c == "f32":
                given[:, 8:12] = np.arange(128, dtype=np.float32).reshape(32, 4).view(np.uint32)
            else:
                given[:, 8:10] = np.arange(128, dtype=np.float16).view(np.uint32).reshape(32, 2)
            letter = "f" if to == "f32" else "r"
            count = 2 if to == "f16" else 4
            third_count = 2 if c == "f16" else 4
            move = "f32" if to == "f32" else "b32"
            body = [
                "mad.wide.u32 %q0, %t, 64, %a; mad.wide.u32 %q1, %t, 16, %b;",
                *(f"ld.global.b32 %r{20 + i}, [%q0+{4 * i}];" for i in range(8)),
                *(f"ld.global.{move} %{letter}{28 + i}, [%q0+{32 + 4 * i}];"
                  for i in range(third_count)),
            ]  # fmt: skip
            lists = [
                (f"%{letter}10", f"%{letter}11", f"%{letter}12", f"%{letter}13")[:count],
                tuple(f"%r{20 + i}" for i in range(left)),
                tuple(f"%r{24 + i}" for i in range(right)),
                tuple(f"%{letter}{28 + i}" for i in range(third_count)),
            ]
            operands = ", ".join(f"{{{', '.join(each)}}}" for each in lists)
            body.append(f"mma.sync.aligned.m16n8k{k}.row.col{sat}.{to}.{a}.{b}.{c} {operands};")
            body += [f"st.global.{move} [%q1+{4 * i}], %{letter}{10 + i};" for i in range(count)]
            yield Case(
                f"matrices/mma-{number}{sat}", module("\n".join(body), 32),
                np.ascontiguousarray(given).view(np.uint8).reshape(-1), np.zeros(512, np.uint8),
                (Part(f"mma.sync {a}", 0, 512),), 32,
            )  # fmt: skip


# -- wgmma -------------------------------------------------------------------------------

MEMORY = 65536  # bytes that operands lie in
_SWIZZLES = {0: 0, 32: 3, 64: 2, 128: 1}
_PRODUCTS = [
    ("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32"),
    ("f32", "e4m3", "e4m3"), ("f32", "e5m2", "e4m3"), ("f16", "e4m3", "e5m2"), ("s32", "s8", "s8"),
    ("s32", "u8", "s8"), ("s32", "s8", "u8"), ("s32", "u8", "u8"),
]  # fmt: skip


def _descriptor(random: Random, rows: int, width: int, major: int, swizzle: int) -> int:
    """A descriptor of an operand that lies within MEMORY; its offsets are any multiples of 16."""
    for _ in range(1000):
        leading, stride = (16 * random.randrange(1, 256) for _ in range(2))
        if random.random() < 0.5:
            leading, stride = 16 * random.randrange(1, 40), 16 * random.randrange(1, 128)
        period = 8 * swizzle if swizzle else 16
        start = period * random.randrange(MEMORY // 2 // period)
        if major == 0:  # K is contiguous
            reach = (rows // 8) * stride + 8 * (swizzle or 16) + leading
        else:
            per = (swizzle or 16) // width
            down = 32 // width // 8
            over = -(-rows // per)
            leading_times, stride_times = (over, down) if swizzle else (down, over)
            reach = leading_times * leading + stride_times * stride + 8 * (swizzle or 16)
        if swizzle and (leading % (8 * swizzle) or stride % (8 * swizzle)):
            # the pattern of a swizzle is one of addresses: atoms begin where it begins
            leading = leading // (8 * swizzle) * 8 * swizzle
            stride = max(stride // (8 * swizzle) * 8 * swizzle, 8 * swizzle)
            leading = max(leading, 8 * swizzle)
        if start + 2 * reach + 4096 < MEMORY and leading < 1 << 18 and stride < 1 << 18:
            return (start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32
                    | _SWIZZLES[swizzle] << 62)  # fmt: skip
    raise AssertionError


def _wgmma(seed: int) -> Case:
    """Two of a form, the second of which adds."""
    random = Random(1000 + seed)
    to, a, b = _PRODUCTS[seed % len(_PRODUCTS)]
    width = np.dtype(_DTYPES[a]).itemsize
    cols = 8 * random.choice([1, 2, 3, 4, 5, 8, 12, 16, 20, 31, 32])
    if to == "s32" and cols > 32 and cols % 16:
        cols += 8
    cols = min(cols, 256)
    in_registers = random.random() < 0.3
    majors = [random.randrange(2) if width == 2 else 0 for _ in range(2)]
    swizzles = [random.choice([0, 32, 64, 128]) for _ in range(2)]
    left = _descriptor(random, 64, width, majors[0], swizzles[0])
    right = _descriptor(random, cols, width, majors[1], swizzles[1])
    signs = [random.choice([1, 1, -1]) for _ in range(2)]
    count = cols // (4 if to == "f16" else 2)
    letter = "f" if to == "f32" else "r"
    names = [f"%{'c'}{i}" for i in range(count)]
    constants = "" if to == "s32" else f", {signs[0]}, {signs[1]}"
    if width == 2:
        constants += f", {majors[1]}" if in_registers else f", {majors[0]}, {majors[1]}"
    sat = ".satfinite" if to == "s32" and random.random() < 0.3 else ""
    form = f"wgmma.mma_async.sync.aligned.m64n{cols}k{32 // width}{sat}.{to}.{a}.{b}"
    source = "{%r30, %r31, %r32, %r33}" if in_registers else "%l2"
    chunk = MEMORY // 128
    body = [
        f".reg .{'f32' if letter == 'f' else 'b32'} %c<{count}>;",
        f"mov.u32 %r300, memory; mad.lo.u32 %r301, %t, {chunk}, %r300;",
        f"mad.wide.u32 %q0, %t, {chunk}, %a; mov.b32 %r1, 0;",
        "LOOP: ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%q0];",
        "st.shared.v4.b32 [%r301], {%r2, %r3, %r4, %r5};",
        f"add.u64 %q0, %q0, 16; add.u32 %r301, %r301, 16; add.u32 %r1, %r1, 16; "
        f"setp.lt.u32 %p1, %r1, {chunk}; @%p1 bra LOOP;",
        f"mad.wide.u32 %q0, %t, 16, %a; add.u64 %q0, %q0, {MEMORY};",
        "ld.global.v4.b32 {%r30, %r31, %r32, %r33}, [%q0];",
        "fence.proxy.async.shared::cta; bar.sync 0;",
        "shr.u32 %r6, %r300, 4; cvt.u64.u32 %l1, %r6;",
        f"add.u64 %l2, %l1, {left:#x}; add.u64 %l3, %l1, {right:#x};",
        "wgmma.fence.sync.aligned;",
        f"setp.ne.u32 %p2, 0, 0; {form} {{{', '.join(names)}}}, {source}, %l3, %p2{constants};",
        f"setp.eq.u32 %p2, 0, 0; {form} {{{', '.join(names)}}}, {source}, %l3, %p2{constants};",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        f"mad.wide.u32 %q1, %t, {4 * count}, %b;",
        *(f"st.global.{'f32' if letter == 'f' else 'b32'} [%q1+{4 * i}], {n};"
          for i, n in enumerate(names)),
    ]  # fmt: skip
    memory = _numbers(a, MEMORY // width, seed)
    if a[0] == "e":  # bytes that are multiples of 1/2 up to 2 as either type
        both = np.array([0, 0x38, 0x3C, 0x40, 0xB8, 0xBC, 0xC0], np.uint8)
        memory = np.random.default_rng(seed).choice(both, MEMORY)
    fragment = _numbers(a, 2048 // width, 5000 + seed)
    size = 128 * 4 * count
    return Case(
        f"wgmma/{seed}",
        module("\n".join(body), 128, ".shared .align 1024 .b8 memory[0];").replace(
            ".shared .align 1024 .b8 memory[0];", ".extern .shared .align 1024 .b8 memory[];"),
        np.concatenate([memory, fragment]), np.zeros(size, np.uint8),
        (Part(f"wgmma {a} {b}", 0, size),), 128, smem=MEMORY,
    )  # fmt: skip


def wgmmas(count: int = 110) -> Iterator[Case]:
    for seed in range(count):
        yield _wgmma(seed)


def cases() -> Iterator[Case]:
    yield from moves()
    yield from warp_products()
    yield from wgmmas()
