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
from tilepipe.ir.memory import BarrierRef, Cursor
from tilepipe.ir.program import WARP, Kernel, barrier_of

# operator, the change in words, its place, and the changed kernel
Changed = tuple[str, str, Place, Kernel]
SCOPES = ("warp", "warpgroup", "role")


def plus(x: Expr, n: int) -> Expr:
    """x + n."""
    if isinstance(x, Const):
        return replace(x, value=x.value + n, nonneg=x.value + n >= 0)
    op, by = ("add", n) if n >= 0 else ("sub", -n)
    return Binary(x.dtype, x.vary, False, op=op, a=x, b=const(by, x.dtype))


def _changed(kernel: Kernel, place: Place, **fields: Any) -> Kernel:
    return rewriting.with_op(kernel, place, replace(place.op, **fields))


def _counts(kernel: Kernel) -> Iterator[Changed]:
    for place in rewriting.places(kernel):
        match place.op:
            case ops.MbarInit(bar=bar, count=count):
                held = count if count is not None else const(bar.array.count or 1)
                for n in (1, -1):
                    yield (
                        "barrier count",
                        f"count {n:+d}",
                        place,
                        _changed(kernel, place, count=plus(held, n)),
                    )
            case ops.MbarArrive(count=count):
                for n in (1, -1):
                    yield (
                        "arrive count",
                        f"arrives {n:+d}",
                        place,
                        _changed(kernel, place, count=plus(count, n)),
                    )


def _bytes(kernel: Kernel) -> Iterator[Changed]:
    for place in rewriting.places(kernel):
        if isinstance(place.op, (ops.MbarExpect, ops.MbarCompleteTx)):
            for n in (16, -16, 1, -1):
                yield (
                    "expect bytes",
                    f"bytes {n:+d}",
                    place,
                    _changed(kernel, place, nbytes=plus(place.op.nbytes, n)),
                )
        if isinstance(place.op, ops.MbarExpect):
            to = not place.op.arrive
            yield (
                "expect bytes",
                f"{'also' if to else 'no longer'} arrives",
                place,
                _changed(kernel, place, arrive=to),
            )


def _masks(kernel: Kernel) -> Iterator[Changed]:
    size = kernel.cluster_size
    for place in rewriting.places(kernel):
        for name in ("multicast", "mask"):
            mask = getattr(place.op, name, None)
            if isinstance(mask, Expr):
                for cta in range(size):
                    flipped = Binary(
                        mask.dtype,
                        mask.vary,
                        mask.nonneg,
                        op="xor",
                        a=mask,
                        b=const(1 << cta, mask.dtype),
                    )
                    yield (
                        "mask",
                        f"the bit of CTA {cta} flipped in {name}=",
                        place,
                        _changed(kernel, place, **{name: flipped}),
                    )
        ref = barrier_of(place.op)
        if ref is not None and ref.cta is not None and size > 1:
            yield (
                "mask",
                "to the next CTA of the cluster",
                place,
                _with_ref(kernel, place, cta=_next(ref.cta, size)),
            )


def _next(x: Expr, size: int) -> Expr:
    """(x + 1) mod size."""
    if isinstance(x, Const):
        return replace(x, value=(int(x.value) + 1) % size)
    return Binary(x.dtype, x.vary, True, op="mod", a=plus(x, 1), b=const(size, x.dtype))


def _with_ref(kernel: Kernel, place: Place, **fields: Any) -> Kernel:
    ref = barrier_of(place.op)
    assert ref is not None
    changed: BarrierRef = replace(ref, **fields)
    return _changed(kernel, place, bar=changed)


def _cursors(kernel: Kernel) -> Iterator[Changed]:
    for place in rewriting.places(kernel):
        match place.op:
            case ops.CursorDefine(cursor=cursor):
                for field, word in (("stages", "stages"), ("start_phase", "first phase")):
                    for n in (1, -1):
                        if field == "stages" and cursor.stages + n < 1:
                            continue
                        yield (
                            f"cursor {word}",
                            f"{word} {n:+d}",
                            place,
                            _with_cursor(kernel, cursor, field, n),
                        )
            case ops.CursorStep(n=n_) if not isinstance(n_, Const) or n_.value != 1:
                for n in (1, -1):
                    yield (
                        "cursor step",
                        f"steps {n:+d}",
                        place,
                        _changed(kernel, place, n=plus(n_, n)),
                    )
            case ops.CursorStep(n=n_):
                yield "cursor step", "steps +1", place, _changed(kernel, place, n=plus(n_, 1))


