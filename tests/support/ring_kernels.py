"""Small kernels around one pipeline: a ring of integers between two roles, and an input pipeline
that feeds an accumulator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.support.ring_places import Places
from tests.support.tracing import from_text
from tilepipe.ir import ops
from tilepipe.ir.program import walk

Side = Callable[..., None]


def produce(ctx: tp.Context, pipe: Any, slots: Any, n: Any) -> None:
    """Item i is 3 i + 1."""
    for i in ctx.range(n):
        with pipe.produce() as stage, ctx.elect_one():
            ctx.store(slots[stage.index()], i * 3 + 1)
            stage.mbar().arrive()


def consume(ctx: tp.Context, pipe: Any, slots: Any, out: Any, n: Any) -> None:
    """out[i] is item i."""
    for i in ctx.range(n):
        with pipe.consume() as stage, ctx.elect_one():
            ctx.store(out[i], ctx.load(slots[stage.index()]))


def ring(
    producer: Side = produce,
    consumer: Side = consume,
    *,
    n: int = 7,
    stages: int = 3,
    warps: tuple[int, int] = (1, 1),
    grid: int = 1,
    **counts: Any,
) -> tuple[tp.Program, Any]:
    """A program with `stages` integers between the roles "producer" and "consumer", and the array
    the consumer writes.
    """
    out = np.full(64, -1, np.int32)

    @tp.kernel(grid=grid)
    def k(ctx: tp.Context, out: Any, n: Any) -> None:
        pipe = tp.ProducerConsumerPipeline.allocate(ctx, stages, name="pipe", **counts)
        slots = tp.SMemArray(ctx, "int32", stages, name="slots")

        @ctx.role("producer", warps=warps[0])
        def producer_role() -> None:
            producer(ctx, pipe, slots, n)

        @ctx.role("consumer", warps=warps[1])
        def consumer_role() -> None:
            consumer(ctx, pipe, slots, out, n)

    return k.bind(out, n), out


def laps(n: int, stages: int) -> list[int]:
    """How often each stage's barrier completes when `n` items pass."""
    return [len(range(s, n, stages)) for s in range(stages)]


def counts_of(program: tp.Program) -> dict[str, int | None]:
    """Barrier array -> arrival count."""
    return {a.name: a.count for a in program.kernel.barriers}


def summary(program: tp.Program, role: int = 0) -> list[str]:
    """What a role does to barriers and cursors, in program order; control flow as "if", "for",
    "elect". Place, phase, count and trips are said where they are not the usual ones
    (`tests.support.ring_places`).
    """
    verbs: dict[type[ops.Op], str] = {
        ops.MbarWait: "wait",
        ops.MbarTryWait: "try",
        ops.MbarArrive: "arrive",
        ops.MbarExpect: "expect",
    }
    plain: dict[type[ops.Op], str] = {
        ops.If: "if",
        ops.For: "for",
        ops.Elect: "elect",
        ops.WgmmaWait: "wgmma_wait",
        ops.WgmmaCommit: "commit",
    }
    found, places = [], Places()
    for op in walk(program.kernel.roles[role].body):
        more = places.unusual(op)
        if type(op) in verbs:
            found.append(f"{verbs[type(op)]} {op.bar.array.name.split('.')[-1]}{more}")  # type: ignore[attr-defined]
        elif isinstance(op, ops.CursorStep):
            found.append(f"step {op.cursor.name.split('_')[-1]}{more}")
        elif type(op) in plain:
            found.append(plain[type(op)] + more)
    return found


def one_role(
    text: str,
    *,
    size: str = "warps=1",
    p: int | None = 1,
    c: int | None = 1,
    stages: int = 3,
    extra: str = "pass",
) -> tp.Program:
    """A kernel whose only role does `text` with `pipe`; counts p and c."""
    import textwrap

    body = textwrap.indent(textwrap.dedent(text).strip(), "    ")
    before = (
        f"pipe = tp.ProducerConsumerPipeline.allocate(ctx, {stages}, producer_arrivals={p},"
        f" consumer_arrivals={c}, name='pipe')\n{extra}"
    )
    return from_text(f"{before}\n@ctx.role('one', {size})\ndef one():\n{body}").bind(
        np.zeros(64, np.int32)
    )


