"""The operators of traced values: each calls `_binary(op, other, swap)` or `_unary(op)` of its
class.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

from tilepipe.errors import TraceError
from tilepipe.host_arguments import shown
from tilepipe.ir.location import caller
from tilepipe.lang.values.refused import Refused

R = TypeVar("R")


def foreign(x: object) -> TraceError:
    """The error of an operand that is neither a number nor traced."""
    what = f"{type(x).__name__}: {shown(x)}"
    advice = (
        " An array of the host is an argument of the kernel: pass it to `bind`, and load from it."
        if isinstance(x, np.ndarray)
        else getattr(x, "_instead", "")
    )
    return TraceError(f"expected a number or a traced value, got {what}.{advice}", caller())


class Operators(Refused, Generic[R]):
    """Arithmetic, integer division, bitwise operators and comparisons. `==` builds an expression,
    so there is no hash.
    """

    __slots__ = ()
    _elementwise = False
    _is_value = True
    __hash__ = None  # type: ignore[assignment]

    def _binary(self, op: str, other: object, swap: bool = False) -> R:
        """`self op other`, or `other op self`."""
        raise NotImplementedError

    def _meet(self, op: str, other: object, swap: bool = False) -> R:
        if isinstance(other, Operators) and other._elementwise and not self._elementwise:
            # the reflected operator of the fragment takes over
            return NotImplemented  # type: ignore[no-any-return]
        return self._binary(op, other, swap)

    def _unary(self, op: str) -> R:
        """`op self`."""
        raise NotImplementedError

    def __add__(self, o: object) -> R:
        return self._meet("add", o)

    def __radd__(self, o: object) -> R:
        return self._meet("add", o, True)

    def __sub__(self, o: object) -> R:
        return self._meet("sub", o)

    def __rsub__(self, o: object) -> R:
        return self._meet("sub", o, True)

    def __mul__(self, o: object) -> R:
        return self._meet("mul", o)

    def __rmul__(self, o: object) -> R:
        return self._meet("mul", o, True)

    def __truediv__(self, o: object) -> R:
        return self._meet("div", o)

    def __rtruediv__(self, o: object) -> R:
        return self._meet("div", o, True)

    def __neg__(self) -> R:
        return self._unary("neg")

    def __floordiv__(self, o: object) -> R:
        return self._meet("floordiv", o)

    def __rfloordiv__(self, o: object) -> R:
        return self._meet("floordiv", o, True)

    def __mod__(self, o: object) -> R:
        return self._meet("mod", o)

    def __rmod__(self, o: object) -> R:
        return self._meet("mod", o, True)

    def __pow__(self, o: object) -> R:
        return self._meet("**", o)

    def __rpow__(self, o: object) -> R:
        return self._meet("**", o, True)

    def __and__(self, o: object) -> R:
        return self._meet("and", o)

    def __rand__(self, o: object) -> R:
        return self._meet("and", o, True)

    def __or__(self, o: object) -> R:
        return self._meet("or", o)

    def __ror__(self, o: object) -> R:
        return self._meet("or", o, True)

    def __xor__(self, o: object) -> R:
        return self._meet("xor", o)

    def __rxor__(self, o: object) -> R:
        return self._meet("xor", o, True)

    def __lshift__(self, o: object) -> R:
        return self._meet("shl", o)

    def __rlshift__(self, o: object) -> R:
        return self._meet("shl", o, True)

    def __rshift__(self, o: object) -> R:
        return self._meet("shr", o)

    def __rrshift__(self, o: object) -> R:
        return self._meet("shr", o, True)

    def __eq__(self, o: object) -> R:  # type: ignore[override]
        return self._meet("eq", o)

    def __ne__(self, o: object) -> R:  # type: ignore[override]
        return self._meet("ne", o)

    def __lt__(self, o: object) -> R:
        return self._meet("lt", o)

    def __le__(self, o: object) -> R:
        return self._meet("le", o)

    def __gt__(self, o: object) -> R:
        return self._meet("gt", o)

    def __ge__(self, o: object) -> R:
        return self._meet("ge", o)

    def __invert__(self) -> R:
        return self._unary("not")

    def __abs__(self) -> R:
        return self._unary("abs")
