"""Syntax trees of Python source."""

from __future__ import annotations

import ast
import threading

_parsing = threading.Lock()


def parsed(source: str) -> ast.Module:
    """`ast.parse`, by one thread at a time: Python 3.11 has one counter for the depth of all trees
    that are being built, and a thread that is interrupted finds another's number (SystemError: AST
    constructor recursion depth mismatch).

    Raises:
        SyntaxError: the source is not Python.
    """
    with _parsing:
        return ast.parse(source)
