"""What a site says of its op by the op's facts alone, whatever the op is called."""

from __future__ import annotations

from tilepipe.ir import ops
from tilepipe.ir.location import Loc
from tilepipe.machine.sites import Site


def sites() -> dict[str, Site]:
    """A site of each op class, all of one kind."""
    loc = Loc("ops.py", 1)
    return {
        op.kind: Site(i, loc, "an op", "an op", "r", op.facts, op.sync & ~op.facts.sync)
        for i, op in enumerate(ops.EVERY)
    }


def test_which_ops_wait_for_others() -> None:
    waits = {kind for kind, site in sites().items() if site.waits}
    assert waits == {
        "cluster_wait",
        "grid_dependency_wait",
        "mbar_try_wait",
        "mbar_wait",
        "named_sync",
        "tma_store_wait",
        "tmem_alloc",
        "tmem_wait_load",
        "tmem_wait_store",
        "wgmma_wait",
    }


def test_which_ops_move_tiles_by_tma() -> None:
    assert {kind for kind, site in sites().items() if site.fills} == {"tma_load"}
    stores = {kind for kind, site in sites().items() if site.stores}
    assert stores == {"tma_store", "tma_reduce"}
