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
        if inside or re.match(stamp, line):
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
def test_every_point_is_noted_before_it_and_waits_after_it_as_well(name: str) -> None:
    kernel = program(name).kernel
    text = cuda.source(kernel, timed=True)
    words = [int(x, 16) for x in re.findall(r"stamp_\w+\(stamps, 0x(\w+)u", text)]
    found = points(kernel)
    assert {word >> POINT_BIT for word in words} == set(range(len(found)))
    ends = {word >> POINT_BIT for word in words if word >> ENDED_BIT & 1}
    assert ends >= {n for n, point in enumerate(found) if waits(point.op)}
    assert bool(found) == (name != "rms_norm")  # which has ordinary loads and stores alone


def test_lanes_that_part_agree_anew() -> None:
    text = cuda.source(program("gemm").kernel, timed=True)
    load = text[text.index("void load(") :]
    elected = load[load.index("if (elect_one())") :]
    assert re.match(
        r"if \(elect_one\(\)\) \{.*?stamp_lane\(.*?arrive_expect_tx.*?\}\n"
        r"\s*stamps_join\(stamps\);",
        elected,
        re.DOTALL,
    )


def test_an_elected_arrival_is_noted_by_the_whole_warp() -> None:
    text = cuda.source(program("attention").kernel, timed=True)
    assert re.search(
        r"stamp_warp_again\(stamps, [^\n]*\n\s*if \(elected[^\n]*\n"
        r"\s*arrive\([^\n]*\n\s*\}\n(?!\s*stamps_join)",
        text,
    )


@pytest.mark.slow
def test_the_clock_is_read_again_only_where_time_has_passed() -> None:
    text = cuda.source(program("gemm").kernel, timed=True)
    mma = text[text.index("void mma(") : text.index("void load(")]
    loop = mma[mma.index("for (i32 i = ") : mma.index("inputs_held = 1")]
    reads = [x for x in re.findall(r"stamp_\w+", loop) if not x.endswith("_again")]
    # whether the wait for the stage blocks, its end if it does; both ends of the wait for MMAs
    assert reads == ["stamp_blocks", "stamp_warp", "stamp_warp", "stamp_warp"]
    assert re.search(r"stamps_read\(stamps\);\n\s*for \(i32 i = ", mma)


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
