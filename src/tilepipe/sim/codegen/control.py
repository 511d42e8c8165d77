"""Loops, branches, and who executes a block, as Python source."""

from __future__ import annotations

from tilepipe.errors import SimFault
from tilepipe.ir import ops
from tilepipe.ir.program import walk
from tilepipe.machine.thread_masks import WARP_MASK
from tilepipe.sim import election, runtime
from tilepipe.sim.codegen.functions import Function, defines


@defines(ops.For, runtime.trips)
def _(f: Function, op: ops.For) -> None:
    bounds = (f.x.scalar(b, "a bound of a loop", op) for b in (op.start, op.stop, op.step))
    trips = f"range({', '.join(bounds)})"
    at, name = len(f.body), f.x.bind(op.index, False)
    f.nested(f"for {name} in {trips}:", op, op.body)
    # a loop without a yield looks at the clock itself
    if not any("yield" in text for _, text, _ in f.body[at:]):
        f.body[at] = (f.depth, f"for {name} in trips(m, {trips}):", op.loc)


@defines(ops.While, runtime.turns)
def _(f: Function, op: ops.While) -> None:
    turns = f.names.fresh("turns")
    f.emit(f"{turns} = turns(m, ag, {f.x.site})", op)
    f.nested(f"while {f.x.read(op.var)[0]} and next({turns}):", op, op.body)


@defines(ops.If, runtime.lane_bits)
def _(f: Function, op: ops.If) -> None:
    text, array = f.x(op.cond)
    if array:
        _masked(f, op, text)
        return
    f.nested(f"if {text}:", op, op.then)
    if op.orelse.ops:
        f.nested("else:", op, op.orelse)


def _masked(f: Function, op: ops.If, text: str) -> None:
    """A branch that only some threads take."""
    bits = f"lane_bits({text}, {f.x.base})"
    if f.x.constant_for_life(op.cond):
        bits = f.x.hoist(bits, "bits")
    outer = f.mask_text
    name = f.names.fresh("mask")
    f.emit(f"{name} = {bits} & {outer}", op)
    f.nested(f"if {name}:", op, op.then, name)
    if op.orelse.ops:
        other = f.names.fresh("mask")
        f.emit(f"{other} = {outer} & ~{name}", op)
        f.nested(f"if {other}:", op, op.orelse, other)


@defines(ops.Elect, election.elected, election.elected_of_warps)
def _(f: Function, op: ops.Elect) -> None:
    """One lane: of each warp, or of the group's first warp (none where that warp is masked out)."""
    lane = f.module.elects
    if op.scope == "warp":
        if isinstance(f.mask, int) and lane is not None:
            mask: int | str = election.elected_of_warps(f.mask, lane)
        else:
            mask = _elected(f, "elected_of_warps", f.mask)
        f.inline("# one lane of each warp", op.body, mask)
        return
    if f.x.warp:
        return
    first = "ag.first_warp" if f.x.in_setup else "ag.index"
    test = f"{first} == 0" if op.scope == "role" else "True" if f.group else f"{first} % 4 == 0"
    alone = f.role is not None and f.role.agents == 1 and not f.x.in_setup
    if isinstance(f.mask, int):
        active = f.mask & WARP_MASK
        if not active:
            return
        if lane is not None:
            mask = election.elected(active, lane)
        else:
            mask = _elected(f, "elected", active)
    else:
        mask = _elected(f, "elected", f"{f.mask} & {WARP_MASK:#x}")
        test = mask if alone or test == "True" else f"{test} and {mask}"
    if isinstance(f.mask, int) and (alone or test == "True"):
        f.inline(f"# one lane of the {op.scope}", op.body, mask)
    else:
        f.nested(f"if {test}:", op, op.body, mask)


def _elected(f: Function, function: str, active: int | str) -> str:
    """A name for the lane, or the one of each warp, that is elected among those of a mask; computed
    once where the mask is static.
    """
    if isinstance(active, int):
        return f.x.hoist(f"{function}({active:#x}, m.world.elected)", "elected")
    name = f.names.fresh("elected")
    lane = "m.world.elected" if f.module.elects is None else str(f.module.elects)
    f.emit(f"{name} = {function}({active}, {lane})")
    return name


@defines(ops.PerWarp)
def _(f: Function, op: ops.PerWarp) -> None:
    """Unrolled: each warp of the group runs the body with its own threads."""
    for inner in walk(op.body):
        if isinstance(inner, (ops.NamedSync, ops.ClusterWait, ops.SetupBarrier)):
            raise SimFault(
                f"{type(inner).__name__} inside ctx.per_warp(): the simulator runs the warps"
                " of the group one"
                " after the other, so a barrier between them must stand outside.",
                inner.loc,
            )
    outer = f.mask
    for w in range(4):
        f.x.warp = w
        part = WARP_MASK << (32 * w)
        bind = f"{f.x.bind(op.index, False)} = {w}"
        if isinstance(outer, int):
            if outer & part:
                f.emit(bind, op)
                f.inline(f"# warp {w}", op.body, outer & part)
        else:
            mask = f.names.fresh("mask")
            f.emit(f"{mask} = {outer} & {part:#x}", op)
            f.emit(bind, op)
            f.nested(f"if {mask}:", op, op.body, mask)
    f.x.warp = None
