"""How reductions, finds and scans read in printed CUDA: constants are folded, and brackets stand
where they are needed.
"""

from __future__ import annotations

import re

import pytest

from tests.support.tracing import role_from_text


def printed(text: str, layout: str, shape: tuple[int, int]) -> list[str]:
    """The lines of CUDA for statements on a fragment `f` that a warpgroup holds."""
    made = f"f = ctx.fragment(shape={shape}, dtype='float32', layout='{layout}')\nf.fill(1)\n"
    source = role_from_text(made + text, "warpgroups=1").source()
    return [line.split("//")[0].strip() for line in source.splitlines()]


ROWS = """
    for (int h = 0; h < 2; ++h) {
        float x[4];
        for (int j = 0; j < 5; ++j) {
            x[j % 2 * 2] = j < 2 ? frag[0][4 * j + 2 * h]
                : fmaxf(x[j % 2 * 2], frag[0][4 * j + 2 * h]);
            x[j % 2 * 2 + 1] = j < 2 ? frag[0][4 * j + 2 * h + 1]
                : fmaxf(x[j % 2 * 2 + 1], frag[0][4 * j + 2 * h + 1]);
        }
        row[0][h] = row_max(fmaxf(__uint_as_float(0xff800000u), fmaxf(fmaxf(x[0], x[2]),
            fmaxf(x[1], x[3]))));
    }
"""
ROWS_OF_WARPS = """
    if (lane == 0) {
        store_float(partials + 4 * warp_in_group, row[0][0]);
    }
    named_sync(one_warpgroup_barrier, 128);
    float part0, part1, part2, part3;
    load_float2(partials, part0, part1);
    load_float2(partials + 8, part2, part3);
    row[0][0] = fmaxf(fmaxf(part0, part1), fmaxf(part2, part3));
    named_sync(one_warpgroup_barrier, 128);
"""
ROWS_OF_PAIRS = """
    load_float2(partials + 16 * i + 8 * (warp_in_group / 2), part0, part1);
    row[i][0] = part0 + part1;
"""
COLUMNS = """
    {
        const u32 first = 256 * warp_in_group + 8 * lane;
        store_float2(partials + first, total[0][0], total[0][1]);
    }
    named_sync(one_warpgroup_barrier, 128);
    for (int p = 0; p < 8; ++p) {
        float part0, part1, part2, part3, part4, part5, part6, part7;
        load_float2(partials + 32 * p + 8 * (lane % 4), part0, part1);
        load_float2(partials + 32 * p + 8 * (lane % 4) + 256, part2, part3);
        load_float2(partials + 32 * p + 8 * (lane % 4) + 512, part4, part5);
        load_float2(partials + 32 * p + 8 * (lane % 4) + 768, part6, part7);
        total[0][8 * (p % 2) + 4 * (p / 2 % 2) + 2 * (p / 4 % 2)] =
            (part0 + part2) + (part4 + part6);
        total[0][8 * (p % 2) + 4 * (p / 2 % 2) + 2 * (p / 4 % 2) + 1] =
            (part1 + part3) + (part5 + part7);
    }
"""
ODD_COLUMNS = """
    if ((lane & 24) == 0) {
        const u32 first = 3 * (lane / 4 % 2);
        for (int k_1 = 0; k_1 < 3; ++k_1) {
            store_float(partials + 96 * warp_in_group + 32 * ((first + k_1) / 2) + 8 * (lane % 4)
                + 4 * ((first + k_1) % 2), total[0][k_1]);
        }
    }
    named_sync(one_warpgroup_barrier, 128);
    for (int k_1 = 0; k_1 < 3; ++k_1) {
        float part0, part1, part2, part3, part4, part5, part6, part7;
        load_float2(partials + 32 * k_1 + 8 * (lane % 4), part0, part1);
"""
WHOLE = """
    all = max_lanes(fmaxf(fmaxf(x[0], x[2]), fmaxf(x[1], x[3])), 1, 32);
    {
        const u32 partials = one_partials();
        if (lane == 0) {
            store_float(partials + 4 * warp_in_group, all);
        }
        named_sync(one_warpgroup_barrier, 128);
        float part0, part1, part2, part3;
        load_float2(partials, part0, part1);
        load_float2(partials + 8, part2, part3);
        all = fmaxf(fmaxf(part0, part1), fmaxf(part2, part3));
"""
FOUND = """
    if (lane == 0) {
        store_float(partials + 4 * warp_in_group, best[0][0]);
        store_i32(partials + 4 * warp_in_group + 16, column[0][0]);
    }
    named_sync(one_warpgroup_barrier, 128);
    float part0, part1;
    load_float2(partials + 8 * (warp_in_group / 2), part0, part1);
    u32 column0, column1;
    load_u32x2(partials + 8 * (warp_in_group / 2) + 16, column0, column1);
    best[0][0] = fmaxf(part0, part1);
    column[0][0] = min(part0 == best[0][0] ? static_cast<i32>(column0) : 0x7fffffff, part1 ==
        best[0][0] ? static_cast<i32>(column1) : 0x7fffffff);
"""
SCANNED = """
    float mine[2];
    mine[0] = frag[0][4 * j + 2 * h];
    mine[1] = mine[0] + frag[0][4 * j + 2 * h + 1];
    float upto = mine[1];
    upto = scan_step_float(upto, 1, 0x1c00);
    upto = scan_step_float(upto, 2, 0x1c00);
    const float before = total + lane_before_float(upto, 0x1c00);
    total += __shfl_sync(0xffffffff, upto, 3, 4);
"""


