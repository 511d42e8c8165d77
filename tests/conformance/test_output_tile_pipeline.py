"""OutputTilePipeline: the exact traffic of its members, its views and handles, for one CTA and for
a pair; what the handles name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ring_places import Places
from tests.support.tracing import from_text, refused
from tilepipe.ir import ops
from tilepipe.ir.program import walk

HEAD = """
storage = tp.SMemArray(ctx, tp.SharedMemBarrier, 4, 'outputs')
tp.OutputTilePipeline.init_barriers(storage, 1, {threads} * {group})
tmem = tp.TmemAllocation(ctx, 32, cta_group={group})
outputs = tp.OutputTilePipeline(storage, tmem, config=tp.OutputPipelineConfig(2, 16, {group}))
inputs = tp.InputTilePipeline.allocate(ctx, PAYLOAD, num_group_stages=3, producer_arrivals=1,
    consumer_arrivals=4 * {group})
@ctx.role('one', {size})
def one():
"""
PAYLOAD = tp.StandardTilePayload(
    a_type="bfloat16", b_type="bfloat16", a_shape=(128, 16), b_shape=(16, 16)
)
VERBS: dict[type[ops.Op], str] = {
    ops.MbarWait: "wait",
    ops.MbarArrive: "arrive",
    ops.Tcgen05Commit: "commit",
    ops.TmemAlloc: "alloc",
    ops.TmemDealloc: "dealloc",
    ops.TmemWaitLoad: "wait for loads",
    ops.Tcgen05FenceBefore: "fence before",
    ops.Tcgen05FenceAfter: "fence after",
    ops.Tcgen05Mma: "mma",
    ops.CursorStep: "step",
}


def role(text: str, group: int = 1, size: str = "warps=1", **names: Any) -> tp.Program:
    """A kernel whose only role does `text` with `outputs`: two accumulators of 16 columns; and
    `inputs`.
    """
    threads = 128 if "warpgroups" in size else 32
    body = "\n".join(f"    {line}" for line in text.strip().splitlines())
    k = from_text(
        HEAD.format(group=group, size=size, threads=threads) + body, PAYLOAD=PAYLOAD, **names
    )
    k._grid = k._cluster = group
    return k.bind(np.zeros(64, np.int32))


def traffic(program: tp.Program) -> list[str]:
    """What the role does to barriers, cursors and tensor memory, in program order."""
    found, places = [], Places()
    for op in walk(program.kernel.roles[0].body):
        verb, more = VERBS.get(type(op)), places.unusual(op)
        if verb is None:
            continue
        bar: Any = getattr(op, "bar", None)
        named = "" if bar is None else f" {bar.array.name}"
        where = " of another CTA" if getattr(bar, "cta", None) is not None else ""
        mask = " of both" if getattr(op, "mask", None) is not None else ""
        cursor = (
            f" {op.cursor.name.split('_')[-1]} of {op.cursor.name.split('_')[0]}"
            if isinstance(op, ops.CursorStep)
            else ""
        )
        found.append(f"{verb}{named}{where}{mask}{cursor}{more}")
    return found


ONE: dict[str, Any] = {}
PAIR: dict[str, Any] = {"group": 2}
ROWS: dict[str, Any] = {"size": "warpgroups=1"}
PAIRED_ROWS: dict[str, Any] = {"size": "warpgroups=1", "group": 2}
WAIT_EMPTY, WAIT_FULL = ["wait outputs.empty", "fence after"], ["wait outputs.full", "fence after"]
COMMIT, COMMIT_BOTH = ["commit outputs.full"], ["commit outputs.full of both"]
FREE = ["wait for loads", "fence before", "arrive outputs.empty"]
FREE_LEADER = ["wait for loads", "fence before", "arrive outputs.empty of another CTA"]
STEP, TAKEN = ["step producer of outputs"], ["step consumer of outputs"]
LEADER = "with ctx.when(tp.elect_one_cta(ctx)):\n    "
SCALES = ["arrive inputs.empty", "step consumer of inputs"]
BY_HAND = "with ctx.elect_one():\n    tp.mma_arrive(held.mbar())\n"
TRAFFIC: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "acquire_for_mma": (
        "outputs.acquire_for_mma()._handle.release()",
        ONE,
        [*WAIT_EMPTY, *COMMIT, *STEP],
    ),
    "release_from_mma": (
        "outputs.release_from_mma(outputs.acquire_for_mma())",
        ONE,
        [*WAIT_EMPTY, *COMMIT, *STEP],
    ),
    "release_from_mma of a pair": (
        f"{LEADER}outputs.release_from_mma(outputs.acquire_for_mma())",
        PAIR,
        [*WAIT_EMPTY, *COMMIT_BOTH, *STEP],
    ),
    "acquire_for_epilogue": (
        "outputs.acquire_for_epilogue()._handle.release()",
        ROWS,
        [*WAIT_FULL, *FREE, *TAKEN],
    ),
    "release_from_epilogue": (
        "outputs.acquire_for_epilogue()\noutputs.release_from_epilogue()",
        ROWS,
        [*WAIT_FULL, *FREE, *TAKEN],
    ),
    "release_from_epilogue of a pair": (
        "outputs.acquire_for_epilogue()\noutputs.release_from_epilogue()",
        PAIRED_ROWS,
        [*WAIT_FULL, *FREE_LEADER, *TAKEN],
    ),
    "producer": ("with outputs.producer():\n    pass", ONE, [*WAIT_EMPTY, *COMMIT, *STEP]),
    "consumer": ("with outputs.consumer():\n    pass", ROWS, [*WAIT_FULL, *FREE, *TAKEN]),
    "acquire_mma_linear": (
        "held = outputs.acquire_mma_linear()\nheld.release()",
        ONE,
        [*WAIT_EMPTY, *COMMIT, *STEP],
    ),
    "acquire_mma_linear, committed by hand": (
        f"held = outputs.acquire_mma_linear()\n{BY_HAND}held.release()",
        ONE,
        [*WAIT_EMPTY, *COMMIT, *STEP],
    ),
    "acquire_epilogue_linear": (
        "held = outputs.acquire_epilogue_linear()\nheld.release()",
        ROWS,
        [*WAIT_FULL, *FREE, *TAKEN],
    ),
    "per_k().produce": (
        "with outputs.per_k().produce():\n    pass",
        ONE,
        [*WAIT_EMPTY, *COMMIT, *STEP],
    ),
    "per_k().produce of a pair": (
        f"{LEADER}with outputs.per_k().produce():\n        pass",
        PAIR,
        [*WAIT_EMPTY, *COMMIT_BOTH, *STEP],
    ),
    "per_k().acquire_k_stage_linear": (
        "held = outputs.per_k().acquire_k_stage_linear()\nheld.release()",
        ONE,
        [*WAIT_EMPTY, *COMMIT, *STEP],
    ),
    "per_k().consume": (
        "with outputs.per_k().consume():\n    pass",
        ROWS,
        [*WAIT_FULL, *FREE, *TAKEN],
    ),
    "per_k().consume of a pair": (
        "with outputs.per_k().consume():\n    pass",
        PAIRED_ROWS,
        [*WAIT_FULL, *FREE_LEADER, *TAKEN],
    ),
    "mma_op.commit": (
        "with ctx.elect_one():\n    tp.MmaOp(ctx).commit(outputs.pipeline.producer_mbar(1))",
        ONE,
        ["commit outputs.full [1]"],
    ),
    "mma_op.mma": (
        (
            "tmem.allocate()\n"
            "with ctx.elect_one():\n"
            "    tp.MmaOp(ctx).mma(*inputs.payload.get_tile(0, k_group_size=1), tmem.addr)\n"
            "tmem.deallocate()"
        ),
        ONE,
        ["alloc", "mma", "dealloc"],
    ),
    "per_k_epilogue": (
        "with outputs.per_k_epilogue(inputs):\n    pass",
        ROWS,
        [*WAIT_FULL, *SCALES, *FREE, *TAKEN],
    ),
    "per_k_epilogue of barriers alone": (
        "with outputs.per_k_epilogue(inputs.pipeline):\n    pass",
        ROWS,
        [*WAIT_FULL, *SCALES, *FREE, *TAKEN],
    ),
    "release_from_mma of a raw stage": (
        (
            "outputs.pipeline.wait_consumer()\n"
            "raw = tp.OutputStage.from_raw(outputs.pipeline, "
            "outputs.pipeline.producer_stage(), 0)\n"
            "outputs.release_from_mma(raw)"
        ),
        ONE,
        [WAIT_EMPTY[0], *COMMIT, *STEP],
    ),
    "per_k_epilogue, arrive_input": (
        (
            "with outputs.per_k_epilogue(inputs) as step:\n"
            "    step.arrive_input()\n"
            "    ctx.tmem_wait_load()"
        ),
        ROWS,
        [*WAIT_FULL, SCALES[0], "wait for loads", SCALES[1], *FREE, *TAKEN],
    ),
}


ALLOCATED = """
outputs = tp.OutputTilePipeline.allocate(ctx, tp.OutputPipelineConfig(2, 16), producer_arrivals=1,
    consumer_arrivals=128)
