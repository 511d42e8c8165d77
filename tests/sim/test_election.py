"""elect.sync elects the same lane every time for the same set of lanes, and nobody knows which: it
is not lane 0, nor any other that a kernel names.

The hole comes back with `monkeypatch.setattr(election, "lanes_of", lambda kernel: (0,))`, before
the kernel is compiled for the simulator.
"""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import tilepipe as tp
from tests.support.build import Builder
from tests.support.stand_in_op import StandInVote
from tests.support.tracing import from_text
from tilepipe.ir import dtypes, ops
from tilepipe.ir.facts import Scope
from tilepipe.registry.catalog import find
from tilepipe.sim import election
from tilepipe.sim.codegen.module import compile_kernel

BEFORE = """
word = ctx.smem((1, 64), "int32", swizzle=0, name="word")[0]
tile = ctx.smem((1, 32), "float32", swizzle=0, name="tile")[0]
sheet = ctx.smem((64, 8), "float32", swizzle=0, name="sheet")[0]
go = tp.SharedMemBarrier.allocate(ctx, 1, "go")
"""


def role(text: str, size: str = "warps=1", other: str = "") -> tp.Program:
    lines = textwrap.indent(textwrap.dedent(text).strip(), "    ")
    kernel = (
        f"{BEFORE}\n@ctx.role('one', {size})\ndef one():\n{lines}\n{textwrap.dedent(other).strip()}"
    )
    return from_text(kernel, "def k(ctx, a, out):").bind(
        tp.tensor_map(np.zeros((4, 32), np.float32), box=(1, 32), swizzle=0), np.zeros(64, np.int32)
    )


def named(number: str) -> str:
    return f"with ctx.when(ctx.lane == {number}):"


STORE = "with ctx.elect_one():\n    ctx.store(word[0, 0], 1)\n"
SHARED = "    ctx.store(out[0], ctx.load(word[0, 0]))\n"
GROUPS = "with ctx.elect_one():\n    ctx.tma_store(a, (0, 0), tile)\n    ctx.tma_store_commit()\n"
FAULTS = {
    "a store, and a load by lane 0": STORE + named("0") + "\n" + SHARED,
    "by lane 31": STORE + named("31") + "\n" + SHARED,
    "by a lane of some": STORE + named("7") + "\n" + SHARED,
    "a load, and a store by lane 0": named("0")
    + "\n    ctx.store(word[0, 0], 1)\nwith ctx.elect_one():\n"
    + SHARED,
    "lanes by their numbers": "ctx.store(word[0, ctx.lane], ctx.lane)\nwith ctx.elect_one():\n"
    + SHARED,
    "half a warp elects": STORE + "with ctx.when(ctx.lane < 16), ctx.elect_one():\n" + SHARED,
    "the other half": STORE + "with ctx.when(ctx.lane >= 16), ctx.elect_one():\n" + SHARED,
    "lanes by data": STORE
    + "with ctx.when(ctx.load(out[ctx.lane]) + ctx.lane == 0):\n"
    + SHARED.replace("out[0]", "out[40]"),
}


@pytest.mark.parametrize("text", FAULTS.values(), ids=FAULTS)
def test_the_elected_lane_is_no_named_lane(text: str) -> None:
    program = role(text)
    verdict = program.check()
    assert [f.kind for f in verdict.faults] in (["RaceError"], ["PoisonError"])
    error = program.replay(verdict)
    assert type(error).__name__ == verdict.faults[0].kind
    assert verdict.faults[0].steps[0].op.startswith("elect.sync: lane")
    assert verdict.faults[0].steps[0].effect.startswith("the elected lane is unspecified")
    assert any(_ends_in_a_fault(program, seed) for seed in range(20))


def _ends_in_a_fault(program: tp.Program, seed: int) -> bool:
    try:
        program.run(seed=seed)
    except tp.SimFault as fault:
        return "elect.sync elected lane" in fault.__notes__[0]
    return False


@pytest.mark.parametrize("text", list(FAULTS.values())[:2], ids=list(FAULTS)[:2])
def test_taken_for_lane_0_it_would_be(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "lanes_of", lambda kernel: (0,))
    assert role(text).check().ok == ("== 0" in text)


@pytest.mark.parametrize(
    "text",
    [text.replace("\nwith", "\nctx.syncwarp()\nwith") for text in FAULTS.values()],
    ids=FAULTS,
)
def test_the_warp_meets_in_between(text: str) -> None:
    assert role(text).check().ok