PAYLOAD = tp.StandardTilePayload(
    a_type="bfloat16", b_type="bfloat16", a_shape=(64, 16), b_shape=(8, 16)
)
K = 16


def load_all(ctx: tp.Context, inputs: Any, a: Any, b: Any, n: Any) -> None:
    """The load warp's usual loop."""
    with inputs.producer() as producer:
        for k in ctx.range(n):
            with producer.acquire() as stage, ctx.elect_one():
                stage.expect_bytes(inputs.stage_bytes)
                load_stage(ctx, inputs, stage, a, b, k)


def load_stage(ctx: tp.Context, inputs: Any, stage: Any, a: Any, b: Any, k: Any) -> None:
    """The TMA copies of one stage."""
    for j in range(inputs.k_group_size):
        a_tile, b_tile = stage.tile(j)
        at = (k * inputs.k_group_size + j) * K
        ctx.tma_load(a, (0, at), a_tile, stage.barrier())
        ctx.tma_load(b, (0, at), b_tile, stage.barrier())


def multiply_all(lag: int = 0, commit: bool = True) -> Side:
    """The MMA warpgroup's usual loop."""

    def body(ctx: tp.Context, inputs: Any, acc: Any, n: Any) -> None:
        with inputs.consumer(lag=lag) as consumer:
            for _ in ctx.range(n):
                with consumer.acquire() as stage:
                    for j in range(inputs.k_group_size):
                        ctx.mma(acc, *stage.tile(j))
                    if commit:
                        ctx.mma_commit(stage.mbar())

    return body


def product(
    consumer: Side,
    producer: Side = load_all,
    *,
    n: int = 3,
    stages: int = 3,
    k_group_size: int = 1,
    warpgroups: int = 1,
    rounds: int = 1,
    **counts: Any,
) -> tuple[tp.Program, Any, Any]:
    """A program that accumulates rounds × n stages of A (64, k) · B (8, k)ᵀ, its output, and what
    it should be.
    """
    rng = np.random.default_rng(0)
    k_extent = max(n, 1) * k_group_size * K
    a, b = (rng.integers(-3, 4, (rows, k_extent)).astype(tp.bfloat16.numpy) for rows in (64, 8))
    out = np.zeros((64, 8), np.float32)

    @tp.kernel()
    def k(ctx: tp.Context, a: Any, b: Any, out: Any, n: Any) -> None:
        inputs = tp.InputTilePipeline.allocate(
            ctx, PAYLOAD, num_group_stages=stages, k_group_size=k_group_size, **counts
        )
        staged = ctx.smem((64, 8), "float32", name="staged")

        @ctx.role("load", warps=1)
        def load() -> None:
            for _ in ctx.range(rounds):
                producer(ctx, inputs, a, b, n)
            if producer is load_all:
                inputs.drain_producer()

        @ctx.role("mma", warpgroups=warpgroups)
        def mma() -> None:
            acc = ctx.accumulator((64, 8))
            acc.fill(0)
            for _ in ctx.range(rounds):
                consumer(ctx, inputs, acc, n)
            with ctx.when(ctx.warpgroup_rank == 0):
                ctx.store(staged[0], acc)
                ctx.sync_warpgroup()
                for j in ctx.range(4):
                    at = ctx.thread // 2, ctx.thread % 2 * 4 + j
                    ctx.store(out[at], ctx.load(staged[0][at]))

    program = k.bind(tp.tensor_map(a, box=(64, K)), tp.tensor_map(b, box=(8, K)), out, n)
    want = rounds * (a.astype(np.float64) @ b.astype(np.float64).T) if n else np.zeros((64, 8))
    return program, out, want
