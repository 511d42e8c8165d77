"""Loops that look at memory let everybody else run; one that nobody can end is a deadlock that says
what it looks at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.errors import DeadlockError, UnfinishedError

SEEDS = (0, 1, 2, 3)


def run(
    text: str, *arrays: Any, seed: int = 0, grid: int = 1, block: int = 32, timeout: float = 20
) -> None:
    kernel(text, len(arrays)).bind(arrays, grid=grid, block=block).run(seed, timeout=timeout)


# Each thread takes the lock, adds one, and gives the lock back.
LOCK = """
    LOCK: atom.acquire.gpu{space}.cas.b32 %r1, [{lock}], 0, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra LOCK;
    ld{space}.u32 %r2, [{data}];
    add.u32 %r2, %r2, 1;
    st{space}.u32 [{data}], %r2;
    {give_back}
"""
GIVE_BACK = {
    "exch": "atom.release.gpu{space}.exch.b32 %r3, [{lock}], 0;",
    "store": "st.release.gpu{space}.u32 [{lock}], 0;",
    "fence": "membar.gl; st.volatile{space}.u32 [{lock}], 0;",
}


@pytest.mark.slow
@pytest.mark.sampled(suite=9, classes=lambda way, grid, block: [way, grid])
@pytest.mark.parametrize("way", GIVE_BACK)
@pytest.mark.parametrize(("grid", "block"), [(1, 40), (1, 12), (3, 4)])
def test_threads_of_a_warp_take_a_lock_in_turn(way: str, grid: int, block: int) -> None:
    names = {"space": ".global", "lock": "%b0", "data": "%b0+4"}
    text = LOCK.format(give_back=GIVE_BACK[way].format(**names), **names)
    for seed in SEEDS[:2]:
        words = np.zeros(2, np.int32)
        run(text, words, seed=seed, grid=grid, block=block)
        assert words.tolist() == [0, grid * block]


@pytest.mark.slow
def test_threads_take_a_lock_in_shared_memory() -> None:
    names = {"space": ".shared", "lock": "words", "data": "words+4"}
    text = LOCK.format(give_back=GIVE_BACK["exch"].format(**names), **names)
    before = """.shared .align 8 .b32 words[2]; setp.eq.u32 %p3, %t, 0; mov.u32 %r9, 0;
        @%p3 st.shared.u32 [words], %r9; @%p3 st.shared.u32 [words+4], %r9; bar.sync 0;"""
    after = "bar.sync 0; @%p3 ld.shared.u32 %r2, [words+4]; @%p3 st.global.u32 [%b0], %r2;"
    out = np.zeros(1, np.int32)
    run(before + text + after, out, block=40)
    assert out[0] == 40


@pytest.mark.parametrize("first", ["lt", "ge"])
def test_lanes_wait_for_others_of_their_warp(first: str) -> None:
    text = f"""
        setp.{first}.u32 %p1, %l, 16;
        @%p1 bra WAIT;
        st.global.u32 [%b0+4], 7;
        bar.warp.sync 0x{"ffff0000" if first == "lt" else "ffff"};
        st.release.cta.global.u32 [%b0], 1;
        bra END;
        WAIT: ld.acquire.cta.global.u32 %r1, [%b0];
        setp.eq.u32 %p2, %r1, 0;
        @%p2 bra WAIT;
        END:
        """.replace("st.global.u32 [%b0+4], 7;", "")
    for seed in SEEDS:
        run(text, np.zeros(2, np.int32), seed=seed)


@pytest.mark.parametrize("pause", ["", "nanosleep.u32 20;", "bar.warp.sync -1;", "membar.gl;"])
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_a_look_that_nobody_answers_is_a_deadlock(seed: int, pause: str) -> None:
    text = f"WAIT: ld.acquire.gpu.global.u32 %r1, [%b0+4]; {pause}"
    text += "setp.eq.u32 %p1, %r1, 5; @%p1 bra WAIT;"
    with pytest.raises(
        DeadlockError, match=r"polls 'array0' \+ 4.*which no other instruction has written"
    ):
        run(text, np.full(2, 5, np.int32), seed=seed, grid=2, block=64)


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_ctas_that_wait_for_each_other_s_lock_are_a_deadlock(seed: int) -> None:
    """The first takes one lock and waits for the other, and so does the second."""
    text = """
        mul.wide.u32 %rd1, %ctaid.x, 4;
        add.u64 %rd2, %b0, %rd1;
        xor.b64 %rd3, %rd1, 4;
        add.u64 %rd3, %b0, %rd3;
        st.relaxed.gpu.global.u32 [%rd2], 1;
        add.u64 %rd4, %rd2, 8;
        st.relaxed.gpu.global.u32 [%rd4], 1;
        xor.b64 %rd5, %rd1, 4;
        add.u64 %rd5, %b0, %rd5;
        MET: ld.relaxed.gpu.global.u32 %r2, [%rd5+8];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra MET;
        LOCK: atom.acquire.gpu.global.cas.b32 %r1, [%rd3], 0, 1;
        setp.ne.u32 %p1, %r1, 0;
        @%p1 bra LOCK;
        """
    with pytest.raises(DeadlockError, match="polls 'array0'"):
        run(text, np.zeros(4, np.int32), seed=seed, grid=2, block=1)


def test_a_loop_that_counts_its_looks_ends() -> None:
    text = """
        mov.u32 %r2, 0;
        WAIT: ld.relaxed.gpu.global.u32 %r1, [%b0];
        add.u32 %r2, %r2, 1;
        setp.eq.u32 %p1, %r1, 0;
        setp.lt.and.u32 %p1, %r2, 300, %p1;
        @%p1 bra WAIT;
        st.global.u32 [%b0+4], %r2;
        """
    words = np.zeros(2, np.int32)
    run(text, words, block=1)
    assert words[1] == 300


@pytest.mark.slow
def test_the_end_of_the_time_says_what_a_warp_looks_at() -> None:
    text = """
        mov.u32 %r2, 0;
        WAIT: ld.relaxed.gpu.global.u32 %r1, [%b0+4];
        add.u32 %r2, %r2, 1;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 bra WAIT;
        """
    with pytest.raises(UnfinishedError, match=r"warp 0 polls 'array0' \+ 4 at .*, which holds 0"):
        run(text, np.zeros(2, np.int32), block=1, timeout=0.2)


@pytest.mark.parametrize("seed", range(6))
def test_polls_by_atomics_that_change_nothing_are_a_deadlock(seed: int) -> None:
    """Each warp gets its operation granted again and again, and no value ever changes."""
    text = """
        WAIT: atom.acquire.gpu.global.cas.b32 %r1, [%b0], 9, 9;
        setp.lt.u32 %p1, %r1, 3;
        @%p1 bra WAIT;
        """
    with pytest.raises(DeadlockError, match=r"polls 'array0' at .*, which holds 2"):
        run(text, np.full(1, 2, np.int32), seed=seed, block=64, timeout=20)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "poll",
    ["ld.acquire.gpu.global.u32 {0}, [{1}];", "atom.acquire.gpu.global.or.b32 {0}, [{1}], 0;"],
)
def test_a_loop_that_looks_at_two_flags_sees_either(seed: int, poll: str) -> None:
    """CTA 0 looks at two flags in turn; CTA 1 sets the second when CTA 0 has begun to look."""
    look = [poll.format("%r1", "%b0"), poll.format("%r2", "%b0+4"), poll.format("%r3", "%b0+8")]
    answer = poll.format("%r3", "%b0+12")
    text = f"""
        setp.eq.u32 %p1, %ctaid.x, 1;
        @%p1 bra SECOND;
        st.release.gpu.global.u32 [%b0+8], 1;
        WAIT: {look[0]} {look[1]} or.b32 %r1, %r1, %r2;
        setp.eq.u32 %p2, %r1, 0;
        @%p2 bra WAIT;
        st.release.gpu.global.u32 [%b0+12], 1;
        ret;
        SECOND: mov.u32 %r5, 0;
        BEGUN: {look[2]} setp.eq.u32 %p2, %r3, 0;
        @%p2 bra BEGUN;
        LATER: {look[0]} add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 40;
        @%p2 bra LATER;
        st.release.gpu.global.u32 [%b0+4], 1;
        ANSWER: {answer} setp.eq.u32 %p2, %r3, 0;
        @%p2 bra ANSWER;
        """
    words = np.zeros(4, np.int32)
    run(text, words, seed=seed, grid=2, block=1, timeout=20)
    assert words.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    "loop",
    [
        "AGAIN: bra AGAIN;",
        "mov.u32 %r1, 0; AGAIN: add.u32 %r1, %r1, 1; and.b32 %r1, %r1, 1023; bra AGAIN;",
        "setp.lt.u32 %p1, %l, 5; @%p1 bra OUT; AGAIN: bra AGAIN; OUT:",
    ],
)
def test_a_loop_that_changes_nothing_is_a_deadlock_at_once(loop: str) -> None:
    with pytest.raises(DeadlockError, match=r"warp 0 is in a loop that nothing can end") as caught:
        run(loop, block=32, timeout=30)
    assert "ld.acquire" in str(caught.value)
    assert "at <ptx>:" in str(caught.value)


@pytest.mark.parametrize(
    "loop",
    [
        "mov.u32 %r1, 0; AGAIN: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9000; @%p1 bra AGAIN;",
        "AGAIN: mov.u32 %r1, %clock; setp.lt.u32 %p1, %r1, 500000; @%p1 bra AGAIN;",
    ],
)
def test_a_long_loop_without_requests_ends(loop: str) -> None:
    run(loop, block=32)


# Warp 0 polls a flag; warp 1 stores to something else, and, where a branch is taken, to the flag.
POLLED = """
    .shared .align 8 .b32 flag[2]; .shared .b32 data[2];
    setp.eq.u32 %p3, %t, 0;
    {clear}
    bar.sync 0;
    setp.ge.u32 %p1, %t, 32;
    @%p1 bra OTHER;
    POLL: ld.acquire.gpu{flag} %r1, [{at}];
    setp.eq.u32 %p1, %r1, {until};
    @%p1 bra POLL;
    bra DONE;
    OTHER: setp.ne.u32 %p1, %t, 32;
    @%p1 bra DONE;
    mov.u32 %r9, 7;
    st{data} [{elsewhere}], %r9;
    st{flag} [{at}+4], %r9;
    setp.eq.u32 %p1, %r9, {taken};
    @!%p1 bra DONE;
    st.release.gpu{flag} [{at}], %r9;
    DONE:
