"""Members that are slightly wrong: one barrier further, one trip fewer, a step too many, an
argument that is ignored.

`mutants(target)` gives the variants of a member's function, each with one small change of its
source, made by rules and not by hand.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from tests.conformance.table import Target

# calls that move a place in a ring
STEPS = {"step", "advance", "producer_step", "consumer_step", "_end"}
OTHER = {
    "_full": "_empty",
    "_empty": "_full",
    "_producer": "_consumer",
    "_consumer": "_producer",
    "_wait_full": "_wait_empty",
    "_wait_empty": "_wait_full",
    "producer_mbars": "consumer_mbars",
    "consumer_mbars": "producer_mbars",
}
SIDES = {"producer": "consumer", "consumer": "producer"}
SIGNS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
}


@dataclass(frozen=True)
class Mutant:
    """`operator`: what is changed, with the line. `function`: the member with the change."""

    operator: str
    function: Any


def mutants(target: Target) -> list[Mutant]:
    """Every variant of a method, property or function; none of other things."""
    if target.kind not in ("method", "property", "function"):
        return []
    original = inspect.unwrap(target.value)
    tree = _tree(original)
    if tree is None:
        return []
    found: dict[str, Mutant] = {}
    for what, changed in _changes(tree):
        times = sum(name.split(" (")[0] == what for name in found)
        name = f"{what} ({times + 1})" if times else what
        found[name] = Mutant(name, _compiled(original, changed, target))
    return list(found.values())


def _tree(function: Any) -> ast.FunctionDef | None:
    try:
        (found,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if not isinstance(found, ast.FunctionDef):
        return None
    found.decorator_list = [
        d for d in found.decorator_list if isinstance(d, ast.Name) and d.id == "contextmanager"
    ]
    return found


def _changes(tree: ast.FunctionDef) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every change, each of a fresh copy: a list of (path to a node, what replaces it)."""
    for number, node in enumerate(_nodes(tree)):
        for what, change in _at(node):
            changed = copy.deepcopy(tree)
            change(list(_nodes(changed))[number])
            yield f"{what}: {ast.unparse(node)[:60]!r}", changed
    yield from _without_steps(tree)
    yield from _ignored(tree)


def _nodes(tree: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes that matter: no docstring, no message of an error, no annotation."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop(0)
        if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr)) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            continue
        yield node
        todo.extend(ast.iter_child_nodes(node))


def _at(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], None]]]:
    match node:
        case ast.Constant(value=value) if type(value) is int:
            yield "number +1", lambda n: setattr(n, "value", n.value + 1)
            if value > 0:
                yield "number -1", lambda n: setattr(n, "value", n.value - 1)
        case ast.Constant(value=True | False):
            yield "the opposite", lambda n: setattr(n, "value", not n.value)
        case ast.Constant(value="producer" | "consumer"):
            yield "the other side", lambda n: setattr(n, "value", SIDES[n.value])
        case ast.Attribute(attr=attr) if attr in OTHER:
            yield "the other side", lambda n: setattr(n, "attr", OTHER[n.attr])
        case ast.BinOp(op=op) if type(op) in SIGNS:
            yield "another operation", lambda n: setattr(n, "op", SIGNS[type(n.op)]())
        case ast.Call(func=ast.Attribute(attr="range") | ast.Name(id="range"), args=[*_, _]):
            yield "one trip fewer", _one_fewer


def _one_fewer(call: Any) -> None:
    call.args[-1] = ast.BinOp(call.args[-1], ast.Sub(), ast.Constant(1))


def _moves(statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
        and statement.value.func.attr in STEPS
    )


def _without_steps(tree: ast.FunctionDef) -> Iterator[tuple[str, ast.FunctionDef]]:
    """A place that is not stepped, or stepped twice."""
    count = sum(_moves(node) for node in ast.walk(tree))
    for number in range(count):
        for what in ("not stepped", "stepped twice"):
            changed = copy.deepcopy(tree)
            seen = -1
            for block in [
                getattr(n, name)
                for n in ast.walk(changed)
                for name in ("body", "orelse")
                if isinstance(getattr(n, name, None), list)
            ]:
                for at, statement in enumerate(list(block)):
                    if _moves(statement):
                        seen += 1
                        if seen == number:
                            text = ast.unparse(statement)
                            block[at : at + 1] = (
                                [ast.Pass()]
                                if what == "not stepped"
                                else [statement, copy.deepcopy(statement)]
                            )
                            yield f"{what}: {text!r}", changed
                            break


def _ignored(tree: ast.FunctionDef) -> Iterator[tuple[str, ast.FunctionDef]]:
    """An argument that has its default whatever is given; without one, that is 0."""
    a = tree.args
    given: list[tuple[ast.arg, ast.expr | None]] = [
        (x, None) for x in (*a.posonlyargs, *a.args)[1:]
    ]
    for at, last in enumerate(reversed(a.defaults)):
        if at < len(given):
            given[-1 - at] = given[-1 - at][0], last
    given += list(zip(a.kwonlyargs, a.kw_defaults, strict=True))
    for arg, default in given:
        if arg.arg in (
            "name",
            "owner",
            "kind",
            "error",
            "trace",
            "ticks",
            "scope",
            "ctx",
            "config",
            "payload",
            "dtype",
        ):
            continue
        changed = copy.deepcopy(tree)
        value: ast.expr = ast.Constant(0) if default is None else copy.deepcopy(default)
        start = 1 if ast.get_docstring(tree) else 0
        changed.body.insert(start, ast.Assign([ast.Name(arg.arg, ast.Store())], value))
        yield f"{arg.arg} ignored", changed


def _compiled(original: Any, tree: ast.FunctionDef, target: Target) -> Any:
    """The function, with the globals of the original, and its class where it says `super()`."""
    factory = ast.parse("def factory(__class__):\n    pass").body[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.body = [tree, ast.Return(ast.Name(tree.name, ast.Load()))]
    module = ast.fix_missing_locations(
        ast.Module([ast.ImportFrom("__future__", [ast.alias("annotations")], 0), factory], [])
    )
    space: dict[str, Any] = {}
    exec(compile(module, f"<{target.attr}>", "exec"), original.__globals__, space)
    made = space["factory"](home(target))
    if isinstance(made, FunctionType):
        made.__kwdefaults__, made.__defaults__ = original.__kwdefaults__, original.__defaults__
    return made


def home(target: Target) -> Any:
    """The class that defines a member, which `super()` starts from and a change is made in; the
    module of a function.
    """
    owner, original = target.owner, inspect.unwrap(target.value)
    for base in inspect.getmro(owner) if inspect.isclass(owner) else ():
        own = vars(base).get(target.attr)
        if (
            own is not None
            and inspect.unwrap(getattr(own, "fget", None) or getattr(own, "__func__", own))
            is original
        ):
            return base
    return owner


def body(target: Target, function: Any) -> Any:
    """What is put in a member's place: the function as a property, static or class method where the
    member is one.
    """
    if target.kind == "property":
        return property(function)
    raw = (
        inspect.getattr_static(target.owner, target.attr) if inspect.isclass(target.owner) else None
    )
    return type(raw)(function) if isinstance(raw, (staticmethod, classmethod)) else function
