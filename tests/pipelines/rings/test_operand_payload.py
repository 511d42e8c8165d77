"""OperandTilePayload: stages of any number of operands, with ordinary loads and with MMAs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text
from tilepipe.check.mutation.judging import judge, outputs
from tilepipe.check.mutation.mutants import mutants

STEPS = 5


@tp.kernel(grid=1)
def combined(ctx: tp.Context, x: Any, y: Any, z: Any, out: Any) -> None:
    """out = (x + y) · z, tile by tile; x and y have two tiles a stage, z is of another dtype."""
    payload = tp.OperandTilePayload(
        x=tp.TileOperand(x.dtype, (64, 8), swizzle=0),
        y=tp.TileOperand(y.dtype, (64, 8), swizzle=0),
        z=tp.TileOperand(z.dtype, (64, 16), swizzle=0),
    )
    inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=2, k_group_size=2)

    @ctx.role("load", warps=1)
    def load() -> None:
        with inputs.producer() as producer:
            for step in ctx.range(ctx.ceil_div(x.shape[1], 16)):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    for j in range(2):
                        for tensor, tile in zip((x, y, z), stage.tile(j), strict=True):
                            column = (2 * step + j) * tile.shape[1]
                            ctx.tma_load(tensor, (0, column), tile, stage.barrier())
            producer.drain()

    @ctx.role("use", warpgroups=1)
    def use() -> None:
        with inputs.consumer() as consumer:
            for step in ctx.range(ctx.ceil_div(x.shape[1], 16)):
                with consumer.acquire() as stage:
                    for j in range(2):
                        parts = []
                        for tile in stage.tile(j):
                            part = ctx.fragment(shape=tile.shape, dtype=tile.dtype)
                            part.load(tile)
                            parts.append(part)
                        value = (parts[0] + parts[1]) * parts[2].cols(0, 8).to("float32")
                        ctx.store_global(out, (0, (2 * step + j) * 8), value)


def combination() -> tuple[tp.Program, Any, Any]:
    """The program, what it writes, what must be in it."""
    rng = np.random.default_rng(0)
    columns = 16 * STEPS
    x, y = (rng.integers(-4, 5, (64, columns)).astype(np.float32) for _ in range(2))
    z = rng.integers(-4, 5, (64, 2 * columns)).astype(ml_dtypes.bfloat16)
    out = np.zeros((64, columns), np.float32)
    maps = [tp.tensor_map(t, box=(64, 8 * (1 + (t is z))), swizzle=0) for t in (x, y, z)]
    factors = z.astype(np.float32).reshape(64, -1, 16)[:, :, :8].reshape(64, columns)
    return combined.bind(*maps, out), out, (x + y) * factors


@tp.kernel(grid=1)
def gated(ctx: tp.Context, a: Any, gate: Any, up: Any, out: Any) -> None:
    """out = relu(A · gateᵀ) · (A · upᵀ), elementwise."""
    payload = tp.OperandTilePayload(
        a=tp.TileOperand(a.dtype, a.box),
        gate=tp.TileOperand(gate.dtype, gate.box),
        up=tp.TileOperand(up.dtype, up.box),
    )
    inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=2)
    steps = ctx.ceil_div(a.shape[1], a.box[1])

    @ctx.role("load", warps=1)
    def load() -> None:
        with inputs.producer() as producer:
            for step in ctx.range(steps):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    for tensor, tile in zip((a, gate, up), stage.tile(), strict=True):
                        ctx.tma_load(tensor, (0, step * a.box[1]), tile, stage.barrier())
            producer.drain()

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        shape = a.box[0], gate.box[0]
        left, right = ctx.accumulator(shape), ctx.accumulator(shape)
        with inputs.consumer(lag=1) as consumer:
            for step in ctx.range(steps):
                with consumer.acquire() as stage:
                    a_tile, gate_tile, up_tile = stage.tile()
                    ctx.mma(left, a_tile, gate_tile, accumulate=step > 0)
                    ctx.mma(right, a_tile, up_tile, accumulate=step > 0)
        ctx.store_global(out, (0, 0), left.maximum(0) * right)


def gated_product() -> tuple[tp.Program, Any, Any]:
    """The program, what it writes, what must be in it."""
    rng = np.random.default_rng(1)
    a, gate, up = (
        rng.integers(-3, 4, (rows, 32 * STEPS)).astype(ml_dtypes.bfloat16) for rows in (64, 16, 16)
    )
    out = np.zeros((64, 16), np.float32)
    x, g, u = (t.astype(np.float32) for t in (a, gate, up))
    maps = [tp.tensor_map(t, box=(len(t), 32)) for t in (a, gate, up)]
    return gated.bind(*maps, out), out, np.maximum(x @ g.T, 0) * (x @ u.T)


MADE = {"ordinary loads": combination, "MMAs": gated_product}


@pytest.mark.parametrize("name", MADE)
def test_every_operand_of_a_stage_arrives(name: str) -> None:
    program, out, want = MADE[name]()
    program.run(seed=1)
    assert (out == want).all()
    assert program.check().ok


@pytest.mark.parametrize(
    ("name", "arch"),
    [("ordinary loads", "sm_90a"), ("ordinary loads", "sm_100a"), ("MMAs", "sm_90a")],
)
@pytest.mark.slow
def test_the_printed_kernel_computes_the_same(name: str, arch: str) -> None:
    program, out, want = MADE[name]()
    program.ptx(arch).run(1)
    assert (out == want).all()


@pytest.mark.slow
def test_a_wrong_count_of_bytes_or_a_lost_wait_is_found() -> None:
    """Each mutant of the synchronisation of a stage of three operands is found, but for the drain:
    no other CTA arrives here.
    """
    program, _, _ = gated_product()
    launch = program.launch_args
    reference = outputs(launch)
    found = {
        str(mutant): judge(mutant, launch, reference)
        for mutant in mutants(program.kernel, ["drop", "bytes"])
        if "inputs." in mutant.what
    }
    assert len(found) >= 6
    (drain,) = (text for text, outcome in found.items() if not outcome.caught)
    assert drain.startswith("dropped: mbar_wait bar=inputs.empty[stage_1]")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tp.OperandTilePayload()", "takes the operands of a stage by name, one at least"),
        (
            "tp.OperandTilePayload(a=(64, 64))",
            "a is a tp.TileOperand(dtype, (rows, columns)), got (64, 64)",
        ),
        (
            "tp.OperandTilePayload(a=tp.TileOperand('float32', (8, 8))).tile_bytes",
            "this payload has no shared memory yet",
        ),
        (
            "tp.OperandTilePayload(a=tp.TileOperand('float32', (8, 'x'))).allocate(ctx, 2, 'p')",
            "'x'",
        ),
        (
            "tp.OperandTilePayload(a=tp.TileOperand('float32', 64)).allocate(ctx, 2, 'p')",
            "shape= takes (rows, cols), two static integers, got 64",
        ),
        (
            "tp.OperandTilePayload(a=tp.TileOperand('floaty', (8, 8))).allocate(ctx, 2, 'p')",
            "floaty",
        ),
    ],
)
def test_a_payload_that_cannot_be_is_refused(text: str, words: str) -> None:
    kernel = from_text(f"{text}\n@ctx.role('one', warps=1)\ndef one():\n    pass")
    with pytest.raises(tp.TilepipeError) as caught:
        kernel.bind(np.zeros(64, np.int32))
    assert words in str(caught.value)
