"""Blocks executed by one lane, or by each warp on its own: `ctx.elect_one`, `ctx.per_warp`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Vary
from tilepipe.ir.location import caller
from tilepipe.ir.program import WARP, Role
from tilepipe.lang.control.blocks import refuse_jumps
from tilepipe.lang.handles import signals
from tilepipe.lang.tracing.scopes import Mask
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, traced_value

SCOPES = ("warp", "warpgroup", "role")


@contextmanager
def elect(tracer: Tracer, scope: str) -> Iterator[None]:
    """`with ctx.elect_one():` traces the body as executed by one lane."""
    if scope not in SCOPES:
        raise TraceError(f'elect_one takes "warp", "warpgroup" or "role", not {scope!r}', caller())
    parent = tracer.scope
    if parent.inside("elect") is not None:
        raise TraceError("elect_one inside elect_one: one lane is elected already", caller())
    role = tracer.role.role
    if scope == "warpgroup" and not role.is_warpgroup:
        raise TraceError(
            f"elect_one(\"warpgroup\") needs a role of warpgroups; '{role.name}' is one of warps",
            caller(),
        )
    active = None if parent.active is None else _elected(parent.active, scope, role)
    refuse_jumps("ctx.elect_one", "the rest of the block would be dropped without a trace of it")
    op = ops.Elect(caller(), scope, ops.Block())
    with tracer.open("elect", op.body, active=active) as inner:
        inner.splits = Vary.LANE
        yield
    tracer.emit(op)
    signals.merge_signals(tracer.scope, inner)


def _elected(active: Mask, scope: str, role: Role) -> Mask:
    """One lane, the lowest active one, of each warp, or of the first warp of the warpgroup or role.

    Raises:
        TraceError: an enclosing condition excludes that first warp, so no lane would be elected.
    """
    lanes = active.reshape(*active.shape[:2], -1, WARP)
    chosen = lanes & (np.cumsum(lanes, axis=-1) == 1)
    if scope != "warp":
        chosen[:, :, 1:] = False
    if scope == "role":
        chosen[:, 1:] = False
    if active.any() and not chosen.any():
        raise TraceError(
            f'elect_one("{scope}") elects a lane of the first warp of the {scope}, which an'
            " enclosing condition of role"
            f" '{role.name}' excludes: no lane would be elected",
            caller(),
        )
    elected: Mask = chosen.reshape(active.shape)
    return elected


@contextmanager
def per_warp(tracer: Tracer) -> Iterator[Value]:
    """`with ctx.per_warp() as w:` traces the body as executed by each warp of the warpgroup
    separately.
    """
    role = tracer.role.role
    if not role.is_warpgroup:
        raise TraceError(
            f"per_warp needs a role of warpgroups; each warp of '{role.name}' runs on its own"
            " already",
            caller(),
        )
    if tracer.scope.inside("per_warp") or tracer.scope.inside("elect"):
        raise TraceError("per_warp inside per_warp or elect_one", caller())
    refuse_jumps("ctx.per_warp", "the rest of the block would be dropped without a trace of it")
    index = tracer.local("w", dtypes.int32, nonneg=True)
    op = ops.PerWarp(caller(), index, ops.Block())
    with tracer.open("per_warp", op.body, active=tracer.scope.active) as inner:
        inner.splits = Vary.WARP
        yield traced_value(tracer, index)
    tracer.emit(op)
    signals.merge_signals(tracer.scope, inner)
