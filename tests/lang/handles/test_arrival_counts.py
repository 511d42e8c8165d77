"""Arrival counts: derived for every shape of arrival, contradicted with the terms spelt out, or
asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ring_kernels import PAYLOAD, counts_of, one_role
from tests.support.tracing import from_text, refused

RING = """
pipe = tp.ProducerConsumerPipeline.allocate(ctx, 2, name='pipe'{counts})
@ctx.role('fill', warps=1)
def fill():
    for i in ctx.range({n}):
        with pipe.produce() as stage, ctx.elect_one():
            stage.mbar().arrive()
@ctx.role('use', {size})
def use():
{body}
"""


def used(
    body: str, size: str = "warps=1", counts: str = "", cluster: int = 1, n: int = 4
) -> tp.Program:
    """A ring whose consumer does `body` with each `stage` of `pipe.{how}` (the first word of the
    body).
    """
    how, *rest = body.strip().splitlines()
    lines = [
        f"    for i in ctx.range({n}):",
        f"        with pipe.{how}() as stage:",
        *(f"            {line}" for line in rest or ["pass"]),
    ]
    k = from_text(RING.format(counts=counts, size=size, body="\n".join(lines), n=n))
    k._cluster = k._grid = cluster
    return k.bind(np.zeros(4, np.int32))


ELECT = "with ctx.elect_one({}):\n    stage.arrive()"


@pytest.mark.parametrize(
    ("size", "body", "want"),
    [
        ("warps=1", "consume", 32),
        ("warps=2", "consume", 64),
        ("warpgroups=1", "consume", 128),
        ("warpgroups=2", "consume", 256),
        ("warps=1", "consume_explicit\n" + ELECT.format(""), 1),
        ("warps=3", "consume_explicit\n" + ELECT.format(""), 3),
        ("warps=3", "consume_explicit\n" + ELECT.format("'role'"), 1),
        ("warpgroups=2", "consume_explicit\n" + ELECT.format(""), 8),
        ("warpgroups=2", "consume_explicit\n" + ELECT.format("'warpgroup'"), 2),
        ("warpgroups=2", "consume_explicit\n" + ELECT.format("'role'"), 1),
        ("warps=1", "consume_explicit\nwith ctx.when(ctx.lane < 5):\n    stage.arrive()", 5),
        ("warps=2", "consume_explicit\nwith ctx.when(ctx.lane < 5):\n    stage.arrive()", 10),
        ("warps=2", "consume_explicit\nwith ctx.when(ctx.thread < 40):\n    stage.arrive()", 40),
        (
            "warps=1",
            (
                "consume_explicit\n"
                "with ctx.when((ctx.lane % 2 == 0) & (ctx.lane > 3)):\n"
                "    stage.arrive()"
            ),
            14,
        ),
        (
            "warps=1",
            (
                "consume_explicit\n"
                "with ctx.when(ctx.lane < 5):\n"
                "    stage.arrive()\n"
                "with ctx.otherwise():\n"
                "    stage.arrive()"
            ),
            32,
        ),
        (
            "warps=1",
            (
                "consume_explicit\n"
                "with ctx.when(ctx.lane < 5):\n"
                "    pass\n"
                "with ctx.otherwise():\n"
                "    stage.arrive()"
            ),
            27,
        ),
        (
            "warps=1",
            "consume_explicit\nwith ctx.elect_one():\n    stage.mbar().arrive_cluster(0, 3)",
            3,
        ),
        ("warps=1", "consume\nwith ctx.elect_one():\n    stage.arrive()", 1),
        (
            "warps=1",
            (
                "consume_explicit\n"
                "with ctx.elect_one():\n"
                "    for j in ctx.range(2, 8, 2):\n"
                "        stage.arrive()"
            ),
            3,
        ),
        (
            "warpgroups=1",
            (
                "consume_explicit\n"
                "with ctx.per_warp():\n"
                "    with ctx.elect_one():\n"
                "        stage.arrive()"
            ),
            4,
        ),
        ("warpgroups=1", "consume_explicit\nwith ctx.per_warp():\n    stage.arrive()", 128),
    ],
)
def test_derived_counts(size: str, body: str, want: int) -> None:
    program = used(body, size)
    assert counts_of(program) == {"pipe.full": 1, "pipe.empty": want}
    assert program.run(seed=2).completions == {"pipe.full": [[2, 2]], "pipe.empty": [[2, 2]]}


def test_a_warp_that_does_not_arrive_can_be_lapped() -> None:
    """Only warp 1 frees the stages; nothing keeps warp 0 in step."""
    program = used(
        "consume_explicit\nwith ctx.when(ctx.warp == 1):\n    stage.arrive()", "warps=2", n=9
    )
    assert counts_of(program)["pipe.empty"] == 32
    faults = []
    for seed in range(8):
        try:
            program.run(seed=seed)
        except tp.BarrierError as fault:
            faults.append(str(fault))
    assert faults
    assert all("role 'use' warp 0" in text and "it was lapped" in text for text in faults)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("consume", 32),
        (
            (
                "consume_explicit\n"
                "with ctx.when(ctx.lane < ctx.cluster_size):\n"
                "    stage.mbar().arrive_cluster(ctx.lane)"
            ),
            2,
        ),
        (
            (
                "consume_explicit\n"
                "with ctx.elect_one():\n"
                "    stage.mbar().arrive_cluster(1 - ctx.cta_rank)"
            ),
            1,
        ),
        (
            (
                "consume_explicit\n"
                "with ctx.elect_one():\n"
                "    stage.mbar().arrive_cluster(ctx.cta_rank ^ 1, 4)"
            ),
            4,
        ),
    ],
)
def test_derived_counts_in_a_cluster(body: str, want: int) -> None:
    assert counts_of(used(body, cluster=2)) == {"pipe.full": 1, "pipe.empty": want}


COMMITS = """
inputs = tp.InputTilePipeline.allocate(ctx, PAYLOAD, num_group_stages=3{counts})
@ctx.role('load', warps=1)
def load():
    for i in ctx.range(4):
        with inputs.producer().acquire() as stage, ctx.elect_one():
            stage.expect_bytes(0)
