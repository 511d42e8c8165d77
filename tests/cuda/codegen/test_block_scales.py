"""Block-scaled MMAs as printed: descriptors against the PTX ISA, which scale factors each step
reads, machine code for sm_100a.

Nothing here has run on a Blackwell GPU.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.cases.block_scales import CASES, Case
from tests.cuda.codegen.test_tensor_memory_cases import found
from tests.support.build import Builder
from tests.support.cuda.descriptors import A_START, Descriptor, constants, evaluate
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, layout, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr, const
from tilepipe.ir.hardware.tensor_memory import pieces, scaling_of
from tilepipe.ir.memory import SmemBuffer, Tmem, TmemScales

E4M3, E5M2, E2M1, E8M0 = (
    dtypes.float8_e4m3,
    dtypes.float8_e5m2,
    dtypes.float4_e2m1,
    dtypes.float8_e8m0,
)
KINDS = [(E4M3, E4M3, E8M0), (E5M2, E4M3, E8M0), (E2M1, E2M1, E8M0), (E2M1, E2M1, E4M3)]


def scale_factors(
    address: Expr, rows: int, blocks: int, dtype: DType, first: int = 0, of: int = 0
) -> TmemScales:
    """The scale factors of `rows` rows from row `first`, of a matrix of `of` rows."""
    return TmemScales(address, rows, blocks, dtype, 4 * -(-(of or rows) // 128), const(first))


def built(
    a: DType,
    b: DType,
    scale: DType,
    n: int = 64,
    k: int = 0,
    group: int = 1,
    first: int = 0,
    start: int = 0,
) -> tuple[Builder, SmemBuffer]:
    """A kernel with one block-scaled MMA of tiles of 128 bytes a row, from element `start` of K on;
    and A's buffer.
    """
    builder = Builder(cluster=group)
    builder.kernel.cta_group = group
    scaling = scaling_of(a, b, scale)
    assert scaling is not None
    line = 1024 // a.bits
    k = k or line
    cols = -(-(start + k) // line) * line
    left, right = (
        builder.smem("a", 128, cols, 2, a, 128),
        builder.smem("b", n // group, cols, 1, b, 128),
    )
    x, y = builder.scalar("x", dtypes.uint32), builder.scalar("y", dtypes.uint32)
    builder.setup_done()
    blocks = k // scaling.block
    with builder.role("one", warps=1), builder.elect():
        tiles = (
            builder.tile(left, 1, 0, start, 128, k),
            builder.tile(right, 0, 0, start, n // group, k),
        )
        scales = (
            scale_factors(x, 128, blocks, scale),
            scale_factors(y, n, blocks, scale, first, first + n),
        )
        acc = Tmem(const(0), 128, n, dtypes.float32)
        builder.do(ops.Tcgen05Mma, acc, *tiles, const(False), group, *scales)
    return builder, left


def printed(b: Builder) -> str:
    """The shared memory and the roles of a kernel."""
    code = cuda.source(b.finished(), "sm_100a")
    return code[code.index("// ---- shared memory") :]


@pytest.mark.parametrize(("a", "b", "scale"), KINDS, ids=str)
@pytest.mark.parametrize(("n", "group"), [(8, 1), (256, 1), (16, 2), (256, 2)])
def test_instruction_descriptors(a: DType, b: DType, scale: DType, n: int, group: int) -> None:
    code = cuda.source(built(a, b, scale, n, group=group)[0].finished(), "sm_100a")
    name, text = re.findall(r"constexpr u32 (mma_\w+) = (0x\w+);", code)[0]
    scaling = scaling_of(a, b, scale)
    assert scaling is not None
    assert name.startswith(f"mma_m{128 * group}n{n}_{scaling.kind}_")
    bits, types = int(text, 16), {E4M3: 0, E5M2: 1, E2M1: 1}
    fields = {
        (7, 3): types[a],
        (10, 3): types[b],
        (17, 6): n // 8,
        (23, 1): int(scale is E8M0),
        (27, 2): group,
    }
    for (at, width), value in fields.items():
        assert bits >> at & (1 << width) - 1 == value
        bits &= ~((1 << width) - 1 << at)
    assert bits == 0, (
        "the IDs of the scale factors are added for each step; the rest is reserved, or dense and"
        " not transposed"
    )


@pytest.mark.parametrize(("k", "start"), [(64, 0), (256, 0), (64, 192), (192, 128), (512, 0)])
def test_descriptors_reach_the_bytes_of_fp4(k: int, start: int) -> None:
    b, buffer = built(E2M1, E2M1, E8M0, k=k, start=start)
    code = printed(b)
    call = re.search(r"tcgen05_mma_mxf4\(\w+, (a_format \| .*?), b_format", code)
    begin = re.search(r"const u32 a_start = (.*?);", code)
    assert call is not None
    assert begin is not None
    names: dict[str, Any] = {
        **constants(code),
        "matrix_start": lambda x: (x & 0x3FFFF) >> 4,
        "a": lambda i: A_START + i * buffer.tile_bytes,
    }
    names["a_start"] = evaluate(begin[1], names)
    # 32 bytes of K, two elements each
    rows, inside = np.arange(128)[:, None], np.arange(32)[None, :]
    for step in range(k // 64):
        got = Descriptor.of_tcgen05(evaluate(call[1], {**names, "k": step})).addresses(
            rows, inside, False, 1
        )
        wanted = layout.byte_offsets(buffer, rows, start + 64 * step + 2 * inside)
        np.testing.assert_array_equal(got, A_START + buffer.tile_bytes + wanted)


@pytest.mark.parametrize(("a", "b", "scale"), KINDS, ids=str)
@pytest.mark.parametrize(
    ("k_lines", "n", "first"), [(0.5, 64, 0), (1, 64, 64), (2, 256, 0), (3, 64, 128)]
)
def test_each_step_reads_its_scale_factors(
    a: DType, b: DType, scale: DType, k_lines: float, n: int, first: int
) -> None:
    """Row 32 c + l, block j is byte j % 4 of lane l, column (j // 4) · stride + c: what
    `TmemScales` says.
    """
    scaling = scaling_of(a, b, scale)
    assert scaling is not None
    k = int(k_lines * 1024 // a.bits)
    code = printed(built(a, b, scale, n, k, first=first)[0])
    call = re.search(
        rf"tcgen05_mma_{scaling.kind}\(.*, mma_\w+(?: \| scale_ids\((.*?)\))?, (\w+.*?), "
        r"(\w+.*?), (?:k > 0|0)\);",
        code,
    )
    assert call is not None
    names: dict[str, Any] = {"x": 1000, "y": 2000}
    names |= {
        name: evaluate(text.replace("u;", ";"), names)
        for name, text in re.findall(r"const u32 (sf[ab]\w*) = (.*?);", code)
    }
    for step in range(k // scaling.k):
        block = step * scaling.vector
        byte = 0 if call[1] is None else evaluate(call[1], {**names, "k": step})
        assert byte == block % 4
        assert evaluate(call[2], {**names, "k": step}) == 1000 + block // 4 * 4
        stride = 4 * -(-(first + n) // 128)
        assert evaluate(call[3], {**names, "k": step}) == 2000 + block // 4 * stride + first // 32


@pytest.mark.sampled(suite=11)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_compiles(case: Case) -> None:
    kernel = case.make(np.random.default_rng(0))[0].kernel
    compiled = cuda.compile(kernel, "sm_100a")
    assert (compiled.spill_bytes, compiled.stack_bytes) == (0, 0)
    assert "warning" not in compiled.log
    instructions = sass.disassemble(compiled.data)
    (mma,), copies = found(kernel, ops.Tcgen05Mma), found(kernel, ops.TmemCopy)
    scaling = scaling_of(mma.a.buffer.dtype, mma.b.buffer.dtype, mma.sfa.dtype)
    assert scaling is not None
    opcode = {"mxf8f6f4": "UTCQMMA", "mxf4": "UTCOMMA", "mxf4nvf4": "UTCOMMA"}[scaling.kind]
    multiplies = [i for i in instructions if i.base in ("UTCHMMA", "UTCQMMA", "UTCOMMA")]
    assert len(multiplies) == mma.b.cols // scaling.k
    for i in multiplies:
        assert i.base == opcode
        assert i.operands.count("tmem[") == 3, "the accumulator and two places of scale factors"
        assert (".4X" in i.opcode) == (scaling.vector == 4)
        assert (".2CTA" in i.opcode) == (mma.cta_group == 2)
    copied = [i for i in instructions if i.base == "UTCCP"]
    assert len(copied) == sum(len(pieces(op.dst)) for op in copies)
    assert all("4x32dp128bit" in i.opcode for i in copied)


@pytest.mark.slow
def test_a_debug_build_compiles() -> None:
    compiled = cuda.compile(
        CASES[1].make(np.random.default_rng(0))[0].kernel, "sm_100a", debug=True, perturb=1
    )
    assert "warning" not in compiled.log


def test_pieces_go_where_the_mma_reads_them() -> None:
    """A tile has the pieces of the same 128 rows together; in tensor memory those of the same 4
    blocks of K are.
    """
    dst = scale_factors(const(0), 200, 10, E8M0)
    assert pieces(dst) == [(0, 0), (8, 1), (16, 2), (4, 3), (12, 4), (20, 5)]


def test_what_no_instruction_can_do_is_not_printed() -> None:
    b, _ = built(E4M3, E4M3, E8M0)
    mma = next(
        op
        for op in b.kernel.roles[0].body.ops[0].body.ops  # type: ignore[attr-defined]
        if isinstance(op, ops.Tcgen05Mma)
    )
    mma.sfa = scale_factors(const(0), 128, 8, E8M0)
    with pytest.raises(
        CompileError,
        match=r"tcgen05\.mma: sfa has 128 rows × 8 blocks; A has 128 rows, and k = 128 in "
        r"blocks of 32 is 4",
    ):
        printed(b)
    b = Builder()
    b.kernel.cta_group = 1
    tile = b.smem("tile", 32, 16, 1, E8M0)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        b.do(ops.TmemCopy, scale_factors(const(0), 256, 4, E8M0), b.tile(tile), 1)
    with pytest.raises(
        CompileError, match=r"are 2 pieces .* of 512 bytes; the tile 32×16 of 'tile' has 512"
    ):
        printed(b)
