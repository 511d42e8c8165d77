"""`**`: what an exponent becomes, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import evaluated, in_role, refused, role_from_text
from tilepipe.ir import dtypes, expressions as exprs, printer


def traced(text: str) -> exprs.Expr:
    """The expression of `text`, of the float32 x, the bfloat16 h, the int32 i, the fragment f."""
    found: list[Any] = []
    role_from_text(
        "i = ctx.block_id\nx = ctx.let(i.to('float32'), 'x')\nh = ctx.let(x.to('bfloat16'), 'h')\n"
        f"f = ctx.fragment(shape=(64, 8))\nf.fill(0)\nfound.append({text})",
        found=found,
        four=np.float32(4),
        warps="warpgroups=1",
    )
    expr: exprs.Expr = found[0]._expr
    return expr


@pytest.mark.parametrize(
    ("text", "want", "dtype"),
    [
        ("x ** 2", "x ** 2.0", "float32"),
        ("x ** 3.0", "x ** 3.0", "float32"),
        ("x ** four", "x ** 4.0", "float32"),
        ("x ** 1", "x", "float32"),
        ("x ** -1", "rcp(x)", "float32"),
        ("x ** -2", "rcp(x ** 2.0)", "float32"),
        ("x ** 0.5", "sqrt(x)", "float32"),
        ("h ** -0.5", "rsqrt(h)", "bfloat16"),
        ("h ** -2", "bfloat16(rcp(float32(h) ** 2.0))", "bfloat16"),
        ("x ** 1.5", "exp2(log2(x) * 1.5)", "float32"),
        ("x ** x", "exp2(log2(x) * x)", "float32"),
        ("x ** i", "exp2(log2(x) * float32(block_id))", "float32"),
        ("h ** i", "bfloat16(exp2(log2(float32(h)) * float32(block_id)))", "bfloat16"),
        ("h ** h", "bfloat16(exp2(log2(float32(h)) * float32(h)))", "bfloat16"),
        ("h ** x", "exp2(log2(float32(h)) * x)", "float32"),
        ("x ** h", "exp2(log2(x) * float32(h))", "float32"),
        ("i ** h", "bfloat16(exp2(log2(float32(block_id)) * float32(h)))", "bfloat16"),
        ("i ** x", "exp2(log2(float32(block_id)) * x)", "float32"),
        ("h ** f", "exp2(frag * log2(float32(h)))", "float32"),
        ("h ** 1.5", "bfloat16(exp2(log2(float32(h)) * 1.5))", "bfloat16"),
        ("2 ** x", "exp2(x)", "float32"),
        ("4.0 ** i", "exp2(float32(block_id) * 2.0)", "float32"),
        ("i ** 2", "block_id * block_id", "int32"),
        ("i ** 0", "1", "int32"),
        ("i ** -1", "rcp(float32(block_id))", "float32"),
        ("i ** 2.0", "float32(block_id) ** 2.0", "float32"),
        ("i ** 0.5", "sqrt(float32(block_id))", "float32"),
        ("f ** 64", "frag ** 64.0", "float32"),
        ("f ** -0.5", "rsqrt(frag)", "float32"),
        ("f ** f", "exp2(log2(frag) * frag)", "float32"),
        ("x ** f", "exp2(frag * log2(x))", "float32"),
        ("2.0 ** -f", "exp2(neg(frag))", "float32"),
    ],
)
def test_an_exponent_becomes_the_instructions_that_suit_it(
    text: str, want: str, dtype: str
) -> None:
    x = traced(text)
    assert printer.expr(x) == want
    assert x.dtype is dtypes.dtype(dtype)


@pytest.mark.parametrize(
    "text", ["h ** x", "x ** h", "h ** h", "i ** h", "h ** i", "h ** f", "f ** h"]
)
def test_a_power_has_the_dtype_of_a_product(text: str) -> None:
    assert traced(text).dtype is traced(text.replace("**", "*")).dtype


@pytest.mark.parametrize("n", range(65))
def test_whole_powers_of_integers_are_exact(n: int) -> None:
    def body(ctx: tp.Context) -> Any:
        return (ctx.block_id.to("int64") - 2) ** (n % 63)

    assert evaluated(body, np.int64) == (-2) ** (n % 63)


@pytest.mark.parametrize("n", [*range(20), 63, 64])
def test_whole_powers_of_floats(n: int) -> None:
    got = evaluated(lambda ctx: (ctx.block_id.to("float32") - 1.25) ** n, np.float32)
    assert math.isclose(got, (-1.25) ** n, rel_tol=1e-6)


def test_a_variable_is_raised_in_place() -> None:
    def body(ctx: tp.Context) -> Any:
        v = ctx.var(2)
        v **= 3
        return v**2 + 2.0**v

    assert evaluated(body, np.float32) == 8**2 + 2**8


@tp.kernel(grid=1)
def narrow(ctx: tp.Context, x: Any, halves: Any, out: Any, inverses: Any) -> None:
    """Results of narrow types on the way to a quotient and a reciprocal."""

    @ctx.role("all", warpgroups=1)
    def everything() -> None:
        f = ctx.load_global(x, (0, 0), (64, 8))
        least = ctx.fragment(f.maximum(0))
        ctx.store_global(out, (0, 0), f**2 // 3)
        ctx.store_global(out, (64, 0), least * least // 3)
        ctx.store_global(inverses, (0, 0), ctx.load_global(halves, (0, 0), (64, 8)) ** -2)


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["simulator", "ptx"])
def test_narrow_powers_wrap_round_and_are_rounded_once(reader: str) -> None:
    x, halves = np.full((64, 8), 12, np.int8), np.full((64, 8), 300, np.float16)
    out, inverses = np.zeros((128, 8), np.int8), np.zeros((64, 8), np.float16)
    program = narrow.bind(x, halves, out, inverses)
    program.run() if reader == "simulator" else program.ptx("sm_90a").run()
    assert set(out.flat) == {-112 // 3}  # 144 wraps round to -112
    assert set(inverses.flat) == {np.float16(300.0**-2)}  # 300² is more than a float16 holds


def test_the_overflow_of_a_power_is_a_fault() -> None:
    def body(ctx: tp.Context, out: Any) -> None:
        with ctx.elect_one():
            ctx.store(out[0], (ctx.block_id + 50_000) ** 2)

    with pytest.raises(tp.SimFault, match=r"overflow: 2,500,000,000 is outside"):
        in_role(body).run()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x ** 65", ("x ** 65", "at most to the power 64", "`x ** 64 * x`", "`2.0 ** (65 * y)`")),
        ("f ** 64.0 * x ** 128", ("`(x ** 64) ** 2`", '`x.apply("log2")`')),
        ("f ** -100.0", ("x ** -100", "or -64", "`1.0 / (x ** 64 * x ** 36)`")),
        ("x ** 5000", ("or -64. Where x is above 0", '`ctx.math("log2", x)`')),
        ("i ** i", ("two integers", "x.to('float32') ** e", "1 << e")),
        ("2 ** i", ("2 ** e of two integers", "int32", "`2.0 ** e`", "1 << e")),
        ("0 ** x", ("0 ** x is computed as exp2(x * log2(0))", "above 0")),
        ("(-2.5) ** x", ("-2.5 ** x", "above 0")),
        ("(x > 0) ** 2", ("`**` is of numbers", "condition")),
        ("2.0 ** (x > 0)", ("`**` is of numbers", "condition")),
        ("x ** 'a'", ("expected a number", "str")),
        ("f ** ctx.lane", ("varies by lane", "cannot be combined with a fragment")),
        ("f.__ipow__(2)", ("updated in place by `+=`", "f.set(...)")),
    ],
)
def test_refused_powers(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        traced(text)
