"""Tensor memory in hand-built IR: who holds which columns, addresses, poison, waits, and an
allocator against the simplest one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tilepipe as tp
from tests.support.build import LANE, Builder, binary, special
from tests.support.examples import share
from tests.support.machine.tensor_builders import Tensor
from tilepipe.check import check
from tilepipe.errors import DeadlockError, ExitError, PoisonError, RaceError, SimFault
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Const, Expr, Vary, const
from tilepipe.ir.memory import BarrierArray
from tilepipe.ir.program import Launch
from tilepipe.machine.memory import tensor_allocation as tmem_alloc

SEEDS = (0, 1, 2, 3)


def faults(
    b: Builder,
    kind: type[Exception],
    *words: str,
    grid: int = 1,
    seeds: tuple[int, ...] = SEEDS,
    **args: Any,
) -> str:
    """Every seed ends in that fault; returns the last message."""
    message = ""
    for seed in seeds:
        with pytest.raises(kind) as caught:
            b.run(grid, seed, **args)
        message = str(caught.value)
        missing = [word for word in words if word not in message]
        assert not missing, f"seed {seed}: the message lacks {missing}:\n{message}"
    return message


# -- who holds which columns -----------------------------------------------------------


def test_columns_come_first_fit_and_come_back() -> None:
    b = Tensor()
    out = b.tensor("out", dtypes.int32, rank=1)
    word = b.word()
    with b.role("one", warps=1):
        held = {n: b.alloc(word, columns, free=False) for n, columns in enumerate((256, 64, 64))}
        b.free(held[1], 64)
        held[3] = b.alloc(word, 32, free=False)
        held[4] = b.alloc(word, 32, free=False)
        with b.elect():
            for n, address in held.items():
                b.store(
                    b.element(out, n),
                    binary("add", address, Const(dtypes.uint32, nonneg=True, value=0)),
                )
        for n, columns in ((0, 256), (2, 64), (3, 32), (4, 32)):
            b.free(held[n], columns)
    got = np.zeros(5, np.int32)
    b.run(out=got)
    assert got.tolist() == [0, 256, 320, 256, 288]


def test_one_thread_writes_the_address_so_that_its_warp_synchronises_before_it_reads() -> None:
    def allocates(*, sync: bool) -> Tensor:
        b = Tensor()
        with b.role("one", warps=1):
            b.alloc(b.word(), 32, sync=sync)
        return b

    allocates(sync=True).run()
    said = faults(allocates(sync=False), RaceError, "race on address", "role 'one'")
    assert "put ctx.syncwarp() between the two" in said


def test_an_allocation_waits_for_room() -> None:
    b = Tensor()
    mine, theirs = b.word("mine"), b.word("theirs")
    ready = b.barriers("ready")
    b.setup_done()
    with b.role("first", warps=1):
        address = b.alloc(mine, 512, free=False)
        with b.elect():
            b.arrive(b.bar(ready))
        b.free(address, 512)
    with b.role("second", warps=1):
        b.wait(b.bar(ready), 0)
        b.alloc(theirs, 32)
    assert all(b.run(seed=seed).steps for seed in SEEDS)


def test_nobody_gives_the_columns_back() -> None:
    b = Tensor()
    mine, theirs = b.word("mine"), b.word("theirs")
    ready = b.barriers("ready")
    b.setup_done()
    with b.role("holder", warps=1):
        b.alloc(mine, 512, free=False)
        with b.elect():
            b.arrive(b.bar(ready))
    with b.role("waiter", warps=1):
        b.wait(b.bar(ready), 0)
        b.alloc(theirs, 64)
    words = (
        "role 'waiter'",
        "tensor memory",
        "64 of 512 columns, 512 held: columns 0..511 by role 'holder'",
        "tmem_dealloc",
        "executed 0 times",
    )
    faults(b, DeadlockError, *words, "given back by tcgen05.dealloc alone")


def test_no_allocation_after_the_right_was_given_up() -> None:
    b = Tensor()
    word = b.word()
    with b.role("one", warps=1):
        b.alloc(word, 64)
        b.do(ops.TmemRelinquish, 1)
        b.alloc(word, 32)
    faults(b, SimFault, "allocates 32 columns", "gave up the right", "relinquish_alloc_permit")


def test_allocations_do_not_grow() -> None:
    b = Tensor()
    word = b.word()
    with b.role("one", warps=1):
        b.alloc(word, 32)
        b.alloc(word, 64)
    faults(b, SimFault, "allocates 64 columns", "after an allocation of 32", "must not grow")


def test_one_whole_warp_allocates() -> None:
    b = Tensor()
    word = b.word()
    with b.role("one", warpgroups=1):
        b.alloc(word, 32)
    faults(b, SimFault, "128 threads of role 'one'", "one whole warp must")
    b = Tensor()
    word = b.word()
    with b.role("one", warps=1), b.when(binary("lt", LANE, 16)):
        b.alloc(word, 32)
    faults(b, SimFault, "16 of 32 threads", "all threads of the warp must")


@pytest.mark.parametrize(
    ("address", "columns", "words"),
    [
        (0, 32, ("frees 32 columns", "the allocation there has 64: columns 0..63 by role 'one'")),
        (64, 64, ("address 0x40", "where no allocation starts: columns 0..63 by role 'one'")),
    ],
)
def test_what_was_not_allocated_is_not_freed(
    address: int, columns: int, words: tuple[str, ...]
) -> None:
    b = Tensor()
    word = b.word()
    with b.role("one", warps=1):
        b.alloc(word, 64, free=False)
        b.free(address, columns)
    faults(b, SimFault, *words)


def test_freed_twice() -> None:
    b = Tensor()
    word = b.word()
    with b.role("one", warps=1):
        b.free(b.alloc(word, 64), 64)
    faults(
        b,
        SimFault,
        "a second time: role 'one' freed them at tensor_builders.py",
        "once, by one warp",
    )


def test_a_leak() -> None:
    b = Tensor()
    word = b.word()
    with b.role("one", warps=1):
        b.alloc(word, 128, free=False)
    faults(
        b,
        ExitError,
        "tensor memory leak",
        "128 columns allocated: columns 0..127 by role 'one'",
        "tcgen05.dealloc",
    )


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=24), st.integers(0, 3))
@settings(max_examples=share(60), deadline=None)
def test_the_allocator_against_the_simplest_one(steps: list[tuple[bool, int]], seed: int) -> None:
    """Allocates (true; at most as many columns as before) or frees (false; one of those held) and
    compares the addresses.
    """
    b = Tensor()
    out = b.tensor("out", dtypes.int32, rank=1)
    word = b.word()
    taken = [False] * 512
    held: list[tuple[int, int, Expr]] = []
    addresses: list[tuple[int, Expr]] = []
    largest = 4
    with b.role("one", warps=1):
        for allocates, pick in steps:
            if allocates:
                largest = min(largest, pick)
                columns = 32 << largest
                room = [at for at in range(512 - columns + 1) if not any(taken[at : at + columns])]
                if not room:
                    continue
                first = room[0]
                taken[first : first + columns] = [True] * columns
                held.append((first, columns, b.alloc(word, columns, free=False)))
                addresses.append((first, held[-1][2]))
            elif held:
                first, columns, address = held.pop(pick % len(held))
                taken[first : first + columns] = [False] * columns
                b.free(address, columns)
        for _, columns, address in held:
            b.free(address, columns)
        with b.elect():
            for i, (_, address) in enumerate(addresses):
                b.store(b.element(out, i), address)
    got = np.full(max(len(addresses), 1), -1, np.int32)
    b.run(seed=seed, out=got)
    assert got[: len(addresses)].tolist() == [first for first, _ in addresses]


# -- pairs -----------------------------------------------------------------------------


def through_in_both(b: Tensor, allocated: BarrierArray) -> None:
    """The odd CTA of a pair says that its alloc is through, and the even one waits for that."""
    with b.when(binary("eq", special("cta_rank"), 1)) as branch, b.elect():
        b.arrive(b.bar(allocated, 0, 0))
    with b.into(branch.orelse):
        b.wait(b.bar(allocated), 0)


def test_a_pair_allocates_and_gets_the_same_columns() -> None:
    b = Tensor(cluster=2, group=2)
    out = b.tensor("out", dtypes.int32, rank=1)
    word, allocated = b.word(), b.barriers("allocated")
    b.setup_done()
    with b.role("one", warps=1):
        first = b.alloc(word, 64, free=False)
        second = b.alloc(word, 64, free=False)
        through_in_both(b, allocated)
        b.free(first, 64)
        with b.elect():
            b.store(b.element(out, special("cta_rank")), second)
        b.free(second, 64)
    for seed in SEEDS:
        got = np.zeros(2, np.int32)
        b.run(2, seed, out=got)
        assert got.tolist() == [64, 64]


def test_one_execution_stands_for_both_orders_of_the_allocs_of_a_pair() -> None:
    verdict = check(Launch(freed_early(waits=True).finished(), 2, {}))
    assert (verdict.verdict, verdict.traces) == ("verified", 1)


def test_the_other_cta_of_a_pair_does_not_allocate() -> None:
    b = Tensor(cluster=2, group=2)
    word = b.word()
    b.setup_done()
    with b.role("one", warps=1), b.when(binary("eq", special("cta_rank"), 0)):
        b.alloc(word, 64, free=False)
    words = (
        "CTA 1 ends without an alloc of its own",
        "role 'one' of CTA 0 has allocated columns 0..63 for both CTAs",
        "frees",
    )
    faults(b, ExitError, *words, grid=2)


def test_the_leader_of_a_pair_does_not_allocate() -> None:
    b = Tensor(cluster=2, group=2)
    word = b.word()
    b.setup_done()
    with b.role("one", warps=1), b.when(binary("eq", special("cta_rank"), 1)):
        b.alloc(word, 64)
    faults(
        b,
        DeadlockError,
        "role 'one' of CTA 1",
        "the alloc of CTA 0, the even one of the pair, which allocates for both",
        grid=2,
    )


def freed_early(waits: bool) -> Tensor:
    """A pair allocates and frees; `waits`: the leader first learns that its peer's alloc is
    through.
    """
    b = Tensor(cluster=2, group=2)
    word, allocated = b.word(), b.barriers("allocated")
    b.setup_done()
    with b.role("one", warps=1):
        address = b.alloc(word, 64, free=False)
        if waits:
            through_in_both(b, allocated)
        b.free(address, 64)
    return b


def test_the_leader_of_a_pair_frees_before_its_peer_has_allocated() -> None:
    """In every order, since nothing says otherwise. Without the mend (`waits_for_the_peer` always
    False) it is verified.
    """
    words = (
        "frees columns 0..63",
        "nothing says that the alloc of",
        "the even CTA allocates for both and does not wait",
        "issue 3435",
    )
    faults(
        freed_early(waits=False),
        SimFault,
        *words,
        "must arrive on a barrier that role 'one' of CTA 0 waits on",
        grid=2,
    )
    verdict = check(Launch(freed_early(waits=False).finished(), 2, {}))
    assert [fault.kind for fault in verdict.faults] == ["SimFault"]
    assert check(Launch(freed_early(waits=True).finished(), 2, {})).ok
    for seed in SEEDS:
        freed_early(waits=True).run(2, seed)


@pytest.mark.parametrize("ordered", [False, True])
def test_both_orders_of_two_allocs_in_the_odd_cta(ordered: bool) -> None:
    """Where two of its warps call, the order of these calls matters: the first one gets what the
    leader has taken first.
    """
    b = Tensor(cluster=2, group=2)
    word, other = b.word(), b.word()
    one, two, turn = b.barriers("one"), b.barriers("two"), b.barriers("turn")
    b.setup_done()
    with b.role("one", warps=1):
        first = b.alloc(word, 64, free=False)
        with b.when(binary("eq", special("cta_rank"), 0)) as branch:
            second = b.alloc(other, 32, free=False)
            b.wait(b.bar(one), 0)
            b.free(first, 64)
            b.wait(b.bar(two), 0)
            b.free(second, 32)
        with b.into(branch.orelse):
            with b.elect():
                b.arrive(b.bar(one, 0, 0))
                b.arrive(b.bar(turn))
            b.free(first, 64)
    with b.role("two", warps=1), b.when(binary("eq", special("cta_rank"), 1)):
        if ordered:
            b.wait(b.bar(turn), 0)
        third = b.alloc(other, 32, free=False)
        with b.elect():
            b.arrive(b.bar(two, 0, 0))
        b.free(third, 32)
    verdict = check(Launch(b.finished(), 2, {}))
    assert verdict.ok == ordered
    assert ordered or "allocates tensor memory for both" in verdict.faults[0].message


def test_the_hole_of_a_leader_that_frees_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """`waits_for_the_peer` is what the campaign takes out."""
    monkeypatch.setattr(tmem_alloc, "waits_for_the_peer", lambda twin, known: False)
    assert check(Launch(freed_early(waits=False).finished(), 2, {})).ok


def test_the_ctas_of_a_pair_ask_for_different_columns() -> None:
    b = Tensor(cluster=2, group=2)
    word = b.word()
    b.setup_done()
    with b.role("one", warps=1):
        with b.when(binary("eq", special("cta_rank"), 0)) as branch:
            b.alloc(word, 64)
        with b.into(branch.orelse):
            b.alloc(word, 32)
    faults(
        b,
        SimFault,
        "allocates tensor memory for both",
        " 64",
        " 32",
        "Give the same number",
        grid=2,
    )


# -- addresses and contents ------------------------------------------------------------


def accesses(
    address: object, rows: int, cols: int, offset: int = 0, columns: int = 64, freed: bool = False
) -> Tensor:
    """One warpgroup allocates by its first warp, meets, and loads a matrix that nothing has
    written.
    """
    b = Tensor()
    word = b.word()
    with b.role("one", warpgroups=1):
        meet = b.named("meet", 128)
        warp = special("warp")
        with b.when(binary("eq", warp, 0)):
            b.do(ops.TmemAlloc, b.tile(word), columns, 1)
            b.do(ops.SyncWarp)
        b.do(ops.NamedSync, meet)
        base = b.load(b.element(b.tile(word), 0, 0))
        if freed:
            with b.when(binary("eq", warp, 0)):
                b.free(base, columns)
            b.do(ops.NamedSync, meet)
        f = b.registers(rows, cols)
        b.do(ops.TmemLoad, f, b.matrix(base if address is None else address, rows, cols, offset))
        b.do(ops.TmemWaitLoad)
        b.do(ops.NamedSync, meet)
        if not freed:
            with b.when(binary("eq", warp, 0)):
                b.free(base, columns)
    return b


@pytest.mark.parametrize(
    ("b", "words"),
    [
        (
            accesses(None, 128, 32, 48),
            (
                "columns 48..79",
                "address 0x30 is lane 0, column 48",
                "32 elements of float32 take 32",
                "48 + 32 = 80 is 16 too many",
            ),
        ),
        (accesses(300, 64, 8), ("column 300", "Allocated now: columns 0..63 by role 'one'")),
        (accesses(None, 128, 8, 16 << 16), ("128 rows start at lane 0, not at lane 16",)),
        (accesses(None, 64, 8, 8 << 16), ("64 rows start at lane 0 or 16, not at lane 8",)),
        (
            accesses(None, 64, 8, freed=True),
            ("columns 0..63 by role 'one'", "were freed by role 'one'", "no columns are allocated"),
        ),
    ],
    ids=["beyond", "never allocated", "lane 16", "lane 8", "freed"],
)
def test_addresses_lie_inside_an_allocation(b: Tensor, words: tuple[str, ...]) -> None:
    faults(b, SimFault, *words)


def test_columns_hold_nothing_when_they_are_allocated() -> None:
    words = (
        "role 'one' reads tensor memory (lanes 0..15, columns 0..7)",
        "128 of 128 elements were never written",
        "hold nothing when",
    )
    faults(accesses(None, 64, 8), PoisonError, *words)


def test_poison_comes_back_with_the_columns() -> None:
    b = Tensor()
    word = b.word()
    with b.role("one", warpgroups=1):
        meet, warp = b.named("meet", 128), special("warp")
        for turn in range(2):
            with b.when(binary("eq", warp, 0)):
                b.do(ops.TmemAlloc, b.tile(word), 32, 1)
                b.do(ops.SyncWarp)
            b.do(ops.NamedSync, meet)
            base = b.load(b.element(b.tile(word), 0, 0))
            f = b.registers(128, 8, 1.0)
            if not turn:
                b.do(ops.TmemStore, b.matrix(base, 128, 8), b.value(f))
                b.do(ops.TmemWaitStore)
            b.do(ops.TmemLoad, f, b.matrix(base, 128, 8))
            b.do(ops.TmemWaitLoad)
            b.do(ops.NamedSync, meet)
            with b.when(binary("eq", warp, 0)):
                b.free(base, 32)
            b.do(ops.NamedSync, meet)
    faults(b, PoisonError, "256 of 256 elements were never written")


# -- loads, stores and their waits -----------------------------------------------------


def registers(*body: str) -> Tensor:
    """A warpgroup that fills 32 columns, waits for that, and then does what `body` says."""
    b = Tensor()
    word = b.word()
    with b.role("one", warpgroups=1):
        meet, warp = b.named("meet", 128), special("warp")
        with b.when(binary("eq", warp, 0)):
            b.do(ops.TmemAlloc, b.tile(word), 32, 1)
            b.do(ops.SyncWarp)
        b.do(ops.NamedSync, meet)
        base = b.load(b.element(b.tile(word), 0, 0))
        there, f, ones = b.matrix(base, 128, 8), b.registers(128, 8), b.registers(128, 8, 1.0)
        b.do(ops.TmemStore, there, b.value(ones))
        if body[0] != "no wait":
            b.do(ops.TmemWaitStore)
        for word_ in body:
            match word_:
                case "load":
                    b.do(ops.TmemLoad, f, there)
                case "store":
                    b.do(ops.TmemStore, there, b.value(ones))
                case "wait load":
                    b.do(ops.TmemWaitLoad)
                case "wait store":
                    b.do(ops.TmemWaitStore)
                case "read":
                    b.do(ops.FragmentSet, ones, b.value(f))
                case "write":
                    b.do(ops.FragmentSet, f, const(0.0))
        b.do(ops.NamedSync, meet)
        with b.when(binary("eq", warp, 0)):
            b.free(base, 32)
    return b


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (("load", "read"), ("reads fragment", "in flight", "ctx.tmem_wait_load()")),
        (("load", "write"), ("writes fragment", "in flight", "ctx.tmem_wait_load()")),
        (("load", "load"), ("writes fragment", "in flight")),
        (
            ("no wait", "load"),
            (
                "race on tensor memory",
                "A store to tensor memory is over when",
                "ctx.tmem_wait_store()",
            ),
        ),
        (
            ("load", "store"),
            (
                "race on tensor memory",
                "A load from tensor memory is over when",
                "ctx.tmem_wait_load()",
            ),
        ),
        (("store", "store"), ("race on tensor memory", "ctx.tmem_wait_store()")),
        (("load",), ("race on tensor memory", "tmem_dealloc 32 columns", "ctx.tmem_wait_load()")),
        (
            ("load", "wait store"),
            ("race on tensor memory", "tmem_dealloc 32 columns", "ctx.tmem_wait_load()"),
        ),
    ],
)
def test_what_has_not_been_waited_for(body: tuple[str, ...], words: tuple[str, ...]) -> None:
    faults(registers(*body), RaceError, *words)


def said(b: Tensor) -> str:
    with pytest.raises(RaceError) as error:
        b.run()
    return " ".join(str(error.value).split())


@pytest.mark.parametrize(
    ("body", "wait"),
    [(("no wait", "load"), "store"), (("load", "store"), "load"), (("store", "store"), "store")],
)
def test_within_a_warp_the_hint_names_the_wait_alone(body: tuple[str, ...], wait: str) -> None:
    text = said(registers(*body))
    assert (
        f"has executed ctx.tmem_wait_{wait}(): put that between the two. After it the same warp"
        " needs no fence and no barrier." in text
    )
    assert "tcgen05_fence" not in text
    assert "an arrive" not in text


def across(*body: str) -> Tensor:
    """A warpgroup stores to 32 columns, does what `body` says, and another one, which does not wait
    for it, loads them.
    """
    b = Tensor()
    word, flag = b.word(), b.barriers("flag", count=128)
    b.setup_done()
    with b.role("one", warpgroups=1):
        meet, over, warp = b.named("meet", 256), b.named("over", 256), special("warp")
        with b.when(binary("eq", warp, 0)):
            b.do(ops.TmemAlloc, b.tile(word), 32, 1)
            b.do(ops.SyncWarp)
        b.do(ops.NamedSync, meet)
        base = b.load(b.element(b.tile(word), 0, 0))
        b.do(ops.TmemStore, b.matrix(base, 128, 8), b.value(b.registers(128, 8, 1.0)))
        for step in body:
            match step:
                case "wait":
                    b.do(ops.TmemWaitStore)
                case "fence":
                    b.do(ops.Tcgen05FenceBefore)
                case "arrive":
                    b.arrive(b.bar(flag))
        b.do(ops.NamedSync, over)
        with b.when(binary("eq", warp, 0)):
            b.free(base, 32)
    with b.role("other", warpgroups=1):
        b.do(ops.NamedSync, meet)
        base = b.load(b.element(b.tile(word), 0, 0))
        f = b.registers(128, 8)
        if "arrive" in body:
            b.wait(b.bar(flag), 0)
        b.do(ops.Tcgen05FenceAfter)
        b.do(ops.TmemLoad, f, b.matrix(base, 128, 8))
        b.do(ops.TmemWaitLoad)
        b.do(ops.NamedSync, over)
    return b


OVER = "A store to tensor memory is over when its warp has executed ctx.tmem_wait_store()"
TELLS = "an arrive on a barrier that role 'other' waits on before its access"


@pytest.mark.parametrize(
    ("body", "words", "silent"),
    [
        ((), f"{OVER}; then ctx.tcgen05_fence_before() and {TELLS}.", "It has executed"),
        (
            ("wait",),
            (
                f"{OVER}. It has executed that, but nothing after that signals role 'other': "
                f"ctx.tcgen05_fence_before() and {TELLS} must"
            ),
            ";",
        ),
        (
            ("wait", "fence"),
            (
                "It has executed that and ctx.tcgen05_fence_before(), but nothing after that "
                f"signals role 'other': {TELLS} must"
            ),
            ";",
        ),
    ],
    ids=["nothing", "a wait", "a wait and a fence"],
)
def test_between_warps_the_hint_names_what_is_missing(
    body: tuple[str, ...], words: str, silent: str
) -> None:
    for seed in range(20):  # the load comes second in some order
        with pytest.raises(RaceError) as error:
            across(*body).run(seed=seed)
        text = " ".join(str(error.value).split())
        if text.index("tmem_store") < text.index("tmem_load"):
            break
    assert words in text
    assert silent not in text
    assert not [
        advice
        for seed in range(3)
        for advice in across("wait", "fence", "arrive").run(seed=seed).advice
    ]


def test_a_dealloc_needs_no_fence() -> None:
    """The warp that frees waits for the others; what is missing is their wait for their own
    loads.
    """
    text = said(registers("load"))
    assert "has executed ctx.tmem_wait_load()" in text
    assert "tcgen05_fence" not in text
    assert "tp.TmemDeallocBarrier" in text


def test_program_order_within_a_warp_takes_waits_and_no_fence() -> None:
    b = registers("load", "wait load", "read", "store", "wait store", "load", "wait load")
    assert not [advice for seed in SEEDS for advice in b.run(seed=seed).advice]


def test_fences_and_waits_of_a_kernel_without_tensor_memory() -> None:
    @tp.kernel()
    def fences(ctx: tp.Context, out: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            ctx.tcgen05_fence_before()
            ctx.tcgen05_fence_after()
            ctx.tmem_wait_load()
            ctx.tmem_wait_store()
            ctx.store(out[ctx.lane], 1)

    out = np.zeros(32, np.int32)
    program = fences.bind(out)
    program.run()
    assert (out == 1).all()
    assert program.check().ok


def test_a_load_by_some_warps_only() -> None:
    """Warp 2 alone loads its 32 lanes; the other warps' registers stay what they were."""
    b = Tensor()
    out = b.tensor("out", dtypes.float32)
    word = b.word()
    with b.role("one", warpgroups=1):
        meet, warp = b.named("meet", 128), special("warp")
        with b.when(binary("eq", warp, 0)):
            b.do(ops.TmemAlloc, b.tile(word), 32, 1)
            b.do(ops.SyncWarp)
        b.do(ops.NamedSync, meet)
        base = b.load(b.element(b.tile(word), 0, 0))
        f = b.registers(128, 8, 1.0)
        b.do(ops.TmemStore, b.matrix(base, 128, 8), b.value(f))
        b.do(ops.TmemWaitStore)
        b.do(ops.FragmentSet, f, const(5.0))
        with b.when(binary("eq", warp, 2)):
            b.do(ops.TmemLoad, f, b.matrix(base, 128, 8))
            b.do(ops.TmemWaitLoad)
        b.do(ops.NamedSync, meet)
        b.do(ops.FragmentStoreGlobal, out, (const(0), const(0)), b.value(f))
        with b.when(binary("eq", warp, 0)):
            b.free(base, 32)
    got = np.zeros((128, 8), np.float32)
    b.run(out=got)
    assert (got[:, 0] == [1.0 if row // 32 == 2 else 5.0 for row in range(128)]).all()
    assert warp.vary is Vary.WARP
