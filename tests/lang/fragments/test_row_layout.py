"""Fragments of layout "rows:T": shapes, roles, and what takes no such fragment."""

from __future__ import annotations

import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text
from tilepipe.ir import ops
from tilepipe.ir.fragment import VECTOR, warp_boxes
from tilepipe.ir.program import all_ops

NEW = "f = ctx.fragment(shape={shape}, layout='{layout}')"


@pytest.mark.parametrize(
    ("layout", "shape", "warps", "words"),
    [
        ("rows:3", (64, 64), "warpgroups=1", ("power of two", "128 of a warpgroup")),
        ("rows:64", (1, 512), "warps=1", ("power of two", "32 of a warp")),
        ("rows:256", (1, 2048), "warpgroups=1", ("power of two",)),
        ("rows:32", (2, 256), "warpgroups=1", ("multiple of 4 rows", "128 / 32", "got 2×256")),
        ("rows:32", (4, 128), "warpgroups=1", ("256 columns", "8 · 32", "got 4×128")),
        ("rows:32", (0, 256), "warps=1", ("got 0×256",)),
        ("rows:0", (64, 64), "warpgroups=1", ("the layout of a fragment is", "rows:0")),
        ("rows", (64, 64), "warpgroups=1", ("the layout of a fragment is",)),
        ("wgmma", (64, 64), "warps=1", ("warpgroups=", '"rows:T"')),
    ],
)
def test_shapes(layout: str, shape: tuple[int, int], warps: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        role_from_text(NEW.format(shape=shape, layout=layout), warps)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("f += ctx.fragment(shape=(64, 128)).sum()", ("broadcast",)),
        ("f += g", ("different elements", '"wgmma"', '"rows:8"')),
        ("f.set(f.cols(0, 64), col=8)", ("multiple of 64", "got 8")),
        ("f.cols(8, 64)", ("multiples of 64",)),
        ("ctx.col_index(64, layout='rows')", ('"rows:T"', "got 'rows'")),
        ("ctx.col_index(64, layout='row:8')", ('"rows:T"', "got 'row:8'")),
        ("f.load(tile)", ("f.load(tile)", "one value a row", "ctx.load_global")),
        ("ctx.store(tile, f)", ("shared tile", "one value a row", "ctx.store_global")),
        ("ctx.store(line, f.sum())", ("16×1 here, the tile is 1×16",)),
        ("ctx.store(swizzled.rows(0, 16).cols(0, 1), f.sum())", ("without swizzle", "swizzle=0")),
        ("ctx.mma(acc, f, b)", ('layout "rows:8"', "wgmma")),
        ("with ctx.per_warp():\n    f.fill(0)", ("per_warp", "all threads that hold it")),
        ("with ctx.per_warp():\n    f.sum()", ("per_warp", "all threads that hold it")),
        ("with ctx.per_warp():\n    (f > 0).any()", ("per_warp", "all threads that hold it")),
        ("with ctx.when(ctx.lane == 0):\n    f.sum()", ("all threads of the warpgroup",)),
    ],
)
def test_misuse(text: str, words: tuple[str, ...]) -> None:
    before = (
        "tile = ctx.smem((16, 128), 'float32', swizzle=0)[0]\n"
        "b = ctx.smem((64, 64), 'bfloat16')[0]\n"
        "line = ctx.smem((1, 16), 'float32', swizzle=0)[0]\n"
        "swizzled = ctx.smem((64, 32), 'float32')[0]"
    )
    start = (
        "f = ctx.fragment(shape=(16, 128), layout='rows:8')\n"
        "f.fill(0)\n"
        "g = ctx.fragment(shape=(1, 128))\n"
        "g.fill(0)\n"
        "acc = ctx.accumulator((64, 64))\n"
    )
    with refused(tp.TraceError, *words):
        role_from_text(start + text, "warpgroups=1", before)


def test_the_reductions_of_a_role_share_memory_and_a_barrier() -> None:
    program = role_from_text(
        "f = ctx.fragment(shape=(2, 512), layout='rows:64')\n"
        "f.fill(1)\n"
        "f.sum(); f.max()\n"
        "g = ctx.fragment(shape=(8, 512), layout='rows:64')\n"
        "g.fill(1)\n"
        "g.sum()",
        "warpgroups=2",
    )
    kernel = program.kernel
    assert [(b.rows, b.cols) for b in kernel.buffers] == [(2, 16)]
    assert [(b.threads, b.per_warpgroup) for b in kernel.named_barriers] == [(128, 2)]
    reduces = [op for op in all_ops(kernel) if isinstance(op, ops.FragmentReduce)]
    assert len({op.partials for op in reduces}) == 1


def test_a_warp_needs_no_memory_to_reduce_its_rows() -> None:
    program = role_from_text(
        "f = ctx.fragment(shape=(4, 256), layout='rows:32')\nf.fill(1)\nf.sum()", "warpgroups=1"
    )
    assert program.kernel.buffers == []


@pytest.mark.parametrize(
    ("threads", "warps"),
    [(1, 1), (4, 1), (32, 1), (1, 4), (4, 4), (32, 4), (64, 4), (128, 4)],
)
def test_the_boxes_of_warps_are_the_elements_of_their_threads(threads: int, warps: int) -> None:
    groups = 32 * warps // threads
    rows, cols = 2 * groups, 2 * VECTOR * threads
    held = {
        (r, c): (r % groups * threads + c // VECTOR % threads) // 32
        for r in range(rows)
        for c in range(cols)
    }
    for warp in range(warps):
        boxes = warp_boxes(f"rows:{threads}", warps, warp, rows, cols)
        mine = [(r, c) for r0, r1, c0, c1 in boxes for r in range(r0, r1) for c in range(c0, c1)]
        assert len(set(mine)) == len(mine)
        assert set(mine) == {place for place, by in held.items() if by == warp}
