"""What is no value but a place in memory: an element, a tile, a tensor. A kernel loads from it and
stores to it; operators and assignments are errors that say so.
"""

from __future__ import annotations

from typing import NoReturn

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller
from tilepipe.lang.values.operators import Operators, foreign


class Place(Operators[NoReturn]):
    """Base class of places. Two are equal if they are one object.

    Attributes:
        _reading, _writing: what a kernel writes to read and to write such a place.
    """

    __slots__ = ()
    _is_value = False
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__  # type: ignore[assignment]
    __ne__ = object.__ne__  # type: ignore[assignment]

    @property
    def _reading(self) -> str:
        raise NotImplementedError

    @property
    def _writing(self) -> str:
        raise NotImplementedError

    @property
    def _instead(self) -> str:
        """After an error that it is no value."""
        return f" It is a place in memory: {self._reading}; {self._writing}."

    def _binary(self, op: str, other: object, swap: bool = False) -> NoReturn:
        raise foreign(self)

    def _unary(self, op: str) -> NoReturn:
        raise foreign(self)

    def __setitem__(self, key: object, value: object) -> None:
        raise TraceError(
            f"an assignment to a part of {self!r} is no store. {self._writing}.", caller()
        )

    def __bool__(self) -> bool:
        return True
