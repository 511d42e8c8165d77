"""Roles whose agents all do the same, so that states that differ in their names alone are one."""

from __future__ import annotations

from tilepipe.ir import def_use, expressions as exprs, ops
from tilepipe.ir.program import Role, walk

_IDENTITY = {"warp", "thread", "warpgroup"}


def interchangeable(role: Role, setup: ops.Block) -> bool:
    """True if all agents of a role do the same: no op in it depends on which of them performs
    it.
    """
    if role.agents < 2 or role.agents > 4:
        return False
    for op in (*walk(setup), *walk(role.body)):
        if isinstance(op, ops.Elect) and op.scope == "role" and op in set(walk(role.body)):
            return False
        if op.facts.by_warp:
            return False
        if any(
            isinstance(leaf, exprs.Special) and leaf.name in _IDENTITY
            for leaf in def_use.leaves(op)
        ):
            return False
    return True
