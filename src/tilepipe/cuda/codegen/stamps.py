"""The code that a timed build adds to a kernel: at each point of `ir.stamps` a line of its own, so
that the rest is what any build has. `stamps.cuh` has the functions that it calls.

One lane of a warp notes a point. All lanes count the stamps of their warp, so that whichever of
them is elected knows where the next one belongs: after a branch that only some lanes take, they
agree anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilepipe.cuda.codegen.addresses import barrier
from tilepipe.cuda.codegen.context import Context, Module
from tilepipe.cuda.codegen.expressions import operand, parity, text
from tilepipe.cuda.codegen.stamp_order import LOOPS, follows_a_stamp
from tilepipe.errors import LimitError
from tilepipe.ir import ops
from tilepipe.ir.expressions import Vary
from tilepipe.ir.memory import BarrierRef
from tilepipe.ir.program import bodies, walk
from tilepipe.ir.stamps import is_noted, points, waits

# a word: the number of the point in the upper bits, then whether it is the end of a wait, the
# parity, 1 + the rank of the CTA that has the barrier or 0, and the index of the barrier
POINT_BIT, ENDED_BIT, PARITY_BIT, RANK_BIT = 20, 19, 18, 13
_MOST = 1 << (32 - POINT_BIT)


def prepare(module: Module) -> None:
    """Numbers the points.

    Raises:
        LimitError: there are more than a stamp can name.
    """
    if not module.timed:
        return
    found = points(module.kernel)
    if len(found) > _MOST:
        raise LimitError(
            f"'{module.kernel.name}' has {len(found):,} waits, arrivals, copies and MMAs; a build"
            f" that notes their times names at most {_MOST:,}. Use ctx.range for loops that Python"
            " unrolls.",
            module.kernel.loc,
        )
    for name in ("StampHead", "Stamps"):
        module.names.put(name, module.names.fresh(name))
    module.points = {point.op: n for n, point in enumerate(found)}


def parameters(module: Module) -> list[str]:
    """The declarations of the arguments after the program's: the memory for stamps, how many CTAs
    note theirs, and how many there is room for in each warp.
    """
    if not module.timed:
        return []
    return [f"{c_type} {name}" for c_type, name in zip(_TYPES, _given(module), strict=True)]


_TYPES = ("u8*", "u32", "u32")


def _given(module: Module) -> tuple[str, ...]:
    wanted = "stamp_memory", "stamped_ctas", "stamp_room"
    return tuple(module.names.of(("stamps", name), name) for name in wanted)


def begin(ctx: Context) -> None:
    """Prints the first line of a role."""
    if not ctx.module.timed:
        return
    given = _given(ctx.module)
    for c_type, name in zip(_TYPES, given, strict=True):
        ctx.outer[f"{c_type} {name}"] = name
    ctx.out.aside(f"Stamps {_stamps(ctx)} = {ctx.use('stamps_begin')}({', '.join(given)});")


def end(ctx: Context) -> None:
    """Prints the last line of a role."""
    if ctx.module.timed:
        given = ", ".join((_stamps(ctx), *_given(ctx.module)))
        ctx.out.aside(f"{ctx.use('stamps_end')}({given});")


def _stamps(ctx: Context) -> str:
    return ctx.temporary("stamps")


@contextmanager
def noted(op: ops.Op, ctx: Context) -> Iterator[None]:
    """Prints the stamps of an op: before it, and after it where it waits."""
    if not ctx.module.timed or ctx.role is None or ctx.unnoted:
        yield
        return
    if isinstance(op, LOOPS) and any(is_noted(x) for body in bodies(op) for x in walk(body)):
        ctx.out.aside(f"{ctx.use('stamps_read')}({_stamps(ctx)});")
    hoisted = _one_arrival(op, ctx)
    blocks = ""
    if isinstance(op, ops.MbarWait) and not ctx.diverged:
        blocks = ctx.fresh("blocks")
        about = f"{barrier(ctx, op.bar)}, {parity(ctx, op.phase)}, {_word(ctx, op)}"
        ctx.out.aside(f"const bool {blocks} = {ctx.use('stamp_blocks')}({_stamps(ctx)}, {about});")
    elif is_noted(hoisted or op):
        _note(ctx, hoisted or op, again=follows_a_stamp(ctx, hoisted or op))
    with ctx.without_stamps(hoisted is not None):
        yield
    if blocks:
        ctx.out.aside(f"if ({blocks}) {_call(ctx, 'stamp_warp', op, ended=True)}")
    elif waits(op):
        _note(ctx, op, ended=True)
    if not hoisted and not ctx.diverged and _parts_lanes(op):
        ctx.out.aside(f"{ctx.use('stamps_join')}({_stamps(ctx)});")


def other_branch_unnoted(ctx: Context, op: ops.If) -> bool:
    """True if the second branch of an If by lane is not noted, since the first is: lanes that are
    in different branches would write to the same place.
    """
    return ctx.module.timed and op.cond.vary is Vary.LANE and any(map(is_noted, walk(op.then)))


def _one_arrival(op: ops.Op, ctx: Context) -> ops.Op | None:
    """The arrival of an election that does nothing else. It is noted before the election, by all
    lanes: then they need not agree anew.
    """
    if isinstance(op, ops.Elect) and len(op.body.ops) == 1 and not ctx.diverged:
        (only,) = op.body.ops
        return only if isinstance(only, ops.MbarArrive) else None
    return None


def _parts_lanes(op: ops.Op) -> bool:
    """True if only some lanes execute what an op holds, and note something there."""
    if not isinstance(op, ops.Elect) and not (isinstance(op, ops.If) and op.cond.vary is Vary.LANE):
        return False
    return any(is_noted(x) for body in bodies(op) for x in walk(body))


def _note(ctx: Context, op: ops.Op, ended: bool = False, again: bool = False) -> None:
    function = "stamp_warp"
    if ctx.diverged:
        function = "stamp_lane" if ctx.elected else "stamp_lanes"
        again = again and ctx.elected
    function += "_again" if again else ""
    ctx.out.aside(_call(ctx, function, op, ended))
    mask = getattr(op, "multicast", None)
    if isinstance(op, ops.TmaLoad) and mask is not None:
        function = function.removesuffix("_again") + ("" if function == "stamp_lanes" else "_again")
        word = f"0x{ctx.module.points[op] << POINT_BIT | 1 << ENDED_BIT:08x}u"
        about = f"{word} | {operand(ctx, mask, 7)}"
        ctx.out.aside(f"{ctx.use(function)}({_stamps(ctx)}, {about});")


def _call(ctx: Context, function: str, op: ops.Op, ended: bool = False) -> str:
    return f"{ctx.use(function)}({_stamps(ctx)}, {_word(ctx, op, ended)});"


def _word(ctx: Context, op: ops.Op, ended: bool = False) -> str:
    word = f"0x{ctx.module.points[op] << POINT_BIT | ended << ENDED_BIT:08x}u"
    return " | ".join([word, *_about(ctx, op)])


def _about(ctx: Context, op: ops.Op) -> list[str]:
    """The code of the fields of a word: the barrier, its CTA, and the parity of a phase."""
    found = []
    bar = getattr(op, "bar", None)
    if isinstance(bar, BarrierRef):
        if bar.array.size > 1:
            found.append(f"u32({text(ctx, bar.index)})")
        if bar.cta is not None:
            found.append(f"(u32({text(ctx, bar.cta)}) + 1) << {RANK_BIT}")
    elif isinstance(op, ops.NamedSync | ops.NamedArrive) and op.group is not None:
        found.append(f"u32({text(ctx, op.group)})")
    if isinstance(op, ops.MbarWait):
        found.append(f"u32({parity(ctx, op.phase)} & 1) << {PARITY_BIT}")
    return found
