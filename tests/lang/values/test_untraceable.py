"""Python that needs a number now, and ways out of a traced block: each an error that says what to
write.
"""

from __future__ import annotations

import pytest

import tilepipe as tp
from tests.support.tracing import of_kind, refused, role_from_text
from tilepipe.ir import ops

TRUTH = ("ctx.when", "ctx.select", "`&`, `|`, `~`")


@pytest.mark.parametrize(
    "text",
    [
        "if x > 0: pass",
        "while x: pass",
        "x > 0 and x < 3",
        "x > 0 or x < 3",
        "not x",
        "x in [1, 2]",
        "1 in (x, x)",
        "0 < x < 3",
        "bool(x)",
        "y = 1 if x == 0 else 2",
        "assert x",
        "any([x, x])",
        "max(x, 3)",
        "sorted([x, 2])",
        "v = ctx.var(0)\nif v: pass",
        "v = ctx.var(0)\nif v > 1: pass",
        "[i for i in range(3) if x]",
    ],
)
def test_the_truth_of_a_traced_value(text: str) -> None:
    with refused(tp.TraceError, *TRUTH, text.splitlines()[-1].strip()):
        role_from_text(f"x = ctx.block_id\n{text}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("int(x)", ("int()", "ctx.range")),
        ("float(x)", ("float()",)),
        ("len(x)", ("len()",)),
        ("range(x)", ("range()", "ctx.range(n)")),
        ("[1, 2, 3][x]", ("an index", "buffer[i]")),
        ("list(x)", ("iteration",)),
        ("a, b = x", ("iteration",)),
        ("'%d' % x", ("block_id",)),
        ("len(ctx.range(3))", ("len() of a traced range",)),
        ("hex(x)", ("an index",)),
        ("round(float(x))", ("float()",)),
        ("len(ctx.var(0))", ("var",)),
    ],
)
def test_numbers_that_are_not_known_yet(text: str, words: tuple[str, ...]) -> None:
    error = TypeError if "var" in words else tp.TraceError
    with pytest.raises(error) as caught:
        role_from_text(f"x = ctx.block_id\n{text}")
    assert all(word in str(caught.value) for word in words) or error is TypeError


def test_traced_values_are_not_keys() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        role_from_text("{ctx.block_id: 1}")


LOOP = ("break", "return", "traced once", "ctx.when")


@pytest.mark.parametrize(
    "text",
    [
        "for i in ctx.range(3):\n    break",
        "for i in ctx.range(3):\n    ctx.print('{}', i)\n    break\nctx.print('after')",
        "for i in ctx.range(3):\n    return",
        "for i in ctx.range(3):\n    for j in ctx.range(3):\n        break",
        "for i in ctx.range(3):\n    for j in ctx.range(3):\n        return",
        "for i in ctx.range(3):\n    for j in range(2):\n        return",
        "def f():\n    for i in ctx.range(3):\n        return i\nf()",
        "for i in ctx.range(3):\n    with ctx.elect_one():\n        break",
        "for t in tp.StaticScheduler(ctx, (2, 2)):\n    break",
    ],
)
def test_leaving_a_traced_loop(text: str) -> None:
    with pytest.raises(tp.TraceError) as caught:
        role_from_text(text)
    message = str(caught.value)
    assert "leaves a `with ctx.elect_one" in message or all(word in message for word in LOOP), (
        message
    )


def test_the_error_names_the_loop_that_was_left() -> None:
    with refused(tp.TraceError, *LOOP, "for j in ctx.range(7):"):
        role_from_text("for i in ctx.range(3):\n    for j in ctx.range(7):\n        break")


@pytest.mark.parametrize("block", ["ctx.when(ctx.block_id == 0)", "ctx.elect_one()"])
@pytest.mark.parametrize(
    ("jump", "text"),
    [
        ("continue", "for i in ctx.range(3):\n    with {}:\n        continue"),
        ("continue", "for i in range(3):\n    with {}:\n        continue"),
        ("break", "for i in range(3):\n    with {}:\n        break"),
        ("return", "with {}:\n    return"),
        ("return", "def f():\n    with {}:\n        return 1\nf()"),
        (
            "continue",
            "for i in ctx.range(3):\n    with {}:\n        if True:\n            continue",
        ),
        ("return", "with {}:\n    for i in range(3):\n        return"),
        (
            "continue",
            "for i in ctx.range(3):\n    with contextlib.nullcontext(), {}:\n        continue",
        ),
        ("return", "with {}:\n    try:\n        return\n    finally:\n        pass"),
        ("return", "with {}:\n    with contextlib.nullcontext():\n        return"),
        ("return", "with {}:\n    try:\n        pass\n    except KeyError:\n        return"),
        ("return", "with {}:\n    match 1:\n        case 1:\n            return"),
    ],
)
def test_leaving_a_branch(block: str, jump: str, text: str) -> None:
    with refused(
        tp.TraceError, f"`{jump}` at line", block.split("(")[0], "dropped without a trace"
    ):
        role_from_text(text.format(block))


def test_leaving_per_warp() -> None:
    with refused(tp.TraceError, "`return` at line", "ctx.per_warp"):
        role_from_text("with ctx.per_warp() as w:\n    return", warps="warpgroups=1")


def test_leaving_the_other_side() -> None:
    with refused(tp.TraceError, "`return` at line"):
        role_from_text(
            "with ctx.when(ctx.block_id == 0):\n    pass\nwith ctx.otherwise():\n    return"
        )


