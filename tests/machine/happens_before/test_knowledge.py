"""The bits that stand for accesses: what is taken back, and when it may mean something else."""

from __future__ import annotations

from dataclasses import replace

from tests.examples.ladder import EXAMPLES, load
from tilepipe.check import check
from tilepipe.check.mutation.mutants import mutants
from tilepipe.machine.happens_before.accesses import COMPACT_AT, AccessBits


class Knower:
    """Holds bits."""

    def __init__(self) -> None:
        self.knows = 0

    def forget(self, dead: int) -> None:
        self.knows &= ~dead


def test_a_bit_rests_before_it_means_something_else() -> None:
    """An op that has knowledge in hand while bits are taken back may give it to a holder
    afterwards.
    """
    holder = Knower()
    order = AccessBits(lambda: [holder])
    old = [order.new_bit() for _ in range(COMPACT_AT)]
    in_hand = sum(old)
    for bit in old:
        order.retire_bit(bit)
    fresh = [order.new_bit()]  # goes through the holders
    holder.knows |= in_hand
    fresh += [order.new_bit() for _ in range(COMPACT_AT)]
    assert not any(bit & holder.knows for bit in fresh)
    for bit in fresh:
        order.retire_bit(bit)
    again = [order.new_bit() for _ in range(COMPACT_AT)]
    assert set(again) == set(old)
    assert holder.knows == 0


def test_a_store_that_nobody_waits_for_is_nobodys_knowledge() -> None:
    """A kernel that goes through enough bits: the epilogue's last wait for its stores is
    missing.
    """
    launch = load(EXAMPLES / "08_tensor_memory.py")(0).launch_args
    without = next(
        m
        for m in mutants(launch.kernel, ["drop"])
        if "tma_store_wait pending=0 read=False" in m.what
    )
    verdict = check(replace(launch, kernel=without.kernel), shorten=False)
    assert [fault.kind for fault in verdict.faults] == ["ExitError"]
    assert "CTA 0 exits while a TMA store may still read out[0]" in verdict.faults[0].message
