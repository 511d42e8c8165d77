"""The addresses printed for fragments, computed for every lane, against the one definition of
layouts in `ir.layout`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.build import Builder
from tilepipe import cuda
from tilepipe.ir import dtypes, layout, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.memory import SmemBuffer

# order, swizzle, buffer rows, buffer cols, first row and column of the rectangle, columns of the
# fragment
MATRICES = [
    ("row", 128, 64, 64, 0, 0, 64),
    ("row", 128, 128, 256, 64, 128, 128),
    ("row", 128, 64, 128, 0, 32, 64),
    ("row", 64, 64, 96, 0, 0, 96),
    ("row", 32, 128, 48, 64, 16, 32),
    ("row", 128, 64, 32, 0, 0, 32),
    ("row", 0, 64, 40, 0, 8, 24),
    ("col", 128, 64, 32, 0, 0, 32),
    ("col", 128, 256, 48, 128, 16, 32),
    ("col", 64, 64, 32, 0, 0, 32),
    ("col", 32, 128, 40, 64, 0, 40),
    ("col", 0, 64, 24, 0, 0, 24),
]


def swizzle(bits: int) -> object:
    return lambda x: int(layout.swizzle_offset(np.array(x), bits))


NAMES = {f"swizzle_{b}": swizzle(b) for b in (32, 64, 128)} | {"tile": lambda *_: 0}


def offset(buffer: SmemBuffer, row: int, col: int) -> int:
    return int(layout.byte_offsets(buffer, np.array(row), np.array(col)))


def loading(buffer: SmemBuffer, row: int, col: int, cols: int, blocks: int, held: str) -> str:
    """The function of a role that loads a fragment from a rectangle of the buffer."""
    b = Builder()
    b.kernel.buffers.append(buffer)
    b.setup_done()
    with b.role("math", warpgroups=1):
        acc = b.fragment("acc", 64 * blocks, cols, buffer.dtype, layout=held)
        b.do(ops.FragmentLoad, acc, b.tile(buffer, 0, row, col, 64 * blocks, cols))
    text = cuda.source(b.finished())
    return text[text.index("void math(") :]


def printed(
    buffer: SmemBuffer, row: int, col: int, cols: int, per_warp: bool, blocks: int, held: str
) -> str:
    """The function of a role that stores a fragment to a rectangle of the buffer."""
    b = Builder()
    b.kernel.buffers.append(buffer)
    b.setup_done()
    with b.role("math", warpgroups=1):
        acc = b.fragment("acc", 64 * blocks, cols, layout=held)
        if per_warp:
            with b.per_warp():
                b.do(
                    ops.FragmentStore, b.tile(buffer, 0, row, col, 16 * blocks, cols), b.value(acc)
                )
        else:
            b.do(ops.FragmentStore, b.tile(buffer, 0, row, col, 64 * blocks, cols), b.value(acc))
    text = cuda.source(b.finished())
    return text[text.index("void math(") :]


def calls(code: str, function: str) -> Iterator[tuple[str, list[str]]]:
    """(address, registers) of each call, with the `at` or `next` before it put in."""
    before = dict(re.findall(r"const u32 (at|next) = (.*?);", code))
    for m in re.finditer(rf"{function}\(((?:[^;]|\n)*?)\);", code):
        address, rest = re.split(r",\s*(?=pack_|acc)", m[1], maxsplit=1)
        yield (
            re.sub(r"\b(at|next)\b", lambda name: f"({before[name[0]]})", address),
            re.findall(r"acc\[[^]]*\]\[([^]]*)\]", rest),
        )


def evaluate(code: str, **values: int) -> int:
    """A printed integer expression."""
    return int(eval(re.sub(r"\s*//[^\n]*", "", code).replace(" / ", " // "), {}, NAMES | values))


def first_row(block: int, warp: int, per_warp: bool, held: str) -> int:
    """The first row of a row block of a warp, in the rectangle of all warps or its own."""
    if per_warp:
        return 16 * block
    return 64 * block + 16 * warp if held == "wgmma" else 32 * warp + 16 * block


def buffer_of(order: str, bits: int, rows: int, cols: int, dtype: DType) -> SmemBuffer:
    return SmemBuffer("tile", dtype, 1, rows, cols, order, bits, 1024)


@pytest.mark.sampled(suite=2)
@pytest.mark.slow
@pytest.mark.parametrize(("order", "bits", "rows", "cols", "row", "col", "width"), MATRICES)
@pytest.mark.parametrize("per_warp", [False, True])
@pytest.mark.parametrize("held", ["wgmma", "tmem"])
def test_stmatrix(
    order: str,
    bits: int,
    rows: int,
    cols: int,
    row: int,
    col: int,
    width: int,
    per_warp: bool,
    held: str,
) -> None:
    rows, row = (rows, row) if held == "wgmma" else (128, 0)
    buffer = buffer_of(order, bits, rows, cols, dtypes.bfloat16)
    blocks = 2 if held == "tmem" else (rows - row) // 64
    code = printed(buffer, row, col, width, per_warp, blocks, held)
    moves_matrices("stmatrix", code, buffer, row, col, width, blocks, held, per_warp)


@pytest.mark.sampled(suite=2)
@pytest.mark.slow
@pytest.mark.parametrize(("order", "bits", "rows", "cols", "row", "col", "width"), MATRICES)
@pytest.mark.parametrize("held", ["wgmma", "tmem"])
def test_ldmatrix(
    order: str, bits: int, rows: int, cols: int, row: int, col: int, width: int, held: str
) -> None:
    rows, row = (rows, row) if held == "wgmma" else (128, 0)
    buffer = buffer_of(order, bits, rows, cols, dtypes.float16)
    blocks = 2 if held == "tmem" else (rows - row) // 64
    code = loading(buffer, row, col, width, blocks, held)
    assert "load_u" not in code
    moves_matrices("ldmatrix", code, buffer, row, col, width, blocks, held)


@pytest.mark.parametrize(
    ("order", "cols", "start"),
    [("row", 36, 0), ("row", 64, 4), ("col", 36, 4)],
    ids=["rows of 72 bytes", "columns from 8 bytes on", "a column from 8 bytes on"],
)
def test_lines_off_16_bytes_are_loaded_element_by_element(
    order: str, cols: int, start: int
) -> None:
    """ldmatrix takes rows at multiples of 16 bytes."""
    lines = 64 if order == "row" else 64 + start
    buffer = buffer_of(order, 0, lines, cols, dtypes.bfloat16)
    row, col = (0, start) if order == "row" else (start, 0)
    code = loading(buffer, row, col, 32, 1, "wgmma")
    assert "ldmatrix" not in code
    assert f"load_u{32 if order == 'row' else 16}(" in code


def moves_matrices(
    instruction: str,
    code: str,
    buffer: SmemBuffer,
    row: int,
    col: int,
    width: int,
    blocks: int,
    held: str,
    per_warp: bool = False,
) -> None:
    """Each lane of each call gives the address of its line, and the registers come in the order of
    the matrices: a register a value where they are stored as float32, or a pair of values.
    """
    order, each = buffer.order, 2 if instruction == "stmatrix" else 4  # columns of a register
    suffix = "" if order == "row" else "_trans"
    seen = 0
    for n in (4, 2):
        for address, registers in calls(code, f"{instruction}_x{n}{suffix}"):
            trips = width // 16 if n == 4 else 1
            for i in range(blocks):
                for j in range(trips):
                    first = 16 * j if n == 4 else width // 16 * 16
                    assert [evaluate(r, j=j) for r in registers] == list(
                        range(first // each, (first + 4 * n) // each)
                    )
                    for w in range(4):
                        for lane in range(8 * n):
                            matrix, line = divmod(lane, 8)
                            r = row + first_row(i, w, per_warp, held) + 8 * (matrix % 2)
                            c = col + first + 8 * (matrix // 2)
                            r, c = (r + line, c) if order == "row" else (r, c + line)
                            assert evaluate(
                                address, i=i, j=j, lane=lane, warp_in_group=w
                            ) == offset(buffer, r, c)
                    seen += n
    assert seen == blocks * width // 4  # 8×8 matrices of a warp: two row halves for each 8 columns


SINGLES = [
    ("row", 128, 64, 64, 0, 32, 32),
    ("row", 128, 128, 48, 64, 0, 40),
    ("row", 0, 64, 40, 0, 8, 24),
    ("row", 32, 64, 24, 0, 0, 24),
    ("col", 128, 128, 32, 64, 8, 16),
    ("col", 0, 64, 24, 0, 0, 24),
    ("row", 0, 128, 1, 0, 0, 1),
]


@pytest.mark.slow
@pytest.mark.sampled(suite=6)
@pytest.mark.parametrize(("order", "bits", "rows", "cols", "row", "col", "width"), SINGLES)
@pytest.mark.parametrize("per_warp", [False, True])
@pytest.mark.parametrize("held", ["wgmma", "tmem"])
def test_element_stores(
    order: str,
    bits: int,
    rows: int,
    cols: int,
    row: int,
    col: int,
    width: int,
    per_warp: bool,
    held: str,
) -> None:
    rows, row = (rows, row) if held == "wgmma" else (128, 0)
    buffer = buffer_of(order, bits, rows, cols, dtypes.float32)
    blocks = 2 if held == "tmem" else (rows - row) // 64
    code = printed(buffer, row, col, width, per_warp, blocks, held)
    wanted, got = set(), set()
    for i in range(blocks):
        for h in range(2):
            for w in range(4):
                for lane in range(32):
                    r = row + first_row(i, w, per_warp, held) + 8 * h + lane // 4
                    for j in range(max(width // 8, 1)):
                        at = {"i": i, "h": h, "j": j, "lane": lane, "warp_in_group": w}
                        for low in range(2 if width > 1 else 1):
                            c = col + 8 * j + 2 * (lane % 4) + low if width > 1 else col
                            register = 4 * j + 2 * h + low if width > 1 else h
                            wanted.add((i, register, lane, w, offset(buffer, r, c)))
                        for address, registers in (
                            *calls(code, "store_float2"),
                            *calls(code, "store_float"),
                        ):
                            for low, index in enumerate(registers):
                                got.add(
                                    (
                                        i,
                                        evaluate(index, **at),
                                        lane,
                                        w,
                                        evaluate(address, **at) + 4 * low,
                                    )
                                )
    assert got == wanted
