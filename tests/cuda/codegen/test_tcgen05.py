"""tcgen05 as printed: descriptors against the PTX ISA, machine code of whole GEMMs for sm_100a,
what is refused.

`cuda::ptx` of CCCL has these instructions too (alloc, mma, cp, ld, st, commit, fences, waits); it
has neither of the descriptors, so it would leave unwritten what these tests are about. Nothing here
has run on a Blackwell GPU.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.examples.ladder import EXAMPLES, load
from tests.support.build import GROUP, RANK, Builder, binary
from tests.support.cuda.blackwell import gemm, tensor_memory
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
from tilepipe.cuda.ptx.wrappers import SNIPPETS
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import const
from tilepipe.ir.memory import Tmem
from tools.docs.readme import ROOT, blocks, words

BF16, F16, F32, E4M3, E5M2 = (
    dtypes.bfloat16,
    dtypes.float16,
    dtypes.float32,
    dtypes.float8_e4m3,
    dtypes.float8_e5m2,
)
KINDS = {
    BF16: ("f16", 1),
    F16: ("f16", 0),
    F32: ("tf32", 2),
    E4M3: ("f8f6f4", 0),
    E5M2: ("f8f6f4", 1),
}
SHAPES = [
    # m, n; k of the tiles; k of the rectangle and where it starts, in units of 2 bytes; swizzle;
    # CTAs
    (128, 256, 64, 64, 0, 128, 1),
    (128, 128, 128, 128, 0, 128, 1),
    (64, 64, 64, 32, 32, 128, 1),
    (64, 96, 64, 64, 0, 64, 1),
    (128, 32, 96, 96, 0, 32, 1),
    (64, 64, 16, 16, 0, 32, 1),
    (64, 64, 128, 32, 48, 128, 1),  # from inside a panel into the next
    (128, 64, 192, 128, 32, 128, 1),
    (64, 32, 128, 112, 16, 64, 1),
    (128, 256, 64, 64, 0, 128, 2),
    (128, 128, 128, 96, 32, 64, 2),
]


def printed(b: Builder) -> str:
    """The shared memory and the roles of a kernel."""
    code = cuda.source(b.finished(), "sm_100a")
    return code[code.index("// ---- shared memory") :]


@pytest.mark.parametrize(("m", "n", "k", "depth", "k0", "swizzle", "group"), SHAPES)
@pytest.mark.parametrize(
    ("dtype", "a_order", "b_order"),
    [
        *((F16, a, b) for a in ("row", "col") for b in ("row", "col")),
        (F32, "row", "row"),
        (E4M3, "row", "row"),
    ],
)
def test_descriptors_reach_the_elements(
    m: int,
    n: int,
    k: int,
    depth: int,
    k0: int,
    swizzle: int,
    group: int,
    dtype: DType,
    a_order: str,
    b_order: str,
) -> None:
    k, depth, k0 = (x * 2 // dtype.nbytes for x in (k, depth, k0))
    one, rows = 32 // dtype.nbytes, n // group
    b = Builder(cluster=group)
    b.kernel.cta_group = group
    a_buffer, b_buffer = (
        b.smem("a", m, k, 2, dtype, swizzle, a_order),
        b.smem("b", rows, k, 2, dtype, swizzle, b_order),
    )
    address = b.scalar("address", dtypes.uint32)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        tiles = b.tile(a_buffer, 1, 0, k0, m, depth), b.tile(b_buffer, 1, 0, k0, rows, depth)
        b.do(ops.Tcgen05Mma, Tmem(address, m, n, F32), *tiles, const(True), group)
    code = printed(b)
    suffix = "_pair" if group == 2 else ""
    call = re.search(
        rf"tcgen05_mma_{KINDS[dtype][0]}{suffix}\(address, (.*), (b_format \| .*), mma_\w+, 1\);",
        code,
    )
    assert call is not None
    names: dict[str, Any] = {
        **constants(code),
        "matrix_start": lambda x: (x & 0x3FFFF) >> 4,
        "a": lambda i: A_START + i * a_buffer.tile_bytes,
        "b": lambda i: B_START + i * b_buffer.tile_bytes,
    }
    for side in "ab":
        start = re.search(rf"const u32 {side}_start = (.*?);", code)
        assert start is not None
        names[f"{side}_start"] = evaluate(start[1], names)
    ks = np.arange(one)[None, :]
    for step in range(depth // one):
        names["k"] = step
        for text, buffer, base in ((call[1], a_buffer, A_START), (call[2], b_buffer, B_START)):
            mn = np.arange(buffer.rows)[:, None]
            got = Descriptor.of_tcgen05(evaluate(text, names)).addresses(
                mn, ks, buffer.order == "col", dtype.nbytes
            )
            np.testing.assert_array_equal(
                got, addresses(buffer, base + buffer.tile_bytes, mn, k0 + one * step + ks)
            )


@pytest.mark.parametrize(
    ("m", "n", "a", "b", "orders", "group", "name"),
    [
        (128, 256, BF16, BF16, "row row", 1, "mma_m128n256_bf16"),
        (64, 8, F16, F16, "row row", 1, "mma_m64n8_f16"),
        (128, 64, F32, F32, "row row", 2, "mma_m256n64_tf32"),
        (128, 256, E4M3, E5M2, "row row", 2, "mma_m256n256_e4m3_e5m2"),
        (64, 64, E5M2, E4M3, "row row", 1, "mma_m64n64_e5m2_e4m3"),
        (128, 64, BF16, BF16, "col row", 1, "mma_m128n64_bf16_ta"),
        (128, 64, F16, F16, "col col", 1, "mma_m128n64_f16_ta_tb"),
    ],
)
def test_instruction_descriptors(
    m: int, n: int, a: DType, b: DType, orders: str, group: int, name: str
) -> None:
    builder = Builder(cluster=group)
    builder.kernel.cta_group = group
    order_a, order_b = orders.split()
    left = builder.smem("a", m, 128 // a.nbytes, 1, a, 128, order_a)
    right = builder.smem("b", n // group, 128 // b.nbytes, 1, b, 128, order_b)
    builder.setup_done()
    with builder.role("one", warps=1), builder.elect():
        builder.do(
            ops.Tcgen05Mma,
            Tmem(const(0), m, n, F32),
            builder.tile(left),
            builder.tile(right),
            const(False),
            group,
        )
    code = cuda.source(builder.finished(), "sm_100a")
    found = re.search(r"constexpr u32 (mma_\w+) = (0x\w+);", code)
    assert found is not None
    assert found[1] == name
    bits = int(found[2], 16)
    fields = {
        (4, 2): 1,
        (7, 3): KINDS[a][1],
        (10, 3): KINDS[b][1],
        (17, 6): n // 8,
        (24, 5): m * group // 16,
    }
    fields |= {(15, 1): int(order_a == "col"), (16, 1): int(order_b == "col")}
    for (at, width), value in fields.items():
        assert bits >> at & (1 << width) - 1 == value
        bits &= ~((1 << width) - 1 << at)
    assert bits == 0


@pytest.mark.sampled(suite=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "opcode", "load"),
    [
        ({}, "UTCHMMA", "LDTM.16dp256bit.x4"),
        ({"n": 128, "dtype": F32}, "UTCHMMA", "LDTM.16dp256bit.x4"),
        ({"m": 64, "n": 96, "dtype": E4M3}, "UTCQMMA", "LDTM.16dp256bit.x4"),
        ({"cta_group": 2}, "UTCHMMA.2CTA", "LDTM.16dp256bit.x4"),
        ({"cta_group": 2, "dtype": E5M2, "registers": 128}, "UTCQMMA.2CTA", "LDTM.16dp256bit.x4"),
    ],
    ids=str,
)
def test_machine_code_of_a_gemm(options: dict[str, Any], opcode: str, load: str) -> None:
    compiled = cuda.compile(gemm(**options), "sm_100a")
    assert (compiled.spill_bytes, compiled.stack_bytes) == (0, 0)
    assert "C75" not in compiled.log
    assert "warning" not in compiled.log
    code = sass.disassemble(compiled.data)
    everywhere = sass.count(code)
    assert everywhere["LDL"] == everywhere["STL"] == 0
    assert {i.opcode for i in code if i.base == "LDTM"} == {load}
    assert everywhere["LDTM"] % (1 if options.get("m") == 64 else 2) == 0
    assert everywhere["UTCATOMSWS"] >= 2  # allocation, and its end
    assert (everywhere["USETMAXREG"] > 0) == ("registers" in options)
    # One thread issues: the innermost loop round the MMAs is the kernel's own, of four MMAs and a
    # commit for each elect.
    loop = sass.loop_with(code, opcode.split(".")[0])
    mmas = [i for i in loop.instructions if "MMA" in i.opcode]
    assert {i.opcode for i in mmas} == {opcode}
    predicates = [i.operands.split(", ")[-1] for i in mmas]
    # whether the first adds is known when it runs; the others add
    assert re.fullmatch(r"UP\d", predicates[0])
    assert predicates[1:] == ["UPT", "UPT", "UPT"]
    assert loop.count()["ELECT"] == loop.count()["UTCBAR"] == 1
    commits = {i.opcode for i in code if i.base == "UTCBAR"}
    pair = "2CTA" in opcode
    assert commits == {"UTCBAR.2CTA.MULTICAST" if pair else "UTCBAR"}
    assert {i.opcode for i in code if i.base == "UTMALDG"} == {
        "UTMALDG.2D.2CTA" if pair else "UTMALDG.2D"
    }


def test_the_page_shows_what_is_printed() -> None:
    source = load(EXAMPLES / "08_tensor_memory.py")(0).source()
    mma = source[source.index("void mma(") :]
    loop = mma[
        mma.index("        for (i32 i = 0;") : mma.index("        }\n        if (elect_one())") + 10
    ]
    assert words(loop) == words(blocks(ROOT / "docs" / "concepts" / "cuda.md", "text")[1])


@pytest.mark.slow
def test_machine_code_of_single_instructions() -> None:
    code = sass.disassemble(cuda.compile(tensor_memory(), "sm_100a").data)
    mmas = [i for i in code if i.base in ("UTCHMMA", "UTCQMMA")]
    assert [i.base[:4] for i in mmas] == [*["UTCH"] * 8, *["UTCQ"] * 4, *["UTCH"] * 8]
    added = [i.operands.split(", ")[-1] for i in mmas]
    assert added == [*["!UPT", "UPT", "UPT", "UPT"] * 3, "UP0", "UPT", "UPT", "UPT", *["UPT"] * 4]
    assert [i.operands.startswith("tmem[") for i in mmas] == [*[False] * 16, *[True] * 4]
    assert [i.opcode for i in code if i.base == "UTCCP"] == [
        "UTCCP.T.S.128dp128bit",
        "UTCCP.T.S.4x32dp128bit",
    ]
    assert [i.opcode for i in code if i.base == "UTCBAR"] == [
        "UTCBAR",
        "UTCBAR",
        "UTCBAR.MULTICAST",
    ]


def test_a_step_of_a_in_tensor_memory_is_32_bytes() -> None:
    code = cuda.source(tensor_memory())
    assert (
        "tcgen05_mma_f16_tmem_a(x1, a_columns + k * 8, tall_format | (b_start + k * 128),"
        " mma_m128n128_bf16_tb, 1);" in code
    )


def test_copies_read_core_matrices_of_eight_rows() -> None:
    code = cuda.source(tensor_memory(), "sm_100a")
    for name in ("scales", "scales32"):
        found = Descriptor.of_tcgen05(constants(code)[f"{name}_format"])
        assert (found.swizzle, found.stride, found.leading) == (0, 8 * 16, 0)
    assert "tmem_copy_128x128b(x1 + 384, scales_format | start);" in code
    assert "tmem_copy_32x128b_warpx4(x1 + 388, scales32_format | start);" in code


@pytest.mark.parametrize("group", [1, 2])
def test_all_instructions_have_the_group_of_the_kernel(group: int) -> None:
    for kernel in (gemm(group), tensor_memory(group)):
        code = cuda.source(kernel, "sm_100a")
        assert f"cta_group::{group}" in code
        assert f"cta_group::{3 - group}" not in code
    assert all("cta_group::1" not in s.code for s in SNIPPETS.values() if s.name.endswith("_pair"))


def test_a_pair_loads_into_both_and_reports_to_the_leader() -> None:
    code = cuda.source(gemm(2), "sm_100a")
    assert re.search(
        r"tma_load_pair_2d\(a_tiles\(\w+\), a, on_cta\(full\(\w+\), cta_rank & -2\), "
        r"i\w+ \* 64, cta_rank \* 128\);",
        code,
    )
    assert "mbarrier::complete_tx::bytes.cta_group::2 [%0]" in code
    assert "tcgen05_commit_multicast_pair(empty(" in code


@pytest.mark.slow
def test_multicast_loads_of_a_pair_compile() -> None:
    b = Builder(cluster=4)
    tensor, tile = b.tensor("a", box=(64, 64), swizzle=128), b.smem("tile", 64, 64, 1, BF16, 128)
    bar = b.barriers("bar")
    b.setup_done()
    with b.role("load", warps=1), b.elect():
        b.load_tile(
            tensor, (0, 0), b.tile(tile), b.bar(bar, 0, binary("and", RANK, -2)), multicast=0b0101
        )
    kernel = b.finished()
    assert [
        i.opcode
        for i in sass.disassemble(cuda.compile(kernel, "sm_100a").data)
        if i.base == "UTMALDG"
    ] == ["UTMALDG.2D.MULTICAST.2CTA"]
    with pytest.raises(
        CompileError,
        match="role 'load' of 'kernel' uses a TMA load that reports to another CTA's barrier, "
        "which sm_90a",
    ):
        cuda.source(kernel, "sm_90a")


def test_each_architecture_refuses_the_other_ones_tensor_core() -> None:
    with pytest.raises(
        CompileError,
        match="role 'epilogue' of 'gemm' uses tcgen05, which sm_90a does not have; compile for "
        "sm_100a",
    ) as error:
        cuda.source(gemm(), "sm_90a")
    assert "blackwell.py" in str(error.value)
    b = Builder()
    word = b.smem("word", 1, 1, 1, dtypes.uint32)
    with b.when(binary("eq", GROUP, 0)):
        b.do(ops.TmemAlloc, b.tile(word), 32, 1)
    b.setup_done()
    with pytest.raises(
        CompileError,
        match="set-up of 'kernel' uses tensor memory, which sm_90a does not have; compile for "
        "sm_100a",
    ):
        cuda.source(b.finished(), "sm_90a")
    assert "for sm_100a;" in cuda.source(b.kernel), "it is printed for the one that has its ops"
    b = Builder()
    b.setup_done()
    with b.role("math", warpgroups=1):
        b.do(ops.WgmmaFence)
    with pytest.raises(
        CompileError,
        match="role 'math' of 'kernel' uses wgmma, which sm_100a does not have; compile for sm_90a",
    ):
        cuda.source(b.finished(), "sm_100a")
    assert "for sm_90a;" in cuda.source(b.kernel)
    b = Builder()
    b.setup_done()
    assert "for sm_90a;" in cuda.source(b.finished())


@pytest.mark.parametrize(
    ("acc", "group", "message"),
    [
        (
            Tmem(const(0), 128, 24, F32),
            1,
            (
                "tcgen05.mma: n = 24 must be a multiple of 16 up to 256 where an accumulator "
                "has 128 rows"
            ),
        ),
        (Tmem(const(0), 128, 48, F32), 2, "tcgen05.mma: n = 48 must be a multiple of 32"),
        (Tmem(const(0), 128, 32, BF16), 1, "tcgen05.mma: the accumulator must be float32"),
    ],
)
def test_what_no_instruction_can_do_is_refused(acc: Tmem, group: int, message: str) -> None:
    b = Builder(cluster=group)
    left, right = (
        b.smem("a", 128, 64, 1, BF16, 128),
        b.smem("b", acc.cols // group, 64, 1, BF16, 128),
    )
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        b.do(ops.Tcgen05Mma, acc, b.tile(left), b.tile(right), const(True), group)
    with pytest.raises(CompileError, match=message):
        printed(b)


@pytest.mark.parametrize(
    ("a_lane", "acc_lane", "said"), [(16, 0, "take 16 << 16 off"), (0, 16, "add 16 << 16 to")]
)
def test_a_in_the_other_half_of_the_lanes_is_refused(a_lane: int, acc_lane: int, said: str) -> None:
    """PTX ISA, data path layout F: of 64 rows A and D are in the same 16 of each 32 lanes."""

    def kernel(m: int, lane: int) -> Builder:
        b = Builder()
        b.kernel.cta_group = 1
        right, base = b.smem("b", 32, 64, 1, BF16, 128), b.scalar("base", dtypes.uint32)
        b.setup_done()
        with b.role("one", warps=1), b.elect():
            acc = Tmem(binary("add", base, acc_lane << 16), m, 32, F32)
            a = Tmem(binary("add", binary("add", base, 64), lane << 16), m, 64, BF16)
            b.do(ops.Tcgen05Mma, acc, a, b.tile(right), const(True), 1)
        return b

    with pytest.raises(CompileError) as error:
        printed(kernel(64, a_lane))
    assert (
        f"A of 64 rows begins at lane {a_lane} of tensor memory, the accumulator at lane {acc_lane}"
        in str(error.value)
    )
    assert "data path layout F" in str(error.value)
    assert said in str(error.value)
    same = re.search(r"const u32 a_columns = (.*?);", printed(kernel(64, acc_lane)))
    assert same is not None
    assert evaluate(re.sub(r"(\d)u", r"\1", same[1]), {"base": 0}) == acc_lane << 16 | 64


def test_copies_of_swizzled_tiles_are_refused() -> None:
    b = Builder()
    source = b.smem("scales", 128, 128, 1, dtypes.uint8, 128)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        b.do(ops.TmemCopy, Tmem(const(0), 128, 128, dtypes.uint8), b.tile(source), 1)
    with pytest.raises(
        CompileError,
        match=r"reads whole rows of an unswizzled row-major tile.* 'scales' is row order, "
        r"swizzle 128",
    ):
        printed(b)
