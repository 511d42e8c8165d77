"""Which kernels draw their work from one counter, and share nothing else that decides."""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text, refused
from tilepipe.check.engine import tickets
from tilepipe.check.engine.tickets import counter_of
from tilepipe.check.engine.traced_front_end import TracedFrontEnd

Counter = tickets._Counter

# what makes the clusters of a kernel share more than the numbers of one counter
MORE = {
    "another element": "ctx.atomic_add(counter[1], 1)",
    "another tensor": "ctx.atomic_add(other[0], 1)",
    "what a reset has found": "with ctx.when(ctx.atomic_add(counter[0], -3) > 0): bar.arrive()",
    "what a sum has found": "with ctx.when(ctx.atomic_add(counter[0], n) > 0): bar.arrive()",
    "an order": "ctx.atomic_add(counter[0], 1, order='acq_rel')",
    "a maximum": "ctx.atomic_max(counter[0], 1)",
    "an exchange of another": "ctx.atomic_exchange(other[0], 1)",
    "a flag": "ctx.store(other[0], 1, order='release')",
    "a look at a flag": "ctx.store(word[0, 1], ctx.load(other[0], order='acquire'))",
    "a load of the counter": "ctx.store(word[0, 1], ctx.load(counter[0]))",
    "the start of other clusters": "ctx.clc_try_cancel(answer, bar)",
    "a store to the counter": "ctx.store(counter[0], 0)",
}
DRAW = "ctx.store(word[0, 0], ctx.atomic_add(counter[0], 1))"


def found(*ops: str, setup: str = "pass", after: str = "pass") -> Counter | None:
    """`counter_of` a kernel that does this by one lane of one warp, and `after` by all of them."""
    text = "\n".join(
        [
            'word = ctx.smem((1, 32), tp.int32, swizzle=0, name="word")[0]',
            'answer = ctx.smem((1, 4), tp.int32, swizzle=0, name="answer")[0]',
            'bar = tp.SharedMemBarrier.allocate(ctx, 1, "bar")',
            setup,
            "@ctx.role('draw', warps=1)",
            "def draw():",
            "    with ctx.elect_one():",
            *(f"        {op}" for op in ops),
            f"    {after}",
        ]
    )
    kernel = from_text(text, "def k(ctx, other, counter, n):")
    made = kernel.bind(np.zeros(4, np.int32), np.zeros(4, np.int32), 3)
    return counter_of(TracedFrontEnd(made.launch_args, "practice"))


@pytest.mark.parametrize("ops", MORE.values(), ids=MORE)
def test_a_kernel_whose_clusters_share_more(ops: str) -> None:
    assert found(DRAW, ops) is None


def test_a_kernel_whose_clusters_test_barriers() -> None:
    test = "with ctx.when(bar.try_wait(0)): ctx.store(other[ctx.lane], 1)"
    assert found(DRAW, after=test) is None
    assert found(DRAW, after="ctx.store(other[ctx.lane], 1)") is not None


def test_draws_and_resets_of_one_counter() -> None:
    """A reset is an add of something else of which nobody uses what it has found."""
    counter = found(DRAW, "ctx.atomic_add(counter[0], 1)", "ctx.atomic_add(counter[0], n)")
    assert counter is not None
    assert (counter.number, counter.at, len(counter.draws)) == (1, (0,), 2)


def test_an_element_that_is_not_the_first() -> None:
    counter = found("ctx.store(word[0, 0], ctx.atomic_add(counter[2], 1))")
    assert counter is not None
    assert (counter.number, counter.at) == (1, (2,))


def test_other_tensors_are_read_and_written() -> None:
    counter = found(DRAW, "ctx.store(other[0], ctx.load(other[1]))")
    assert counter is not None
    assert counter.number == 1


def test_an_element_that_is_computed() -> None:
    assert found("ctx.store(word[0, 0], ctx.atomic_add(counter[n], 1))") is None


def test_none_draws() -> None:
    assert found("ctx.store(other[0], 1)") is None


def test_no_draw_stands_in_the_set_up() -> None:
    """So that `counter_of` need not look there."""
    with refused(tp.TraceError, "this belongs in a role"):
        found(DRAW, setup="ctx.atomic_add(counter[0], 1)")


@pytest.mark.parametrize("identity", ["block_id", "cluster_id"])
def test_clusters_are_alike_unless_one_asks_which_it_is(identity: str) -> None:
    alike, apart = found(DRAW), found(DRAW, f"ctx.store(other[ctx.{identity}], 1)")
    assert alike is not None
    assert apart is not None
    assert (alike.alike, apart.alike) == (True, False)
    ranks = found(DRAW, "ctx.store(other[ctx.cta_rank], 1)")
    assert ranks is not None
    assert ranks.alike