inputs = tp.InputTilePipeline.allocate(ctx, PAYLOAD, num_group_stages=3, producer_arrivals=1,
    consumer_arrivals=4)
tmem = outputs.tmem
@ctx.role('mma', warps=1)
def mma():
    with outputs.mma_warp():
{mma}
@ctx.role('epilogue', warpgroups=1)
def epilogue():
    with outputs.epilogue_warp():
{epilogue}
"""


def both_roles(out: Any, mma: str = "pass", epilogue: str = "pass", **names: Any) -> tp.Program:
    """A kernel whose MMA warp and epilogue do these texts inside their contexts."""
    bodies = [
        "\n".join(f"        {line}" for line in text.strip().splitlines())
        for text in (mma, epilogue)
    ]
    return from_text(
        ALLOCATED.format(mma=bodies[0], epilogue=bodies[1]), PAYLOAD=PAYLOAD, **names
    ).bind(out)


@pytest.mark.parametrize("member", TRAFFIC)
def test_traffic(member: str) -> None:
    text, settings, want = TRAFFIC[member]
    assert traffic(role(text, **settings)) == want


# how the second accumulator is held, and by whom; how it is ended; the barrier that it signals
MEMBERS = {
    "MmaStage": ("mma", "outputs.acquire_mma_linear()", "stage.release()"),
    "EpilogueStage": ("epilogue", "outputs.acquire_epilogue_linear()", "stage.release()"),
    "OutputStage of the MMA": (
        "mma",
        "outputs.acquire_for_mma()",
        "outputs.release_from_mma(stage)",
    ),
    "OutputStage of the epilogue": (
        "epilogue",
        "outputs.acquire_for_epilogue()",
        "outputs.release_from_epilogue()",
    ),
}


@pytest.mark.parametrize("member", MEMBERS)
def test_members_of_an_accumulator(member: str) -> None:
    """Number, address and barrier of the second of two accumulators."""
    side, acquire, release = MEMBERS[member]
    linear = "OutputStage" not in member
    out, found = np.full(64, -1, np.int32), list[Any]()
    index, offset = (
        ("stage.index()", "stage.tmem_offset()")
        if linear
        else ("stage.index", "stage.tmem.offset()")
    )
    tmem = "stage.tmem()" if linear else "stage.tmem"
    text = f"""
