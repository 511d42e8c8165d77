"""What ops read and bind: `ir.uses` against the ops' own fields."""

from __future__ import annotations

import pytest

from tests.support.build import Builder
from tilepipe.ir import def_use as uses
from tilepipe.ir import ops

OPS = [
    x
    for x in vars(ops).values()
    if isinstance(x, type) and issubclass(x, ops.Op) and x is not ops.Op
]


@pytest.mark.parametrize("op", OPS, ids=lambda x: x.__name__)
def test_every_local_of_an_op_is_one_that_it_binds(op: type[ops.Op]) -> None:
    """What an op reads is an expression; a field that can only be a name is one that it defines."""
    names = {
        name
        for c in op.__mro__
        for name, kind in vars(c).get("__annotations__", {}).items()
        if kind in ("Local", "Local | None")
    }
    assert names == set(uses._BINDS.get(op, ()))


def test_what_is_bound_is_not_read() -> None:
    b = Builder()
    word = b.smem("word", 1, 1)
    b.setup_done()
    with b.role("one", warps=1):
        x = b.load(b.element(b.tile(word), 0, 0))
    loads = [op for role in b.finished().roles for op in role.body.ops if isinstance(op, ops.Load)]
    assert [uses.bound(op) for op in loads] == [(x,)]
    assert all(x not in list(uses.leaves(op)) for op in loads)
