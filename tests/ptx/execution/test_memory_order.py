"""Order through memory: textbook kernels run right, and each one with its release, its acquire, its
fence or its scope weakened is a race that names the flag.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.check import check
from tilepipe.errors import RaceError

SEEDS = (0, 1, 2, 3)


def run(text: str, *arrays: Any, seed: int = 0, grid: int = 1, block: int = 32) -> None:
    kernel(text, len(arrays)).bind(arrays, grid=grid, block=block).run(seed, timeout=20)


def zeros(n: int = 64) -> Any:
    return np.zeros(n, np.int32)


# -- a flag between warps, and between CTAs ----------------------------------------------

# The writer is warp or CTA 1, the reader warp or CTA 0, or the other way round.
WRITER = """
    mov.u32 %r9, 42;
    st{space}.u32 [{data}], %r9;
    {fence_out}
    st.{release}{space}.u32 [{flag}], 1;
    bra END;
"""
READER = """
    READ: ld.{acquire}{space}.u32 %r1, [{flag}];
    setp.ne.u32 %p2, %r1, 1;
    @%p2 bra READ;
    {fence_in}
    ld{space}.u32 %r2, [{data}];
    st.global.u32 [%b1], %r2;
    END:
"""
FORMS = {
    "release and acquire": {"release": "release.{s}", "acquire": "acquire.{s}"},
    "fences": {
        "release": "relaxed.{s}", "acquire": "relaxed.{s}", "fence_out": "fence.acq_rel.{s};",
        "fence_in": "fence.acq_rel.{s};",
    },
    "membar and volatile": {
        "release": "volatile", "acquire": "volatile", "fence_out": "membar.gl;",
        "fence_in": "membar.gl;",
    },
    "fence.release and fence.acquire": {
        "release": "relaxed.{s}", "acquire": "relaxed.{s}", "fence_out": "fence.release.{s};",
        "fence_in": "fence.acquire.{s};",
    },
}  # fmt: skip
WEAK = {
    "the release": ({"release": "relaxed.{s}", "acquire": "acquire.{s}"}, "is written relaxed"),
    "the acquire": ({"release": "release.{s}", "acquire": "relaxed.{s}"}, "is read relaxed"),
    "the fence before": (
        {"release": "relaxed.{s}", "acquire": "relaxed.{s}", "fence_in": "fence.acq_rel.{s};"},
        "is written relaxed",
    ),
    "the fence after": (
        {"release": "relaxed.{s}", "acquire": "relaxed.{s}", "fence_out": "fence.acq_rel.{s};"},
        "is read relaxed",
    ),
}  # fmt: skip


def flag(where: str, form: dict[str, str], first: int = 1) -> str:
    """The kernel; the writer is warp, or CTA, `first`."""
    space, data, there = (
        (".shared", "words", "words+4") if where == "shared" else (".global", "%b0", "%b0+4")
    )
    by = "%ctaid.x" if where == "ctas" else "%t"
    unit = 1 if where == "ctas" else 32
    scope = "gpu" if where == "ctas" else "cta"
    given = {"fence_out": "", "fence_in": "", **form}
    given = {name: text.format(s=scope) for name, text in given.items()}
    names = {"space": space, "data": data, "flag": there, **given}
    return f"""
        .shared .align 8 .b32 words[2];
        mov.u32 %r5, %laneid;
        setp.ne.u32 %p3, %r5, 0;
        mov.u32 %r6, {by};
        div.u32 %r6, %r6, {unit};
        mov.u32 %r7, 0;
        setp.ne.u32 %p4, %t, 0;
        setp.eq.u32 %p1, %r6, {first};
        {"@!%p4 st.shared.u32 [words+4], %r7; bar.sync 0;" if where == "shared" else ""}
        @%p3 bra END;
        @!%p1 bra READ;
        {WRITER.format(**names)}
        {READER.format(**names)}
    """


EXTENTS = {"shared": {"block": 64}, "warps": {"block": 64}, "ctas": {"grid": 2}}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("where", EXTENTS)
@pytest.mark.parametrize("form", FORMS)
def test_a_flag_hands_data_over(form: str, where: str, first: int) -> None:
    for seed in SEEDS:
        data, out = zeros(), zeros(1)
        run(flag(where, FORMS[form], first), data, out, seed=seed, **EXTENTS[where])
        assert out[0] == 42


@pytest.mark.parametrize("where", EXTENTS)
@pytest.mark.parametrize("what", WEAK)
def test_a_flag_that_lacks_one_side_is_a_race(what: str, where: str) -> None:
    form, says = WEAK[what]
    text = flag(where, form)
    for seed in SEEDS[:2]:
        with pytest.raises(RaceError, match=f"the flag .*{says}") as caught:
            run(text, zeros(), zeros(1), seed=seed, **EXTENTS[where])
        second = str(caught.value).split("second:")[1]
        assert re.match(r".*ld\.(shared|global)\.u32 %r2", second)


def test_a_scope_without_the_other_cta_orders_nothing() -> None:
    for narrow in ("release", "acquire"):
        form = dict(FORMS["release and acquire"])
        form[narrow] = f"{narrow}.cta"
        with pytest.raises(RaceError):
            run(flag("ctas", form), zeros(), zeros(1), grid=2)


# -- fences by all threads, and a count by one of them ------------------------------------

# The form of the threadFenceReduction of the CUDA samples, of CUB and of PyTorch's Reduce.cuh:
# only thread 0 touches the count, and the other warp reads what the other CTA has written.
COUNTED = """
    .shared .align 4 .b32 last;
    mov.u32 %r5, %ctaid.x;
    mad.lo.u32 %r6, %r5, 64, %t;
    mad.wide.u32 %a0, %r6, 4, %b0;
    st.global.u32 [%a0], %r6;
    setp.ne.u32 %p1, %t, 0;
    {before}
    bar.sync 0;
    @%p1 bra COUNTED;
    {counts}
    st.shared.u32 [last], %r7;
    COUNTED: {between}
    bar.sync 0;
    {after}
    ld.shared.u32 %r7, [last];
    setp.ne.u32 %p2, %r7, 1;
    @%p2 bra END;
    xor.b32 %r6, %r6, 64;
    mad.wide.u32 %a0, %r6, 4, %b0;
    ld.global.u32 %r8, [%a0];
    mad.wide.u32 %a1, %t, 4, %b2;
    st.global.u32 [%a1], %r8;
    END:
"""
COUNT = "atom.global.add.u32 %r7, [%b1], 1;"
BY_ALL = {"before": "membar.gl;", "after": "membar.gl;", "between": "", "counts": COUNT}
ORDERED = {
    "by all threads": {},
    "by the reader of the count": {"between": "fence.acq_rel.gpu;", "after": ""},
    "by its writer": {"before": "", "counts": f"fence.acq_rel.gpu; {COUNT}"},
    "fence.sc": {"before": "fence.sc.gpu;", "after": "fence.sc.gpu;"},
}
NOT_ORDERED = {
    "none before": ({"before": ""}, "is written relaxed"),
    "none after": ({"after": ""}, "is read relaxed"),
    "before by another thread": ({"before": "@%p1 membar.gl;"}, "is written relaxed"),
    "a narrow one before": ({"before": "membar.cta;"}, "is written with a scope"),
    "a narrow one after": ({"after": "membar.cta;"}, "is read with a scope"),
}  # fmt: skip


@pytest.mark.parametrize("what", ORDERED)
def test_a_count_by_one_thread_hands_over_what_all_threads_fenced(what: str) -> None:
    text = COUNTED.format(**{**BY_ALL, **ORDERED[what]})
    for seed in SEEDS:
        data, out = zeros(128), zeros(64)
        run(text, data, zeros(1), out, seed=seed, grid=2, block=64)
        assert sorted(set(out // 64)) in ([0], [1])
        assert len(set(out)) == 64


@pytest.mark.parametrize("what", NOT_ORDERED)
def test_a_count_by_one_thread_without_a_fence_is_a_race(what: str) -> None:
    weaker, says = NOT_ORDERED[what]
    text = COUNTED.format(**{**BY_ALL, **weaker})
    with pytest.raises(RaceError, match=says):
        run(text, zeros(128), zeros(1), zeros(64), grid=2, block=64)


def test_a_fence_that_nothing_orders_before_the_count_is_of_no_use() -> None:
    """Each order of the fence and the count is checked, though they do not touch the same."""
    late = COUNTED.format(**{**BY_ALL, "before": ""}).replace("COUNTED: ", "COUNTED: membar.gl;")
    arrays = zeros(128), zeros(1), zeros(64)
    verdict = check(kernel(late, 3).bind(arrays, grid=2, block=64))
    assert [fault.kind for fault in verdict.faults] == ["RaceError"]


def test_a_fence_learns_from_all_flags_that_its_thread_has_seen() -> None:
    flags = 96
    text = f"""
        mul.wide.u32 %rd1, %t, 4;
        setp.ge.u32 %p1, %t, {flags};
        @%p1 bra READ;
        add.u64 %rd2, %b1, %rd1;
        st.global.u32 [%rd2], 7;
        bar.warp.sync -1;
        add.u64 %rd2, %b0, %rd1;
        st.release.gpu.global.u32 [%rd2], 1;
        ret;
        READ: setp.ne.u32 %p1, %t, {flags};
        @%p1 ret;
        mov.u32 %r2, 0;
        mov.u64 %rd2, %b0;
        NEXT: ld.relaxed.gpu.global.u32 %r1, [%rd2];
        setp.eq.u32 %p1, %r1, 0;
        @%p1 bra NEXT;
        add.u64 %rd2, %rd2, 4;
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p1, %r2, {flags};
        @%p1 bra NEXT;
        FENCE
        mov.u32 %r2, 0;
        mov.u64 %rd2, %b1;
        MORE: ld.global.u32 %r1, [%rd2];
        add.u64 %rd2, %rd2, 4;
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p1, %r2, {flags};
        @%p1 bra MORE;
    """
    run(text.replace("FENCE", "fence.acq_rel.gpu;"), zeros(flags), zeros(flags), block=flags + 32)
    with pytest.raises(RaceError, match="nothing orders the second access"):
        run(text.replace("FENCE", ""), zeros(flags), zeros(flags), block=flags + 32)


# CTA 0 stores words one after the other and raises a flag; CTA 1 waits for it and loads the last.
ONE_AFTER_THE_OTHER = """
    mov.u32 %r5, %ctaid.x;
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra END;
    setp.eq.u32 %p2, %r5, 1;
    @%p2 bra READ;
    mov.u32 %r2, 0;
    mov.u64 %rd2, %b1;
    MORE: st.global.u32 [%rd2], %r2;
    add.u64 %rd2, %rd2, 64;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 40;
    @%p1 bra MORE;
    st.{release}.gpu.global.u32 [%b0], 1;
    bra END;
    READ: ld.acquire.gpu.global.u32 %r1, [%b0];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra READ;
    ld.global.u32 %r1, [%b1+2496];
    END:
"""


def test_a_race_with_the_last_of_many_stores_of_another_cta() -> None:
    run(ONE_AFTER_THE_OTHER.format(release="release"), zeros(), zeros(640), grid=2)
    with pytest.raises(RaceError, match="written relaxed"):
        run(ONE_AFTER_THE_OTHER.format(release="relaxed"), zeros(), zeros(640), grid=2)


# -- the write that is observed ------------------------------------------------------------

# `{n}` threads of their own warps, or CTAs, count themselves; the last one resets the counter.
RESET = """
    mov.u32 %r5, %laneid;
    setp.ne.u32 %p1, %r5, 0;
    @%p1 bra END;
    {before}
    atom.{scope}.global.add.u32 %r7, [%b0], 1;
    {after}
    setp.ne.u32 %p2, %r7, {last};
    @%p2 bra END;
    st.global.u32 [%b0], 0;
    END:
"""
FENCES = {"before": "membar.gl;", "after": "membar.gl;", "scope": "relaxed.gpu"}


@pytest.mark.parametrize("extent", [{"grid": 2}, {"grid": 3}, {"block": 64}], ids=str)
@pytest.mark.parametrize("rules", ["practice", "strict"])
def test_the_last_that_counts_itself_may_reset_the_counter(
    extent: dict[str, int], rules: Any
) -> None:
    last = 2 if extent == {"grid": 3} else 1
    sizes: dict[str, Any] = {"grid": 1, "block": 32, **extent}
    launch = kernel(RESET.format(last=last, **FENCES), 1).bind([zeros(1)], **sizes)
    assert check(launch, rules=rules).ok


@pytest.mark.parametrize(
    ("weaker", "grid"),
    [({}, 3), ({"scope": "relaxed.cta"}, 2)],
    ids=["one more CTA counts itself", "a scope without the other CTA"],
)
def test_a_counter_that_is_reset_early_is_a_race(weaker: dict[str, str], grid: int) -> None:
    text = RESET.format(last=1, **{**FENCES, **weaker})
    verdict = check(kernel(text, 1).bind([zeros(1)], grid=grid, block=32))
    assert [fault.kind for fault in verdict.faults] == ["RaceError"]


def test_a_race_with_a_counter_of_unordered_ctas_names_an_access_of_another() -> None:
    text = RESET.format(last=1, before="", after="", scope="relaxed.gpu")
    with pytest.raises(RaceError, match=r"first:  warp 0 of CTA [01] writes: atom"):
        run(text, zeros(1), grid=3)


# CTA 0 writes relaxed to %b0[0]; CTA 1 observes that; then %b0[0] is written by an ordinary store.
OBSERVED = """
    mov.u32 %r5, %ctaid.x;
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra END;
    setp.eq.u32 %p2, %r5, 1;
    @%p2 bra ONE;
    setp.eq.u32 %p2, %r5, 2;
    @%p2 bra TWO;
    {zero}
    bra END;
    ONE: ld.{read}.gpu.global.u32 %r1, [%b0];
    setp.eq.u32 %p2, %r1, 0;
    @%p2 bra ONE;
    {one}
    bra END;
    TWO: ld.acquire.gpu.global.u32 %r1, [%b0+8];
    setp.eq.u32 %p2, %r1, 0;
    @%p2 bra TWO;
    st.global.u32 [%b0], 3;
    END:
