"""Fragments to and from memory, and of one value a column: what is refused, and with which
words.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text, refused
from tilepipe.ir.program import TensorArg

HEAD = """
tile = ctx.smem((64, 32), 'float32', name='tile')[0]
half = ctx.smem((64, 12), 'bfloat16', swizzle=0, name='half')[0]
line = ctx.smem((1, 32), 'float32', name='line')[0]
"""


def bind(text: str, warps: str = "warpgroups=1") -> tp.Program:
    """A kernel of a matrix a, a vector b and integers n, with one role of this text."""
    lines = "\n".join(f"    {x}" for x in text.strip().splitlines())
    kernel = from_text(
        f"{HEAD.strip()}\n@ctx.role('one', {warps})\ndef one():\n{lines}",
        header="def k(ctx, a, b, n):",
    )
    return kernel.bind(
        np.zeros((64, 32), np.float32), np.zeros(64, np.float32), np.zeros((4, 4), np.int64)
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "ctx.fragment(shape=(1, 12))",
            ("multiple of 64 rows and of 8 columns", "1 row, for one value a column", "got 1×12"),
        ),
        ("ctx.fragment(shape=(1, 1))", ("got 1×1",)),
        ("ctx.fragment(shape=(2, 8))", ("got 2×8",)),
        ("ctx.fragment(shape=(1, 32)).cols(4, 8)", ("columns [4, 12) of a fragment of 32",)),
        (
            "ctx.fragment(shape=(1, 32)).sum()",
            ("reduction goes along rows", "1×32", "one value a column"),
        ),
        (
            "f = ctx.fragment(shape=(1, 32))\nf.set(ctx.fragment(shape=(64, 32)))",
            ("64×32 at column 0", "1×32"),
        ),
        (
            "f = ctx.fragment(shape=(1, 32))\nf.set(ctx.fragment(shape=(64, 1)))",
            ("64×1 at column 0", "1×32"),
        ),
        (
            "f = ctx.fragment(shape=(64, 1))\nf.set(ctx.fragment(shape=(1, 32)))",
            ("1×32 at column 0", "64×1"),
        ),
        (
            "f = ctx.fragment(shape=(64, 32))\nf.set(ctx.fragment(shape=(1, 32)), col=8)",
            ("1×32 at column 8", "64×32"),
        ),
        (
            "ctx.fragment(shape=(1, 32)) + ctx.fragment(shape=(1, 8))",
            ("(1, 32)", "(1, 8)", "or 1 in one of them"),
        ),
        (
            "f = ctx.fragment(shape=(1, 32))\nwith ctx.per_warp():\n    f.fill(0)",
            ("the same in all warps", "out of per_warp"),
        ),
        (
            "f = ctx.fragment(shape=(1, 32))\nwith ctx.per_warp():\n    ctx.store(line, f)",
            ("whole warpgroup", "out of per_warp"),
        ),
        ("ctx.store(tile, ctx.fragment(shape=(1, 32)))", ("1×32 here", "64×32")),
        ("f = ctx.fragment(shape=(64, 32))\nf.apply('gelu')", ("exp2", "not 'gelu'")),
        ("f = ctx.fragment(shape=(64, 32))\nif f == 0: pass", ("truth of a fragment",)),
        ("f = ctx.fragment(shape=(64, 32))\nf.set(f // 2)", ("'floordiv' needs integers",)),
        (
            "f = ctx.fragment(shape=(64, 32))\nctx.select(f, f, 0)",
            ("condition of select must be boolean",),
        ),
        (
            "f = ctx.fragment(shape=(64, 32))\nctx.select(ctx.lane == 0, f, 0)",
            ("varies by lane", "(m, 1)", "(1, n)"),
        ),
        (
            (
                "x = ctx.fragment(shape=(64, 32))\n"
                "y = ctx.select(x > 0, x, 0)\n"
                "x.fill(0)\n"
                "ctx.fragment(y)"
            ),
            ("reads 'x' (made at <cell", "written after"),
        ),
        (
            "ctx.load_global(a, (0, 0), (64, 12))",
            ("multiple of 64 rows and of 8 columns", "got 64×12"),
        ),
        ("ctx.load_global(a, (0, 0), (60, 32))", ("got 60×32",)),
        ("ctx.load_global(a, (0, 0), 64)", ("(rows, cols)", "got 64")),
        ("ctx.load_global(a, (0,), (64, 32))", ("takes 2 coordinates", "got 1")),
        ("ctx.load_global(a, 0, (64, 32))", ("takes 2 coordinates", "got 0")),
        (
            "ctx.load_global(a, (0, 1.5), (64, 32))",
            ("a coordinate must be an integer", "float32 1.5"),
        ),
        (
            "ctx.load_global(a, (ctx.lane, 0), (64, 32))",
            ("a coordinate of load_global must be the same in every thread", "varies by lane"),
        ),
        (
            "ctx.load_global(a, (ctx.warp, 0), (64, 32))",
            ("a coordinate of load_global", "varies by warp"),
        ),
        (
            "ctx.load_global(b, (0,), (64, 32))",
            ("last two dimensions", "'b' 1-d", "(1, n)", "(m, 1)"),
        ),
        (
            "ctx.load_global(tile, (0, 0), (64, 32))",
            ("tensor argument of the kernel", "tile of 'tile'", "f.load(tile)"),
        ),
        ("ctx.load_global(5, (0, 0), (64, 32))", ("tensor argument of the kernel, got 5",)),
        ("ctx.load_global(n, (0, 0), (64, 32))", ("'n' is int64", "float32, float16, bfloat16")),
        (
            "with ctx.elect_one():\n    ctx.load_global(b, (0,), (1, 32))",
            ("load_global", "all threads of the warpgroup", "elect block at"),
        ),
        (
            "with ctx.per_warp():\n    ctx.load_global(b, (0,), (1, 32))",
            ("load_global is made by the whole warpgroup", "out of per_warp"),
        ),
        ("ctx.store_global(a, (0, 0), 1.0)", ("store_global writes a fragment", "tensor[i, j]")),
        (
            "ctx.store_global(a, (0, 0, 0), ctx.fragment(shape=(64, 32)))",
            ("store_global", "takes 2 coordinates", "got 3"),
        ),
        (
            "ctx.store_global(n, (0, 0), ctx.fragment(shape=(64, 32)))",
            ("store_global: 'n' is int64",),
        ),
        (
            "ctx.store_global(b, (0,), ctx.fragment(shape=(1, 32)), rows=3)",
            ("rows= says how many rows of a fragment are written", "1×32, has one value a column"),
        ),
        (
            "ctx.store_global(a, (0, 0), ctx.fragment(shape=(64, 32)), rows=1.5)",
            ("rows= of store_global must be an integer", "float32 1.5"),
        ),
        (
            "ctx.store_global(a, (0, 0), ctx.fragment(shape=(64, 32)), rows=ctx.lane)",
            ("rows= of store_global must be the same in every thread", "varies by lane"),
        ),
        (
            "ctx.store_global(tile, (0, 0), ctx.fragment(shape=(64, 32)))",
            ("tensor argument", "ctx.store(tile, f)"),
        ),
        (
            "ctx.store(a, ctx.fragment(shape=(64, 32)))",
            ("ctx.store writes one element", "ctx.tma_store, or by ctx.store_global"),
        ),
        (
            "f = ctx.fragment(shape=(64, 32))\nf.load(tile.on(ctx.lane % 2))",
            ("the CTA whose tile a fragment moves", "varies by lane"),
        ),
        (
            "f = ctx.fragment(shape=(64, 32))\nctx.store(tile.on(ctx.warp), f)",
            ("the CTA whose tile a fragment moves", "varies by warp"),
        ),
        (
            "f = ctx.fragment(shape=(64, 32))\nctx.store(tile.on(0.5), f)",
            ("cta= takes an integer 0..15",),
        ),
        ("ctx.store(half, ctx.fragment(shape=(64, 12), dtype='bfloat16'))", ("got 64×12",)),
    ],
)
def test_refused(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        bind(text)


def test_a_role_of_warps_has_no_fragments() -> None:
    with refused(tp.TraceError, "fragments live in the registers of a warpgroup", "warpgroups="):
        bind("ctx.load_global(b, (0,), (1, 32))", "warps=4")


def test_what_a_kernel_says_of_them() -> None:
    program = bind(
        "x = ctx.load_global(a, (0, 8), (64, 16))\nctx.store_global(b, (3,), ctx.fragment(x.sum()))"
    )
    assert "fragment_load_global dst=a_part tensor=a coords=(0, 8)" in str(program)
    assert "fragment_store_global tensor=b coords=(3) value=frag" in str(program)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("float16", tp.float16),
        ("bfloat16", tp.bfloat16),
        ("float8_e4m3", tp.float32),
        ("float32", tp.float32),
    ],
)
def test_the_dtype_of_what_is_loaded(kind: str, wanted: tp.DType) -> None:
    seen = []

    @tp.kernel()
    def k(ctx: tp.Context, a: object) -> None:
        @ctx.role("one", warpgroups=1)
        def one() -> None:
            seen.append(ctx.load_global(a, (0, 0), (64, 8)).dtype)  # type: ignore[arg-type]

    k.bind(np.zeros((64, 8), getattr(tp, kind).numpy))
    assert seen == [wanted]


def loading(x: np.ndarray, row: str, last: str = "0") -> tp.Program:
    """Loads one value a row, of 64 rows from `row` on, and writes them into y."""
    kernel = from_text(
        f"""
