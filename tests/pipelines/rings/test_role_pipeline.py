"""RolePipeline: the exact traffic of both sides, its barriers, and wrong uses; whole kernels are in
`staged_kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.pipelines.attention.test_staged import ELECT, WAIT, traffic
from tests.support.tracing import from_text, refused

HEAD = """
p = tp.ProducerPipeline.allocate(
    ctx, 3, producer_sub_stages=2, consumer_sub_stages=2,
    producer_arrivals={counts}, consumer_arrivals={counts}, cta_group={group},
    name='s')
c = p.consumer()
if {tmem}:
    tmem = tp.TmemAllocation(ctx, 32, cta_group={group})
@ctx.role('one', {size})
def one():
"""


def role(
    text: str,
    size: str = "warps=1",
    tmem: bool = False,
    group: int = 1,
    counts: int = 32,
    **names: Any,
) -> tp.Program:
    """A kernel whose only role does `text` with both sides of a ring of 3 stages, with two
    sub-stages on each side.
    """
    head = HEAD.format(size=size, tmem=tmem, group=group, counts=counts)
    kernel = from_text(
        head + "\n".join(f"    {line}" for line in text.strip().splitlines()), **names
    )
    kernel._grid = kernel._cluster = group
    return kernel.bind(np.zeros(64, np.int32))


TRAFFIC: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "acquire": ("p.acquire()", {}, ["wait s.empty0[stage]"]),
    "acquire of a sub-stage": ("p.acquire(1)", {}, ["wait s.empty1[stage]"]),
    "commit": ("p.commit()", {}, ["arrive s.full0[stage]", "step s_producer"]),
    "commit of a sub-stage": ("p.commit(1)", {}, ["arrive s.full1[stage]", "step s_producer"]),
    "commit_mma": (
        "p.commit_mma()",
        {"tmem": True, "counts": 1},
        ["elect", "commit s.full0[stage]"],
    ),
    "commit_mma of wgmma": (
        "p.commit_mma(1)" + WAIT,
        {"size": "warpgroups=1", "counts": 1},
        ["close", "retire", "elect", "arrive s.full1[stage]"],
    ),
    "commit_mma, e 0": ("p.commit_mma(e=0)", {"tmem": True}, []),
    "wait": ("c.wait()", {}, ["wait s.full0[stage]"]),
    "wait of a sub-stage": ("c.wait(1)", {}, ["wait s.full1[stage]"]),
    "release": ("c.release()", {}, ["arrive s.empty0[stage]", "step s_consumer"]),
    "release of a sub-stage": ("c.release(1)", {}, ["arrive s.empty1[stage]", "step s_consumer"]),
    "release_no_step": ("c.release_no_step(1)", {}, ["arrive s.empty1[stage]"]),
    "step": ("c.step()", {}, ["step s_consumer"]),
    "step of the producer": ("p.step()", {}, ["step s_producer"]),
    "the other side": (
        "p.producer().step()\nc.consumer().step()",
        {},
        ["step s_producer", "step s_consumer"],
    ),
    "producer_mbar": (
        f"{ELECT}p.producer_mbar(1).arrive()",
        {"counts": 1},
        ["elect", "arrive s.full1[stage]"],
    ),
    "consumer_mbar": (
        f"{ELECT}c.consumer_mbar().arrive()",
        {"counts": 1},
        ["elect", "arrive s.empty0[stage]"],
    ),
}


@pytest.mark.parametrize("member", TRAFFIC)
def test_traffic(member: str) -> None:
    text, options, want = TRAFFIC[member]
    assert traffic(role(text, **options)) == want


def test_a_pair_releases_on_the_even_cta() -> None:
    found = role("c.release()", tmem=True, group=2, counts=64)
    from tilepipe.ir import ops
    from tilepipe.ir.program import walk

    (arrive,) = (op for op in walk(found.kernel.roles[0].body) if isinstance(op, ops.MbarArrive))
    assert arrive.bar.cta is not None


def test_a_count_for_each_sub_stage() -> None:
    """Two roles release one of the two, one role the other: 32 + 32, and 1."""
    text = """
    p = tp.ProducerPipeline.allocate(ctx, 2, consumer_sub_stages=2, name='s')
    @ctx.role('fill', warps=1)
    def fill():
        for _ in ctx.range(3):
            p.acquire(0)
            p.acquire(1)
            p.commit()
    def use(lone):
        c = p.consumer()
        for _ in ctx.range(3):
            c.wait()
            c.release_no_step(0)
            if lone:
                with ctx.elect_one():
                    c.consumer_mbar(1).arrive()
            c.step()
    ctx.role('first', warps=1)(lambda: use(False))
    ctx.role('second', warps=1)(lambda: use(True))
    """
    program = from_text(text).bind(np.zeros(4, np.int32))
    assert {a.name: (a.size, a.count) for a in program.kernel.barriers} == {
        "s.full": (2, 32),
        "s.empty0": (2, 64),
        "s.empty1": (2, 1),
    }
    for seed in range(3):
        assert program.run(seed=seed).completions == {
            "s.full": [[2, 1]],
            "s.empty0": [[2, 1]],
            "s.empty1": [[2, 1]],
        }


MISTAKES: dict[str, tuple[str, tuple[str, ...]]] = {
    "acquire": (
        "c.acquire()",
        ("acquire is the producer's", "the consumer's side of 's'", "pipe.producer()"),
    ),
    "commit": ("c.commit()", ("commit is the producer's",)),
    "commit_mma": ("c.commit_mma()", ("commit_mma is the producer's",)),
    "wait": ("p.wait()", ("wait is the consumer's", "pipe.consumer()")),
    "release": ("p.release()", ("release is the consumer's",)),
    "a sub-stage that is not there": (
        "p.acquire(2)",
        ("sub-stage 2 of 's', whose stages have 2 on that side",),
    ),
}


@pytest.mark.parametrize("member", MISTAKES)
def test_the_wrong_side(member: str) -> None:
    text, words = MISTAKES[member]
    with refused(tp.TraceError, *words):
        role(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tp.ProducerPipeline.allocate(ctx, 0)", ("num_stages is at least 1, got 0",)),
        (
            "tp.ProducerPipeline.allocate(ctx, 2, producer_sub_stages=0)",
            ("producer_sub_stages is at least 1",),
        ),
        ("tp.RolePipeline([one], [], name='s')", ("an array of barriers for each", "[2] and []")),
        ("tp.RolePipeline([one], [three], name='s')", ("all as long as the ring", "[2] and [3]")),
        (
            "tp.ConsumerPipeline([one], [one], is_producer=True)",
            ("ConsumerPipeline is given is_producer=True",),
        ),
    ],
)
def test_refused_in_set_up(text: str, words: tuple[str, ...]) -> None:
    arrays = "one, three = (tp.SMemArray(ctx, tp.SharedMemBarrier, n, 'a') for n in (2, 3))\n"
    with refused(tp.TraceError, *words):
        from_text(arrays + text).bind(np.zeros(4, np.int32))


def test_over_arrays_of_ones_own() -> None:
    text = """
    full, empty = (tp.SMemArray(ctx, tp.SharedMemBarrier, 2, name) for name in ('full', 'empty'))
    for array in (full, empty):
        for i in range(2):
            array[i].init(32)
    p = tp.RolePipeline([full], [empty], is_producer=True)
    c = tp.RolePipeline([full], [empty], is_producer=False)
    @ctx.role('fill', warps=1)
    def fill():
        for _ in ctx.range(5):
            p.acquire()
            p.commit()
    @ctx.role('use', warps=1)
    def use():
        for _ in ctx.range(5):
            c.wait()
            c.release()
    """
    assert from_text(text).bind(np.zeros(4, np.int32)).run().completions == {
        "full": [[3, 2]],
        "empty": [[3, 2]],
    }