"""
WRITES = "st.relaxed.gpu.global.u32 [%b0], 1;"
ORDERED_BY_IT = {
    "the observer writes": (WRITES, "st.global.u32 [%b0], 2;", 2),
    "the observer hands it on": (WRITES, "st.release.gpu.global.u32 [%b0+8], 1;", 3),
    "through a read-modify-write": (
        f"{WRITES} red.relaxed.gpu.global.add.u32 [%b0], 1;", "st.global.u32 [%b0], 2;", 2,
    ),
}  # fmt: skip
NOT_ORDERED_BY_IT = {
    "other data of the writer": (
        f"st.global.u32 [%b0+4], 7; {WRITES}", "ld.global.u32 %r2, [%b0+4];", 2,
    ),
    "a relaxed write elsewhere": (
        f"st.relaxed.gpu.global.u32 [%b0+4], 7; {WRITES}", "st.global.u32 [%b0+4], 2;", 2,
    ),
    "handed on relaxed": (WRITES, "st.relaxed.gpu.global.u32 [%b0+8], 1;", 3),
    "half of a vector": (
        "st.relaxed.gpu.global.v2.u32 [%b0], {1, 1};", "st.global.u32 [%b0+4], 2;", 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ORDERED_BY_IT)
def test_who_observes_a_write_comes_after_it(what: str) -> None:
    zero, one, grid = ORDERED_BY_IT[what]
    text = OBSERVED.format(zero=zero, one=one, read="relaxed")
    for seed in SEEDS:
        run(text, zeros(3), seed=seed, grid=grid)


@pytest.mark.parametrize("what", NOT_ORDERED_BY_IT)
def test_who_observes_a_write_does_not_come_after_others(what: str) -> None:
    zero, one, grid = NOT_ORDERED_BY_IT[what]
    text = OBSERVED.format(zero=zero, one=one, read="relaxed")
    with pytest.raises(RaceError):
        run(text, zeros(4), grid=grid)


def test_a_counter_in_shared_memory_is_reset_by_its_last() -> None:
    text = """
        .shared .align 4 .b32 count;
        mov.u32 %r5, %laneid;
        setp.eq.u32 %p1, %t, 0;
        @%p1 st.shared.u32 [count], 0;
        bar.sync 0;
        setp.ne.u32 %p1, %r5, 0;
        @%p1 bra END;
        atom.relaxed.cta.shared.add.u32 %r7, [count], 1;
        setp.ne.u32 %p2, %r7, LAST;
        @%p2 bra END;
        st.shared.u32 [count], 0;
        END:
    """
    run(text.replace("LAST", "1"), zeros(1), block=64)
    with pytest.raises(RaceError):
        run(text.replace("LAST", "0"), zeros(1), block=64)


def test_a_flag_that_the_reader_wrote_last_is_not_blamed_on_the_reader() -> None:
    """Each CTA writes a word, counts itself by a relaxed addition, and reads the other's word once
    both are counted: the addition of the other CTA is to release, at the scope of the GPU.
    """
    text = """
        mov.u32 %r1, %ctaid.x;
        mad.wide.u32 %rd1, %r1, 4, %b0;
        st.global.u32 [%rd1], %r1;
        atom.relaxed.gpu.global.add.u32 %r2, [%b1], 1;
        WAIT: ld.acquire.gpu.global.u32 %r3, [%b1];
        setp.lt.u32 %p1, %r3, 2;
        @%p1 bra WAIT;
        xor.b32 %r4, %r1, 1;
        mad.wide.u32 %rd2, %r4, 4, %b0;
        ld.global.u32 %r5, [%rd2];
        """
    arrays = np.zeros(2, np.uint32), np.zeros(1, np.uint32)
    launch = kernel(text, 2).bind(arrays, grid=2, block=1, cooperative=True)
    said = r"follows the first access releases it: write atom\.release\.gpu"
    with pytest.raises(RaceError, match=said):
        launch.run()


# Warp 0 releases the flag and later writes it again, relaxed; warp 1 writes it in between, or not.
PATTERN = """
    shr.u32 %r1, %t, 5;
    setp.ne.u32 %p1, %l, 0;
    @%p1 ret;
    setp.eq.u32 %p2, %r1, 1;
    @%p2 bra SECOND;
    setp.eq.u32 %p2, %r1, 2;
    @%p2 bra READER;
    st.global.u32 [%b0], 7;
    st.{release}.gpu.global.u32 [%b0+4], 1;
    LOOK: ld.relaxed.gpu.global.u32 %r2, [%b0+4];
    setp.ne.u32 %p3, %r2, {seen};
    @%p3 bra LOOK;
    st.relaxed.gpu.global.u32 [%b0+4], 3;
    ret;
    SECOND: ld.relaxed.gpu.global.u32 %r2, [%b0+4];
    setp.eq.u32 %p3, %r2, 0;
    @%p3 bra SECOND;
    {between}
    ret;
    READER: ld.acquire.gpu.global.u32 %r2, [%b0+4];
    setp.ne.u32 %p3, %r2, 3;
    @%p3 bra READER;
    ld.global.u32 %r3, [%b0];
"""
WRITES = "st.relaxed.gpu.global.u32 [%b0+4], 2;"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "between", "seen", "verdict"),
    [
        ("release", "", 1, "verified"),
        ("release", WRITES, 2, "verified"),
        ("relaxed", WRITES, 2, "fault"),
    ],
)
def test_a_release_pattern_holds_whatever_others_write_in_between(
    release: str, between: str, seen: int, verdict: str
) -> None:
    text = PATTERN.format(release=release, between=between, seen=seen)
    launch = kernel(text, 1).bind([np.zeros(2, np.int32)], grid=1, block=96)
    assert check(launch).verdict == verdict