@pytest.mark.parametrize(
    ("text", "layout", "shape", "want"),
    [
        ("row = ctx.fragment(f.max())", "wgmma", (64, 40), ROWS),
        ("row = ctx.fragment(f.max())", "rows:128", (1, 1024), ROWS_OF_WARPS),
        ("row = ctx.fragment(f.sum())", "rows:64", (4, 512), ROWS_OF_PAIRS),
        ("column = ctx.fragment(f.sum(axis=0))", "wgmma", (64, 64), COLUMNS),
        ("column = ctx.fragment(f.sum(axis=0))", "wgmma", (64, 24), ODD_COLUMNS),
        ("s = f.max(axis=None)", "wgmma", (64, 16), WHOLE),
        ("best, column = f.argmax()", "rows:64", (2, 512), FOUND),
        ("g = f.cumsum()", "wgmma", (64, 16), SCANNED),
    ],
    ids=["rows", "warps", "pairs", "columns", "odd", "whole", "found", "scanned"],
)
def test_a_reduction_reads_well(text: str, layout: str, shape: tuple[int, int], want: str) -> None:
    lines = [x for x in printed(text, layout, shape) if not x.startswith("#pragma")]
    assert " ".join(want.split()) in " ".join(lines), "\n".join(lines)


@pytest.mark.parametrize("layout", ["wgmma", "tmem", "rows:1", "rows:8", "rows:32", "rows:128"])
def test_no_constant_is_left_to_fold(layout: str) -> None:
    threads = int(layout[5:]) if ":" in layout else 0
    rows = 128 // threads if threads else 128
    text = (
        "a, b, c = f.max(), f.sum(axis=0), f.sum(axis=None)\nd, e = f.argmin()\n"
        "i, j = (x(n, layout=f.layout) for x, n in zip((ctx.row_index, ctx.col_index), f.shape))\n"
        "f.set(f + i * j)\n"
    )
    if threads <= 32:
        text += "g = f.cumsum()"
    lines = printed(text, layout, (rows, 8 * (threads or 4)))
    unfolded = "|".join(
        [
            r"[+(] ?0 [*/%+]|[-+*/%] 0\b(?![.x])|[*/%] 1\b",  # a number
            r"\(\d+\)|[*+/%] \(\w+\)|[(,] ?\(f?m(ax|in)f?\(",  # brackets
        ]
    )
    body = lines[next(i for i, line in enumerate(lines) if " one(" in line) :]
    assert [line for line in body if re.search(unfolded, line)] == []
