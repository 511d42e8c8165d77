"""The place of an agent in its generated function: its line, and the values of its live locals.

An agent is a generator, so its state is its frame. Two agents at the same line with equal live
locals behave alike from there on. A local is live at a line if it may still be read before it is
assigned. Liveness is computed backwards from the generated source, which is structured:
assignments, `for ... in range`, `while`, `if`.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from tilepipe.ir.python_ast import parsed
from tilepipe.machine.agents import Agent
from tilepipe.machine.memory.fragments import Frag
from tilepipe.sim.analysis.data_flow import DecidingData

_NONE: frozenset[str] = frozenset()
Names = frozenset[str]
_different = itertools.count()


class _Function:
    """Liveness of one function.

    Attributes:
        live: line of a yield -> the locals that may be read at it or after it.
        clear: whether those determine the rest of the frame: the bounds of a running loop are never
            assigned in it.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        self.live: dict[int, Names] = {}
        self.clear = True
        stored = {
            n.id
            for n in ast.walk(function)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self._locals = frozenset(n for n in stored if not n.startswith("turns"))
        self._block(function.body, _NONE)

    def _read(self, node: ast.AST | None) -> Names:
        if node is None:
            return _NONE
        return (
            frozenset(
                n.id
                for n in ast.walk(node)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
            )
            & self._locals
        )

    def _block(self, body: Iterable[ast.stmt], out: Names) -> Names:
        for statement in reversed(list(body)):
            out = self._statement(statement, out)
            if any(isinstance(n, ast.Yield) for n in ast.walk(statement)) and isinstance(
                statement, ast.Expr | ast.Assign
            ):
                self.live[statement.lineno] = self.live.get(statement.lineno, _NONE) | out
        return out

    def _statement(self, statement: ast.stmt, out: Names) -> Names:
        match statement:
            case ast.Assign(targets=targets, value=value):
                stored = frozenset(
                    n.id
                    for t in targets
                    for n in ast.walk(t)
                    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                )
                return (
                    (out - stored)
                    | self._read(value)
                    | frozenset().union(*(self._read(t) for t in targets))
                )
            case ast.AugAssign(target=target, value=value):
                name = (
                    frozenset({target.id}) & self._locals
                    if isinstance(target, ast.Name)
                    else self._read(target)
                )
                return out | name | self._read(value)
            case ast.If(test=test, body=body, orelse=orelse):
                return self._read(test) | self._block(body, out) | self._block(orelse, out)
            case ast.For(target=target, iter=bounds, body=body):
                assert isinstance(target, ast.Name)
                kept = self._read(bounds) | {target.id}
                assigned = {
                    n.id
                    for s in body
                    for n in ast.walk(s)
                    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                }
                self.clear = self.clear and not assigned & kept
                return self._read(bounds) | (self._loop(body, out | kept) - {target.id})
            case ast.While(test=test, body=body):
                return self._loop(body, out | self._read(test))
        return out | self._read(statement)

    def _loop(self, body: list[ast.stmt], out: Names) -> Names:
        """The locals that are live at the head of a loop: the least fixed point."""
        while True:
            grown = out | self._block(body, out)
            if grown == out:
                return out
            out = grown


@lru_cache(maxsize=64)
def _functions(source: str) -> Mapping[str, _Function]:
    return {f.name: _Function(f) for f in parsed(source).body if isinstance(f, ast.FunctionDef)}


def place(agent: Agent, deciding: DecidingData) -> Hashable:
    """A key that is equal only for agents of one role that behave alike from here on: the line, and
    the live values that can come to decide something.
    """
    if agent.done:
        return "done"
    body: Any = agent.body
    frame = body.gi_frame
    if agent.request is None:
        return "start"
    name = body.gi_code.co_name
    function = _functions(deciding.source)[name]
    if not function.clear:
        return "equal to no other", next(_different)
    values = frame.f_locals  # from Python 3.13 on a proxy, whose keys() are a list
    wanted = function.live[frame.f_lineno] - deciding.leaves_out(name)
    live = sorted(wanted.intersection(values))
    return frame.f_lineno, tuple((name, value_key(values[name], deciding)) for name in live)


def value_key(value: Any, deciding: DecidingData) -> Hashable:
    """A key of a local's value. The contents of a fragment are part of it if they can decide
    something; the state of its registers always is.
    """
    match value:
        case Frag():
            return value.key, value.data.tobytes() if deciding.fragment(value.ir) else b""
        case np.ndarray():
            return value.dtype.str, value.shape, value.tobytes()
        case tuple():
            return tuple(value_key(v, deciding) for v in value)
        case np.generic():
            return value.dtype.str, value.tobytes()
    return type(value).__name__, value
