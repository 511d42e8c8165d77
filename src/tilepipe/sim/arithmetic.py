"""How much arithmetic on fragments a run has done, which its virtual time does not count."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tilepipe.ir import expressions as e, ops
from tilepipe.ir.def_use import used
from tilepipe.ir.program import Kernel, bodies

# what the special function units of an SM compute, alone or at the end of it
_SPECIAL = frozenset(
    ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sin", "cos", "sigmoid", "rcp")
)


def elements(kernel: Kernel, counts: Mapping[int, int]) -> tuple[float, float]:
    """The (special, other) element-wise operations on fragments, of all agents. `counts`: id of an
    op that the machine sees -> how often agents have executed it.
    """
    special = plain = 0.0
    for op, n in _executed(kernel, counts):
        seen: set[int] = set()
        for x, _ in used(op):
            if isinstance(x, e.Expr):
                a, b = _operations(x, seen)
                special += n * a
                plain += n * b
    return special, plain


def _executed(kernel: Kernel, counts: Mapping[int, int]) -> Iterator[tuple[ops.Op, float]]:
    """Each op of the roles, and how often agents execute it: as often as the ops of its block that
    the machine sees, or, where it sees none, as the block around it.
    """

    def of(block: ops.Block, outer: float) -> Iterator[tuple[ops.Op, float]]:
        n = float(max((counts[id(op)] for op in block.ops if id(op) in counts), default=outer))
        for op in block.ops:
            yield op, n
            for body in bodies(op):
                yield from of(body, n)

    for role in kernel.roles:
        yield from of(role.body, 0.0)


def _operations(x: e.Expr, seen: set[int]) -> tuple[int, int]:
    """Those of an expression: (special, other). Conversions are not counted."""
    if id(x) in seen:
        return 0, 0
    seen.add(id(x))
    size = math.prod(x.shape) if x.shape else 0
    special = size if isinstance(x, e.Unary) and x.op in _SPECIAL else 0
    plain = size if isinstance(x, e.Unary | e.Binary | e.Select) and not special else 0
    for child in e.children(x):
        a, b = _operations(child, seen)
        special, plain = special + a, plain + b
    return special, plain
