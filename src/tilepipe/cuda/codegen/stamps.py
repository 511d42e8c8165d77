"""The code that a timed build adds to a kernel: at each point of `ir.stamps` a line of its own, so
that the rest is what any build has. `stamps.cuh` has the functions that it calls.

A warp keeps its stamps in its lanes, and stores 32 of them together; a lane that executes a branch
alone stores its own at once. All lanes count the stamps of their warp, so that whichever of them is
elected knows where the next one belongs: after a branch that only some lanes take, they agree anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilepipe.cuda.codegen import election
from tilepipe.cuda.codegen.addresses import barrier
from tilepipe.cuda.codegen.context import Context, Module
from tilepipe.cuda.codegen.expressions import operand, parity, text
from tilepipe.cuda.codegen.stamp_order import LOOPS, follows_a_stamp
from tilepipe.cuda.codegen.synchronisation import acquiring
from tilepipe.errors import LimitError
from tilepipe.ir import ops
from tilepipe.ir.expressions import Vary
from tilepipe.ir.implied import implied
from tilepipe.ir.memory import BarrierRef
from tilepipe.ir.program import bodies, walk
from tilepipe.ir.stamps import is_noted, points, waits

# a word: the number of the point in the upper bits, then whether it is the end of a wait, the
# parity, 1 + the rank of the CTA that has the barrier or 0, and the index of the barrier
POINT_BIT, ENDED_BIT, PARITY_BIT, RANK_BIT = 20, 19, 18, 13
_MOST = 1 << (32 - POINT_BIT)
# Stamps that a warp makes before it looks whether it is time to store those that it keeps: fewer
# than the STAMPS_KEPT of `stamps.cuh`, also where one more wait blocks.
_UNLOOKED = 8
_ARRIVALS = ops.MbarArrive, ops.MbarExpect, ops.NamedArrive


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
    for name in ("StampHead", "Stamps", "STAMP_NONE"):
        module.names.put(name, module.names.fresh(name))
    module.points = {point.op: n for n, point in enumerate(found)}
    module.implied = implied(module.kernel).begins


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
    within = [body for body in bodies(op) if any(map(is_noted, walk(body)))]
    loop = isinstance(op, LOOPS) and bool(within)
    if loop:
        ctx.out.aside(f"{ctx.use('stamps_read')}({_stamps(ctx)});")
    hoisted = _hoisted(op, ctx)
    late: list[str] = []
    blocks = ""
    if isinstance(op, ops.MbarWait) and not ctx.diverged:
        blocks = ctx.fresh("blocks")
        test = acquiring(ctx, "stamp_blocks", op.bar)
        given = f"{barrier(ctx, op.bar)}, {parity(ctx, op.phase)}, {_word(ctx, op)}"
        ctx.out.aside(f"const bool {blocks} = {ctx.use(test)}({_stamps(ctx)}, {given});")
        ctx.out.aside(f"if ({blocks})")  # the wait itself, which is the next line
    elif hoisted or (is_noted(op) and op not in ctx.module.implied):
        first = hoisted[0] if hoisted else op
        again = follows_a_stamp(ctx, first)
        if hoisted or (isinstance(op, _ARRIVALS) and (ctx.elected or not ctx.diverged)):
            # Others wait for these, and nobody for the notes.
            if not again:
                ctx.out.aside(f"{ctx.use('stamps_read')}({_stamps(ctx)});")
            late = [_note(ctx, x, again=True) for x in hoisted or [op]]
        else:
            _made(ctx, _note(ctx, op, again))
    joins = "" if hoisted or ctx.diverged or not _parts_lanes(op) else _joins(op, ctx)
    if len(within) > 1:
        _look(ctx)
    before = ctx.unlooked = _UNLOOKED if loop else ctx.unlooked
    with ctx.without_stamps(bool(hoisted)):
        yield
    ctx.unlooked = max(before, ctx.unlooked)
    for note in late:
        _made(ctx, note)
    if blocks:
        _made(ctx, f"if ({blocks}) {_call(ctx, 'stamp_warp', op, ended=True)}", 2)
    elif waits(op):
        _made(ctx, _note(ctx, op, ended=True))
    if joins:
        ctx.out.aside(joins)
        ctx.unlooked = 0


def _made(ctx: Context, note: str, stamps: int = 1) -> None:
    """Prints a note, and after some of them a look whether to store what the warp keeps."""
    ctx.out.aside(note)
    if ctx.diverged:  # a lane stores its own at once
        return
    ctx.unlooked += stamps
    if ctx.unlooked >= _UNLOOKED:
        _look(ctx)


def _look(ctx: Context) -> None:
    if not ctx.diverged:
        ctx.out.aside(f"{ctx.use('stamps_look')}({_stamps(ctx)});")
        ctx.unlooked = 0


def other_branch_unnoted(ctx: Context, op: ops.If) -> bool:
    """True if the second branch of an If by lane is not noted, since the first is: lanes that are
    in different branches would write to the same place.
    """
    return ctx.module.timed and op.cond.vary is Vary.LANE and any(map(is_noted, walk(op.then)))


def _hoisted(op: ops.Op, ctx: Context) -> list[ops.Op]:
    """Those of an election that are noted after it, by all lanes, which then need not agree anew
    and store no note of their own: of one that only arrives, copies and commits.
    """
    if not isinstance(op, ops.Elect) or ctx.diverged or _several_agents(op, ctx):
        return []
    body = op.body.ops
    if not body or any(not is_noted(x) or waits(x) for x in body):
        return []
    return [x for x in body if x not in ctx.module.implied]


def _several_agents(op: ops.Elect, ctx: Context) -> bool:
    """True if an election among a role's agents: those that are not elected note nothing."""
    return op.scope == "role" and ctx.role is not None and ctx.role.agents > 1