def _with_cursor(kernel: Kernel, cursor: Cursor, field: str, n: int) -> Kernel:
    other = replace(cursor, **{field: getattr(cursor, field) + n})
    return rewriting.mapped(kernel, partial(rewriting.substituted, old=cursor, new=other))


def _places(kernel: Kernel) -> Iterator[Changed]:
    """The next barrier of the array, or the next phase."""
    for place in rewriting.places(kernel):
        ref = barrier_of(place.op)
        if ref is not None and ref.array.size > 1 and not isinstance(place.op, ops.MbarInit):
            yield (
                "stage",
                "the next barrier of the array",
                place,
                _with_ref(kernel, place, index=_next(ref.index, ref.array.size)),
            )
        if isinstance(place.op, ops.MbarWait):
            yield (
                "phase",
                "phase +1",
                place,
                _changed(kernel, place, phase=_next_phase(place.op.phase)),
            )


def _next_phase(phase: Expr) -> Expr:
    if phase.dtype.kind == "phase" or isinstance(phase, Const):
        return plus(phase, 1)
    return Binary(phase.dtype, phase.vary, phase.nonneg, op="xor", a=phase, b=const(1, phase.dtype))


def _pending(kernel: Kernel) -> Iterator[Changed]:
    for place in rewriting.places(kernel):
        op = place.op
        if isinstance(op, (ops.WgmmaWait, ops.TmaStoreWait)):
            for n in (1, -1):
                if op.pending + n >= 0:
                    yield (
                        "pending",
                        f"groups left running {n:+d}",
                        place,
                        _changed(kernel, place, pending=op.pending + n),
                    )
        if isinstance(op, ops.TmaStoreWait):
            word = "until written, not only read" if op.read else "until read, not until written"
            yield "wait kind", f"waits {word}", place, _changed(kernel, place, read=not op.read)
        if isinstance(op, ops.MbarArrive):
            word = "release" if op.sem == "relaxed" else "relaxed"
            yield "arrive order", f"{word}, not {op.sem}", place, _changed(kernel, place, sem=word)


def _threads(kernel: Kernel) -> Iterator[Changed]:
    for bar in kernel.named_barriers:
        users = [p for p in rewriting.places(kernel) if getattr(p.op, "bar", None) is bar]
        for n in (WARP, -WARP) if users else ():
            other = replace(bar, threads=bar.threads + n)
            changed = rewriting.mapped(kernel, partial(rewriting.substituted, old=bar, new=other))
            named = [other if x is bar else x for x in kernel.named_barriers]
            yield "threads", f"threads {n:+d}", users[0], replace(changed, named_barriers=named)


def _scopes(kernel: Kernel) -> Iterator[Changed]:
    for place in rewriting.places(kernel):
        if isinstance(place.op, ops.Elect):
            for scope in SCOPES:
                if _lanes(place, kernel, scope) != _lanes(place, kernel, place.op.scope):
                    yield (
                        "elect scope",
                        f"one lane of each {scope}",
                        place,
                        _changed(kernel, place, scope=scope),
                    )


def _lanes(place: Place, kernel: Kernel, scope: str) -> int:
    """How many lanes of the role, or of the CTA, an elect of this scope elects."""
    warps = place.role.warps if place.role is not None else kernel.warps
    return {"warp": warps, "warpgroup": -(-warps // 4), "role": 1}[scope]


VALUE_OPERATORS: dict[str, Callable[[Kernel], Iterator[Changed]]] = {
    "counts": _counts,
    "bytes": _bytes,
    "masks": _masks,
    "cursors": _cursors,
    "places": _places,
    "pending": _pending,
    "threads": _threads,
    "scopes": _scopes,
}