@ctx.role('mma', warpgroups={warpgroups})
def mma():
    acc = ctx.accumulator((64, 8))
    acc.fill(0)
    with inputs.consumer(lag={lag}, shared={shared}) as consumer:
        for i in ctx.range(4):
            with consumer.acquire() as stage:
                ctx.mma(acc, *stage.tile())
                {commit}
"""


def committed(
    warpgroups: int = 1,
    lag: int = 0,
    shared: bool = True,
    mask: str = "None",
    cluster: int = 1,
    counts: str = "",
    commit: bool = True,
) -> tp.Program:
    text = COMMITS.format(
        warpgroups=warpgroups,
        lag=lag,
        shared=shared,
        counts=counts,
        commit=f"ctx.mma_commit(stage.mbar(), mask={mask})" if commit else "pass",
    )
    k = from_text(text, PAYLOAD=PAYLOAD)
    k._cluster = k._grid = cluster
    return k.bind(np.zeros(4, np.int32))


@pytest.mark.parametrize("lag", [0, 1, 2])
@pytest.mark.parametrize(
    ("settings", "want"),
    [
        ({"warpgroups": 1}, 1),
        ({"warpgroups": 2}, 2),
        ({"warpgroups": 3}, 3),
        ({"warpgroups": 1, "commit": False}, 1),
        ({"warpgroups": 2, "commit": False}, 2),
        ({"warpgroups": 2, "shared": False}, 1),
        ({"warpgroups": 3, "shared": False}, 1),
        ({"warpgroups": 1, "cluster": 2, "mask": "0b11"}, 2),
        ({"warpgroups": 2, "cluster": 2, "mask": "0b11"}, 4),
        ({"warpgroups": 2, "cluster": 2, "mask": "0b11", "shared": False}, 2),
        ({"warpgroups": 1, "cluster": 2}, 1),
        ({"warpgroups": 1, "cluster": 4, "mask": "0b1111"}, 4),
    ],
)
def test_commits(settings: dict[str, Any], want: int, lag: int) -> None:
    assert counts_of(committed(lag=lag, **settings)) == {"inputs.full": 1, "inputs.empty": want}


@pytest.mark.parametrize("mask", ["0", "0b100", "-1", "ctx.lane", "'a'"])
def test_refused_masks(mask: str) -> None:
    with refused(tp.TraceError, "mask"):
        committed(cluster=2, mask=mask)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            lambda: used("consume", "warps=2", ", consumer_arrivals=32"),
            (
                "'pipe.empty' is given a count of 32",
                "each phase gets 64 arrivals",
                "32 × 2 warps = 64",
                "role 'use'",
                "before all have arrived",
            ),
        ),
        (
            lambda: used("consume", "warps=1", ", consumer_arrivals=128"),
            ("count of 128", "gets 32 arrivals", "role 'use'", "waits would never pass"),
        ),
        (
            lambda: used("consume", counts=", producer_arrivals=2"),
            ("'pipe.full' is given a count of 2", "gets 1 arrivals", "role 'fill'", "never pass"),
        ),
        (
            lambda: committed(2, counts=", consumer_arrivals=1"),
            ("'inputs.empty'", "1 × 2 warpgroups = 2", "role 'mma'", "before all"),
        ),
        (
            lambda: committed(2, mask="3", cluster=2, counts=", consumer_arrivals=2"),
            ("2 × 2 warpgroups = 4 from 2 CTAs", "count of 2"),
        ),
        (
            lambda: committed(1, counts=", producer_arrivals=128"),
            ("'inputs.full' is given a count of 128", "gets 1", "role 'load'"),
        ),
    ],
)
def test_a_typed_count_that_contradicts(build: Any, words: tuple[str, ...]) -> None:
    with refused(tp.CountError, *words):
        build()


def test_typed_counts_that_agree() -> None:
    program = used("consume", "warps=2", ", producer_arrivals=1, consumer_arrivals=64")
    assert counts_of(program) == {"pipe.full": 1, "pipe.empty": 64}


def test_roles_add_up() -> None:
    text = RING + (
        "@ctx.role('peek', warps=2)\n"
        "def peek():\n"
        "    for i in ctx.range(4):\n"
        "        with pipe.consume():\n"
        "            pass"
    )
    body = (
        "    for i in ctx.range(4):\n"
        "        with pipe.consume_explicit() as stage, ctx.elect_one():\n"
        "            stage.arrive()"
    )
    program = from_text(text.format(counts="", size="warps=1", body=body, n=4)).bind(
        np.zeros(4, np.int32)
    )
    assert counts_of(program)["pipe.empty"] == 1 + 64
    assert program.run(seed=1).completions["pipe.empty"] == [[2, 2]]
    with refused(
        tp.CountError,
        "65 arrivals",
        "1 (role 'use'",
        "32 × 2 warps = 64 (role 'peek'",
        "count of 64",
    ):
        from_text(
            text.format(counts=", consumer_arrivals=64", size="warps=1", body=body, n=4)
        ).bind(np.zeros(4, np.int32))


UNDERIVABLE = {
    "outside a handle": (
        "    for i in ctx.range(4):\n"
        "        pipe.wait_producer()\n"
        "        pipe.consumer_mbar(pipe.consumer_stage()).arrive()\n"
        "        pipe.consumer_step()"
    ),
    "a condition on data": (
        "    for i in ctx.range(4):\n"
        "        with pipe.consume_explicit() as stage:\n"
        "            with ctx.when(ctx.lane < ctx.num_clusters):\n"
        "                stage.arrive()"
    ),
    "a count from data": (
        "    for i in ctx.range(4):\n"
        "        with pipe.consume_explicit() as stage, ctx.elect_one():\n"
        "            stage.mbar().arrive_cluster(0, ctx.num_clusters)"
    ),
    "a target from data": (
        "    for i in ctx.range(4):\n"
        "        with pipe.consume_explicit() as stage, ctx.elect_one():\n"
        "            stage.mbar().arrive_cluster(ctx.num_clusters - 1)"
    ),
}


@pytest.mark.parametrize("what", UNDERIVABLE)
def test_a_count_that_cannot_be_derived(what: str) -> None:
    text = RING.format(counts="{}", size="warps=1", body=UNDERIVABLE[what], n=4)
    with refused(
        tp.CountError,
        "'pipe.empty' cannot be derived",
        "Give the count yourself",
        "consumer_arrivals=...",
    ):
        from_text(text.format("")).bind(np.zeros(4, np.int32))
    count = 32 if what == "outside a handle" else 1
    program = from_text(text.format(f", consumer_arrivals={count}")).bind(np.zeros(4, np.int32))
    assert program.run().completions["pipe.empty"] == [[2, 2]]


def test_nobody_arrives() -> None:
    with refused(
        tp.CountError,
        "no role arrives on 'pipe.empty'",
        "Its consumer must release what it has waited for",
    ):
        used("consume_explicit")


def test_stages_of_a_role_must_agree() -> None:
    body = (
        "    with pipe.consume():\n"
        "        pass\n"
        "    with pipe.consume_explicit() as stage, ctx.elect_one():\n"
        "        stage.arrive()"
    )
    with refused(
        tp.CountError,
        "role 'use' arrives 32 times on 'pipe.empty'",
        "but 1 times",
        "every stage must cause the same",
    ):
        from_text(RING.format(counts="", size="warps=1", body=body, n=2)).bind(
            np.zeros(4, np.int32)
        )


def test_ctas_of_a_cluster_must_agree() -> None:
    body = (
        "consume_explicit\n"
        "with ctx.when(ctx.cta_rank == 0):\n"
        "    stage.arrive()\n"
        "with ctx.otherwise(), ctx.elect_one():\n"
        "    stage.arrive()"
    )
    with refused(tp.CountError, "different numbers of arrivals", "[32, 1]"):
        used(body, cluster=2)


def test_a_ring_that_nobody_uses_yet() -> None:
    program = one_role("ctx.print('x')", p=None, c=None)
    assert [a.count for a in program.kernel.barriers] == [1, 1]
    program.run()


def test_a_whole_stage_under_a_condition_of_the_role() -> None:
    """Which stages are taken may depend on data; what one stage causes does not."""
    program = one_role(
        "for i in ctx.range(4):\n"
        "    with ctx.when(i % 2 == 0), pipe.produce() as stage:\n"
        "        stage.mbar().arrive()",
        p=None,
    )
    assert program.kernel.barriers[0].count == 32
