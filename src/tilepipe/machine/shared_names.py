"""The names of bytes of shared memory in messages: the variable in which they lie, and their offset
in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class SharedVariable(NamedTuple):
    """A variable of the program: `nbytes` of each CTA's shared memory from `address` on. `name`: as
    messages call it, with quotation marks.
    """

    name: str
    address: int
    nbytes: int


class SharedNames:
    """The variables of a program that names shared memory by address.

    An address belongs to the variable that begins last at or before it, also where it lies in the
    padding after that variable, or beyond all of them; then the text says how many bytes the
    variable has. What lies before the first variable has no name.
    """

    __slots__ = ("_starts", "_variables")

    def __init__(self, variables: Iterable[SharedVariable] = ()) -> None:
        """Of variables that begin at the same address the first gives the name."""
        placed = {v.address: v for v in reversed(list(variables))}
        self._variables = [placed[address] for address in sorted(placed)]
        self._starts = [v.address for v in self._variables]

    def _at(self, address: int) -> SharedVariable | None:
        number = bisect_right(self._starts, address) - 1
        return self._variables[number] if number >= 0 else None

    def variable(self, first: int, last: int) -> str:
        """The variable that has all bytes from `first` to `last`; "" where none has."""
        found = self._at(first)
        return found.name if found is not None and last < found.address + found.nbytes else ""

    def place(self, address: int) -> str:
        """`'tile' + 1,024`; `'tile'` for its first byte; "" for memory without a name."""
        found = self._at(address)
        if found is None:
            return ""
        offset = address - found.address
        return f"{found.name} + {offset:,}{_beyond(found, offset)}" if offset else found.name

    def exactly(self, address: int) -> str:
        """`'tile' + 1,024 (0x800)`, where the address itself is at fault; `0x800` without name."""
        name = self.place(address)
        return f"{name} ({address:#x})" if name else f"{address:#x}"

    def span(self, first: int, last: int, count: int) -> str:
        """`bytes 0..127 of 'tile'`, `64 of bytes 0..127 of 'tile'`, `bytes from 'tile' + 384 to
        'bar' + 7`. "" where the first byte has no name.

        Args:
            first, last: addresses of the ends. count: how many of the bytes between them are meant.
        """
        begin, end = self._at(first), self._at(last)
        if begin is None or end is None:
            return ""
        some = f"{count:,} of " if count <= last - first else ""
        if begin is not end:
            return f"{some}bytes from {self.place(first)} to {self.place(last)}"
        at, to = first - begin.address, last - begin.address
        bytes_ = f"byte {at:,}" if at == to else f"bytes {at:,}..{to:,}"
        return f"{some}{bytes_} of {begin.name}{_beyond(begin, to)}"


NO_NAMES = SharedNames()


def _beyond(variable: SharedVariable, offset: int) -> str:
    has = variable.nbytes
    return f" (which has {has:,} byte{'s' * (has != 1)})" if offset >= has else ""