def test_one_set_of_lanes_elects_one_lane() -> None:
    assert role(STORE + "with ctx.elect_one():\n" + SHARED).check().ok
    some = "with ctx.when(ctx.lane < 16), ctx.elect_one():\n"
    text = some + "    ctx.store(word[0, 0], 1)\n" + some + SHARED
    program = role(text)
    assert len(compile_kernel(program.kernel).lanes) == 2
    assert program.check().ok


def test_bulk_stores_belong_to_the_lane_that_committed_them() -> None:
    """Lane 0 waits for its own groups, of which it has none unless it was elected."""
    text = "ctx.store(tile[0, ctx.lane], 1.0)\nctx.fence_proxy_async()\nctx.syncwarp()\n" + GROUPS
    wait, again = (
        "    ctx.tma_store_wait(0, read=True)\n",
        "ctx.syncwarp()\nctx.store(tile[0, ctx.lane], 2.0)\n",
    )
    assert role(text + "with ctx.elect_one():\n" + wait + again).check().ok
    verdict = role(text + named("0") + "\n" + wait + again).check()
    assert verdict.faults[0].kind == "RaceError"


def test_a_fault_only_if_the_elected_lane_is_the_named_one() -> None:
    """Two groups of one thread, of which the wait leaves one: right only if they are of two
    threads.
    """
    start = "ctx.store(tile[0, ctx.lane], 1.0)\nctx.fence_proxy_async()\nctx.syncwarp()\n"
    mine = named("5") + "\n    ctx.tma_store(a, (1, 0), tile)\n    ctx.tma_store_commit()\n"
    waits = (
        "with ctx.elect_one():\n    ctx.tma_store_wait(1, read=True)\n"
        + named("5")
        + "\n    ctx.tma_store_wait(1, read=True)\n"
    )
    verdict = role(
        start + GROUPS + mine + waits + "ctx.syncwarp()\nctx.store(tile[0, ctx.lane], 2.0)\n"
    ).check()
    assert verdict.faults[0].kind == "RaceError"
    deadlock = role(
        "with ctx.elect_one():\n    with ctx.when(ctx.lane == 5):\n        go.arrive()\ngo.wait(0)"
    ).check()
    assert deadlock.faults[0].kind == "DeadlockError"
    assert deadlock.faults[0].steps[0].op.startswith("elect.sync: lane")


EACH = "with ctx.when(ctx.lane < 16), ctx.elect_one():\n    ctx.store(word[0, 1], 1)\n"
VAR = "v = ctx.var(ctx.lane * 0)\nwith ctx.elect_one():\n    v.set(1)\n"
ALL = tuple(range(31, -1, -1))
NONE_NAMED = [
    (STORE, (0,)),
    ("with ctx.when(ctx.lane == 0):\n    ctx.store(word[0, 0], 1)", (0,)),
    (STORE + "with ctx.when(ctx.lane == 31):\n    ctx.store(word[0, 1], 1)", (30,)),
    (STORE + "ctx.store(out[ctx.lane], 1)", (0,)),
    (STORE + "ctx.store(word[0, 1 + ctx.lane], 1)", (31, 30)),
    (STORE + "with ctx.when(ctx.lane < 5):\n    ctx.store(word[0, 1 + ctx.lane], 1)", (31,)),
    (STORE + "with ctx.when(ctx.lane > 5):\n    ctx.store(word[0, 1 + ctx.lane], 1)", (31, 30)),
    (EACH, (31, 15)),
    (EACH + "with ctx.when(ctx.lane % 4 < 2):\n    pass", (31, 29, 15, 13)),
    (
        GROUPS
        + "for i in range(3):\n    with ctx.when(ctx.lane == i):\n        ctx.tma_store_commit()",
        (31, 2, 1, 0),
    ),
    (
        (
            "with ctx.elect_one():\n"
            "    ctx.store(out[ctx.lane], 1)\n"
            "with ctx.when(ctx.lane == 3):\n"
            "    go.arrive()"
        ),
        ALL,
    ),
    ("with ctx.elect_one():\n    ctx.store(out[ctx.lane // 8], 1)", (31, 23, 15, 7)),
    ("with ctx.elect_one(), ctx.when(ctx.lane == 3):\n    go.arrive()", (31, 3)),
    (STORE + "with ctx.when(ctx.load(out[ctx.lane]) > 0):\n    go.arrive()", ALL),
    (STORE + "with ctx.when((ctx.lane == 3) & (ctx.load(out[5]) > 0)):\n    go.arrive()", (31, 3)),
    (
        STORE + "with ctx.when((ctx.lane == 3) & (ctx.load(out[ctx.lane]) > 0)):\n    go.arrive()",
        ALL,
    ),
    ("with ctx.elect_one():\n    ctx.store(out[0], ctx.load(out[5]))", (0,)),
    ("with ctx.elect_one():\n    ctx.store(out[0], ctx.select(ctx.lane < 16, 1, 2))", (31, 15)),
    ("with ctx.elect_one():\n    ctx.print('lane {}', ctx.lane)", (0,)),
    (VAR + "ctx.store(out[ctx.lane], 1)", (0,)),
    (VAR + "ctx.store(out[ctx.lane], v.get())", ALL),
    (GROUPS + "ctx.store(tile[0, ctx.lane], 1.0)", (31, 30)),
    (GROUPS + "ctx.store(out[ctx.lane], 1)", (0,)),
]


