"""Linear handles: released exactly once, in the block that acquired them; every view dies with its
stage.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ring_kernels import PAYLOAD
from tests.support.tracing import from_text, refused

HEAD = """
pipe = tp.ProducerConsumerPipeline.allocate(ctx, 3, producer_arrivals=1, consumer_arrivals=32,
    name='pipe')
inputs = tp.InputTilePipeline.allocate(ctx, PAYLOAD, num_group_stages=3, producer_arrivals=1,
    consumer_arrivals=32)
kept = {}
"""


def trace(text: str) -> Any:
    body = "\n".join(f"    {line}" for line in text.strip().splitlines())
    return from_text(
        f"{HEAD}\n@ctx.role('one', warps=1)\ndef one():\n{body}", PAYLOAD=PAYLOAD
    ).bind(np.zeros(64, np.int32))


ACQUIRES = {
    "pipe.acquire_producer()": "the producer stage of 'pipe' acquired at",
    "pipe.acquire_consumer()": "the consumer stage of 'pipe' acquired at",
    "inputs.acquire_producer()": "the producer stage of 'inputs' acquired at",
    "inputs.acquire_consumer()": "the consumer stage of 'inputs' acquired at",
    "inputs.producer().acquire_stage()": "the producer stage of 'inputs' acquired at",
    "inputs.consumer().acquire_stage()": "the consumer stage of 'inputs' acquired at",
}
SIGNAL = "with ctx.elect_one():\n    h.mbar().arrive()\n"


@pytest.mark.parametrize("acquire", ACQUIRES)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("h = {}", ("still held when the role block ends", "Call release() on every path")),
        ("for i in ctx.range(2):\n    h = {}", ("still held when the loop block ends",)),
        (
            "with ctx.when(ctx.block_id == 0):\n    h = {}",
            ("still held when the branch block ends",),
        ),
        (
            "h = {}\nSIGNAL\nh.release()\nh.release()",
            ("released twice", "first at <cell", "One acquire, one release"),
        ),
        (
            "h = {}\nSIGNAL\nh.release()\nh.mbar()",
            ("used after its release at <cell", "may already belong to the other side"),
        ),
        (
            "h = {}\nb = h.mbar()\nSIGNAL\nh.release()\nwith ctx.elect_one():\n    b.arrive()",
            ("signalled or waited on after its release",),
        ),
        (
            "h = {}\nSIGNAL\nwith ctx.when(ctx.block_id == 0):\n    h.release()",
            ("released in a nested branch block", "never or twice"),
        ),
        (
            "h = {}\nSIGNAL\nfor i in ctx.range(2):\n    h.release()",
            ("released in a nested loop block",),
        ),
        (
            "h = {}\nSIGNAL\nwith ctx.elect_one():\n    h.release()",
            ("released in a nested elect block",),
        ),
        (
            (
                "h = {}\n"
                "SIGNAL\n"
                "with ctx.when(ctx.block_id == 0):\n"
                "    h.release()\n"
                "with ctx.otherwise():\n"
                "    h.release()"
            ),
            ("nested branch block",),
        ),
        (
            "for i in ctx.range(2):\n    kept['h'] = {}\nkept['h'].release()",
            ("still held when the loop block ends",),
        ),
    ],
)
def test_a_stage_is_released_once(acquire: str, text: str, words: tuple[str, ...]) -> None:
    with refused(tp.HandleError, ACQUIRES[acquire], *words):
        trace(text.replace("SIGNAL\n", SIGNAL).format(acquire))


@pytest.mark.parametrize("side", ["producer", "consumer"])
def test_carried_round_a_loop(side: str) -> None:
    """A stage acquired before a loop, released and acquired again in it."""
    with refused(tp.HandleError, f"the {side} stage of 'pipe'", "released in a nested loop block"):
        trace(
            f"h = pipe.acquire_{side}()\n"
            "for i in ctx.range(3):\n"
            "    with ctx.elect_one():\n"
            "        h.mbar().arrive()\n"
            f"    h.release()\n    h = pipe.acquire_{side}()"
        )


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ("pipe.produce()", ("produce() context", "Enter it: `with ... as stage:`")),
        ("pipe.consume()", ("consume() context", "Enter it")),
        ("pipe.consume_explicit()", ("consume_explicit() context", "Enter it")),
        (
            "inputs.producer().acquire()",
            ("producer stage of 'inputs'", "never entered", "with producer.acquire() as tiles:"),
        ),
        (
            "inputs.consumer().acquire()",
            ("consumer stage of 'inputs'", "never entered", "with consumer.acquire() as tiles:"),
        ),
        ("inputs.producer().acquire_if_needed(inputs.try_acquire_producer())", ("never entered",)),
        ("inputs.consumer().acquire_if_needed(inputs.try_acquire_consumer())", ("never entered",)),
    ],
)
def test_never_entered(context: str, words: tuple[str, ...]) -> None:
    with refused(tp.HandleError, "acquired at <cell", *words, context):
        trace(f"view = {context}")


@pytest.mark.parametrize(
    "context",
    [
        "pipe.produce()",
        "pipe.consume()",
        "pipe.consume_explicit()",
        "inputs.producer().acquire()",
        "inputs.consumer().acquire()",
    ],
)
def test_entered_twice(context: str) -> None:
    body = "with view as h:\n    with ctx.elect_one():\n        h.mbar().arrive()\n"
    with refused(tp.HandleError, "acquired at <cell", "release"):
        trace(f"view = {context}\n{body}{body}")


@pytest.mark.parametrize(
    "use",
    [
        "h.index()",
        "h.stage()",
        "h.mbar()",
        "h.tile()",
        "h.payload()",
        "h.expect_bytes(16)",
        "h.barrier()",
        "ctx.load(tile[0, 0])",
        "tile.rows(0, 8)",
        "ctx.tma_load(None, (0, 0), tile, h.barrier())",
        "mbar.arrive()",
    ],
)
def test_use_after_release(use: str) -> None:
    text = (
        "h = inputs.acquire_producer()\n"
        "tile = h.tile()[0]\n"
        "mbar = h.mbar()\n"
        "with ctx.elect_one():\n"
        "    h.expect_bytes(16)\n"
        "h.release()\n"
        f"{use}"
    )
    with refused(
        tp.HandleError,
        "the producer stage of 'inputs' acquired at <cell",
        "after its release at <cell",
        "other side",
        use,
    ):
        trace(text)


@pytest.mark.parametrize("use", ["ctx.load(h.tile()[0][0, 0])", "ctx.load(tile[0, 0])", "h.mbar()"])
def test_use_after_the_with_statement(use: str) -> None:
    with refused(tp.HandleError, "the consumer stage of 'inputs'", "after its release"):
        trace(f"with inputs.consumer().acquire() as h:\n    tile = h.tile()[0]\n{use}")


def test_a_stage_of_another_role() -> None:
    text = (
        f"{HEAD}\n"
        "@ctx.role('a', warps=1)\n"
        "def a():\n"
        "    with pipe.consume() as h:\n"
        "        kept['h'] = h\n"
        "@ctx.role('b', warps=1)\ndef b():\n    kept['h'].mbar()"
    )
    with refused(tp.HandleError, "the consumer stage of 'pipe'", "after its release"):
        from_text(text, PAYLOAD=PAYLOAD).bind(np.zeros(4, np.int32))


def test_a_stage_is_acquired_once() -> None:
    with refused(tp.HandleError, "still held", "same stage", "Release the first"):
        trace(
            "first, second = pipe.acquire_consumer(),"
            " pipe.acquire_consumer()\nsecond.release()\nfirst.release()"
        )


def test_the_leak_is_reported_where_it_was_acquired() -> None:
    with refused(tp.HandleError, "at <cell", "h = pipe.acquire_consumer()  # here"):
        trace("ctx.print('a')\nh = pipe.acquire_consumer()  # here\nctx.print('b')")
