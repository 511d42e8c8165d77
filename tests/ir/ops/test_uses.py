"""The operands, names and variables that ops read and bind."""

from __future__ import annotations

from tests.support.build import Builder
from tilepipe.ir import def_use as uses, ops


def test_what_is_bound_is_not_read() -> None:
    b = Builder()
    word = b.smem("word", 1, 1)
    b.setup_done()
    with b.role("one", warps=1):
        x = b.load(b.element(b.tile(word), 0, 0))
    loads = [op for role in b.finished().roles for op in role.body.ops if isinstance(op, ops.Load)]
    assert [uses.bound(op) for op in loads] == [(x,)]
    assert all(x not in list(uses.leaves(op)) for op in loads)