@pytest.mark.parametrize(("text", "lanes"), NONE_NAMED)
def test_lanes_that_are_elected(text: str, lanes: tuple[int, ...]) -> None:
    """None that is named, or one of each set of lanes; two where elements have a lane each."""
    assert compile_kernel(role(text).kernel).lanes == lanes


THEN_OUT = "    ctx.store(out[99], 1)"
LEAKS = {  # lane 5 elected is the fault, out of bounds
    "stored": (
        "with ctx.elect_one():\n"
        "    ctx.store(word[0, 0], ctx.lane)\n"
        "ctx.syncwarp()\n"
        "with ctx.when(ctx.load(word[0, 0]) == 5):\n"
    ),
    "by a name": "with ctx.elect_one():\n"
    "    x = ctx.let(ctx.lane + 1)\n"
    "    ctx.store(word[0, 0], x)\n"
    "ctx.syncwarp()\n"
    "with ctx.when(ctx.load(word[0, 0]) == 6):\n",
    "by a name from outside": "x = ctx.let(ctx.lane * 3)\n"
    "with ctx.elect_one():\n"
    "    ctx.store(word[0, 0], x)\n"
    "ctx.syncwarp()\n"
    "with ctx.when(ctx.load(word[0, 0]) == 15):\n",
    "by a variable": (
        "v = ctx.var(ctx.lane * 0)\n"
        "with ctx.elect_one():\n"
        "    v.set(ctx.lane)\n"
        "with ctx.when(v.get() == 5):\n"
    ),
    "by its place": "ctx.store(word[0, ctx.lane], 0)\n"
    "ctx.syncwarp()\n"
    "with ctx.elect_one():\n"
    "    ctx.store(word[0, ctx.lane], 1)\n"
    "ctx.syncwarp()\nwith ctx.when(ctx.load(word[0, 5]) == 1):\n",
    "by the place of a mark": VAR
    + (
        "ctx.store(word[0, ctx.lane], v.get())\n"
        "ctx.syncwarp()\n"
        "with ctx.when(ctx.load(word[0, 5]) == 1):\n"
    ),
    "by whoever is marked": VAR
    + "ctx.store(word[0, 0], 0)\nctx.syncwarp()\nwith ctx.when(v.get() == 1):\n"
    "    ctx.store(word[0, 0], ctx.lane)\n"
    "ctx.syncwarp()\n"
    "with ctx.when(ctx.load(word[0, 0]) == 5):\n",
    "added": "with ctx.elect_one():\n"
    "    ctx.store(word[0, 0], 0)\n"
    "    ctx.atomic_add(out[0], ctx.lane)\n"
    "ctx.syncwarp()\n"
    "with ctx.when(ctx.load(out[0]) == 5):\n",
    "a lane with a mark": VAR + "with ctx.when((ctx.lane == 5) & (v.get() == 1)):\n",
    "a mark in a lane": VAR + "with ctx.when(v.get() == 1), ctx.when(ctx.lane == 5):\n",
    "a sum with a mark": VAR + "with ctx.when(ctx.lane + v.get() * 100 == 105):\n",
    "a lane that data name": VAR + "ctx.store(word[0, 0], 5)\nctx.syncwarp()\n"
    "with ctx.when((ctx.lane == ctx.load(word[0, 0])) & (v.get() == 1)):\n",
}


@pytest.mark.parametrize("text", LEAKS.values(), ids=LEAKS)
def test_the_number_of_the_elected_lane_decides(text: str) -> None:
    """Each kernel is out of bounds if lane 5 is elected, and no other."""
    verdict = role(text + THEN_OUT).check()
    assert not verdict.ok, verdict.facts
    assert "accesses element (99,) of tensor 'out'" in verdict.faults[0].message
    assert verdict.faults[0].steps[0].op == "elect.sync: lane 5"


