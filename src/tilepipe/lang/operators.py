"""The operators of traced things, in one place: each is `_binary(op, other, swap)` or `_unary(op)` of the class that has them."""

from __future__ import annotations

from typing import Generic, TypeVar

R = TypeVar("R")


class Operators(Generic[R]):
    """Arithmetic, integer division, bitwise operators and comparisons. `==` builds an expression, so there is no
    hash.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def _binary(self, op: str, other: object, swap: bool = False) -> R:
        """`self op other`, or `other op self`."""
        raise NotImplementedError

    def _unary(self, op: str) -> R:
        """`op self`."""
        raise NotImplementedError

    def __add__(self, o: object) -> R:
        return self._binary("add", o)

    def __radd__(self, o: object) -> R:
        return self._binary("add", o, True)

    def __sub__(self, o: object) -> R:
        return self._binary("sub", o)

    def __rsub__(self, o: object) -> R:
        return self._binary("sub", o, True)

    def __mul__(self, o: object) -> R:
        return self._binary("mul", o)

    def __rmul__(self, o: object) -> R:
        return self._binary("mul", o, True)

    def __truediv__(self, o: object) -> R:
        return self._binary("div", o)

    def __rtruediv__(self, o: object) -> R:
        return self._binary("div", o, True)

    def __neg__(self) -> R:
        return self._unary("neg")

    def __floordiv__(self, o: object) -> R:
        return self._binary("floordiv", o)

    def __rfloordiv__(self, o: object) -> R:
        return self._binary("floordiv", o, True)

    def __mod__(self, o: object) -> R:
        return self._binary("mod", o)

    def __rmod__(self, o: object) -> R:
        return self._binary("mod", o, True)

    def __and__(self, o: object) -> R:
        return self._binary("and", o)

    def __rand__(self, o: object) -> R:
        return self._binary("and", o, True)

    def __or__(self, o: object) -> R:
        return self._binary("or", o)

    def __ror__(self, o: object) -> R:
        return self._binary("or", o, True)

    def __xor__(self, o: object) -> R:
        return self._binary("xor", o)

    def __rxor__(self, o: object) -> R:
        return self._binary("xor", o, True)

    def __lshift__(self, o: object) -> R:
        return self._binary("shl", o)

    def __rlshift__(self, o: object) -> R:
        return self._binary("shl", o, True)

    def __rshift__(self, o: object) -> R:
        return self._binary("shr", o)

    def __rrshift__(self, o: object) -> R:
        return self._binary("shr", o, True)

    def __eq__(self, o: object) -> R:  # type: ignore[override]
        return self._binary("eq", o)

    def __ne__(self, o: object) -> R:  # type: ignore[override]
        return self._binary("ne", o)

    def __lt__(self, o: object) -> R:
        return self._binary("lt", o)

    def __le__(self, o: object) -> R:
        return self._binary("le", o)

    def __gt__(self, o: object) -> R:
        return self._binary("gt", o)

    def __ge__(self, o: object) -> R:
        return self._binary("ge", o)

    def __invert__(self) -> R:
        return self._unary("not")

    def __abs__(self) -> R:
        return self._unary("abs")
