"""Mutants of values: a count, a number of bytes, a mask, a stage or a phase is off by one, or the
scope of an elect is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from tilepipe.check.mutation import rewriting
from tilepipe.check.mutation.rewriting import Place
from tilepipe.ir import ops
from tilepipe.ir.expressions import Binary, Const, Expr, const
from tilepipe.ir.program import WARP, Kernel, barrier_of

# operator, the change in words, its place, and the changed kernel
Changed = tuple[str, str, Place, Kernel]
# operator, the change in words, and the changed fields of one op
Change = tuple[str, str, dict[str, Any]]
SCOPES = ("warp", "warpgroup", "role")


def plus(x: Expr, n: int) -> Expr:
    """x + n."""
    if isinstance(x, Const):
        return replace(x, value=x.value + n, nonneg=x.value + n >= 0)
    op, by = ("add", n) if n >= 0 else ("sub", -n)
    return Binary(x.dtype, x.vary, False, op=op, a=x, b=const(by, x.dtype))


def _counts(kernel: Kernel, place: Place) -> Iterator[Change]:
    match place.op:
        case ops.MbarInit(bar=bar, count=count):
            held = count if count is not None else const(bar.array.count or 1)
            for n in (1, -1):
                yield "barrier count", f"count {n:+d}", {"count": plus(held, n)}
        case ops.MbarArrive(count=count):
            for n in (1, -1):
                yield "arrive count", f"arrives {n:+d}", {"count": plus(count, n)}


def _bytes(kernel: Kernel, place: Place) -> Iterator[Change]:
    if isinstance(place.op, ops.MbarExpect | ops.MbarCompleteTx):
        for n in (16, -16, 1, -1):
            yield "expect bytes", f"bytes {n:+d}", {"nbytes": plus(place.op.nbytes, n)}
    if isinstance(place.op, ops.MbarExpect):
        word = "no longer" if place.op.arrive else "also"
        yield "expect bytes", f"{word} arrives", {"arrive": not place.op.arrive}


def _masks(kernel: Kernel, place: Place) -> Iterator[Change]:
    size, ref = kernel.cluster_size, barrier_of(place.op)
    for name in ("multicast", "mask"):
        mask = getattr(place.op, name, None)
        if isinstance(mask, Expr):
            for cta in range(size):
                words = f"the bit of CTA {cta} flipped in {name}="
                yield "mask", words, {name: _flipped(mask, 1 << cta)}
    if ref is not None and ref.cta is not None and size > 1:
        other = replace(ref, cta=_next(ref.cta, size))
        yield "mask", "to the next CTA of the cluster", {"bar": other}


def _flipped(x: Expr, bits: int) -> Expr:
    """x with some bits inverted."""
    return Binary(x.dtype, x.vary, x.nonneg, op="xor", a=x, b=const(bits, x.dtype))


def _next(x: Expr, size: int) -> Expr:
    """(x + 1) mod size."""
    if isinstance(x, Const):
        return replace(x, value=(int(x.value) + 1) % size)
    return Binary(x.dtype, x.vary, True, op="mod", a=plus(x, 1), b=const(size, x.dtype))


def _places(kernel: Kernel, place: Place) -> Iterator[Change]:
    """The next barrier of the array, or the next phase."""
    ref = barrier_of(place.op)
    if ref is not None and ref.array.size > 1 and not isinstance(place.op, ops.MbarInit):
        other = replace(ref, index=_next(ref.index, ref.array.size))
        yield "stage", "the next barrier of the array", {"bar": other}
    if isinstance(place.op, ops.MbarWait):
        phase = place.op.phase
        counted = phase.dtype.kind == "phase" or isinstance(phase, Const)
        yield "phase", "phase +1", {"phase": plus(phase, 1) if counted else _flipped(phase, 1)}


def _pending(kernel: Kernel, place: Place) -> Iterator[Change]:
    op = place.op
    if isinstance(op, ops.WgmmaWait | ops.TmaStoreWait):
        for n in (1, -1) if op.pending else (1,):
            yield "pending", f"groups left running {n:+d}", {"pending": op.pending + n}
    if isinstance(op, ops.TmaStoreWait):
        word = "until written, not only read" if op.read else "until read, not until written"
        yield "wait kind", f"waits {word}", {"read": not op.read}
    if isinstance(op, ops.MbarArrive):
        word = "release" if op.sem == "relaxed" else "relaxed"
        yield "arrive order", f"{word}, not {op.sem}", {"sem": word}


def _scopes(kernel: Kernel, place: Place) -> Iterator[Change]:
    if isinstance(place.op, ops.Elect):
        # how many lanes of the role, or of the CTA, an elect of a scope elects
        warps = place.role.warps if place.role is not None else kernel.warps
        lanes = {"warp": warps, "warpgroup": -(-warps // 4), "role": 1}
        for scope in SCOPES:
            if lanes[scope] != lanes[place.op.scope]:
                yield "elect scope", f"one lane of each {scope}", {"scope": scope}


def _of_ops(
    changes: Callable[[Kernel, Place], Iterator[Change]], kernel: Kernel
) -> Iterator[Changed]:
    """The mutants in which one op has other fields."""
    for place in rewriting.places(kernel):
        for operator, words, fields in changes(kernel, place):
            changed = replace(place.op, **fields)
            yield operator, words, place, rewriting.with_op(kernel, place, changed)


def _cursors(kernel: Kernel) -> Iterator[Changed]:
    for place in rewriting.places(kernel):
        match place.op:
            case ops.CursorDefine(cursor=cursor):
                for field, word in (("stages", "stages"), ("start_phase", "first phase")):
                    for n in (1, -1) if field == "start_phase" or cursor.stages > 1 else (1,):
                        other = replace(cursor, **{field: getattr(cursor, field) + n})
                        changed = _with(kernel, cursor, other)
                        yield f"cursor {word}", f"{word} {n:+d}", place, changed
            case ops.CursorStep(n=step):
                one = isinstance(step, Const) and step.value == 1
                for n in (1,) if one else (1, -1):
                    op = replace(place.op, n=plus(step, n))
                    yield (
                        "cursor step",
                        f"steps {n:+d}",
                        place,
                        rewriting.with_op(kernel, place, op),
                    )


def _threads(kernel: Kernel) -> Iterator[Changed]:
    for bar in kernel.named_barriers:
        users = [p for p in rewriting.places(kernel) if getattr(p.op, "bar", None) is bar]
        for n in (WARP, -WARP) if users else ():
            other = replace(bar, threads=bar.threads + n)
            named = [other if x is bar else x for x in kernel.named_barriers]
            changed = replace(_with(kernel, bar, other), named_barriers=named)
            yield "threads", f"threads {n:+d}", users[0], changed


def _with(kernel: Kernel, old: object, new: object) -> Kernel:
    """The kernel with `new` wherever an op names `old`."""
    return rewriting.mapped(kernel, partial(rewriting.substituted, old=old, new=new))


VALUE_OPERATORS: dict[str, Callable[[Kernel], Iterator[Changed]]] = {
    "counts": partial(_of_ops, _counts),
    "bytes": partial(_of_ops, _bytes),
    "masks": partial(_of_ops, _masks),
    "cursors": _cursors,
    "places": partial(_of_ops, _places),
    "pending": partial(_of_ops, _pending),
    "threads": _threads,
    "scopes": partial(_of_ops, _scopes),
}
