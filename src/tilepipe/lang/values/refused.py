"""Operations of Python and NumPy that objects of a kernel do not have, such as `np.exp(x)`,
`round(x)` and `f @ g`: each is an error that says what to write.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller
from tilepipe.lang.tracing import other_names
from tilepipe.lang.tracing.missing_members import of_ctx, plain

# NumPy's functions that are operators. Numbers of NumPy on the left of one call these.
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
_SWAPPED = ("eq", "ne", "gt", "ge", "lt", "le")
_REFLECTED = {
    **{
        name: f"__r{name}__"
        for name in (
            *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
            *("and", "or", "xor", "lshift", "rshift"),
        )
    },
    **{f: f"__{swapped}__" for f, swapped in zip(_COMPARE, _SWAPPED, strict=True)},
}
_MATH = '`ctx.math("{0}", x)` of a scalar, `f.apply("{0}")` of a fragment'
_PRODUCT = (
    "a product of matrices is `ctx.mma(acc, a, b)`, of shared tiles, a also of registers:"
    " docs/reference/language.md, Tensor cores"
)


class Refused:
    """What Python and NumPy would do with an object of a kernel, and cannot."""

    __slots__ = ()

    def _refused(self, what: str, instead: str) -> NoReturn:
        raise TraceError(f"{what} of {self!r}: in a kernel, {instead}", caller())

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **given: Any) -> Any:
        """`number + x` of a number or an array of NumPy is the operator here; `np.exp(x)` is not
        there.
        """
        name = ufunc.__name__
        function = _OPERATORS.get(name)
        if function is not None and method == "__call__" and not given and len(inputs) == 2:
            left, right = inputs
            if isinstance(left, Refused):
                return function(left, right)
            return getattr(right, _REFLECTED[function.__name__.strip("_")])(left)
        self._refused(f"np.{name}", _numpy(name))

    def __array_function__(self, function: Any, types: Any, args: Any, given: Any) -> NoReturn:
        self._refused(f"np.{function.__name__}", _numpy(function.__name__))

    def __matmul__(self, other: object) -> NoReturn:
        self._refused("`@`", _PRODUCT)

    def __rmatmul__(self, other: object) -> NoReturn:
        self._refused("`@`", _PRODUCT)

    def __round__(self, digits: object = None) -> NoReturn:
        self._refused("round()", f"{_MATH.format('round')}, to nearest even")

    def __floor__(self) -> NoReturn:
        self._refused("math.floor()", _MATH.format("floor"))

    def __ceil__(self) -> NoReturn:
        self._refused("math.ceil()", _MATH.format("ceil"))

    def __trunc__(self) -> NoReturn:
        self._refused("math.trunc()", '`x.to("int32")` truncates')

    def __float__(self) -> float:
        self._refused(
            "float(), which functions of `math` call,",
            f'{_MATH.format("exp")}, and `x.to("float32")` converts',
        )

    def __pos__(self) -> NoReturn:
        self._refused("unary `+`", "leave it out")

    def __divmod__(self, other: object) -> NoReturn:
        self._refused("divmod()", "write `x // y` and `x % y`")

    def __rdivmod__(self, other: object) -> NoReturn:
        self._refused("divmod()", "write `x // y` and `x % y`")

    def __format__(self, spec: str) -> str:
        if spec:
            self._refused(
                f"the format {spec!r}",
                'it has no number before the kernel runs: `ctx.print("x is {}", x)` shows it, and'
                " `{x}` in a text of Python the expression",
            )
        return str(self)


def _numpy(name: str) -> str:
    """What a kernel writes for a function of NumPy."""
    words = {"absolute": "`abs(x)`", "negative": "`-x`", "square": "`x * x`"}
    words |= {"rint": _MATH.format("round"), "invert": "`~x`", "clip": "`ctx.min`, `ctx.max`"}
    if name in words:
        return words[name]
    found = other_names.CONTEXT.get(plain(name)) or of_ctx(name).removeprefix(": in a kernel, ")
    return found or "functions of NumPy have arrays of the host, and nothing is known by then"