def _parts_lanes(op: ops.Op) -> bool:
    """True if only some lanes execute what an op holds, and note something there."""
    if not isinstance(op, ops.Elect) and not (isinstance(op, ops.If) and op.cond.vary is Vary.LANE):
        return False
    return any(is_noted(x) for body in bodies(op) for x in walk(body))


def _joins(op: ops.Op, ctx: Context) -> str:
    """The line after a branch that some lanes take: all lanes know how many stamps there are.
    Before the branch, it prints what that line needs.
    """
    before = ctx.fresh("stamps_before")
    ctx.out.aside(f"const u32 {before} = {_stamps(ctx)}.at;")
    if not isinstance(op, ops.Elect) or any(map(bodies, op.body.ops)):
        return f"{ctx.use('stamps_join')}({_stamps(ctx)}, {before});"
    count = sum(_notes(x, ctx) for x in op.body.ops)
    first = election.first_warp(ctx, op.scope)
    made = str(count) if first is None else f"{first} == 0 ? {count} : 0"
    return f"{ctx.use('stamps_skip')}({_stamps(ctx)}, {before}, {made});"


def _notes(op: ops.Op, ctx: Context) -> int:
    """The number of notes that one lane makes of an op."""
    if not is_noted(op):
        return 0
    begins = op not in ctx.module.implied
    return begins + waits(op) + (getattr(op, "multicast", None) is not None)


def _note(ctx: Context, op: ops.Op, again: bool = False, ended: bool = False) -> str:
    """The code of a note. `again`: at the time of the last one."""
    function = "stamp_warp"
    if ctx.diverged:
        function = "stamp_lane" if ctx.elected else "stamp_lanes"
        again = again and ctx.elected
    note = _call(ctx, function + ("_again" if again else ""), op, ended)
    mask = getattr(op, "multicast", None)
    if isinstance(op, ops.TmaLoad) and mask is not None:
        function += "" if function == "stamp_lanes" else "_again"
        word = f"0x{ctx.module.points[op] << POINT_BIT | 1 << ENDED_BIT:08x}u"
        note += f" {ctx.use(function)}({_stamps(ctx)}, {word} | {operand(ctx, mask, 7)});"
    return note


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