"""
GLOBAL = {"flag": ".global.u32", "data": ".global.u32", "at": "%b0", "elsewhere": "%b1"}
SHARED = {"flag": ".shared.u32", "data": ".shared.u32", "at": "flag", "elsewhere": "data"}
SHARED |= {"clear": "mov.u32 %r9, 0; @%p3 st.shared.u32 [flag], %r9;"}


def polled(where: dict[str, str], until: int, taken: int) -> list[str]:
    """What the report of the deadlock says could end the wait."""
    text = POLLED.format(**{"clear": "", **where, "until": until, "taken": taken})
    with pytest.raises(DeadlockError) as hang:
        run(text, np.zeros(2, np.int32), np.zeros(2, np.int32), block=64)
    told = str(hang.value).split("what could end the wait:\n")[1].split("\n\n")[0]
    return [line.strip() for line in told.split("\n")]


@pytest.mark.parametrize("where", [GLOBAL, SHARED], ids=["global", "shared"])
def test_only_stores_to_the_polled_bytes_could_end_the_wait(where: dict[str, str]) -> None:
    told = polled(where, 7, 7)  # the flag comes, and the loop wants yet another value
    (brings,) = (line for line in told if "warp 1 " in line)
    assert ": st.release.gpu" in brings
    assert brings.endswith(", executed 1 time — warp 1 has returned")
    assert not any("nothing that has run" in line for line in told)


def test_a_flag_that_nothing_has_written_is_said_to_be_so() -> None:
    nothing, unrun = polled(GLOBAL, 0, 0)
    assert nothing == "'array0': nothing that has run has written these bytes"
    assert unrun.startswith("never executed, wherever it writes: st.release.gpu.global.u32 at ")
    zeroed, unrun = polled(SHARED, 0, 0)
    assert "the same agent would have to write it after its own wait" in zeroed
    assert unrun.startswith("never executed, wherever it writes: st.release.gpu.shared.u32 at ")
