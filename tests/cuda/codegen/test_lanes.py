"""Votes and reductions over the lanes of a warp, as they are compiled."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import cuda


@tp.kernel(grid=1)
def combined(ctx: tp.Context, x: Any, out: Any, *, text: str) -> None:
    """out = the expression `text` of ctx and of a lane's x."""

    @ctx.role("one", warps=1)
    def one() -> None:
        value = eval(text, {"ctx": ctx, "x": ctx.load(x[ctx.lane])})
        ctx.store(out[ctx.lane], value.to("uint32"))


HOPPER, BLACKWELL = "sm_90a", "sm_100a"


@pytest.mark.parametrize(
    ("text", "dtype", "arch", "want"),
    [
        ("ctx.any_lane(x > 0)", np.int32, HOPPER, ["vote.sync.any.pred"]),
        ("ctx.all_lanes(x > 0)", np.int32, HOPPER, ["vote.sync.all.pred"]),
        ("ctx.ballot(x > 0)", np.int32, HOPPER, ["vote.sync.ballot.b32"]),
        *(
            (f"ctx.reduce_lanes('{op}', x)", dtype, HOPPER, [f"redux.sync.{op}.{kind}"])
            for op in ("min", "max")
            for dtype, kind in ((np.int32, "s32"), (np.uint32, "u32"))
        ),
        *(
            (f"ctx.reduce_lanes('{op}', x)", dtype, HOPPER, [f"redux.sync.{op}.b32"])
            for op in ("and", "or", "xor")
            for dtype in (np.int32, np.uint32)
        ),
        ("ctx.reduce_lanes('add', x)", np.int32, HOPPER, ["redux.sync.add.u32"]),
        ("ctx.reduce_lanes('add', x)", np.uint32, HOPPER, ["redux.sync.add.u32"]),
        ("ctx.reduce_lanes('min', x)", np.float32, BLACKWELL, ["redux.sync.min.f32"]),
        ("ctx.reduce_lanes('max', x)", np.float32, BLACKWELL, ["redux.sync.max.f32"]),
        ("ctx.reduce_lanes('min', x)", np.float32, HOPPER, ["shfl.sync.bfly.b32"] * 5),
        ("ctx.reduce_lanes('max', x)", np.float32, HOPPER, ["shfl.sync.bfly.b32"] * 5),
    ],
)
def test_each_is_one_instruction(text: str, dtype: Any, arch: str, want: list[str]) -> None:
    program = combined.bind(np.zeros(32, dtype), np.zeros(32, np.uint32), text=text)
    made = cuda.compile(program.kernel, arch, "ptx")
    assert "warning" not in made.log
    found = re.findall(r"\b(?:vote|redux|shfl\.sync\.bfly)[.\w]*", made.data.decode())
    assert [name.replace("add.s32", "add.u32") for name in found] == want  # they are the same