@pytest.mark.parametrize("text", [text for text in LEAKS.values() if "atomic" not in text])
def test_what_is_said_of_the_lanes_tried_is_true(text: str) -> None:
    program = role(text + THEN_OUT.replace("99", "9"))
    fact = program.check().facts[-1]
    lanes = compile_kernel(program.kernel).lanes
    tried = (
        "each of the 32 lanes"
        if len(lanes) == 32
        else (
            f"lanes {', '.join(map(str, lanes))}, and every other lane is equivalent to one of them"
        )
    )
    assert fact == f"the lane that elect.sync elects makes no difference: tried were {tried}"


def test_an_index_of_the_elected_lane_out_of_bounds_for_lane_0() -> None:
    verdict = role("with ctx.elect_one():\n    ctx.store(out[64 - ctx.lane], 1)").check()
    assert "accesses element (64,) of tensor 'out'" in verdict.faults[0].message
    assert verdict.faults[0].steps[0].op == "elect.sync: lane 0"


@pytest.mark.parametrize("lane", [0, 31])
def test_the_elected_lane_reaches_an_element_of_one_lane(lane: int) -> None:
    """That it stores what it has in a variable makes no difference to whose element it is."""
    elects = (
        "v = ctx.var(ctx.lane * 0)\n"
        "ctx.store(word[0, ctx.lane], 0)\n"
        "with ctx.elect_one():\n"
        f"    ctx.store(word[0, {lane}], v.get())\n"
    )
    assert [f.kind for f in role(elects).check().faults] == ["RaceError"]


@pytest.mark.parametrize(("row", "col"), [(0, 0), (7, 7)])
def test_the_elected_lane_stores_an_element_of_a_fragment(row: int, col: int) -> None:
    """Rows 0 to 7 are those of warp 0: lane 0 has the first two elements, lane 31 the last two (PTX
    ISA, wgmma, layout of D).
    """
    text = "f = ctx.fragment(shape=(64, 8))\nf.fill(1.0)\nctx.store(sheet, f)\n"
    last = f"with ctx.elect_one('role'):\n    ctx.store(sheet[{row}, {col}], 2.0)"
    assert role(text + last, "warpgroups=1").check().faults[0].kind == "RaceError"
    assert role(f"{text}ctx.sync_warpgroup()\n{last}", "warpgroups=1").check().ok


def test_who_is_elected() -> None:
    assert election.elected(0xFFFFFFFF, 17) == 1 << 17
    assert election.elected(0xFFFF, 17) == 1
    assert election.elected(0x90, 5) == 0x80
    assert election.elected(0, 5) == 0
    assert election.elected_of_warps(0xFFFFFFFF << 64 | 0xF0, 5) == 1 << 69 | 1 << 5


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("gemm", {}),
        ("gemm", {"arch": "sm100", "cluster": 2}),
        ("gemm_blockwise", {}),
        ("gemm_block_scaled", {"cluster": 2}),
        ("attention", {}),
        ("gemm_grouped", {}),
    ],
)
def test_a_check_of_a_shipped_kernel_elects_one_lane(
    name: str, given: dict[str, int | str]
) -> None:
    _, instances = find(name).instances(given)
    assert len(compile_kernel(instances[0].make().kernel).lanes) == 1


def test_every_op_that_binds_what_a_warp_finds_out_is_known() -> None:
    """An elected lane can decide the result by the value that it brings, or by being the one that
    is active: the first is found by the op's operands, the second by its facts.
    """
    bind = [op for op in ops.EVERY if op.bound and op.facts.scope is Scope.WARP]
    by_operands = {
        ops.Shuffle,  # by its value
        ops.Vote,
        ops.ReduceLanes,
        ops.MbarTryWait,  # whether a phase is complete, of an operand, whichever lanes ask
    }
    assert {op for op in bind if not op.facts.active_lanes} == by_operands, (
        "does the op's result depend on which lanes are active? Then its facts say active_lanes;"
        " if the lanes' operands alone decide it, name it in by_operands"
    )
    # A lane alone is not told which others are active.
    alone = [op for op in ops.EVERY if op.bound and op.facts.scope is not Scope.WARP]
    assert [op for op in alone if op.facts.active_lanes] == []


@pytest.mark.parametrize("ballot", [False, True])
def test_each_lane_is_elected_where_the_active_lanes_are_a_result(ballot: bool) -> None:
    b = Builder()
    word = b.smem("word", 1, 1, dtype=dtypes.uint32)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        value = b.local("value", dtypes.uint32)
        if ballot:
            b.do(StandInVote, value)
        b.store(b.element(b.tile(word), 0, 0), value if ballot else 1)
    assert len(election.lanes_of(b.finished())) == (32 if ballot else 1)
