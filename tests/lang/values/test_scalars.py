"""Traced scalars: arithmetic as Python has it, int32, folding, select, variables."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import evaluated, from_text, in_role, of_kind, refused, role_from_text
from tilepipe.ir import expressions as exprs, ops

SIGNED = list(itertools.product((-7, -1, 0, 5, 12), (-4, -1, 3, 5)))


def traced(ctx: tp.Context, n: int) -> Any:
    """`n`, in a form that is not folded."""
    return ctx.block_id + n


@pytest.mark.parametrize(("a", "b"), SIGNED)
def test_integer_arithmetic_is_pythons(a: int, b: int) -> None:
    """Floor division and modulo floor, with either operand traced."""
    results: list[Callable[[Any, Any], Any]] = [
        lambda x, y: x // y,
        lambda x, y: x % y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: x ^ y,
    ]
    out = np.zeros(3 * len(results), np.int32)

    def body(ctx: tp.Context, out: Any) -> None:
        with ctx.elect_one():
            for i, f in enumerate(results):
                ctx.store(out[3 * i], f(traced(ctx, a), traced(ctx, b)))
                ctx.store(out[3 * i + 1], f(traced(ctx, a), b))
                ctx.store(out[3 * i + 2], f(a, traced(ctx, b)))

    in_role(body, out).run()
    assert out.tolist() == [f(a, b) for f in results for _ in range(3)]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("x + 2", 7),
        ("2 - x", -3),
        ("x << 2", 20),
        ("2 << x", 64),
        ("x >> 1", 2),
        ("x & 6", 4),
        ("x | 8", 13),
        ("~x", -6),
        ("-x", -5),
        ("ctx.min(x, 3)", 3),
        ("ctx.max(x, 3)", 5),
        ("ctx.min(9, x)", 5),
        ("ctx.ceil_div(x, 2)", 3),
        ("ctx.ceil_div(12, x)", 3),
        ("ctx.select(x > 4, 1, 2)", 1),
        ("ctx.select(x != 5, 1, 2)", 2),
        ("ctx.select((x > 3) & (x < 9), x, -1)", 5),
        ("ctx.select(~(x > 3) | (x == 5), 1, 0)", 1),
        ("x.to('float32').to('int32')", 5),
        ("(x / 2 * 10).to('int32')", 25),
        ("ctx.let(x * 3, 'y') + 1", 16),
        ("ctx.num_clusters", 1),
        ("ctx.cluster_id + ctx.cta_rank", 0),
        ("(x > 4).to('int32') + 1", 2),
    ],
)
def test_scalar_expressions(text: str, want: int) -> None:
    out = np.zeros(1, np.int32)
    k = from_text(
        "@ctx.role('one', warps=1)\ndef one():\n    x = ctx.block_id + 5\n    with"
        f" ctx.elect_one():\n        ctx.store(out[0], {text})"
    )
    k.bind(out).run()
    assert out[0] == want


@pytest.mark.parametrize(
    "text",
    [
        "ctx.let(3) + 4 == 7",
        "(ctx.var(1).get() * 0) + 0 == 0",
        "ctx.select(ctx.let(1) == 1, 5, 6)",
        "ctx.min(3, 4)",
        "ctx.max(ctx.let(3), 4)",
        "~(ctx.let(1) == 1)",
        "-ctx.let(2)",
    ],
)
def test_constants_fold(text: str) -> None:
    found: list[Any] = []
    role_from_text(f"found.append({text})", found=found)
    if "var" not in text:
        assert isinstance(found[0]._expr, exprs.Const)


def test_neutral_elements_are_dropped() -> None:
    found: list[Any] = []
    role_from_text(
        "x = ctx.block_id\nfound.extend([x, x + 0, x - 0, x * 1, x // 1, 0 + x, 1 * x])",
        found=found,
    )
    assert all(v._expr is found[0]._expr for v in found)


def test_integers_are_int32_and_literals_follow() -> None:
    found: list[Any] = []
    role_from_text(
        "x = ctx.block_id\nfound.extend([x, x + 1, x / 2, x + 1.5, x > 1, x.to('int64') "
        "+ x, x.to('int64') + 2**40, ctx.let(True)])",
        found=found,
    )
    assert [v.dtype for v in found] == [
        tp.int32,
        tp.int32,
        tp.float32,
        tp.float32,
        tp.boolean,
        tp.int64,
        tp.int64,
        tp.boolean,
    ]


@pytest.mark.parametrize("bound", [True, False])
def test_int32_overflow_is_reported_not_wrapped_silently(bound: bool) -> None:
    """The simulator checks the range that the GPU would wrap around."""
    big = np.zeros(1, np.int32)

    def body(ctx: tp.Context, out: Any) -> None:
        with ctx.elect_one():
            x = ctx.block_id + 2**30
            ctx.store(out[0], ctx.let(x * 4) if bound else x * 4)

    with pytest.raises(tp.SimFault, match="overflow: 4,294,967,296 is outside"):
        in_role(body, big).run()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x // 0", ("division by zero",)),
        ("x % 0", ("division by zero",)),
        ("ctx.let(1) // 0", ("division by zero",)),
        ("x.to('float32') // 2", ("'floordiv' needs integers", "float32")),
        ("x.to('float32') & 1", ("'and' needs integers", "float32")),
        ("~x.to('float32')", ("'~'", "boolean or an integer")),
        ("x + 'a'", ("expected a number or a traced value", "str")),
        ("x + None", ("expected a number or a traced value", "NoneType")),
        ("x + [1]", ("expected a number or a traced value", "list")),
        ("x + 2**40", ("1099511627776 does not fit in int32", "x.to('int64')")),
        ("x - (-2**31 - 1)", ("-2147483649 does not fit in int32",)),
        ("x == 2**31", ("2147483648 does not fit in int32",)),
        ("ctx.let(2**30) * 4", ("4294967296 does not fit in int32",)),
        ("x + 2**70", ("does not fit in 64 bits",)),
        ("ctx.select(x, 1, 2)", ("select must be boolean", "int32", "!= 0")),
        ("ctx.when(x).__enter__()", ("when must be boolean", "int32", "!= 0")),
        ("ctx.assert_(x)", ("takes a condition", "int32")),
        ("ctx.print('{} {}', x)", ("2 places `{}` for 1 arguments",)),
        ("for i in ctx.range(x.to('float32')): pass", ("loop bound must be an integer", "float32")),
        ("for i in ctx.range(0, 4, 0): pass", ("step", "positive", "got 0")),
        ("for i in ctx.range(0, 4, -1): pass", ("step", "positive", "got -1")),
        ("for i in ctx.range(): pass", ("1 to 3 arguments, got 0",)),
        ("for i in ctx.range(ctx.lane): pass", ("loop bound", "varies by lane")),
        ("x.to('int3')", ("unknown dtype", "int3")),
    ],
)
def test_refused_expressions(text: str, words: tuple[str, ...]) -> None:
    error = tp.BindError if "dtype" in words[0] else tp.TraceError
    with refused(error, *words):
        role_from_text(f"x = ctx.block_id\n{text}")


def test_a_large_expression_stays_linear() -> None:
    """x = x * 2 + x, forty times: 3^40 nodes if every use were a copy."""

    def body(ctx: tp.Context, out: Any) -> None:
        x = traced(ctx, 1)
        for _ in range(40):
            x = (x + x) - (x // 2)
        with ctx.elect_one():
            ctx.store(out[0], x % 7)

    program = in_role(body)
    assert len(str(program)) < 40 * 400
    assert len(of_kind(program, ops.Let)) < 60


# -- variables -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "python"),
    [
        ("v += i", lambda v, i: v + i),
        ("v -= i", lambda v, i: v - i),
        ("v *= i", lambda v, i: v * i),
        ("v.set(v.get() + 2)", lambda v, i: v + 2),
        ("v[...] = v[...] + 3", lambda v, i: v + 3),
        ("v[...] = i", lambda v, i: i),
        ("v.set(1 + v)", lambda v, i: 1 + v),
        ("v.set(i - v)", lambda v, i: i - v),
        ("v.set(i * 2 + v)", lambda v, i: i * 2 + v),
        ("v.set(17 // v)", lambda v, i: 17 // v),
        ("v.set(v % 3 + 1)", lambda v, i: v % 3 + 1),
        ("v += v + 1", lambda v, i: v + v + 1),
        ("v.set(ctx.select(v > 2, 1, v + 1))", lambda v, i: 1 if v > 2 else v + 1),
        ("v.set(ctx.max(v, i))", lambda v, i: max(v, i)),
        ("v.set((i << 1) | (v & 5))", lambda v, i: (i << 1) | (v & 5)),
    ],
)
def test_variables_change_in_place(update: str, python: Callable[[int, int], int]) -> None:
    v = 3
    for i in range(5):
        v = python(v, i)
    out = np.zeros(1, np.int32)
    text = f"""
    @ctx.role('one', warps=1)
    def one():
        v = ctx.var(3)
        for i in ctx.range(5):
            {update}
        with ctx.elect_one():
            ctx.store(out[0], v)
    """
    from_text(text).bind(out).run()
    assert out[0] == v


def test_a_variable_read_keeps_what_it_was() -> None:
    def body(ctx: tp.Context) -> Any:
        v = ctx.var(3)
        before = v.get()
        v.set(9)
        return before * 10 + v

    assert evaluated(body) == 39


def test_a_variable_set_in_a_branch() -> None:
    for limit, want in ((0, 2), (1, 1)):

        def body(ctx: tp.Context, limit: int = limit) -> Any:
            v = ctx.var(0)
            with ctx.when(ctx.block_id < limit):
                v.set(1)
            with ctx.otherwise():
                v.set(2)
            return v.get()

        assert evaluated(body) == want


def test_a_variable_has_its_own_dtype() -> None:
    assert evaluated(lambda ctx: ctx.var(1, dtype="float32") / 4, np.float32) == 0.25
    assert "var count: int32 = 0" in str(role_from_text("count = ctx.var(0)"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("v[0] = 1", ("v[...] = x", "v.set(x)")),
        ("v[0]", ("v[...]", "v.get()")),
        ("v.set(ctx.lane)", ("variable 'v'", "varies by lane", "ctx.var(ctx.lane * 0)")),
        ("v += ctx.lane", ("variable 'v'", "varies by lane")),
        ("v.set(ctx.warp)", ("variable 'v'", "varies by warp")),
        ("v.set('a')", ("expected a number",)),
    ],
)
def test_refused_assignments(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        role_from_text(f"v = ctx.var(0)\n{text}", warps="warps=2")


MIXED = "ctx.select(ctx.lane > 1, v, v)"


@pytest.mark.parametrize(
    ("init", "advice", "dtype"),
    [
        ("0.0", "ctx.lane * 0.0", "float32"),
        ("2.5", "ctx.lane * 0.0 + 2.5", "float32"),
        ("-2.5", "ctx.lane * 0.0 + -2.5", "float32"),
        ("float('-inf')", 'ctx.lane * 0.0 + float("-inf")', "float32"),
        ("7", "ctx.lane * 0 + 7", "int32"),
        ("-(2**31)", "ctx.lane * 0 + -2147483648", "int32"),
        ("True", "ctx.lane >= 0", "boolean"),
        ("False", "ctx.lane < 0", "boolean"),
        ("1.5, 'float16'", '(ctx.lane * 0).to("float16") + 1.5', "float16"),
        ("2**40", '(ctx.lane * 0).to("int64") + 1099511627776', "int64"),
        ("2**31, 'uint32'", '(ctx.lane * 0).to("uint32") + 2147483648', "uint32"),
        ("ctx.block_id", '(ctx.lane * 0).to("int32") + x', "int32"),
        ("ctx.block_id * 0.5", '(ctx.lane * 0).to("float32") + x', "float32"),
        ("ctx.block_id == 1", "(ctx.lane >= 0) & x", "boolean"),
    ],
)
@pytest.mark.parametrize("update", ["v.set(MIXED)", "with ctx.when(ctx.lane > 1): v.set(v)"])
def test_the_advised_variable_has_the_same_value_and_dtype(
    init: str, advice: str, dtype: str, update: str
) -> None:
    with refused(tp.TraceError, f"`ctx.var({advice})`"):
        role_from_text(f"v = ctx.var({init})\n{update.replace('MIXED', MIXED)}")
    x = init.split(",")[0]
    text = f"""
    @ctx.role('one', warps=1)
    def one():
        x = {x}
        v = ctx.var({advice})
        {update.replace("MIXED", MIXED)}
        ctx.store(out[ctx.lane], ctx.select(v == x, 1, 0))
    """
    out = np.zeros(32, np.int32)
    program = from_text(text).bind(out)
    assert f"var v: {dtype} =" in str(program)
    program.run()
    assert out.all()


def test_a_variable_that_varies_by_warp_is_advised_by_warp() -> None:
    text = "v = ctx.var({})\nv.set(v + ctx.warp)"
    with refused(tp.TraceError, "varies by warp as well: `ctx.var(ctx.warp * 0 + 3)`"):
        role_from_text(text.format("3"), warps="warps=2")
    role_from_text(text.format("ctx.warp * 0 + 3"), warps="warps=2")
    with refused(tp.TraceError, "a value that each warp shares", "`ctx.var((ctx.lane * 0)"):
        role_from_text("v = ctx.var(ctx.warp)\nv.set(ctx.lane)", warps="warps=2")


@pytest.mark.parametrize(
    "update", ["v.set({})", "v[...] = {}", *(f"v {op}= {{}}" for op in ("+", "-", "*", "/"))]
)
@pytest.mark.parametrize("value", ["2.5", "x * 0.5"])
def test_a_float_is_not_assigned_to_an_integer(update: str, value: str) -> None:
    """It would lose its fraction without a word."""
    with refused(
        tp.TraceError,
        "variable 'v' is int32",
        "set to a float (float32",
        "`ctx.var(4.0)`",
        '.to("int32")',
        update.format(value),
    ):
        role_from_text(f"x = ctx.block_id\nv = ctx.var(4)\n{update.format(value)}")
    role_from_text(f"x = ctx.block_id\nv = ctx.var(4.0)\n{update.format(value)}")


def test_floats_and_variables_of_other_dtypes() -> None:
    with refused(tp.TraceError, "variable 'v' is boolean", "(float32 0.5)", "comparison"):
        role_from_text("v = ctx.var(True)\nv.set(0.5)")
    with refused(tp.TraceError, "variable 'v' is uint32", '`ctx.var(x, "float32")`'):
        role_from_text("v = ctx.var(ctx.block_id, 'uint32')\nv += 0.5")
    with refused(tp.TraceError, "(float64)", '`ctx.var(1.0, "float64")`'):
        role_from_text("v = ctx.var(1)\nv += ctx.block_id.to('float64')")
    with refused(tp.TraceError, "as a float, `ctx.var(ctx.lane * 0.0 + 1.0)`"):
        role_from_text("v = ctx.var(1)\nv += ctx.lane * 0.5")
    kept = "v = ctx.var(1)\nv.set((v * 2.5).to('int32'))\nw = ctx.var(1.0)\nw.set(3)\nw += v"
    role_from_text(kept)


def test_a_variable_that_varies_by_lane() -> None:
    out = np.zeros(32, np.int32)

    def body(ctx: tp.Context, out: Any) -> None:
        v = ctx.var(ctx.lane)
        for _ in ctx.range(3):
            v += ctx.lane
        ctx.store(out[ctx.lane], v.get())

    in_role(body, out).run()
    assert out.tolist() == [4 * lane for lane in range(32)]


def test_unbound_variable_names() -> None:
    """Two variables of one name stay apart."""
    text = str(
        role_from_text(
            "v = ctx.var(0)\nw = v\nv = ctx.var(1)\nctx.print('{} {}', w.get(), v.get())"
        )
    )
    assert "var v: int32 = 0" in text
    assert "var v_1: int32 = 1" in text


@pytest.mark.parametrize(
    ("function", "x", "want"),
    [
        ("exp2", 3.0, 8.0),
        ("exp", 0.0, 1.0),
        ("sqrt", 2.25, 1.5),
        ("rsqrt", 4.0, 0.5),
        ("log2", 8.0, 3.0),
        ("abs", -2.5, 2.5),
        ("floor", 1.75, 1.0),
        ("ceil", 1.25, 2.0),
        ("round", 2.5, 2.0),
        ("rcp", -4.0, -0.25),
        ("sigmoid", -200.0, 0.0),
        ("erf", 0.5, float(np.float32(0.5204998778))),
        ("sqrt", 9, 3.0),
    ],
)
def test_functions_of_scalars(function: str, x: float, want: float) -> None:
    assert evaluated(lambda ctx: ctx.math(function, ctx.let(x) + ctx.block_id), np.float32) == want


def test_an_unknown_function_of_a_scalar() -> None:
    with refused(tp.TraceError, "ctx.math knows abs, ceil, cos", "'gamma'"):
        role_from_text("ctx.math('gamma', 1.0)")
