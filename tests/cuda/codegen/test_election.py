"""Where the lane is elected that executes the body of `ctx.elect_one()`."""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.kernels.attention import sm90_bind as attention
from tilepipe.kernels.attention.config import AttentionConfig


@tp.kernel()
def rounds(ctx: tp.Context, out: tp.GlobalTensor, *, scope: str, warpgroups: int) -> None:
    """One role arrives in a loop, by an elected lane, on a barrier that it then waits for."""
    done = tp.SharedMemBarrier.allocate(ctx, 1, "done")

    @ctx.role("rounds", warpgroups=warpgroups)
    def _() -> None:
        for i in ctx.range(4):
            with ctx.elect_one(scope):
                done.arrive()
            done.wait(i % 2)
        with ctx.elect_one("role"):
            ctx.store(out[0], 1)


@pytest.mark.parametrize(
    ("scope", "declared"),
    [
        ("role", "const bool elected_of_role = warp == 0 && elect_one();"),
        ("warpgroup", "const bool elected_of_warpgroup = warp_in_group == 0 && elect_one();"),
    ],
)
def test_the_lane_of_an_arrive_is_elected_before_the_loop(scope: str, declared: str) -> None:
    out = np.zeros(1, np.int32)
    program = rounds.bind(out, scope=scope, warpgroups=1)
    program.run()
    assert out[0] == 1
    lines = [
        line.split("//")[0].strip() for line in program.compile(emit="cuda").source.split("\n")
    ]
    loop = next(i for i, line in enumerate(lines) if line.startswith("for (i32 i "))
    assert lines.index(declared) < loop
    name = declared.split()[2]
    assert lines[loop + 1 : loop + 4] == [f"if ({name}) {{", "arrive(done());", "}"]
    # a body that does more is executed by a lane elected in place
    assert "if (warp == 0 && elect_one()) {" in lines


@tp.kernel()
def some_lanes(ctx: tp.Context, out: tp.GlobalTensor) -> None:
    """One of the last 24 lanes arrives on a barrier that all wait for."""
    done = tp.SharedMemBarrier.allocate(ctx, 1, "done")

    @ctx.role("one", warps=1)
    def _() -> None:
        with ctx.when(ctx.lane >= 8), ctx.elect_one():
            done.arrive()
        done.wait(0)
        with ctx.elect_one():
            ctx.store(out[0], 1)


def test_among_some_lanes_the_arriving_one_is_elected_in_place() -> None:
    """A lane elected among all could be one that does not come there."""
    out = np.zeros(1, np.int32)
    program = some_lanes.bind(out)
    program.run()
    assert out[0] == 1
    lines = [
        line.split("//")[0].strip() for line in program.compile(emit="cuda").source.split("\n")
    ]
    here = lines.index("arrive(done());")
    assert lines[here - 1].startswith("if (elect_of(")


@pytest.mark.slow
def test_no_branch_of_a_release_divides_the_softmax() -> None:
    """In machine code the loop over keys elects no lane: predicates guard its arrives."""
    q = np.zeros((1, 512, 1, 128), np.float16)
    program = attention.bind(q, q, q, np.zeros_like(q), None, AttentionConfig(bn=128))
    code = sass.disassemble(cuda.compile(program.kernel).data)
    counts = (loop.count() for loop in sass.loops(code))
    keys = next(count for count in counts if count["HGMMA"] == 8 + 8)
    assert keys["MUFU"] >= 64
    assert keys["ELECT"] == 0
