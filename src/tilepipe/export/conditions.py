"""The launch preconditions of a kernel as conditions of a manifest."""

from __future__ import annotations

from collections.abc import Mapping

from tilepipe.errors import ExportError
from tilepipe.export.manifest import Condition
from tilepipe.export.rules import BINARY, CLUSTERS, Op, Rule, binary, negated
from tilepipe.ir import expressions as e
from tilepipe.ir.expressions import Expr
from tilepipe.ir.program import Kernel


def conditions(kernel: Kernel, names: Mapping[tuple[str, int], Rule]) -> tuple[Condition, ...]:
    """Those of a kernel's requirements that are on numbers known at the launch.

    `names`: what extents, (tensor, axis), and scalars, (name, -1), are in the manifest.

    Raises:
        ExportError: one cannot be expressed.
    """
    found = []
    for requirement in kernel.requirements:
        if not isinstance(requirement.holds, Expr):
            continue
        rules = [_rule(x, names) for x in (requirement.holds, *requirement.shows)]
        if any(rule is None for rule in rules):
            raise ExportError(
                "this condition cannot be exported: it depends on more than integers known at the"
                " launch",
                requirement.loc,
            )
        holds, *shows = (rule for rule in rules if rule is not None)
        if not isinstance(holds, str | Op) and holds:
            continue  # of fixed extents, for which it holds
        at = f"{requirement.loc.file}:{requirement.loc.line}"
        found.append(Condition(holds, requirement.message, tuple(shows), at))
    return tuple(found)


def _rule(x: Expr, names: Mapping[tuple[str, int], Rule]) -> Rule | None:
    if x.dtype.is_float:
        return None
    match x:
        case e.Const(value=value):
            return value
        case e.Special(name=name) if name == CLUSTERS:
            return name
        case e.Param(name=name, axis=axis):
            return names.get((name, axis))
        case e.Unary(op=op, a=inner) if op == "neg" or (op == "not" and x.dtype.kind == "bool"):
            a = _rule(inner, names)
            if a is None:
                return None
            return negated(a) if op == "neg" else Op("not", (a,))
        case e.Binary(op=op, a=left, b=right) if op in BINARY:
            a, b = _rule(left, names), _rule(right, names)
            return None if a is None or b is None else binary(op, a, b)
        case e.Select(cond=cond, a=left, b=right):
            c, a, b = _rule(cond, names), _rule(left, names), _rule(right, names)
            return None if c is None or a is None or b is None else Op("select", (c, a, b))
    return None
