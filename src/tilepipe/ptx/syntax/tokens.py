"""PTX text to tokens.

One regular expression splits the text; a token is (kind, text, line). Comments and white space
give none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tilepipe.errors import PtxError

# The order decides: a number such as 0f3F800000 before a decimal, a comment before a division.
_TOKEN = re.compile(
    r"""
      (?P<newline>\n)
    | (?P<space>[ \t\r\f\v]+|//[^\n]*)
    | (?P<comment>/\*.*?\*/)
    | (?P<float>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b
        |[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    | (?P<integer>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|[0-9]+U?)
    | (?P<name>(?:[A-Za-z]|[_$%][\w$]|_(?![\w$]))[\w$]*(?:\.[A-Za-z_0-9:]*[\w])*)
    | (?P<directive>\.[A-Za-z_]\w*)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<mark>[{}()\[\]<>,;:|!@+\-*/=~&^?])
    """,
    re.VERBOSE | re.DOTALL,
)


_MOST_CHARACTERS = 1 << 14  # of a name, which C++ makes of all arguments of a template


class Token(NamedTuple):
    """A token; `kind` is "name", "directive", "integer", "float", "string", "mark" or "end".

    The text of a name includes what follows its dots: an opcode with its modifiers, `%tid.x`.
    """

    kind: str
    text: str
    line: int


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a PTX text, then one of kind "end", for ever.

    Raises:
        PtxError: a character that begins no token.
    """
    line = 1
    at = 0
    match = _TOKEN.match
    while found := match(text, at):
        at = found.end()
        kind = found.lastgroup
        if kind == "newline":
            line += 1
        elif kind == "comment":
            line += found.group().count("\n")
        elif kind != "space":
            assert kind is not None
            token = found.group()
            if len(token) > _MOST_CHARACTERS and kind != "string":
                raise PtxError(f"PTX line {line}: a token of {len(token):,} characters")
            yield Token(kind, token, line)
    if at < len(text):
        raise PtxError(f"PTX line {line}: {text[at]!r} begins nothing that PTX has")
    while True:
        yield Token("end", "the end of the text", line)
