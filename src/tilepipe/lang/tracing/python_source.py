"""Checks on the Python source of a kernel: jumps out of `with` blocks, targets of loops, and the
code that iterates a traced loop. The source is read for these errors only; what a kernel means
comes from executing it.
"""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller, is_library_file
from tilepipe.ir.python_ast import parsed


@dataclass
class _Source:
    """A parsed file.

    Attributes:
        key: the hash of its text.
        tree: its syntax tree, None where it does not parse.
        withs: line of a `with` -> the jump that leaves it; None until it is needed.
    """

    key: int
    tree: ast.Module | None
    withs: dict[int, tuple[str, int]] | None = field(default=None)


_sources: dict[str, _Source] = {}


def _source(code: CodeType) -> _Source:
    """The file a code object comes from; without a tree where Python does not have the source."""
    lines = linecache.getlines(code.co_filename)
    key = hash(tuple(lines))
    cached = _sources.get(code.co_filename)
    if cached is None or cached.key != key:
        try:
            tree = parsed("".join(lines)) if lines else None
        except SyntaxError:
            tree = None
        cached = _sources[code.co_filename] = _Source(key, tree)
    return cached


def leaves_block(frame: FrameType) -> tuple[str, int] | None:
    """A `continue`, `break` or `return` that would leave the with statement at the frame's line:
    its keyword and line.
    """
    source = _source(frame.f_code)
    if source.tree is None:
        return None
    if source.withs is None:
        source.withs = {}
        for node in ast.walk(source.tree):
            jump = (
                next(_jumps(node.body, loops=False), None) if isinstance(node, ast.With) else None
            )
            if jump is not None and isinstance(node, ast.With):
                last = node.items[-1].context_expr.end_lineno or node.lineno
                source.withs.update(dict.fromkeys(range(node.lineno, last + 1), jump))
    return source.withs.get(frame.f_lineno)


def _jumps(body: list[ast.stmt], loops: bool) -> Iterator[tuple[str, int]]:
    for node in body:
        if isinstance(node, ast.Return):
            yield "return", node.lineno
        elif isinstance(node, ast.Continue | ast.Break) and not loops:
            yield type(node).__name__.lower(), node.lineno
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = loops or isinstance(node, ast.For | ast.While)
            for name in ("body", "orelse", "finalbody"):
                yield from _jumps(getattr(node, name, []), inner)
            for part in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
                yield from _jumps(part.body, inner)


def only_loop_target(frame_code: CodeType, name: str) -> bool:
    """True if every binding of `name` in the function is the target of a `for`: assigned anew
    before every read.
    """
    tree = _source(frame_code).tree
    if tree is None:
        return False
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef)
            and node.name == frame_code.co_name
            and node.lineno >= frame_code.co_firstlineno
        ):
            stores = sum(_stores(n, name) for n in ast.walk(node))
            targets = sum(
                _stores(n, name)
                for loop in ast.walk(node)
                if isinstance(loop, ast.For)
                for n in ast.walk(loop.target)
            )
            return stores == targets > 0
    return False


def _stores(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def require_for_statement(frame: FrameType | None) -> None:
    """Raises TraceError unless what iterates a traced loop here is a `for` statement, or `yield
    from`, whose iterable is the loop itself. A traced loop yields one item, which stands for all
    iterations, so code that collects, counts or pairs items would be wrong.

    `frame`: the frame that called iter().
    """
    while (
        frame is not None
        and frame.f_code.co_name == "__iter__"
        and is_library_file(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    if frame is None or _opcode(frame) in ("GET_ITER", "GET_YIELD_FROM_ITER"):
        return
    raise TraceError(
        "a traced loop is iterated by a `for` statement of its own, `for i in ctx.range(n):`; its"
        " body is traced once, for all iterations. enumerate, zip, map, list, iter, next and"
        " unpacking would take that one iteration for the first or only one. The index that"
        " ctx.range gives is the count: write `xs[i]` or `start + i` in the body, and nest loops"
        " for pairs.",
        caller(),
    )


def require_driven_by_for(frame: FrameType | None) -> None:
    """The same check for user generators through which a traced loop is iterated. `frame`: the
    frame that called next().
    """
    while frame is not None and inspect.CO_GENERATOR & frame.f_code.co_flags:
        frame = frame.f_back
        while frame is not None and (
            is_library_file(frame.f_code.co_filename)
            or frame.f_code.co_filename.endswith("contextlib.py")
        ):
            frame = frame.f_back
        if frame is not None and (_opcode(frame).startswith("CALL") or _wrapped(frame)):
            raise TraceError(
                "a traced loop in a generator is iterated by something other than a `for`"
                " statement: its body is traced once, for all iterations, so enumerate, zip, list"
                " and the like would take one item for all. Write `for ... in` the generator.",
                caller(),
            )


def _opcode(frame: FrameType) -> str:
    return dis.opname[frame.f_code.co_code[frame.f_lasti]]


_WRAPPERS = {
    "enumerate",
    "zip",
    "map",
    "filter",
    "list",
    "tuple",
    "sorted",
    "reversed",
    "iter",
    "set",
    "islice",
    "chain",
    "product",
}


def _wrapped(frame: FrameType) -> bool:
    """True if the `for` at the frame's line iterates a call of enumerate, zip or the like."""
    tree = _source(frame.f_code).tree
    for node in ast.walk(tree) if tree is not None else ():
        call = node.iter if isinstance(node, ast.For) else None
        if isinstance(call, ast.Call) and call.lineno <= frame.f_lineno <= (
            call.end_lineno or call.lineno
        ):
            name = (
                call.func.attr
                if isinstance(call.func, ast.Attribute)
                else getattr(call.func, "id", "")
            )
            if name in _WRAPPERS:
                return True
    return False
