"""The matrix descriptors that are printed, decoded by the rules of the PTX ISA, against the one
definition of layouts in `ir.layout`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np
import pytest

from tests.cases.mma import case
from tests.support.build import GROUP, Builder, binary
from tests.support.cuda.descriptors import (
    A_START,
    B_START,
    Descriptor,
    addresses,
    constants,
    evaluate,
)
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.cuda.ptx.wgmma import Instruction
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import const
from tilepipe.ir.memory import Tile

PTX = {"float16": "f16", "float32": "tf32", "float8_e4m3": "e4m3"}


def instructions(code: str) -> Iterator[tuple[str, int, str, str]]:
    """(function, row block, A, B) of each printed instruction."""
    for m in re.finditer(r"(wgmma_m64\w+)\(acc\[(\d+)\], (.*), (\w+_format \| .*)\);", code):
        yield m[1], int(m[2]), m[3], m[4]


SHAPES = [
    # m, n, k of the tiles; k of the rectangle and where it starts, in units of 2 bytes; swizzle;
    # warpgroups
    (128, 256, 64, 64, 0, 128, 2),
    (128, 128, 128, 128, 0, 128, 1),
    (256, 64, 64, 32, 32, 128, 2),
    (64, 96, 64, 64, 0, 64, 1),
    (128, 32, 96, 96, 0, 32, 1),
    (64, 64, 16, 16, 0, 32, 1),
    (64, 64, 128, 32, 48, 128, 1),  # from inside a panel into the next
    (64, 64, 192, 128, 32, 128, 1),
    (64, 32, 128, 112, 16, 64, 1),
]


@pytest.mark.parametrize(("m", "n", "k", "depth", "k0", "swizzle", "groups"), SHAPES)
@pytest.mark.parametrize(
    ("dtype", "a_order", "b_order"),
    [
        *((dtypes.float16, a, b) for a in ("row", "col") for b in ("row", "col")),
        (dtypes.float32, "row", "row"),
        (dtypes.float8_e4m3, "row", "row"),
    ],
)
def test_descriptors_reach_the_elements(
    m: int,
    n: int,
    k: int,
    depth: int,
    k0: int,
    swizzle: int,
    groups: int,
    dtype: DType,
    a_order: str,
    b_order: str,
) -> None:
    k, depth, k0 = (x * 2 // dtype.nbytes for x in (k, depth, k0))
    one = 32 // dtype.nbytes
    b = Builder()
    a_buffer = b.smem("a", m, k, 2, dtype, swizzle, a_order)
    b_buffer = b.smem("b", n, k, 2, dtype, swizzle, b_order)
    b.setup_done()
    rows = m // groups
    with b.role("math", warpgroups=groups):
        acc = b.fragment("acc", rows, n)
        row0 = binary("mul", GROUP, rows)
        b.do(
            ops.Wgmma,
            acc,
            b.tile(a_buffer, 1, row0, k0, rows, depth),
            b.tile(b_buffer, 1, 0, k0, n, depth),
        )
    code = cuda.source(b.finished())
    code = code[code.index("// ---- shared memory") :]
    steps = depth // one
    calls = list(instructions(code))
    assert len(calls) == rows // 64
    start = {f: re.search(rf"const u32 {f}_start = (.*?);", code) for f in "ab"}
    for group in range(groups):
        names: dict[str, object] = {
            **constants(code),
            "warpgroup": group,
            "matrix_start": lambda x: (x & 0x3FFFF) >> 4,
            "a": lambda i: A_START + i * a_buffer.tile_bytes,
            "b": lambda i: B_START + i * b_buffer.tile_bytes,
        }
        for side, found in start.items():
            assert found is not None
            names[f"{side}_start"] = evaluate(found[1], names)
        for step in range(steps):
            names["k"] = step
            ks = np.arange(one)[None, :]
            for function, block, left, right in calls:
                assert function.startswith(f"wgmma_m64n{n}k{one}_{PTX[dtype.name]}")
                a = Descriptor.of_wgmma(evaluate(left, names)).addresses(
                    np.arange(64)[:, None], ks, "_ta" in function, dtype.nbytes
                )
                row = group * rows + 64 * block + np.arange(64)[:, None]
                wanted = addresses(
                    a_buffer, A_START + a_buffer.tile_bytes, row, k0 + one * step + ks
                )
                np.testing.assert_array_equal(a, wanted)
                got = Descriptor.of_wgmma(evaluate(right, names)).addresses(
                    np.arange(n)[:, None], ks, "_tb" in function, dtype.nbytes
                )
                wanted = addresses(
                    b_buffer,
                    B_START + b_buffer.tile_bytes,
                    np.arange(n)[:, None],
                    k0 + one * step + ks,
                )
                np.testing.assert_array_equal(got, wanted)


def test_a_start_known_to_stay_in_its_panel_prints() -> None:
    b = Builder()
    a_buffer, b_buffer = (b.smem(n, 64, 128, 1, dtypes.bfloat16, 128) for n in "ab")
    b.setup_done()
    with b.role("math", warpgroups=1):
        acc = b.fragment("acc", 64, 64)
        with b.loop(4) as i:
            k0 = binary("mul", i, 32)
            b.do(
                ops.Wgmma,
                acc,
                b.tile(a_buffer, 0, 0, k0, 64, 32),
                b.tile(b_buffer, 0, 0, k0, 64, 32),
            )
    code = cuda.source(b.finished())
    code = code[code.index("// ---- shared memory") :]
    start, (call, *rest) = re.search(r"const u32 a_start = (.*?);", code), list(instructions(code))
    assert start is not None
    assert not rest
    for j, k in itertools.product(range(4), range(2)):
        names: dict[str, object] = {
            **constants(code),
            "i1": j,
            "k": k,
            "a": lambda: A_START,
            "matrix_start": lambda x: x >> 4,
        }
        names["a_start"] = evaluate(start[1], names)
        got = Descriptor.of_wgmma(evaluate(call[2], names)).addresses(
            np.arange(64)[:, None], np.arange(16)[None, :], False
        )
        wanted = addresses(
            a_buffer, A_START, np.arange(64)[:, None], 32 * j + 16 * k + np.arange(16)[None, :]
        )
        np.testing.assert_array_equal(got, wanted)


BF16, F16, F32, E4M3, E5M2 = (
    dtypes.bfloat16,
    dtypes.float16,
    dtypes.float32,
    dtypes.float8_e4m3,
    dtypes.float8_e5m2,
)


@pytest.mark.parametrize(
    ("instruction", "name", "lines"),
    [
        (
            Instruction(16, BF16, BF16, transposed_a=True),
            "wgmma_m64n16k16_bf16_ta",
            [
                "setp.ne.b32 p, 1, 0;",
                "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {",
                "}, %8, %9, p, 1, 1, 1, 0; }",
            ],
        ),
        (
            Instruction(8, F16, F16, a_in_registers=True, transposed_b=True),
            "wgmma_m64n8k16_f16_ra_tb",
            [
                "}, {%4, %5, %6, %7}, %8, p, 1, 1, 1; }",
                '"r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b)',
            ],
        ),
        (
            Instruction(16, F32, F32),
            "wgmma_m64n16k8_tf32",
            ["m64n16k8.f32.tf32.tf32 {", "}, %8, %9, p, 1, 1; }"],
        ),
        (
            Instruction(8, E4M3, E5M2, scale_d=True),
            "wgmma_m64n8k32_e4m3_e5m2_scale_d",
            [
                "m64n8k32.f32.e4m3.e5m2 {",
                "}, %4, %5, p, 1, 1; }",
                "setp.ne.b32 p, %6, 0;",
                "u64 a, u64 b, i32 scale_d)",
                '"r"(scale_d)',
            ],
        ),
        (
            Instruction(8, F16, F16, a_in_registers=True, scale_d=True),
            "wgmma_m64n8k16_f16_ra_scale_d",
            ["setp.ne.b32 p, %9, 0;", "}, {%4, %5, %6, %7}, %8, p, 1, 1, 0; }"],
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_the_text_of_an_instruction(instruction: Instruction, name: str, lines: list[str]) -> None:
    code = instruction.snippet().code
    assert instruction.name == instruction.snippet().name == name
    assert not [
        line
        for line in [f"void {name}(float (&d)[{instruction.n // 2}], ", *lines]
        if line not in code
    ], code


@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "k", "dtype", "scale_d", "predicates"),
    [
        ("fill", 64, "bfloat16", None, ["", "", "", ""]),
        ("last", 64, "bfloat16", "k > 0", ["!UPT", "", "", ""]),
        ("last", 16, "bfloat16", "0", ["!UPT"]),
        ("first", 128, "float8_e4m3", "k > 0 || accumulate", ["UP", "", "", ""]),
        ("first", 8, "float32", "accumulate", ["UP"]),
        ("flags", 64, "float16", "k > 0 || accumulate", ["UP", "", "", ""]),
    ],
)
def test_only_the_first_instruction_of_an_mma_may_overwrite(
    mode: str, k: int, dtype: str, scale_d: str | None, predicates: list[str]
) -> None:
    """Machine code: the accumulator comes with !UPT (overwritten) or a uniform predicate (as the
    condition says), or alone (added to).
    """
    swizzle = 32 if k * dtypes.dtype(dtype).nbytes == 32 else None
    program = case(dtype, k=k, swizzle=swizzle, mode=mode).make(np.random.default_rng(0))[0]
    code = program.source()
    call = re.search(r"wgmma_m64\w+\(acc\[0\], .*?_start.*\);", code)
    assert call is not None
    assert call[0].endswith(f", {scale_d});" if scale_d is not None else ");")
    assert ("_scale_d(" in call[0]) == (scale_d is not None)
    compiled = program.compile()
    found = [i.operands for i in sass.disassemble(compiled.data) if "GMMA" in i.opcode]
    kinds = [m[0] if (m := re.search(r"!UPT|UP(?=\d)", x)) else "" for x in found]
    assert kinds == predicates, found
    assert "C75" not in compiled.log


def _kernel(a: dict[str, object], cols: int = 64, part: dict[str, int] | None = None) -> Builder:
    b = Builder()
    fields: dict[str, object] = {
        "rows": 64,
        "cols": 64,
        "count": 1,
        "dtype": dtypes.bfloat16,
        "swizzle": 128,
    } | a
    a_buffer = b.smem("a", **fields)  # type: ignore[arg-type]
    b_buffer = b.smem("b", cols, 64, 1, dtypes.bfloat16, 128)
    b.setup_done()
    with b.role("math", warpgroups=1):
        place = {"row": 0, "col": 0, "rows": 64, "cols": 64} | (part or {})
        acc = b.fragment("acc", place["rows"], cols)
        tile = Tile(
            a_buffer,
            const(0),
            const(place["row"]),
            const(place["col"]),
            place["rows"],
            place["cols"],
        )
        b.do(ops.Wgmma, acc, tile, b.tile(b_buffer))
    return b


@pytest.mark.parametrize(
    ("a", "cols", "part", "message"),
    [
        (
            {"swizzle": 0},
            64,
            {},
            (
                "wgmma reads lines of .* swizzled bytes; those of .* 'a' .*no swizzle.*Give "
                "the buffer swizzle=128"
            ),
        ),
        (
            {"dtype": dtypes.float16},
            64,
            {},
            "wgmma: .*the same for A and B.* got float16 and bfloat16",
        ),
        ({"rows": 128, "cols": 64}, 64, {"row": 4}, "starts at row 4, which is no multiple of 8"),
        (
            {"cols": 128},
            64,
            {"cols": 128},
            "acc 64×64 .* A 64×128 .*need A 64×k and B 64×k, with the same k",
        ),
        ({"rows": 96}, 64, {"rows": 96}, "m = 96 must be a multiple of 64"),
        ({}, 264, {}, "at most 256"),
    ],
)
def test_what_no_instruction_can_do_is_refused(
    a: dict[str, object], cols: int, part: dict[str, int], message: str
) -> None:
    with pytest.raises(CompileError, match=message):
        cuda.source(_kernel(a, cols, part).finished())