outputs.pipeline.{"producer" if side == "mma" else "consumer"}_step()
stage = {acquire}
found.extend([type(stage), type({tmem}), getattr(stage, 'pipeline',
    outputs.pipeline) is outputs.pipeline])
with ctx.elect_one('role'):
    ctx.store(out[0], {index})
    ctx.store(out[1], {offset} - tmem.addr)
    ctx.store(out[2], {tmem}.offset() - tmem.addr)
{"with ctx.elect_one('role'):" if member == "MmaStage" else ""}
{"    stage.mbar().arrive()" if member == "MmaStage" else ""}
{release}
"""
    filled = "with ctx.elect_one():\n    outputs.pipeline.producer_mbar(1).arrive()"
    awaited = "outputs.pipeline.consumer_step()\noutputs.pipeline.wait_producer()"
    program = both_roles(out, *((text, awaited) if side == "mma" else (filled, text)), found=found)
    run = program.run(seed=1)
    assert found == [getattr(tp, member.split()[0]), tp.TmemStage, True]
    assert out[:4].tolist() == [1, 16, 16, -1]
    assert run.completions[f"outputs.{'full' if side == 'mma' else 'empty'}"] == [[0, 1]]


def test_a_stage_by_its_parts() -> None:
    out, found = np.full(64, -1, np.int32), list[Any]()
    text = """
