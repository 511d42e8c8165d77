"""Kernels that never end: a run with a limit of time ends in one error."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from tilepipe.errors import BindError, UnfinishedError
from tilepipe.ptx import Launch, load

# What the body of an endless loop does, between its label and its branch.
LOOPS = {
    "arithmetic": "add.u32 %r2, %r2, %r1;",
    "a store": "bar.warp.sync 0xffffffff; st.shared.u32 [words+8], %r2;",
    "lanes that part": """
        setp.lt.u32 %p1, %r1, 5;
        add.u32 %r2, %r2, 1;
        @%p1 bra AGAIN;
    """,
    "a test that another lane's work depends on": """
        mbarrier.test_wait.parity.shared.b64 %p1, [words], 0;
        add.u32 %r2, %r2, 1;
    """,
}


def launch(body: str, threads: int = 64, grid: int = 1) -> Launch:
    text = f"""
        .version 8.7
        .target sm_90a
        .address_size 64
        .visible .entry k() {{
        .reg .pred %p<9>; .reg .b32 %r<30>;
        .shared .align 8 .b64 words[4];
        mov.u32 %r1, %laneid;
        mov.u32 %r2, 0;
        {body}
        ret;
        }}
        """
    return load(text)["k"].bind([], grid=grid, block=threads)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS.keys())
def test_an_endless_loop_ends_in_one_error_that_names_where_it_is(body: str, seed: int) -> None:
    endless = launch(f"mbarrier.init.shared.b64 [words], 1;\nAGAIN: {body}\nbra AGAIN;", 32)
    with pytest.raises(
        UnfinishedError,
        match=r"kernel 'k' has not ended after 0\.1 s.*in the loop of PTX lines.*at PTX line \d+: ",
    ):
        endless.run(seed, timeout=0.1)


@pytest.mark.slow
def test_a_grid_of_many_ctas_that_each_end_is_given_up_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the first look at a clock after the end of its time; each look takes 10 ms here."""
    looks = itertools.count()
    monkeypatch.setattr(time, "thread_time", lambda: next(looks) / 100)
    with pytest.raises(UnfinishedError):
        launch("", 32, grid=1 << 18).run(timeout=0.1)
    assert next(looks) < 20


def test_a_grid_that_no_simulation_gets_through_is_refused() -> None:
    with pytest.raises(BindError, match=r"2,147,483,647 CTAs"):
        launch("", 32, grid=2**31 - 1)


def test_what_ends_in_time_gives_its_result() -> None:
    text = """
        .version 8.7
        .target sm_90a
        .address_size 64
        .visible .entry k(.param .u64 out) {
        .reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<2>;
        ld.param.u64 %rd1, [out];
        mov.u32 %r1, 0;
        AGAIN: add.u32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, 2000;
        @%p1 bra AGAIN;
        st.global.u32 [%rd1], %r1;
        ret;
        }
        """
    out = np.zeros(1, np.int32)
    load(text)["k"].bind([out], grid=1, block=1).run(timeout=60)
    assert out[0] == 2000
