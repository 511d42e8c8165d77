"""What a timed build adds to a kernel, and that others have none of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import cuda
from tilepipe.cuda.codegen.stamps import ENDED_BIT, POINT_BIT
from tilepipe.cuda.debug.stamps import check_room
from tilepipe.errors import LimitError
from tilepipe.ir.implied import implied
from tilepipe.ir.stamps import points, waits
from tilepipe.registry.catalog import find

KERNELS = ("gemm", "attention", "gemm_grouped", "rms_norm")


def program(name: str) -> tp.Program:
    spec = find(name)
    config, _ = spec.configure(spec.parse(["cluster=2"] if name == "gemm" else []), None)
    return spec.make(config, 0).program


def without_stamps(text: str) -> Iterator[str]:
    """The lines of a timed build without those about stamps, and without the functions."""
    inside = False
    for line in text.splitlines():
        inside = inside or line.startswith("// Before the stamps")
        if inside and re.match("// (?!%|by |after |The warp|Before|cycles|`slots`)", line):
            inside = False
        if inside and line.startswith("__device__") and "stamp" not in line:
            inside = False
        stamp = r"\s*(Stamps stamps = |const bool blocks\w* = |if \(blocks\w*\) )?stamps?_\w+\("
        count = r"\s*const u32 stamps_before\w* = stamps\.at;"
        wait = r"\s*grid_dependency_wait\(\);  // before stamps"
        if inside or re.match(rf"{stamp}|{count}|{wait}|\s*if \(blocks\w*\)$", line):
            continue
        yield re.sub(r"(,? (u8\*|u32))? stamp(_memory|ed_ctas|_room)\b,?", "", line)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_only_lines_of_their_own(name: str) -> None:
    kernel = program(name).kernel
    plain, timed = cuda.source(kernel), cuda.source(kernel, timed=True)
    assert "stamp" not in plain
    assert cuda.source(kernel) == plain
    body = [re.sub(r"\s+|,(?=\s*\))", "", "".join(lines)) for lines in
            (_functions(plain), without_stamps("\n".join(_functions(timed))))]  # fmt: skip
    assert body[1] == body[0]


def _functions(text: str) -> list[str]:
    """The roles and the kernel, which come after the PTX wrappers."""
    return text[text.index("// ---- roles") :].splitlines()


@pytest.mark.parametrize("name", KERNELS)
def test_every_point_is_noted_or_implied_and_waits_are_noted_after_them_as_well(name: str) -> None:
    kernel = program(name).kernel
    text = cuda.source(kernel, timed=True)
    words = [int(x, 16) for x in re.findall(r"(?:stamps|phase), 0x(\w+)u", text)]
    words += [int(x, 16) for x in re.findall(r"stamp_blocks\w*\(.*?, 0x(\w+)u", text)]
    found = points(kernel)
    begins = {word >> POINT_BIT for word in words if not word >> ENDED_BIT & 1}
    ends = {word >> POINT_BIT for word in words if word >> ENDED_BIT & 1}
    without = {n for n, point in enumerate(found) if point.op in implied(kernel).begins}
    assert begins | without == set(range(len(found)))
    assert not begins & without
    assert ends >= {n for n, point in enumerate(found) if waits(point.op)}
    assert bool(found) == (name != "rms_norm")  # which has ordinary loads and stores alone


def test_lanes_that_part_agree_anew() -> None:
    text = cuda.source(program("gemm").kernel, timed=True)
    # the lane that waits for its stores notes when it begins to and when it goes on
    assert re.search(
        r"const u32 (stamps_before\w*) = stamps\.at;\n\s*if \([^\n]*elect_one\(\)\) \{"
        r"[^\n]*\n\s*stamp_lane[^}]*bulk_wait[^}]*stamp_lane\([^}]*\}\n"
        r"\s*stamps_skip\(stamps, \1, warp_in_group == 0 \? 2 : 0\);",
        text,
    )


def test_what_is_elected_to_copy_and_to_arrive_is_noted_after_it_by_the_whole_warp() -> None:
    text = cuda.source(program("attention").kernel, timed=True)
    note = r"\}\n\s*stamp_warp_again\(stamps, [^\n]*\n(?!\s*stamps_(skip|join))"
    assert re.search(r"if \(elected[^\n]*\n\s*arrive\([^\n]*\n\s*" + note, text)
    text = cuda.source(program("gemm").kernel, timed=True)
    load = text[text.index("void load(") :]
    assert re.search(r"stamps_read\(stamps\);\n\s*if \(elect_one\(\)\) \{[^}]*" + note, load)
    # the bytes that are expected, which imply the one copy; the multicast, and its mask
    assert len(re.findall(r"stamp_warp_again\(", load)) == 3


@pytest.mark.slow
def test_a_step_along_k_reads_the_clock_once_unless_it_blocks() -> None:
    text = cuda.source(program("gemm").kernel, timed=True)
    mma = text[text.index("void mma(") : text.index("void load(")]
    loop = mma[mma.index("for (i32 i = ") : mma.index("inputs_held = 1")]
    notes = re.findall(r"(if \(blocks\) )?(stamp_\w+)", loop)
    assert notes == [
        ("", "stamp_blocks"),  # whether the wait for the stage blocks
        ("if (blocks) ", "stamp_warp"),
        ("", "stamp_warp_again"),  # the MMAs, which are committed and waited for
        ("", "stamp_warp"),  # those before them are complete
        ("", "stamp_warp_again"),  # their stage is released in each CTA of the cluster
        ("", "stamp_warp_again"),
    ]
    assert re.search(r"stamps_read\(stamps\);\n\s*for \(i32 i = ", mma)
    # a wait that a test has found complete is left out
    assert re.search(r"if \(blocks\)\n\s*wait\(inputs_full", mma)


@pytest.mark.slow
def test_a_test_in_the_place_of_a_wait_acquires_at_its_scope() -> None:
    plain, timed = (cuda.source(program("gemm").kernel, timed=x) for x in (False, True))
    assert set(re.findall(r"\bwait(_cluster)?\(inputs", plain)) == set(
        re.findall(r"stamp_blocks(_cluster)?\(stamps, inputs", timed)
    )


@pytest.mark.slow
def test_too_much_to_note() -> None:
    @tp.kernel(grid=1)
    def many(ctx: Any, out: Any) -> None:
        bar = tp.SharedMemBarrier.allocate(ctx, count=1, name="bar")

        @ctx.role("all", warps=1)  # type: ignore[untyped-decorator]
        def everything() -> None:
            for _ in range(4200):
                with ctx.elect_one():
                    bar.arrive()

    kernel = many.bind(np.zeros(1, np.float32)).kernel
    with pytest.raises(LimitError, match=r"has 4,200 waits.* names at most 4,096"):
        cuda.source(kernel, timed=True)


def test_more_room_than_a_build_counts() -> None:
    @tp.kernel(grid=64)
    def small(ctx: Any, out: Any) -> None:
        bar = tp.SharedMemBarrier.allocate(ctx, count=1, name="bar")

        @ctx.role("all", warps=4)  # type: ignore[untyped-decorator]
        def everything() -> None:
            with ctx.elect_one():
                bar.arrive()

    program = small.bind(np.zeros(1, np.float32))
    kernel = program.kernel
    with pytest.raises(
        tp.BindError,
        match=r"room=33,554,433 for each of 4 warps of 16 CTAs is 2,147,483,712 notes,"
        r" 17,179,869,696 bytes of GPU memory; .* Record fewer CTAs, or room up to 33,554,432$",
    ):
        program.record(ctas=16, room=(1 << 25) + 1)
    check_room(kernel, 16, 1 << 25)
    with pytest.raises(tp.BindError, match=r"34,359,738,368 bytes"):
        program.record(ctas=64, room=1 << 24)
