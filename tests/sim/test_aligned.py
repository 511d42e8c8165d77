"""Ops that a whole warp or warpgroup executes together; election; where a fragment's set columns
lie; printing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.build import LANE, THREAD, Builder, binary, special
from tilepipe.errors import DeadlockError, SimFault
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import const
from tilepipe.ir.fragment import Fragment

WARP = special("warp_in_group")

Use = Callable[[Builder, Fragment], None]
USES: dict[str, tuple[Use, str]] = {
    "fragment_set": (lambda b, f: b.do(ops.FragmentSet, f, const(2.0)), "warpgroup"),
    "fragment_reduce": (
        lambda b, f: b.do(ops.FragmentReduce, b.fragment("row", 64, 1), b.value(f), "add"),
        "warpgroup",
    ),
    "fragment_store": (
        lambda b, f: b.do(ops.FragmentStore, b.tile(b.kernel.buffers[0]), b.value(f)),
        "warpgroup",
    ),
    "fragment_load": (
        lambda b, f: b.do(ops.FragmentLoad, f, b.tile(b.kernel.buffers[0])),
        "warpgroup",
    ),
    "wgmma_fence": (lambda b, f: b.do(ops.WgmmaFence), "warpgroup"),
    "wgmma_commit": (lambda b, f: b.do(ops.WgmmaCommit), "warpgroup"),
    "wgmma_wait": (lambda b, f: b.do(ops.WgmmaWait, 0), "warpgroup"),
    "cluster_arrive": (lambda b, f: b.do(ops.ClusterArrive), "warpgroup"),
    "named_sync": (lambda b, f: b.do(ops.NamedSync, b.kernel.named_barriers[0]), "warp"),
}


@pytest.mark.parametrize("scope", ["lanes", "elected", "per warp"])
@pytest.mark.parametrize("kind", USES)
def test_some_threads_cannot_execute_what_all_execute_together(kind: str, scope: str) -> None:
    use, unit = USES[kind]
    b = Builder()
    b.smem("tile", 64, 16, dtype=dtypes.float32)
    b.named("meet", 128)
    b.setup_done()
    with b.role("group", warpgroups=1):
        f = b.fragment("f", 64, 16)
        b.do(ops.FragmentSet, f, const(1.0))
        if scope == "lanes":
            with b.when(binary("lt", LANE, 5)):
                use(b, f)
        elif scope == "elected":
            with b.elect():
                use(b, f)
        else:
            with b.per_warp(), b.when(binary("eq", LANE, 0)):
                use(b, f)
    where = "warp" if scope == "per warp" else unit
    words = (
        rf"{kind}.*: \d+ of (32|128) threads of role 'group' execute it, but all threads of "
        rf"the {where} must, together"
    )
    if (kind, scope) == ("named_sync", "per warp"):
        words = "NamedSync inside ctx.per_warp"
    with pytest.raises(SimFault, match=words + r"(.|\n)*test_aligned"):
        b.run()


@pytest.mark.parametrize("scope", ["warpgroup", "role"])
@pytest.mark.parametrize(("first", "arrives"), [(0, True), (32, False), (40, False)])
def test_the_elected_thread_is_of_the_first_warp(scope: str, first: int, arrives: bool) -> None:
    """Where the first warp is masked out, nobody is elected."""
    b = Builder()
    full = b.barriers("full")
    b.setup_done()
    with b.role("group", warpgroups=1), b.when(binary("ge", THREAD, first)), b.elect(scope):
        b.arrive(b.bar(full))
    assert b.run().completions == {"full": [[int(arrives)]]}


def test_per_warp_leaves_out_warps_without_threads() -> None:
    b = Builder()
    full = b.barriers("full", count=2)
    b.setup_done()
    with b.role("group", warpgroups=1), b.when(binary("ge", WARP, 2)), b.per_warp(), b.elect():
        b.arrive(b.bar(full))
    assert b.run().completions == {"full": [[1]]}


@pytest.mark.parametrize(
    ("value", "col", "want"),
    [
        ("scalar", 0, [5] * 16),
        ("scalar", 6, [1] * 6 + [5] * 10),
        ("row", 0, [3] * 16),
        ("row", 10, [1] * 10 + [3] * 6),
        ("columns", 4, [1] * 4 + [3] * 8 + [1] * 4),
    ],
)
def test_which_columns_a_set_fills(value: str, col: int, want: list[int]) -> None:
    """A scalar or one value a row fills the columns from `col` on; several columns fill as many."""
    b = Builder()
    tile, out, meet = (
        b.smem("tile", 64, 16, dtype=dtypes.float32),
        b.tensor("out", dtypes.float32, box=(64, 16)),
        b.named("meet", 128),
    )
    b.setup_done()
    with b.role("one", warpgroups=1):
        x, row, part = b.fragment("x", 64, 16), b.fragment("row", 64, 1), b.fragment("part", 64, 8)
        for fragment, start in ((x, 1.0), (row, 3.0), (part, 3.0)):
            b.do(ops.FragmentSet, fragment, const(start))
        source = {"scalar": const(5.0), "row": b.value(row), "columns": b.value(part)}[value]
        b.do(ops.FragmentSet, x, source, col)
        b.do(ops.FragmentStore, b.tile(tile), b.value(x))
        b.do(ops.FenceProxyAsync)
        b.do(ops.NamedSync, meet)
        with b.elect("warpgroup"):
            b.store_tile(out, (0, 0), b.tile(tile))
            b.do(ops.TmaStoreCommit)
            b.do(ops.TmaStoreWait, 0, False)
    arrays = {"out": np.zeros((64, 16), np.float32)}
    b.run(**arrays)
    assert arrays["out"].tolist() == [want] * 64


def test_print_keeps_other_braces(capsys: pytest.CaptureFixture[str]) -> None:
    b = Builder()
    b.setup_done()
    with b.role("one", warps=1):
        b.do(ops.Print, "{x} {} {0}", (const(1),))
        with b.when(binary("eq", LANE, 3)):
            b.do(ops.Print, "{{{}}}", (LANE,))
    b.run()
    assert capsys.readouterr().out.splitlines() == ["{x} 1 {0}", "{{3}}"]


def test_a_barrier_that_starts_anew_starts_its_parity_anew() -> None:
    b = Builder()
    bar = b.barriers("bar")
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        for phase in (0, 1):
            b.arrive(b.bar(bar))
            b.wait(b.bar(bar), const(phase))
        b.do(ops.MbarInval, b.bar(bar))
        b.do(ops.MbarInit, b.bar(bar), const(1))
        b.arrive(b.bar(bar))
        b.wait(b.bar(bar), const(0))
        b.wait(b.bar(bar), const(1))
    with pytest.raises(
        DeadlockError, match=r"role 'one' +test_aligned\.py:\d+ +bar +1 +0 +1 of 1 arrivals"
    ):
        b.run()
