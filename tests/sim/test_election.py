"""elect.sync elects the same lane every time for the same set of lanes, and nobody knows which: it is not lane 0, nor any other that a
kernel names.

The hole comes back with `monkeypatch.setattr(election, "lanes_of", lambda kernel: (0,))`, before the kernel is compiled for the simulator.
"""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import tilepipe as tp
from tests.lang.tracing import from_text
from tilepipe.kernels.registry import find
from tilepipe.sim import election
from tilepipe.sim.codegen import compile_kernel

BEFORE = """
word = ctx.smem((1, 64), "int32", swizzle=0, name="word")[0]
tile = ctx.smem((1, 32), "float32", swizzle=0, name="tile")[0]
go = tp.SharedMemBarrier.allocate(ctx, 1, "go")
"""


def role(text: str, size: str = "warps=1", other: str = "") -> tp.Program:
    lines = textwrap.indent(textwrap.dedent(text).strip(), "    ")
    kernel = f"{BEFORE}\n@ctx.role('one', {size})\ndef one():\n{lines}\n{textwrap.dedent(other).strip()}"
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
    "a load, and a store by lane 0": named("0") + "\n    ctx.store(word[0, 0], 1)\nwith ctx.elect_one():\n" + SHARED,
    "lanes by their numbers": "ctx.store(word[0, ctx.lane], ctx.lane)\nwith ctx.elect_one():\n" + SHARED,
    "half a warp elects": STORE + "with ctx.when(ctx.lane < 16), ctx.elect_one():\n" + SHARED,
    "the other half": STORE + "with ctx.when(ctx.lane >= 16), ctx.elect_one():\n" + SHARED,
    "lanes by data": STORE + "with ctx.when(ctx.load(out[ctx.lane]) + ctx.lane == 0):\n" + SHARED.replace("out[0]", "out[40]"),
}


@pytest.mark.parametrize("text", FAULTS.values(), ids=FAULTS)
def test_the_elected_lane_is_no_named_lane(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = role(text)
    verdict = program.check()
    assert [f.kind for f in verdict.faults] in (["RaceError"], ["PoisonError"])
    error = program.replay(verdict)
    assert type(error).__name__ == verdict.faults[0].kind
    assert verdict.faults[0].steps[0].op.startswith("elect.sync: lane")
    assert verdict.faults[0].steps[0].effect.startswith("which lane is elected is not known")
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


@pytest.mark.parametrize("text", [text.replace("\nwith", "\nctx.syncwarp()\nwith") for text in FAULTS.values()], ids=FAULTS)
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
    wait, again = "    ctx.tma_store_wait(0, read=True)\n", "ctx.syncwarp()\nctx.store(tile[0, ctx.lane], 2.0)\n"
    assert role(text + "with ctx.elect_one():\n" + wait + again).check().ok
    verdict = role(text + named("0") + "\n" + wait + again).check()
    assert verdict.faults[0].kind == "RaceError"


def test_a_fault_only_if_the_elected_lane_is_the_named_one() -> None:
    """Two groups of one thread, of which the wait leaves one: right only if they are of two threads."""
    start = "ctx.store(tile[0, ctx.lane], 1.0)\nctx.fence_proxy_async()\nctx.syncwarp()\n"
    mine = named("5") + "\n    ctx.tma_store(a, (1, 0), tile)\n    ctx.tma_store_commit()\n"
    waits = "with ctx.elect_one():\n    ctx.tma_store_wait(1, read=True)\n" + named("5") + "\n    ctx.tma_store_wait(1, read=True)\n"
    verdict = role(start + GROUPS + mine + waits + "ctx.syncwarp()\nctx.store(tile[0, ctx.lane], 2.0)\n").check()
    assert verdict.faults[0].kind == "RaceError"
    deadlock = role("with ctx.elect_one():\n    with ctx.when(ctx.lane == 5):\n        go.arrive()\ngo.wait(0)").check()
    assert deadlock.faults[0].kind == "DeadlockError"
    assert deadlock.faults[0].steps[0].op.startswith("elect.sync: lane")


EACH = "with ctx.when(ctx.lane < 16), ctx.elect_one():\n    ctx.store(word[0, 1], 1)\n"
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
    (GROUPS + "for i in range(3):\n    with ctx.when(ctx.lane == i):\n        ctx.tma_store_commit()", (31, 2, 1, 0)),
    ("with ctx.elect_one():\n    ctx.store(out[ctx.lane], 1)\nwith ctx.when(ctx.lane == 3):\n    go.arrive()", (31, 3)),
    ("with ctx.elect_one(), ctx.when(ctx.lane == 3):\n    go.arrive()", (31, 3)),
    (STORE + "with ctx.when(ctx.load(out[ctx.lane]) > 0):\n    go.arrive()", (31, 0, 1)),
]


@pytest.mark.parametrize(("text", "lanes"), NONE_NAMED)
def test_lanes_that_are_elected(text: str, lanes: tuple[int, ...]) -> None:
    """None that is named, or one of each set of lanes; two where elements have a lane each."""
    assert compile_kernel(role(text).kernel).lanes == lanes


def test_who_is_elected() -> None:
    assert election.elected(0xFFFFFFFF, 17) == 1 << 17
    assert election.elected(0xFFFF, 17) == 1
    assert election.elected(0x90, 5) == 0x80
    assert election.elected(0, 5) == 0
    assert election.elected_of_warps(0xFFFFFFFF << 64 | 0xF0, 5) == 1 << 69 | 1 << 5


@pytest.mark.parametrize("name", ["gemm", "blackwell_gemm", "blockwise_fp8_gemm", "block_scaled_gemm", "attention_forward", "grouped_gemm"])
def test_a_check_of_a_shipped_kernel_elects_one_lane(name: str) -> None:
    _, instances = find(name).instances({"cluster": 2} if name in ("blackwell_gemm", "block_scaled_gemm") else {})
    assert len(compile_kernel(instances[0].make().kernel).lanes) == 1