@pytest.mark.parametrize(
    "text",
    [
        (
            "with ctx.when(ctx.block_id == 0):\n"
            "    for i in range(5):\n"
            "        if i == 2:\n"
            "            break\n"
            "        ctx.print('{}', i)"
        ),
        (
            "with ctx.when(ctx.block_id == 0):\n"
            "    for i in range(5):\n"
            "        if i < 3:\n"
            "            continue\n"
            "        ctx.print('{}', i)"
        ),
        (
            "with ctx.when(ctx.block_id == 0):\n"
            "    def f():\n"
            "        return 2\n"
            "    for i in range(f()):\n"
            "        ctx.print('{}', i)"
        ),
        (
            "for i in range(9):\n"
            "    if i == 2:\n"
            "        break\n"
            "    with ctx.when(ctx.block_id == 0):\n"
            "        ctx.print('{}', i)"
        ),
        (
            "for i in ctx.range(5):\n"
            "    for j in range(3):\n"
            "        if j == 2:\n"
            "            break\n"
            "        ctx.print('{}', j)"
        ),
    ],
)
def test_jumps_of_python_loops_inside_are_python(text: str) -> None:
    assert len(of_kind(role_from_text(text), ops.Print)) == 2


@pytest.mark.parametrize("what", ["ctx.range(4)", "work"])
@pytest.mark.parametrize(
    "text",
    [
        "for i, k in enumerate({}):\n    ctx.print('{{}}', i)",
        "for a, k in zip([1, 2, 3, 4], {}):\n    ctx.print('{{}}', a)",
        "for k in map(str, {}):\n    ctx.print('x')",
        "list({})",
        "for k in sorted({}):\n    ctx.print('x')",
        "a, b = {}",
        "xs = [*{}]",
        "next(iter({}))",
        "import itertools\nfor k in itertools.islice({}, 2):\n    ctx.print('x')",
        "import itertools\nfor a, b in itertools.product({}, range(2)):\n    ctx.print('x')",
        "for i, k in enumerate(x for x in {}):\n    ctx.print('{{}}', i)",
        "list(x for x in {})",
    ],
)
def test_a_traced_loop_is_driven_by_a_for_statement_only(text: str, what: str) -> None:
    with refused(
        tp.TraceError,
        "a traced loop",
        "`for` statement",
        "enumerate, zip",
        "traced once",
        "at <cell ",
    ):
        role_from_text(text.format(what), before="work = tp.StaticScheduler(ctx, (2, 2))")


@pytest.mark.parametrize(
    "text",
    [
        (
            "def tiles():\n"
            "    for k in ctx.range(4):\n"
            "        yield k * 2\n"
            "for k in tiles():\n"
            "    ctx.print('{}', k)"
        ),
        "def tiles():\n    yield from ctx.range(4)\nfor k in tiles():\n    ctx.print('{}', k)",
        (
            "r = ctx.range(4)\n"
            "for k in r:\n"
            "    ctx.print('{}', k)\n"
            "for k in r:\n"
            "    ctx.print('{}', k)"
        ),
        (
            "for j, xs in enumerate([1, 2]):\n"
            "    for k in ctx.range(4):\n"
            "        ctx.print('{}', k + j)"
        ),
        "for k in (\n    ctx.range(\n        4\n    )\n):\n    ctx.print('{}', k)",
    ],
)
def test_for_statements_may_be_apart_from_their_loop(text: str) -> None:
    assert role_from_text(text).run().printed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ctx.when(ctx.lane == 0)", "with ctx.when(...):"),
        ("ctx.elect_one()", "with ctx.elect_one(...):"),
        ("with ctx.when(ctx.block_id == 0):\n    ctx.elect_one()", "with ctx.elect_one(...):"),
        ("ctx.per_warp()", "with ctx.per_warp(...):"),
        (
            "with ctx.when(ctx.block_id == 0):\n    ctx.print('a')\nctx.otherwise()",
            "with ctx.otherwise(...):",
        ),
        ("r = ctx.range(5)", "for i in ctx.range(...):"),
        ("for i in ctx.range(3):\n    ctx.range(5)", "for i in ctx.range(...):"),
    ],
)
def test_what_is_made_and_never_used(text: str, words: str) -> None:
    with refused(tp.TraceError, words, "does nothing", "at <cell", text.splitlines()[-1].strip()):
        role_from_text(text, warps="warpgroups=1")


def test_a_range_of_the_set_up_may_be_iterated_in_a_role() -> None:
    role_from_text("for i in r:\n    ctx.print('{}', i)", before="r = ctx.range(3)")
    with refused(tp.TraceError, "ctx.range is not iterated", "r = ctx.range(3)"):
        role_from_text("ctx.print('a')", before="r = ctx.range(3)")


def test_a_reversed_range() -> None:
    with refused(tp.TraceError, "upwards", "n - 1 - i"):
        role_from_text("for i in reversed(ctx.range(3)):\n    pass")


def test_a_role_takes_no_arguments() -> None:
    def k(ctx: tp.Context) -> None:
        @ctx.role("one", warps=1)  # type: ignore[arg-type]
        def one(x: object) -> None: ...

    with refused(
        tp.TraceError,
        "body of role 'one' takes no arguments",
        "asks for x",
        '@ctx.role("one", warps=1)',
    ):
        tp.kernel()(k).bind()