@ctx.role('one', warpgroups=1)
def one():
    ctx.store_global(y, ({row},), 1.0 * ctx.load_global(x, ({row}, {last}), (64, 1)))
""".strip(),
        header="def k(ctx, x, y, n):",
    )
    return kernel.bind(x, np.zeros(128, np.float32), 1)


@pytest.mark.parametrize("row", ["64 * n", "0", "64 * n + 128"])
def test_a_column_of_a_matrix_is_no_value_a_row(row: str) -> None:
    """It would be read as zeros below its first row, in the simulator and on a GPU alike."""
    words = (
        "load_global: the rows of a fragment 64×1 lie in the last dimension of 'x', which is 1"
        " long here, beside 128 in the one before: a row is read, and the rest of the fragment"
        " would be outside. For a column of a matrix, bind the vector x[..., 0] and drop the last"
        " coordinate, 0; for a row, bind x[i]"
    )
    x = np.arange(128, dtype=np.float32)
    for column in (x[:, None], x[None].T):
        with pytest.raises(tp.BindError) as error:
            loading(column, row)
        assert str(error.value).startswith(words)


def test_one_value_a_row_of_a_batch_of_short_rows() -> None:
    """The n-th row of a matrix; where rows have one element, it is all that is read."""
    for columns in (1, 5, 64):
        x = np.arange(128 * columns, dtype=np.float32).reshape(128, columns)
        program = loading(x, "n")
        given = program.launch_args.args["y"]
        assert isinstance(given, TensorArg)
        y = given.array
        program.run()
        assert np.array_equal(y[1 : 1 + columns], x[1])
        assert not y[1 + columns :].any()


@pytest.mark.parametrize("row", ["64 * n", "0", "64 * n + 128"])
@pytest.mark.parametrize(
    ("columns", "last", "words"),
    [
        (48, "5", "'x', from 5 on, which is 48 long here, beside 128 in the one before"),
        (100, "40", "'x', from 40 on, which is 100 long here, beside 128 in the one before"),
        (2, "0", "'x', which is 2 long here, beside 128 in the one before"),
    ],
)
def test_a_column_of_a_wide_matrix_is_no_value_a_row(
    row: str, columns: int, last: str, words: str
) -> None:
    """It would be read as the rest of a row, then zeros, in the simulator and on a GPU alike."""
    with pytest.raises(tp.BindError) as error:
        loading(np.zeros((128, columns), np.float32), row, last)
    assert words in str(error.value)
    assert f"bind the vector x[..., {last}] and drop the last coordinate, {last}" in str(
        error.value
    )


@pytest.mark.parametrize("reduce", ["None", "'add'"])
def test_a_column_of_a_matrix_is_not_stored_as_one_value_a_row(reduce: str) -> None:
    """It would be written into a row, and the rest of it lost."""
    text = f"ctx.store_global(a, (0, 5), ctx.load_global(b, (0,), (64, 1)), reduce={reduce})"
    with pytest.raises(tp.BindError) as error:
        bind(text)
    assert str(error.value).startswith(
        "store_global: the rows of a fragment 64×1 lie in the last dimension of 'a', from 5 on,"
        " which is 32 long here, beside 64 in the one before: a row is written"
    )
    bind("ctx.store_global(a, (0, 5), ctx.load_global(b, (0,), (64, 1)), rows=27)")


@pytest.mark.parametrize(
    ("shape", "row", "last"),
    [
        ((128, 100), "0", "64"),  # the last part of a row
        ((128, 100), "0", "0"),  # the first one
        ((128, 100), "n", "50"),  # a row of its own number
        ((128, 100), "0", "36"),  # ends with the row
        ((8, 40), "0", "0"),  # too few rows for a column
    ],
)
def test_parts_of_a_row_are_values_a_row(shape: tuple[int, int], row: str, last: str) -> None:
    x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    program = loading(x, row, last)
    given = program.launch_args.args["y"]
    assert isinstance(given, TensorArg)
    y = given.array
    program.run()
    start, at = int(last), int(row == "n")
    want = x[at, start : start + 64]
    assert np.array_equal(y[at : at + len(want)], want)
    assert not y[at + len(want) :].any()
