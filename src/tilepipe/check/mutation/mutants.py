"""Mutants of structure: an op that synchronises is missing, duplicated, or in another place.

`value_mutants` has the mutants in which a number is wrong. Every op that synchronises is mutated,
also the waits, arrives, expects, fences and commits that the pipelines emit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tilepipe.check.mutation import rewriting
from tilepipe.check.mutation.rewriting import Place
from tilepipe.check.mutation.value_mutants import VALUE_OPERATORS
from tilepipe.ir import ops, printer
from tilepipe.ir.expressions import Const
from tilepipe.ir.facts import Resource, Sync
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import Cursor
from tilepipe.ir.program import Kernel, walk


def _subject(op: type[ops.Op]) -> str:
    """The name of a synchronising op in the names of mutants; "" for other ops."""
    facts, sync = op.facts, op.sync
    waits = Sync.WAIT in sync
    if facts.commits or facts.orders:
        return "commit" if facts.commits else "fence"
    if facts.awaits or (waits and Sync.ARRIVE not in sync):
        return "wait"
    if facts.takes is Resource.TENSOR_MEMORY or facts.gives is Resource.TENSOR_MEMORY:
        return "alloc" if facts.takes else "dealloc"
    if waits:
        return "named sync" if "bar" in op.given else "syncwarp"
    if facts.unit is None and sync & (Sync.EXPECT | Sync.CREDIT):
        return "expect"
    if op is ops.CursorStep:
        return "step"
    return {Sync.INITIALISE: "init", Sync.ARRIVE: "arrive"}.get(sync, "")


SUBJECTS = {op: name for op in ops.EVERY if (name := _subject(op))}
# an init is followed by the end of set-up; a step is the ring's, between its ops
_NOT_MOVED = ("init", "alloc", "step")
_NOT_TWICE = (ops.SetupBarrier, ops.TmemAlloc)


@dataclass(frozen=True, eq=False, slots=True)
class Mutant:
    """A kernel with one mistake.

    Attributes:
        operator: the kind of the mistake: "drop wait", "expect bytes".
        what: the mistake in words: "dropped: mbar_wait inputs.full[stage] of role 'mma'".
        place: the changed op, in the original kernel.
        kernel: the kernel with the mistake.
        passed: the op past which it was moved, or out of which.
    """

    operator: str
    what: str
    place: Place
    kernel: Kernel
    passed: ops.Op | None = None

    @property
    def loc(self) -> Loc:
        """The source line of the changed op."""
        return self.place.op.loc

    def __str__(self) -> str:
        return f"{self.what} at {self.loc.short}"


Operator = Callable[[Kernel], Iterator[Mutant]]


def text(op: ops.Op) -> str:
    """An op as one line of text."""
    return printer.statement(op).removesuffix(":")


def described(place: Place) -> str:
    """`mbar_wait bar=inputs.full[stage] phase=phase of role 'mma'`."""
    return f"{text(place.op)} of {place.who}"


def subjects(kernel: Kernel) -> Iterator[tuple[str, Place]]:
    """The kind and the place of each op that synchronises."""
    for place in rewriting.places(kernel):
        name = SUBJECTS.get(type(place.op))
        if name is not None:
            yield name, place


def _drop(kernel: Kernel) -> Iterator[Mutant]:
    for name, place in subjects(kernel):
        yield Mutant(
            f"drop {name}",
            f"dropped: {described(place)}",
            place,
            rewriting.without(kernel, [place]),
        )


def _duplicate(kernel: Kernel) -> Iterator[Mutant]:
    for name, place in subjects(kernel):
        if not isinstance(place.op, _NOT_TWICE):
            twice = rewriting.with_op(kernel, place, place.op, replace(place.op))
            yield Mutant(f"duplicate {name}", f"twice: {described(place)}", place, twice)


def _move(kernel: Kernel) -> Iterator[Mutant]:
    for name, place in subjects(kernel):
        if name in _NOT_MOVED:
            continue
        for direction, found in (
            ("before", rewriting.earlier(place)),
            ("after", rewriting.later(place)),
        ):
            # to swap two equal ops makes no difference
            if found is not None and text(place.op) != text(found[1]):
                held, passed = found
                what = f"moved {direction} {text(passed)} ({passed.loc.short}): {described(place)}"
                yield Mutant(
                    f"move {name}",
                    what,
                    place,
                    rewriting.with_ops(kernel, {place.block: held}),
                    passed,
                )
        moved = rewriting.out_of(place)
        if moved is not None and place.enclosing is not None:
            what = f"moved out of '{text(place.enclosing)}': {described(place)}"
            yield Mutant(
                f"move {name}", what, place, rewriting.with_ops(kernel, moved), place.enclosing
            )


def _release(kernel: Kernel) -> Iterator[Mutant]:
    """A stage that is acquired and never released: the step of the cursor and the arrivals on its
    barriers are missing.
    """
    for place in rewriting.places(kernel):
        if isinstance(place.op, ops.CursorStep):
            given = list(signals(kernel, place, place.op.cursor))
            if given:
                what = (
                    f"never released: the stage of {described(place)}, and"
                    f" {', '.join(text(p.op) for p in given)}"
                )
                yield Mutant(
                    "drop release", what, place, rewriting.without(kernel, [place, *given])
                )


def signals(kernel: Kernel, step: Place, cursor: Cursor) -> Iterator[Place]:
    """The arrivals on the barriers of the stage that a cursor names, in the block in which the
    cursor steps.
    """
    reads = [
        op
        for op in step.block.ops[: step.index]
        if isinstance(op, ops.CursorRead) and op.cursor is cursor
    ]
    if not reads:
        return
    inside = {id(op) for op in walk(step.block)}
    for place in rewriting.places(kernel):
        if (
            isinstance(place.op, (ops.MbarArrive, ops.Tcgen05Commit))
            and id(place.op) in inside
            and place.op.bar.index is reads[-1].stage
        ):
            yield place


def _drain(kernel: Kernel) -> Iterator[Mutant]:
    """Drop or shorten a drain: the waits at the end of a role."""
    for role in kernel.roles:
        held = role.body.ops
        at = len(held)
        while at and only_waits(held[at - 1]):
            at -= 1
        tail = [
            x
            for op in held[at:]
            for x in rewriting.everything(op)
            if SUBJECTS.get(type(x)) == "wait"
        ]
        if tail:
            what = (
                f"dropped: the drain of role '{role.name}', the waits at its end:"
                f" {', '.join(dict.fromkeys(map(text, tail)))}"
            )
            yield Mutant(
                "drop drain",
                what,
                Place(role, role.body, at),
                rewriting.with_ops(kernel, {role.body: held[:at]}),
            )
        for i, op in enumerate(held[at:], at):
            if isinstance(op, ops.For) and isinstance(op.stop, Const) and int(op.stop.value) > 1:
                shorter = replace(op, stop=replace(op.stop, value=int(op.stop.value) - 1))
                what = f"one iteration fewer: the drain of role '{role.name}', {text(op)}"
                yield Mutant(
                    "drop drain",
                    what,
                    Place(role, role.body, i),
                    rewriting.with_op(kernel, Place(role, role.body, i), shorter),
                )


def only_waits(op: ops.Op) -> bool:
    """True if the ops in an op do nothing but wait."""
    every = rewriting.everything(op)
    return all(not x.acts or SUBJECTS.get(type(x)) == "wait" for x in every)


OPERATORS: dict[str, Operator] = {
    "drop": _drop,
    "duplicate": _duplicate,
    "move": _move,
    "release": _release,
    "drain": _drain,
}
ALL: tuple[str, ...] = (*OPERATORS, *VALUE_OPERATORS)


def mutants(kernel: Kernel, operators: Sequence[str] = ALL) -> Iterator[Mutant]:
    """Every mutant of a kernel, in a fixed order; a mutant shares its unchanged blocks with the
    kernel.

    Args:
        operators: names in `ALL`.
    """
    for name in operators:
        if name in OPERATORS:
            yield from OPERATORS[name](kernel)
            continue
        for operator, what, place, changed in VALUE_OPERATORS[name](kernel):
            yield Mutant(operator, f"{what}: {described(place)}", place, changed)
