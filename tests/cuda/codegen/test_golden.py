"""What is printed for Blackwell against the tables that CuTe computed (tests/golden): every value
of them.

The printed text is evaluated as it stands: constants, the arguments of each call, the bodies of the
helpers that compute bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.cuda.codegen.test_block_scales import built, scale_factors
from tests.golden.tables import rows, significant
from tests.support.build import Builder
from tests.support.cuda.descriptors import constants, evaluate
from tilepipe import cuda
from tilepipe.cuda.codegen.indices import Index
from tilepipe.cuda.codegen.registers import At, column_number, row_number
from tilepipe.ir import dtypes, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import const
from tilepipe.ir.hardware.tensor_memory import scaling_of
from tilepipe.ir.memory import Tmem

DTYPES = {
    "f16": dtypes.float16,
    "bf16": dtypes.bfloat16,
    "tf32": dtypes.float32,
    "f32": dtypes.float32,
    "e4m3": dtypes.float8_e4m3,
    "e5m2": dtypes.float8_e5m2,
    "e2m1": dtypes.float4_e2m1,
    "ue8m0": dtypes.float8_e8m0,
    "ue4m3": dtypes.float8_e4m3,
}
ORDERS = {"K": "row", "MN": "col"}


def helpers(code: str) -> dict[str, Callable[..., int]]:
    """The printed functions that are one `return` of an expression, by name, as Python functions of
    integers.
    """
    found = re.findall(r"u32 (\w+)\(u32 (\w+)\) \{\n +return (.*);\n\}", code)
    return {name: eval(f"lambda {parameter}: {body}") for name, parameter, body in found}


def mma_code(a: DType, b: DType, m: int, n: int, orders: tuple[str, str], group: int) -> str:
    """A kernel with one plain MMA of tiles of 128 bytes of K."""
    builder = Builder(cluster=group)
    builder.kernel.cta_group = group
    k = 128 // a.nbytes
    left = builder.smem("a", m // group, k, 1, a, 128 if orders[0] == "row" else 32, orders[0])
    right = builder.smem("b", n // group, k, 1, b, 128 if orders[1] == "row" else 32, orders[1])
    builder.setup_done()
    with builder.role("one", warps=1), builder.elect():
        tiles = builder.tile(left), builder.tile(right)
        builder.do(
            ops.Tcgen05Mma,
            Tmem(const(0), m // group, n, dtypes.float32),
            *tiles,
            const(False),
            group,
        )
    return cuda.source(builder.finished(), "sm_100a")


def instruction(code: str) -> int:
    """The constant of the one MMA of a kernel."""
    (found,) = set(re.findall(r"constexpr u32 mma_\w+ = (0x\w+);", code))
    return int(found, 16)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["f16", "tf32", "f8f6f4"])
def test_instruction_descriptors(kind: str) -> None:
    cases = [row for row in rows("instruction_descriptors") if row["kind"] == kind]
    assert len(cases) == {"f16": 140, "tf32": 12, "f8f6f4": 48}[kind]
    for row in cases:
        group = 2 if row["m"] == 256 else 1
        orders = ORDERS[row["a_major"]], ORDERS[row["b_major"]]
        code = mma_code(DTYPES[row["a"]], DTYPES[row["b"]], row["m"], row["n"], orders, group)
        assert instruction(code) == int(row["expected"], 16), row
        assert f"tcgen05_mma_{kind}{'_pair' if group == 2 else ''}(" in code


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mxf8f6f4", "mxf4", "mxf4nvf4"])
def test_instruction_descriptors_with_scale_factors(kind: str) -> None:
    cases = [row for row in rows("instruction_descriptors") if row["kind"] == kind]
    assert len(cases) == {"mxf8f6f4": 90, "mxf4": 14, "mxf4nvf4": 10}[kind]
    for row in cases:
        a, b, scale = (DTYPES[row[x]] for x in ("a", "b", "scale"))
        scaling = scaling_of(a, b, scale)
        assert scaling is not None
        assert scaling.kind == kind
        assert row["sfa_id"] == row["sfb_id"], "those that differ are in `further`"
        steps = 4 // scaling.vector  # whose factors share a column
        builder, _ = built(a, b, scale, row["n"], steps * scaling.k, row["m"] // 128)
        code = cuda.source(builder.finished(), "sm_100a")
        call = re.search(
            rf"tcgen05_mma_{kind}(?:_pair)?\(.*, mma_\w+((?: \| scale_ids\(.*?\))?), "
            r"\w+, \w+, (?:k > 0|0)\);",
            code,
        )
        assert call is not None
        names = {**helpers(code), "k": row["sfa_id"] // scaling.vector}
        added = evaluate(call[1].removeprefix(" | ") or "0", names)
        assert instruction(code) | added == int(row["expected"], 16), row
        assert instruction(code) & added == 0


def operand_code(dtype: DType, order: str, swizzle: int, rows_of_b: int, k: int) -> str:
    """A kernel with one MMA whose B is a whole tile of that format."""
    builder = Builder()
    builder.kernel.cta_group = 1
    scaled = dtype is dtypes.float4_e2m1
    left = builder.smem("a", 128, k, 1, dtype, 32)
    right = builder.smem("b", rows_of_b, k, 1, dtype, swizzle, order)
    builder.setup_done()
    acc = Tmem(const(0), 128, rows_of_b, dtypes.float32)
    with builder.role("one", warps=1), builder.elect():
        tiles = builder.tile(left), builder.tile(right)
        scales = [
            scale_factors(const(256 + 64 * i), n, k // 32, dtypes.float8_e8m0)
            for i, n in enumerate((128, rows_of_b))
        ]
        builder.do(ops.Tcgen05Mma, acc, *tiles, const(False), 1, *(scales if scaled else []))
    return cuda.source(builder.finished(), "sm_100a")


@pytest.mark.parametrize("dtype", ["bf16", "f16", "tf32", "e4m3", "e2m1"])
def test_shared_memory_descriptors(dtype: str) -> None:
    cases = [row for row in rows("smem_descriptors") if row["dtype"] == dtype]
    assert len(cases) == {"bf16": 90, "f16": 90, "tf32": 36, "e4m3": 36, "e2m1": 36}[dtype]
    printed: dict[tuple[object, ...], str] = {}
    for row in cases:
        key = ORDERS[row["major"]], row["swizzle"], row["mn"], row["k"]
        code = (
            printed[key]
            if key in printed
            else printed.setdefault(key, operand_code(DTYPES[dtype], *key))
        )
        roles = code[code.index("// ---- shared memory") :]
        call = re.search(r"tcgen05_mma_\w+\(.*?, \w+_format \| .*?, (b_format \| .*?), mma_", roles)
        start = re.search(r"const u32 b_start = (.*?);", roles)
        assert call is not None
        assert start is not None
        names: dict[str, Any] = {
            **helpers(code),
            **constants(code),
            "b": lambda at=row["start"]: at,
        }
        names["b_start"] = evaluate(start[1], names)
        assert len(row["descriptors"]) == row["k"] // row["k_step"]
        for step, wanted in enumerate(row["descriptors"]):
            got = evaluate(call[1], {**names, "k": step})
            ignored = row["lbo_ignored"]
            assert significant(got, ignored) == significant(int(wanted, 16), ignored), (
                row,
                step,
                hex(got),
            )


def test_copies_of_scale_factors() -> None:
    cases = rows("smem_descriptors", "scale_copies", "scale_copy_columns")
    assert len(cases) == 24
    for row in cases:
        builder = Builder()
        builder.kernel.cta_group = 1
        scale, copies = DTYPES[row["scale"]], row["copies"]
        tile = builder.smem("tile", 32 * len(copies), 16, 1, scale)
        address = builder.scalar("address", dtypes.uint32)
        builder.setup_done()
        with builder.role("one", warps=1), builder.elect():
            builder.do(
                ops.TmemCopy,
                scale_factors(address, row["mn"], row["blocks"], scale),
                builder.tile(tile),
                1,
            )
        code = cuda.source(builder.finished(), "sm_100a")
        names: dict[str, Any] = {
            **helpers(code),
            **constants(code),
            "tile": lambda at=row["start"]: at,
            "address": 0,
        }
        start = re.search(r"const u32 start = (.*?);", code)
        assert start is not None
        names["start"] = evaluate(start[1], names)
        calls = re.findall(r"    tmem_copy_32x128b_warpx4\((.*?), (scale_format \| .*)\);", code)
        got = {
            evaluate(at, names): significant(evaluate(text, names), row["lbo_ignored"])
            for at, text in calls
        }
        assert len(calls) == len(copies)
        assert got == {
            column: significant(int(bits, 16), row["lbo_ignored"]) for bits, column in copies
        }, row


def test_each_step_reads_the_scale_factors_of_its_blocks() -> None:
    """Address and ID of a step: the column and byte of its first block."""
    cases = rows("tmem_scale_factors", "cases")
    assert len(cases) == 30
    for row in cases:
        e2m1 = row["kind"] != "mxf8f6f4"
        a = dtypes.float4_e2m1 if e2m1 else dtypes.float8_e4m3
        scaling = scaling_of(a, a, DTYPES[row["scale"]])
        assert scaling is not None
        assert (scaling.kind, scaling.block, scaling.vector) == (
            row["kind"],
            row["block"],
            row["per_step"],
        )
        code = cuda.source(
            built(a, a, DTYPES[row["scale"]], row["rows"], row["steps"] * scaling.k)[0].finished(),
            "sm_100a",
        )
        call = re.search(
            rf"tcgen05_mma_{row['kind']}\(.*, mma_\w+(?: \| scale_ids\((.*?)\))?, "
            r"(\w+.*?), (\w+.*?), (?:k > 0|0)\);",
            code,
        )
        assert call is not None
        names: dict[str, Any] = {"x": 0, "y": 0}
        names |= {
            name: evaluate(text, names)
            for name, text in re.findall(r"const u32 (sf[ab]\w*) = (.*?);", code)
        }
        for step in range(row["steps"]):
            column, byte = row["blocks"][step * row["per_step"]]
            assert evaluate(call[3], {**names, "k": step}) == column, (row, step)
            assert (0 if call[1] is None else evaluate(call[1], {**names, "k": step})) == byte, (
                row,
                step,
            )


class _Names:
    """Stands for the context of a role: special registers have their own names."""

    def special(self, name: str) -> str:
        return name


@cache
def element_of(layout: str, block: int, register: int, warp: int, lane: int) -> tuple[int, int]:
    """(row, column) of a register of a fragment, by the expressions that the printer numbers
    elements with.
    """
    at = At(str(block), Index(register), str(register // 2 % 2))
    names: dict[str, object] = {"warp_in_group": warp, "lane": lane}
    ctx: Any = _Names()
    return evaluate(row_number(ctx, layout, at), names), evaluate(
        column_number(ctx, layout, at), names
    )


def access_code(verb: str, m: int, n: int, dtype: DType) -> str:
    """The roles of a kernel that loads a matrix from tensor memory, or stores it."""
    builder = Builder()
    builder.kernel.cta_group = 1
    address = builder.scalar("address", dtypes.uint32)
    builder.setup_done()
    with builder.role("group", warpgroups=1):
        part, there = (
            builder.fragment("part", m, n, dtype, "tmem" if m == 128 else "wgmma"),
            Tmem(address, m, n, dtype),
        )
        if verb == "load":
            builder.do(ops.TmemLoad, part, there)
        else:
            builder.do(ops.TmemStore, there, builder.value(part))
    code = cuda.source(builder.finished(), "sm_100a")
    return code[code.index("// ---- roles") :]


def check_places(
    verb: str,
    m: int,
    n: int,
    dtype: DType,
    lanes: list[int],
    columns: list[int],
    first_lane: int = 0,
) -> None:
    """The registers of each thread, by CuTe's table of tcgen05.ld and .st at the printed address,
    are the elements of a matrix whose element (y, x) is in lane lanes[y], column columns[x].
    """
    shapes = {(row["shape"], row["num"]): row for row in rows("tmem_load_store_registers")}
    layout, per_register, seen = "tmem" if m == 128 else "wgmma", 4 // dtype.nbytes, set()
    code = access_code(verb, m, n, dtype)
    at = re.search(r"const u32 at = (.*?);", code)
    assert at is not None
    for shape, num, operands in re.findall(rf"tmem_{verb}_(16x\d+b)_x(\d+)\((.*)\);", code):
        table = shapes[shape, int(num)]
        held, where = operands.split(", ")[:: 1 if verb == "load" else -1]
        assert held.startswith(("part[i]", "part[0]"))
        first = evaluate(held[len("part[i] + ") :] or "0", {})
        for warp, i in np.ndindex(4, m // 64):
            base = evaluate(at[1], {"address": first_lane << 16, "warp_in_group": warp})
            start = evaluate(where, {"at": base, "i": i})
            for thread in range(32):
                for r, (lane, column) in enumerate(
                    zip(table["lanes"][thread], table["columns"][thread], strict=True)
                ):
                    for low in range(per_register):
                        y, x = element_of(layout, i, (first + r) * per_register + low, warp, thread)
                        assert (lanes[y], columns[x]) == (
                            (start >> 16) + lane,
                            (start & 0xFFFF) + column,
                        ), (warp, i, thread, r)
                        assert x % per_register == low, "the even column is in the low half"
                        seen.add((y, x))
    assert len(seen) == m * n


@pytest.mark.sampled(suite=6)
@pytest.mark.slow
@pytest.mark.parametrize("verb", ["load", "store"])
@pytest.mark.parametrize(
    "row",
    rows("accumulator_layouts", "cases"),
    ids=lambda r: f"{r['what']} {r['rows']}x{r['cols']}",
)
def test_accesses_reach_each_element_of_a_matrix(verb: str, row: dict[str, Any]) -> None:
    check_places(
        verb,
        row["rows"],
        row["cols"],
        DTYPES[row["dtype"]],
        row["lanes"],
        row["columns"],
        row["first_lane"],
    )


@pytest.mark.sampled(suite=6)
@pytest.mark.slow
@pytest.mark.parametrize("verb", ["load", "store"])
@pytest.mark.parametrize(
    "row", rows("tmem_load_store_registers"), ids=lambda r: f"{r['shape']} x{r['num']}"
)
def test_accesses_of_every_width(verb: str, row: dict[str, Any]) -> None:
    dtype = dtypes.float32 if row["shape"] == "16x256b" else dtypes.bfloat16
    n, whole = (
        8 * row["num"],
        next(c for c in rows("accumulator_layouts", "cases") if c["rows"] == 64),
    )
    assert f"_{row['shape']}_x{row['num']}(" in access_code(verb, 64, n, dtype)
    check_places(verb, 64, n, dtype, whole["lanes"], [x * dtype.nbytes // 4 for x in range(n)])