raw = tp.OutputStage.from_raw(outputs.pipeline, 1, tmem.addr + 24)
here, there = tp.TmemStage(tmem, 1, 16), tp.TmemStage.from_offset(tmem.addr + 32, 2)
found.extend([raw.index, raw.pipeline is outputs.pipeline, here.index, there.index,
    here.tensor((128, 16)).shape, type(here.tensor((64, 8), 'bfloat16'))])
with ctx.elect_one():
    for i, stage in enumerate((raw.tmem, here, there)):
        ctx.store(out[i], stage.offset() - tmem.addr)
"""
    both_roles(out, text, found=found).run()
    assert found == [1, True, 1, 2, (128, 16), tp.TmemTensor]
    assert out[:4].tolist() == [24, 16, 32, -1]


def test_a_step_of_k_names_both_stages() -> None:
    """The accumulator, and the input stage whose scales belong to it."""
    out, found = np.full(64, -1, np.int32), list[Any]()
    text = """
outputs.pipeline.consumer_step()
inputs.pipeline.consumer_advance(2)
with outputs.per_k_epilogue(inputs) as step:
    found.extend([type(step), type(step.output_stage), step.input_pipeline is inputs.pipeline])
    with ctx.elect_one('role'):
        ctx.store(out[0], step.output_stage.index)
        ctx.store(out[1], step.input_stage_index)
"""
    filled = "with ctx.elect_one():\n    outputs.pipeline.producer_mbar(1).arrive()"
    run = both_roles(out, filled, text, found=found).run(seed=1)
    assert found == [tp.EpilogueKStage, tp.OutputStage, True]
    assert out[:3].tolist() == [1, 2, -1]
    assert run.completions["inputs.empty"] == [[0, 0, 1]]
    assert run.completions["outputs.empty"] == [[0, 1]]


@pytest.mark.parametrize("order", [("outputs", "other"), ("other", "outputs")])
def test_each_release_frees_an_accumulator_of_its_own_pipeline(order: tuple[str, str]) -> None:
    """Two pipelines whose accumulators are held at once, released in either order."""
    text = f"""
other = tp.OutputTilePipeline.allocate(ctx, tp.OutputPipelineConfig(2, 16), producer_arrivals=1,
    consumer_arrivals=128, name='other')
@ctx.role('one', warpgroups=1)
def one():
    outputs.acquire_for_epilogue()
    other.acquire_for_epilogue()
    {order[0]}.release_from_epilogue()
    {order[1]}.release_from_epilogue()
