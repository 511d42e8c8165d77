"""Loops that only wait for a value in global memory: which they are, and which values end them.

    while waits:
        v = load_acquire.gpu flags(0)
        waits := not(v == 1)

A round that does not end such a loop leaves nothing behind: each round loads one element by a
strong load and computes, from that value and from what does not change in the loop, whether it goes
on. So the loop is a wait for a value. It is found in the generated source, from which the condition
is taken as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from tilepipe.ir.python_ast import parsed
from tilepipe.machine.agents import Agent
from tilepipe.sim.codegen.module import Compiled

# what the condition of such a loop may call: none of them changes anything
_PURE = frozenset({"abs", "bool", "fits", "int", "max", "min", "quotient", "remainder"})
Place = tuple[str, int]  # a function of the generated source, and the line of a load in it


@dataclass(frozen=True, eq=False, slots=True)
class WaitingLoop:
    """A loop that only waits for a value.

    Attributes:
        site: the number of its load. result: the name of what it has loaded.
        rest: what follows the load in a round. again: whether there is another round.
    """

    site: int
    result: str
    rest: CodeType
    again: CodeType

    def is_over(self, agent: Agent, value: object) -> bool:
        """True if the loop in which an agent is about to load ends when it finds `value`. The
        agent's registers stay as they are.

        Raises:
            SimFault: the arithmetic of the condition is a fault.
        """
        body: Any = agent.body
        frame = body.gi_frame
        names = dict(frame.f_locals) | {self.result: value}
        exec(self.rest, frame.f_globals, names)
        return not eval(self.again, frame.f_globals, names)


def waiting_loops(compiled: Compiled) -> dict[Place, WaitingLoop]:
    """The loops of a kernel that only wait, by the place of their load."""
    if "yield load_strong," not in compiled.source:
        return {}
    return dict(_loops(compiled.source))


def place_of(agent: Agent) -> Place:
    """Where an agent stands in the generated source, before its next request."""
    body: Any = agent.body
    return body.gi_code.co_name, body.gi_frame.f_lineno


@lru_cache(maxsize=16)
def _loops(source: str) -> tuple[tuple[Place, WaitingLoop], ...]:
    return tuple(_in_module(parsed(source)))


def _in_module(module: ast.Module) -> Iterator[tuple[Place, WaitingLoop]]:
    for function in module.body:
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.While) and (found := _waiting(node)) is not None:
                    yield (function.name, node.body[0].lineno), found


def _waiting(loop: ast.While) -> WaitingLoop | None:
    match loop.test, loop.body[0]:
        case (
            ast.BoolOp(values=[again, ast.Call(func=ast.Name(id="next"))]),
            ast.Assign(
                targets=[ast.Name(id=result)],
                value=ast.Yield(
                    value=ast.Tuple(elts=[ast.Name(id="load_strong"), ast.Tuple(elts=given)])
                ),
            ),
        ):
            rest = loop.body[1:]
        case _:
            return None
    if not _only_computes(result, [ast.Expr(x) for x in given], rest, again):
        return None
    site = given[0]
    assert isinstance(site, ast.Name)
    return WaitingLoop(
        int(site.id[1:]),
        result,
        compile(ast.Module(body=rest, type_ignores=[]), "<the rest of a round>", "exec"),
        compile(ast.Expression(again), "<another round>", "eval"),
    )


def _only_computes(
    result: str, operands: list[ast.Expr], rest: list[ast.stmt], again: ast.expr
) -> bool:
    """True if a round does nothing but compute, from what it loads and from what no round sets."""
    targets: list[str] = []
    for statement in rest:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]):
                targets.append(name)
            case _:
                return False
    known, set_inside = {result}, {result, *targets}
    if any(_names(x) & set_inside for x in operands):
        return False  # each round looks somewhere else
    for statement, name in zip(rest, targets, strict=True):
        assert isinstance(statement, ast.Assign)
        if not _is_pure(statement.value) or _names(statement.value) & set_inside - known:
            return False  # it counts its rounds, say
        known.add(name)
    return _is_pure(again)


def _names(node: ast.AST) -> set[str]:
    """The names that an expression reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _is_pure(node: ast.AST) -> bool:
    return all(
        isinstance(n.func, ast.Name) and n.func.id in _PURE
        for n in ast.walk(node)
        if isinstance(n, ast.Call)
    )
