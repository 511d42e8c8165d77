"""Barriers, tiles and counts that threads which execute an op together would name differently.

The hole comes back with `monkeypatch.setattr(places, "require_uniform_operands", lambda scope, op:
None)`.
"""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text, refused
from tilepipe.lang.tracing import uniform_operands as places

BEFORE = """
tiles = ctx.smem((8, 32), "int32", count=4, swizzle=0, name="tiles")
bars = tp.SMemArray(ctx, tp.SharedMemBarrier, 4, "bars")
for i in range(4):
    bars[i].init(128)
state = tp.PipelineState(ctx, 4)
"""


def role(text: str, size: str = "warpgroups=1") -> tp.Program:
    lines = textwrap.indent(textwrap.dedent(text).strip(), "    ")
    return from_text(f"{BEFORE}\n@ctx.role('all', {size})\ndef everyone():\n{lines}").bind(
        np.zeros(128, np.int32)
    )


BY_WARP = {
    "a tile": (
        "ctx.store(tiles[ctx.warp][0, ctx.lane], 1)",
        "the index of a tile of 'tiles', warp,",
    ),
    "a load": ("ctx.load(tiles[ctx.warp][0, ctx.lane])", "the index of a tile of 'tiles'"),
    "a part": (
        "ctx.store(tiles[0].rows(ctx.warp, 1)[0, ctx.lane], 1)",
        "the first row of a part of 'tiles'",
    ),
    "a column": (
        "ctx.store(tiles[0].cols(ctx.warp * 8, 8)[0, 0], 1)",
        "the first column of a part of 'tiles'",
    ),
    "a barrier": ("bars[ctx.warp].arrive()", "the index of a barrier of 'bars'"),
    "a barrier waited for": ("bars[ctx.warp].wait(0)", "the index of a barrier of 'bars'"),
    "a phase": ("bars[0].wait(ctx.warp % 2)", "the phase of a wait"),
    "a step": ("state.advance(ctx.warp)", "a number of steps"),
    "data": (
        "ctx.store(tiles[ctx.load(out[ctx.warp])][0, ctx.lane], 1)",
        "the index of a tile of 'tiles'",
    ),
}


@pytest.mark.parametrize(("text", "what"), BY_WARP.values(), ids=BY_WARP)
def test_warps_of_a_warpgroup_name_one_thing(text: str, what: str) -> None:
    with refused(
        tp.TraceError,
        what,
        "varies by warp",
        "warpgroup role 'all'",
        "with ctx.per_warp() as w:",
        text.split("(")[0],
    ):
        role(text)


@pytest.mark.parametrize(
    "text",
    [
        "with ctx.per_warp() as w:\n    ctx.store(tiles[w][0, ctx.lane], 1)",
        "with ctx.per_warp():\n    ctx.store(tiles[ctx.warp][0, ctx.lane], 1)",
        (
            "mine = ctx.let(ctx.warp + 0 * ctx.block_id)\n"
            "with ctx.per_warp():\n"
            "    ctx.store(tiles[mine][0, ctx.lane], 1)"
        ),
        (
            "mine = ctx.let(ctx.warp * 2)\n"
            "with ctx.per_warp():\n"
            "    ctx.store(tiles[0].rows(mine, 1)[0, ctx.lane], 1)"
        ),
    ],
)
def test_each_warp_of_per_warp_names_its_own(text: str) -> None:
    assert role(text).check().ok


def test_each_warp_of_a_role_of_warps_names_its_own() -> None:
    program = role(
        "ctx.store(tiles[ctx.warp][0, ctx.lane], ctx.warp)\n"
        "ctx.store(out[ctx.thread], ctx.load(tiles[ctx.warp][0, ctx.lane]))",
        "warps=4",
    )
    assert program.check().ok
    program.run()
    assert program.launch_args.args["out"].array.tolist() == np.repeat(range(4), 32).tolist()  # type: ignore[union-attr]


BY_LANE = {
    "a part": (
        "ctx.store(tiles[0].rows(ctx.lane % 8, 1)[0, 0], 1)",
        "the first row of a part of 'tiles'",
    ),
    "a peer": ("ctx.store(tiles[0].on(ctx.lane)[0, 0], 1)", "the rank of a CTA"),
    "bytes": ("bars[0].complete_transaction(None, ctx.lane)", "a number of bytes"),
    "a count": ("bars[0].arrive_cluster(0, ctx.lane)", "the count of an arrive"),
}


@pytest.mark.parametrize(("text", "what"), BY_LANE.values(), ids=BY_LANE)
@pytest.mark.parametrize("size", ["warps=1", "warpgroups=1"])
def test_lanes_of_a_warp_name_one_thing(text: str, what: str, size: str) -> None:
    with refused(tp.TraceError, what, "varies by lane", "the same in every thread of a warp"):
        role(text, size)


def test_a_coordinate_of_a_lane() -> None:
    @tp.kernel()
    def k(ctx: tp.Context, a: tp.GlobalTensor) -> None:
        tile = ctx.smem((1, 32), "float32", swizzle=0, name="tile")[0]
        bar = tp.SharedMemBarrier.allocate(ctx, 1, "bar")

        @ctx.role("load", warps=1)
        def load() -> None:
            with ctx.elect_one():
                bar.expect_bytes(tile.nbytes)
                ctx.tma_load(a, (ctx.lane, 0), tile, bar)
            bar.wait(0)

    with refused(tp.TraceError, "a TMA coordinate, lane, varies by lane"):
        k.bind(tp.tensor_map(np.zeros((8, 32), np.float32), box=(1, 32), swizzle=0))


def test_without_the_refusal_the_simulator_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "require_uniform_operands", lambda scope, op: None)
    with pytest.raises(tp.SimFault, match="differs between the threads of one warpgroup"):
        role("ctx.store(tiles[ctx.warp][0, ctx.lane], 1)").check()