"""
    head = HEAD.format(group=1, size="", threads=128).rsplit("@ctx.role", 1)[0]
    program = from_text(head + text, PAYLOAD=PAYLOAD).bind(np.zeros(64, np.int32))
    want = [x for name in order for x in (f"arrive {name}.empty", f"step consumer of {name}")]
    assert [x for x in traffic(program) if "arrive" in x or "step" in x] == want


def test_two_rings_of_accumulators_in_one_array() -> None:
    """`init_barriers` takes a pointer, and as many barriers as the stages need."""
    text = """
storage = tp.SMemArray(ctx, tp.SharedMemBarrier, 6, 'storage')
tp.OutputTilePipeline.init_barriers(storage[0], 1, 128, num_stages=2, name='outputs')
tp.OutputTilePipeline.init_barriers(storage[4], 1, 64, name='other')
ctx.role('one', warps=1)(lambda: None)
"""
    barriers = from_text(text).bind(np.zeros(4, np.int32)).kernel.barriers
    assert [(a.name, a.size, a.count) for a in barriers] == [
        ("outputs.full", 2, 1),
        ("outputs.empty", 2, 128),
        ("other.full", 1, 1),
        ("other.empty", 1, 64),
    ]


def test_columns_that_the_stages_do_not_fit() -> None:
    """3 stages of 16 columns in 32: the product is too large, not the sum."""
    head = HEAD.format(group=1, size="warps=1", threads=32).replace(
        "OutputPipelineConfig(2, 16, 1)", "OutputPipelineConfig(3, 16, 1)"
    )
    with refused(tp.TraceError, "3 stages × 16 columns do not fit the 32 of 'tmem'"):
        from_text(
            head.replace("SharedMemBarrier, 4", "SharedMemBarrier, 6") + "    pass", PAYLOAD=PAYLOAD
        ).bind(np.zeros(64, np.int32))


def test_clusters_without_pairs_tell_their_own_cta() -> None:
    """Each CTA of a cluster of two releases an accumulator, or only the first does: nobody asks for
    both.
    """
    for text in (
        "outputs.acquire_mma_linear().release()",
        "with ctx.when(ctx.cta_rank == 0):\n    outputs.acquire_mma_linear().release()",
    ):
        body = "\n".join(f"    {line}" for line in text.splitlines())
        kernel = from_text(HEAD.format(group=1, size="warps=1", threads=32) + body, PAYLOAD=PAYLOAD)
        kernel._grid = kernel._cluster = 2
        program = kernel.bind(np.zeros(64, np.int32))
        assert [x for x in traffic(program) if "commit" in x] == COMMIT


def test_a_commit_by_hand_to_one_cta_of_a_pair() -> None:
    text = (
        f"{LEADER}held = outputs.acquire_mma_linear()\n"
        "    with ctx.elect_one():\n"
        f"        tp.MmaOp(ctx).commit(held.mbar(){{}})\n"
        "    held.release()"
    )
    assert COMMIT_BOTH[0] in traffic(role(text.format(", outputs.mma_complete_mask"), **PAIR))
    with refused(tp.CountError, "is signalled in CTA rank 0 of the cluster and not in rank 1"):
        role(text.format(""), **PAIR)


def test_lane_id() -> None:
    out = np.full(32, -1, np.int32)
    from_text(
        "@ctx.role('one', warps=1)\ndef one():\n    ctx.store(out[ctx.lane], 31 - ctx.lane)"
    ).bind(out).run()
    assert out.tolist() == list(range(31, -1, -1))


def test_a_copy_has_cursors_of_its_own() -> None:
    text = (
        "other = outputs.copy()\n"
        "other.acquire_for_mma()._handle.release()\n"
        "outputs.acquire_for_mma()._handle.release()"
    )
    program = role(text)
    assert [what for what in traffic(program) if not what.startswith("step")] == [
        *WAIT_EMPTY,
        *COMMIT,
    ] * 2
    steps = [
        op.cursor for op in walk(program.kernel.roles[0].body) if isinstance(op, ops.CursorStep)
    ]
    assert steps[0] is not steps[1]
