"""What a role's traffic on barriers leaves unsaid where it is as usual: the place in the ring, the
phase, and how often.

Summaries of traffic say `wait full` for a wait at the consumer's present stage and phase, `arrive
full` for one arrival at the stage that the producer has waited for, `step` for one stage. `Places`
writes out whatever is not so.
"""

from __future__ import annotations

import re
from typing import Any

from tilepipe.ir import expressions as exprs, memory, ops
from tilepipe.ir.printer import expr

WAITS = (ops.MbarWait, ops.MbarTryWait)
SIGNALS = (ops.MbarArrive, ops.MbarExpect, ops.Tcgen05Commit, ops.MbarCompleteTx)


def locals_of(e: exprs.Expr) -> list[exprs.Local]:
    """The names in an expression."""
    own = [e] if isinstance(e, exprs.Local) else []
    return own + [x for child in exprs.children(e) for x in locals_of(child)]


class Places:
    """Follows the ops of a role in program order."""

    def __init__(self) -> None:
        self._reads: dict[exprs.Local, tuple[memory.Cursor, int]] = {}
        self._steps: dict[memory.Cursor, int] = {}
        self._waited: dict[memory.Cursor, int] = {}

    def unusual(self, op: ops.Op) -> str:
        """What is to be said of an op beside its kind and the barrier array; notes what it does to
        the places.
        """
        match op:
            case ops.CursorRead(cursor=cursor, stage=stage, phase=phase):
                self._reads[stage] = self._reads[phase] = cursor, self._steps.get(cursor, 0)
            case ops.CursorStep(cursor=cursor, n=n):
                self._steps[cursor] = self._steps.get(cursor, 0) + 1
                return "" if isinstance(n, exprs.Const) and n.value == 1 else f" by {expr(n)}"
            case ops.For(start=start, stop=stop, step=step):
                plain = (
                    isinstance(start, exprs.Const)
                    and start.value == 0
                    and isinstance(step, exprs.Const)
                    and step.value == 1
                )
                return (
                    f" {expr(stop)}" if plain else f" {expr(start)} to {expr(stop)} by {expr(step)}"
                )
            case ops.MbarWait(bar=bar, phase=phase) | ops.MbarTryWait(bar=bar, phase=phase):
                usual = self._usual(bar, waits=True)
                if usual is None:
                    return f" [{self._said(bar.index)}] phase {self._said(phase)}"
                self._waited[usual] = self._steps.get(usual, 0)
                return (
                    ""
                    if self._at(phase, usual, self._steps.get(usual, 0))
                    else f" phase {self._said(phase)}"
                )
            case ops.MbarArrive(bar=bar, count=count):
                many = (
                    ""
                    if isinstance(count, exprs.Const) and count.value == 1
                    else f" × {expr(count)}"
                )
                return self._signalled(bar) + many
            case ops.MbarExpect(bar=bar, nbytes=nbytes, arrive=arrive):
                return (
                    f"{self._signalled(bar)} "
                    f"{expr(nbytes)}{'' if arrive else ' without an arrival'}"
                )
            case ops.Tcgen05Commit(bar=bar):
                return self._signalled(bar)
        return ""

    def _signalled(self, bar: memory.BarrierRef) -> str:
        return "" if self._usual(bar, waits=False) is not None else f" [{self._said(bar.index)}]"

    def _usual(self, bar: memory.BarrierRef, waits: bool) -> memory.Cursor | None:
        """The cursor whose present stage (of a signal: the stage last waited for) a barrier is of,
        where it is the right side's.
        """
        full = re.fullmatch(r"(.*)\.(full|empty)\d*", bar.array.name)
        found = {self._reads[x][0] for x in locals_of(bar.index) if x in self._reads}
        if full is None or len(found) != 1:
            return None
        (cursor,) = found
        side = "consumer" if (full[2] == "full") is waits else "producer"
        if not re.fullmatch(rf"{re.escape(full[1])}_{side}(_\d+)?", cursor.name):
            return None
        steps = self._steps.get(cursor, 0)
        usual = (
            {steps}
            if waits
            else {self._waited[cursor]}
            if cursor in self._waited
            else {steps, steps - 1}
        )
        return cursor if any(self._at(bar.index, cursor, n) for n in usual) else None

    def _at(self, e: exprs.Expr, cursor: memory.Cursor, steps: int) -> bool:
        """Whether an expression is of the place of a cursor after so many steps."""
        return {self._reads.get(x) for x in locals_of(e)} == {(cursor, steps)}

    def _said(self, e: exprs.Expr) -> str:
        names: dict[str, Any] = {x.name: self._reads[x] for x in locals_of(e) if x in self._reads}
        text = expr(e)
        for name, (cursor, steps) in names.items():
            text = re.sub(rf"\b{re.escape(name)}\b", f"{cursor.name}@{steps}", text)
        return text
