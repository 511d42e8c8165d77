"""The mbarrier against the simplest model that could be right: a list of what has happened in the
phase.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, strategies as st

from tests.support.build import Builder
from tilepipe.errors import BarrierError
from tilepipe.ir import ops
from tilepipe.ir.expressions import const


@dataclass
class Model:
    """A phase is over when `count` arrivals have been made and as many bytes came as were
    announced.
    """

    count: int
    arrivals: int = 0
    announced: int = 0
    delivered: int = 0
    completed: list[int] = field(default_factory=list)

    def step(self, kind: str, n: int) -> bool:
        """Performs one operation; False where it is a fault."""
        if kind in ("arrive", "expect"):
            times = n if kind == "arrive" else 1
            if self.arrivals + times > self.count:
                return False
            self.arrivals += times
            self.announced += n if kind == "expect" else 0
        elif kind == "announce":
            self.announced += n
        else:
            self.delivered += n
        if self.arrivals == self.count:
            if self.delivered > self.announced:
                return False
            if self.delivered == self.announced:
                self.completed.append(len(self.completed))
                self.arrivals = self.announced = self.delivered = 0
        return True


steps = st.lists(
    st.tuples(st.sampled_from(["arrive", "expect", "announce", "credit"]), st.integers(1, 3)),
    min_size=1,
    max_size=24,
)


@pytest.mark.slow
@given(count=st.integers(1, 4), program=steps)
def test_against_the_model(count: int, program: list[tuple[str, int]]) -> None:
    model = Model(count)
    b = Builder()
    bar = b.barriers("bar", count=count)
    b.setup_done()
    good = True
    with b.role("one", warps=1), b.elect():
        for kind, n in program:
            if kind == "arrive":
                b.arrive(b.bar(bar), n)
            elif kind == "credit":
                b.do(ops.MbarCompleteTx, b.bar(bar), const(16 * n))
            else:
                b.expect(b.bar(bar), 16 * n, arrive=kind == "expect")
            good = model.step(kind, n if kind == "arrive" else 16 * n)
            if not good:
                break
    if good:
        assert b.run().completions == {"bar": [[len(model.completed)]]}
    else:
        with pytest.raises(BarrierError, match=r"over-arrival|more bytes arrive"):
            b.run()


@pytest.mark.parametrize("count", [0, 1 << 20])
def test_count_range(count: int) -> None:
    b = Builder()
    b.barriers("bar", count=count)
    b.setup_done()
    with b.role("one", warps=1):
        pass
    with pytest.raises(BarrierError, match=r"1 \.\. 1048575"):
        b.run()


def test_transaction_range() -> None:
    b = Builder()
    bar = b.barriers("bar", count=2)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        b.expect(b.bar(bar), 1 << 20)
    with pytest.raises(BarrierError, match="1,048,576 bytes"):
        b.run()


@pytest.mark.parametrize("seed", range(4))
def test_parity_waits_follow_the_phases(seed: int) -> None:
    """wait(1) on a fresh barrier passes; then 0, 1, 0 ... wait for each phase in turn, and again
    for the last one passed.
    """
    b = Builder()
    full, empty = b.barriers("full"), b.barriers("empty")
    b.setup_done()
    with b.role("left", warps=1), b.elect():
        for i in range(5):
            b.wait(b.bar(empty), const((i + 1) & 1))
            b.arrive(b.bar(full))
    with b.role("right", warps=1), b.elect():
        for i in range(5):
            b.wait(b.bar(full), const(i & 1))
            b.wait(b.bar(full), const(i & 1))
            b.arrive(b.bar(empty))
    assert b.run(seed=seed).completions == {"full": [[5]], "empty": [[5]]}


def test_skipping_a_phase_is_reported() -> None:
    b = Builder()
    full = b.barriers("full")
    b.setup_done()
    with b.role("left", warps=1), b.elect():
        b.arrive(b.bar(full))
        b.wait(b.bar(full), 2)
    with pytest.raises(
        BarrierError,
        match="waits for phase 2 of full, but phase 1 is still in progress: it skipped a phase",
    ):
        b.run()
