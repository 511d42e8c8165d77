"""Operands of a foreign kind: each operator of scalars, variables and fragments, from either side,
gives the one error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **{
        f.__name__.strip("_"): f
        for f in (
            *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv),
            *(operator.mod, operator.pow, operator.and_, operator.or_, operator.xor),
            *(operator.lshift, operator.rshift, operator.eq, operator.ne, operator.lt),
            *(operator.le, operator.gt, operator.ge),
        )
    }
}
FOREIGN: dict[str, Any] = {
    "text": "2",
    "nothing": None,
    "list": [1, 2],
    "dict": {},
    "array": np.arange(3),
    "matrix": np.ones((64, 8), np.float32),
    "object": object(),
    "complex": 1j,
}
CTX: dict[str, Callable[[Any], Any]] = {
    "tile": lambda objects: objects["tile"],
    "element": lambda objects: objects["tile"][0, 0],
    "tensor": lambda objects: objects["a"],
    "ctx": lambda objects: objects["ctx"],
}


def traced(body: Callable[[dict[str, Any]], object]) -> None:
    @tp.kernel()
    def kernel(ctx: tp.Context, a: Any) -> None:
        tile = ctx.smem((64, 8), a.dtype, name="tile", swizzle=0)[0]

        @ctx.role("one", warpgroups=1)
        def one() -> None:
            f = ctx.fragment(shape=(64, 8), dtype=a.dtype)
            f.fill(1)
            scalar = ctx.let(ctx.cta_rank.to("float32"), "x")
            n = ctx.let(ctx.cta_rank + 1, "n")
            body({"ctx": ctx, "tile": tile, "a": a, "f": f, "expression": f + 1, "n": n,
                  "x": scalar, "v": ctx.var(1.0)})  # fmt: skip

    kernel.bind(np.zeros((64, 8), np.float32))


@pytest.mark.parametrize("other", [*FOREIGN, *CTX])
@pytest.mark.parametrize("one", ["f", "expression", "x", "n", "v"])
def test_every_operator_refuses_a_foreign_operand(one: str, other: str) -> None:
    def body(objects: dict[str, Any]) -> None:
        x = FOREIGN[other] if other in FOREIGN else CTX[other](objects)
        for name, function in OPERATORS.items():
            for pair in ((objects[one], x), (x, objects[one])):
                if other == "text" and pair[0] is x and name == "mod":
                    continue  # Python's formatting of texts
                with pytest.raises(tp.TraceError) as caught:
                    function(*pair)
                said = str(caught.value)
                assert f"{__file__.rsplit('/', 1)[-1]}:" in said
                if pair[0] is x and isinstance(x, str | list) and "an index" in said:
                    assert name == "mul"  # Python repeats texts and lists, and asks for a number
                    continue
                assert f"expected a number or a traced value, got {type(x).__name__}" in said, name
                assert ("pass it to `bind`" in said) == isinstance(x, np.ndarray)

    traced(body)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("number", [np.float32(2), np.int32(2), np.array(2), np.array(2.0)])
def test_numbers_of_numpy_are_numbers_on_both_sides(name: str, number: Any) -> None:
    whole = name in ("and", "or", "xor", "lshift", "rshift", "mod", "floordiv")
    number = number if not whole else np.int32(2)

    def body(objects: dict[str, Any]) -> None:
        for one in ("n", *(() if whole else ("f", "x", "v"))):
            x = objects[one]
            for left, right in ((x, number), (number, x)):
                if name == "pow" and one == "n" and left is number and float(left) == left:
                    continue  # two integers, or not: a rule of its own
                found = OPERATORS[name](left, right)
                assert isinstance(found, tp.FragmentValue if one == "f" else tp.Value), one

    traced(body)
