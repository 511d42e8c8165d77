"""Binding: arguments, grids, clusters; each mistake one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text, refused


def nothing(ctx: tp.Context) -> None:
    ctx.role("one", warps=1)(lambda: None)


def kernel(grid: Any = 1, cluster: Any = 1) -> tp.KernelFunction:
    @tp.kernel(grid=grid, cluster=cluster)
    def k(ctx: tp.Context, x: Any, n: Any, *, cfg: int, mode: str = "a") -> None:
        nothing(ctx)

    return k


X = np.zeros((8, 16), np.float32)


@pytest.mark.parametrize(
    ("args", "static", "words"),
    [
        ((X,), {"cfg": 1}, ("kernel 'k' takes 2 arguments (x, n)", "got 1")),
        ((X, 1, 2), {"cfg": 1}, ("takes 2 arguments", "got 3")),
        ((), {"cfg": 1}, ("takes 2 arguments", "got 0")),
        ((X, 1), {}, ("needs cfg", "cfg, mode")),
        ((X, 1), {"cfg": 1, "speed": 3}, ("does not know speed", "cfg, mode")),
        ((X, 1), {"cfg": 1, "n": 3}, ("does not know n",)),
        ((X, "3"), {"cfg": 1}, ("argument 'n'", "'3'")),
        ((X, True), {"cfg": 1}, ("argument 'n'", "True")),
        ((X, 2**31), {"cfg": 1}, ("argument 'n'", "2147483648", "int32")),
        ((X, object()), {"cfg": 1}, ("expected an array", "object")),
        ((tp.TensorMap(tp.float32, 2), 1), {"cfg": 1}, ("argument 'x'", "no array")),
    ],
)
def test_wrong_arguments(
    args: tuple[Any, ...], static: dict[str, Any], words: tuple[str, ...]
) -> None:
    with refused(tp.BindError, *words):
        kernel().bind(*args, **static)


def test_a_kernel_is_not_called() -> None:
    with refused(tp.BindError, "kernel 'k' is not called", "k.bind(...)"):
        kernel()(X, 1, cfg=1)


@pytest.mark.parametrize(
    ("grid", "want"),
    [
        (3, 3),
        ((2, 3), 6),
        ((2, 3, 4), 24),
        (lambda x: x.shape[0], 8),
        (lambda x, cfg: x.shape[1] * cfg, 32),
        (lambda chip: chip.sms, 132),
        (lambda occupancy, chip: occupancy * 0 + 1, 1),
        (lambda n: n, 7),
        (lambda mode: len(mode), 1),
        (lambda: 5, 5),
    ],
)
def test_grids(grid: Any, want: int) -> None:
    assert kernel(grid).bind(X, 7, cfg=2).launch_args.grid == want


@pytest.mark.parametrize(
    ("grid", "cluster", "words"),
    [
        (0, 1, ("grid of kernel 'k'", "got 0")),
        (-1, 1, ("got -1",)),
        (2**31, 1, ("1..2147483647", "2147483648")),
        ((2**20, 2**20), 1, ("1..2147483647",)),
        (1.5, 1, ("1.5",)),
        (True, 1, ("True",)),
        ("4", 1, ("'4'",)),
        (None, 1, ("None",)),
        ((), 1, ("grid",)),
        ((2, "3"), 1, ("grid",)),
        (3, 2, ("grid of 3 CTAs", "whole number of clusters of 2")),
        (lambda y: 1, 1, ("grid= asks for y", "x", "occupancy")),
        (1, lambda x: 1, ("cluster= asks for x", "cfg")),
        (1, lambda occupancy: 1, ("cluster= asks for occupancy",)),
        (1, 0, ("cluster", "got 0")),
        (1, (1, 1, 1, 1), ("cluster", "(1, 1, 1, 1)")),
        (1, (2, -1), ("cluster", "(2, -1)")),
        (16, 16, ("cluster of 16×1×1 = 16 CTAs", "at most 8")),
        (12, (3, 2, 2), ("3×2×2 = 12",)),
        (1, "2", ("cluster",)),
        (1, None, ("cluster",)),
        (1, 2.0, ("cluster",)),
        (1, True, ("cluster",)),
    ],
)
def test_wrong_grids(grid: Any, cluster: Any, words: tuple[str, ...]) -> None:
    with refused(tp.BindError, *words):
        kernel(grid, cluster).bind(X, 7, cfg=2)


@pytest.mark.parametrize(
    ("cluster", "size"),
    [(2, 2), ((2, 1), 2), ((1, 2, 2), 4), (lambda cfg: cfg, 2), (lambda chip: 1, 1)],
)
def test_clusters(cluster: Any, size: int) -> None:
    assert kernel(4, cluster).bind(X, 7, cfg=2).kernel.cluster_size == size


def test_an_argument_is_not_copied() -> None:
    out = np.zeros(4, np.int32)

    @tp.kernel()
    def k(ctx: tp.Context, out: Any, n: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.elect_one():
                ctx.store(out[1], n)

    k.bind(out, -5).run()
    assert out.tolist() == [0, -5, 0, 0]


def test_a_float_argument_is_float32() -> None:
    out = np.zeros(1, np.float32)

    @tp.kernel()
    def k(ctx: tp.Context, out: Any, x: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.elect_one():
                ctx.store(out[0], x * 2)

    k.bind(out, 0.1).run()
    assert out[0] == np.float32(0.1) * 2


def test_keeps_its_name_and_doc() -> None:
    @tp.kernel()
    def documented(ctx: tp.Context) -> None:
        """Does nothing."""
        nothing(ctx)

    assert (documented.name, documented.__doc__) == ("documented", "Does nothing.")


@dataclass(frozen=True)
class Setting:
    x: object


@dataclass(frozen=True, eq=False)
class Identity:
    x: object


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (Setting(1), Setting(1.0)),
        (Setting(Setting(0)), Setting(Setting(False))),
        ((1, (2,)), (1, (2.0,))),
        (frozenset({1}), frozenset({True})),
        (Identity(1), Identity(1)),
        (np.float32(1), np.float64(1)),
        ("1", 1),
    ],
)
def test_static_values_of_other_types_are_traced_apart(first: Any, second: Any) -> None:
    k = kernel()
    assert k.bind(X, 7, cfg=first).kernel is not k.bind(X, 7, cfg=second).kernel
    assert k.bind(X, 7, cfg=first).kernel is k.bind(X, 7, cfg=first).kernel


def test_equal_settings_are_traced_once() -> None:
    k = kernel()
    assert k.bind(X, 7, cfg=Setting((1, "a"))).kernel is k.bind(X, 7, cfg=Setting((1, "a"))).kernel


def test_static_values_without_a_hash_are_traced_every_time() -> None:
    k = kernel()
    assert k.bind(X, 7, cfg=[1]).kernel is not k.bind(X, 7, cfg=[1]).kernel


def test_run_names_its_options() -> None:
    program, seen = kernel(grid=2).bind(X, 7, cfg=1), []
    with pytest.raises(TypeError, match=r"Program.run\(\).*'sede'"):
        program.run(sede=3)  # type: ignore[call-arg]
    program.run(
        3,
        rules="strict",
        progress=lambda done, total: seen.append((done, total)),
        on_event=lambda *event: None,
    )
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize("text", ["for x in a: pass", "list(a)"])
def test_a_tensor_is_not_iterated(text: str) -> None:
    with refused(tp.TraceError, "not iterated", "ctx.range(a.shape[0])"):
        from_text(f"@ctx.role('r', warps=1)\ndef r():\n    {text}", "def k(ctx, a):").bind(
            np.zeros((4, 4), np.float32)
        )


def test_written_arguments_do_not_overlap_others() -> None:
    k = from_text(
        "@ctx.role('r', warps=1)\ndef r():\n    ctx.store(b[0, 0], ctx.load(a[0, 0]))",
        "def k(ctx, a, b):",
    )
    whole = np.zeros((8, 8), np.float32)
    for a, b in ((whole, whole), (whole[:4], whole[2:6])):
        with refused(tp.BindError, "'b'", "'a'", "share memory"):
            k.bind(a, b)
    k.bind(whole[:4], whole[4:])
    row = np.lib.stride_tricks.as_strided(whole[4], (4, 8), (0, 4))  # which can be written
    with refused(tp.BindError, "'b', which kernel", "elements that share memory: dimension 0"):
        k.bind(whole[:4], row)
    k.bind(row, whole[:4])


def test_an_argument_that_is_none_is_none_in_the_kernel() -> None:
    @tp.kernel()
    def k(ctx: tp.Context, out: Any, bias: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            ctx.store(out[ctx.lane], 1.0 if bias is None else ctx.load(bias[ctx.lane]))

    for bias, want in ((None, 1.0), (np.full(32, 2, np.float32), 2.0), (None, 1.0)):
        out = np.zeros(32, np.float32)
        k.bind(out, bias).run()
        assert (out == want).all()


def test_an_argument_that_is_no_array_is_named() -> None:
    for bad, words in (
        ([1, 2], "got list"),
        (np.zeros(()), "the array has 0"),
        (np.zeros(0), "every extent"),
        (np.zeros(3, "c8"), "dtype"),
    ):
        with refused(tp.BindError, "argument 'n': ", words):
            kernel().bind(X, bad, cfg=1)


def test_scalars_of_numpy_are_numbers() -> None:
    counted, scaled = kernel().bind(X, np.int64(5), cfg=1), kernel().bind(X, np.float32(0.5), cfg=1)
    assert (counted.launch_args.args["n"], scaled.launch_args.args["n"]) == (5, 0.5)
    with refused(tp.BindError, "argument 'n'", "True"):
        kernel().bind(X, np.True_, cfg=1)


def test_a_chip_is_a_chip() -> None:
    with refused(tp.BindError, "chip= takes a tp.Chip", "'H200'"):
        kernel().bind(X, 1, cfg=1, chip="H200")  # type: ignore[arg-type]


def test_a_decorator_without_parentheses() -> None:
    with refused(tp.BindError, "kernel 'nothing' has parentheses", "@tp.kernel()"):
        tp.kernel(nothing)


@pytest.mark.parametrize(
    "function",
    [lambda: None, lambda *args: None, lambda ctx, *args: None, lambda ctx, **static: None],
)
def test_a_kernel_names_its_arguments(function: Any) -> None:
    with refused(tp.BindError, "takes ctx first", "*args and **kwargs are not bound"):
        tp.kernel()(function)


@pytest.mark.parametrize(
    ("grid", "words"),
    [((2, "a"), "a tuple of extents"), ((2, 1.5), "a tuple of extents"), ((0, 3), "must be 1..")],
)
def test_a_grid_of_something_else_is_shown_as_it_is(grid: Any, words: str) -> None:
    with refused(tp.BindError, words, repr(grid)):
        kernel(grid).bind(X, 1, cfg=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"perturb": "x"}, "perturb= is a seed, an integer; got 'x'"),
        ({"perturb": True}, "perturb="),
        ({"perturb": 1.5}, "perturb="),
        ({"debug": True, "timeout_ms": 0}, "timeout_ms"),
        ({"debug": True, "timeout_ms": "1"}, "timeout_ms"),
        ({"debug": True, "timeout_ms": float("inf")}, "timeout_ms"),
    ],
)
def test_options_of_a_debug_launch(options: dict[str, Any], words: str) -> None:
    with refused(tp.BindError, words):
        kernel().bind(X, 1, cfg=1).launch(**options)


def test_a_seed_is_an_integer_of_at_least_0() -> None:
    program = kernel().bind(X, 1, cfg=1)
    assert program.run(seed=np.int64(3)).seed == 3  # type: ignore[arg-type]
    for bad in ("x", 1.5, None, -1):
        with refused(tp.BindError, "seed= is an integer of at least 0", repr(bad)):
            program.run(seed=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [True, "Strict", "lax", None, 1])
def test_rules_are_named(given: object) -> None:
    words = (
        'rules= is "practice" (what shipped compilers rely on) or "strict" (the PTX ISA to '
        "the letter); got "
    )
    with refused(tp.BindError, words, repr(given), "docs/reference/rules.md"):
        kernel().bind(X, 1, cfg=1).run(rules=given)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1e39, -1e300])
def test_a_number_beyond_float32(value: float) -> None:
    @tp.kernel()
    def scaled(ctx: tp.Context, factor: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            ctx.print("{}", factor)

    with pytest.raises(
        tp.BindError,
        match=r"argument 'factor': .* does not fit in float32, which holds up to 3\.403e\+38",
    ):
        scaled.bind(value)
    scaled.bind(float("inf"))


i64 = np.int64


@pytest.mark.parametrize(
    ("grid", "want"),
    [
        (i64(2), 2),
        ((i64(2), 3), 6),
        (lambda x: i64(x.shape[0]), 8),
        (lambda n=4: n, 7),
        (lambda m=4: m, 4),
    ],
)
def test_grids_of_numpy_and_with_defaults(grid: Any, want: int) -> None:
    assert kernel(grid).bind(X, i64(7), cfg=2).launch_args.grid == want


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (
            lambda *args: 1,
            (
                "grid= is a function of any of mode, cfg, x, n, chip, occupancy, by name",
                "not of *args, **kwargs",
            ),
        ),
        (lambda x, /: 1, ("what stands before a slash",)),
        (int, ("grid= is a function of any of",)),
        (lambda x, y: 1, ("grid= asks for y",)),
        ((2, i64(-3)), ("must be 1..2147483647",)),
    ],
)
def test_grids_of_other_functions(grid: Any, words: tuple[str, ...]) -> None:
    with refused(tp.BindError, *words):
        kernel(grid).bind(X, 7, cfg=2)


def test_clusters_of_numpy() -> None:
    assert kernel(4, (i64(2), i64(1))).bind(X, 7, cfg=2).kernel.cluster == (2, 1, 1)


@pytest.mark.parametrize("marked", [3, None, "f", print, tp.Chip, kernel()])
def test_only_functions_are_marked(marked: Any) -> None:
    with refused(tp.BindError, "@tp.kernel(...) marks a function, `def name(ctx, ...)`; got "):
        tp.kernel()(marked)


def test_an_argument_that_is_none_and_used_is_named() -> None:
    @tp.kernel()
    def k(ctx: tp.Context, a: Any, b: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            ctx.print("{}", a.shape[0])

    with refused(
        tp.BindError,
        "argument 'a' is None, which kernel 'k' uses",
        "'shape'",
        "test_bind.py",
        'ctx.print("{}", a.shape[0])',
    ):
        k.bind(None, X)
    with refused(tp.BindError, "argument 'x' is None, which grid= uses"):
        kernel(lambda x: x.shape[0]).bind(None, 1, cfg=2)


def test_a_keyword_that_is_nearly_right() -> None:
    with refused(tp.BindError, "does not know modes", "Did you mean mode=?"):
        kernel().bind(X, 1, cfg=2, modes="a")


def counting() -> tuple[tp.Program, Any]:
    """A kernel that may run twice on a counter."""
    count = np.zeros(1, np.int32)

    @tp.kernel()
    def k(ctx: tp.Context, count: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.elect_one():
                ctx.assert_(ctx.atomic_add(count[0], 1) < 2, "a third time")  # noqa: PT009

    return k.bind(count), count


def test_a_check_after_runs_is_of_what_was_bound() -> None:
    program, count = counting()
    program.run()
    program.run()
    assert program.check().ok
    assert count[0] == 2, "a check leaves the arrays as they are"
    count[0] = 5  # somebody else's hand: this is meant
    assert not program.check().ok
    count[0] = 1
    program.run()
    assert program.check().ok


def test_settings_that_no_chip_holds_are_refused_at_once() -> None:
    from tilepipe.kernels.gemm.config import GemmConfig

    with refused(tp.BindError, "stages must be at most 128"):
        GemmConfig(stages=10_000)
    assert type(GemmConfig(stages=i64(5)).stages) is int  # type: ignore[arg-type]


def test_a_tile_of_a_kernel_is_no_array() -> None:
    kept: dict[str, Any] = {}

    @tp.kernel()
    def k(ctx: tp.Context, t: Any) -> None:
        kept.update(tile=ctx.smem((8, 8), "float32", swizzle=0)[0], tensor=t)
        nothing(ctx)

    k.bind(X)
    for thing in kept.values():
        with refused(tp.BindError, "expected an array, got "):
            tp.tensor_map(thing)


class OfAFramework:
    """A CPU tensor of a framework, in a dtype that NumPy lacks."""

    dtype, shape, strides = "bfloat16", (8, 8), (16, 2)

    def __array__(self, *_: object, **__: object) -> Any:
        raise TypeError("unsupported scalar type")


def test_tensors_of_a_framework_are_not_simulated() -> None:
    @tp.kernel()
    def k(ctx: tp.Context, a: Any, b: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.elect_one():
                ctx.store(b[0, 0], ctx.load(a[0, 0]))

    program = k.bind(OfAFramework(), OfAFramework(), chip=tp.H200)
    for simulated in (program.run, program.check):
        with refused(
            tp.BindError,
            "tensor 'a': the simulator needs a NumPy bfloat16 array of rank 2, got OfAFramework",
        ):
            simulated()


@pytest.mark.parametrize("given", ["x", 1.5, True, None, (2, "y"), (1.0,)])
@pytest.mark.parametrize("name", ["grid", "cluster"])
def test_a_decorator_given_something_else_than_extents(name: str, given: Any) -> None:
    with refused(tp.BindError, f"@tp.kernel: {name}= is a number of CTAs", f"got {given!r}"):
        tp.kernel(**{name: given})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ctx.role('one', warps=1)", "@ctx.role('one', ...) stands above no function"),
        ("ctx.role('one', warps=1)(3)", "@ctx.role('one', ...) marks a function"),
        ("ctx.role(print)", "name= takes a text"),
    ],
)
def test_a_role_without_a_body(line: str, words: str) -> None:
    with refused(tp.TraceError, words):
        from_text(f"{line}\nctx.role('two', warps=1)(lambda: None)").bind(np.zeros(4, np.int32))


def test_a_notebook_shows_what_a_kernel_takes() -> None:
    @tp.kernel(grid=1)
    def double(ctx: tp.Context, a: Any, out: Any, *, stages: int, wide: bool = False) -> None:
        """out = 2 a"""
        nothing(ctx)

    line = double.function.__code__.co_firstlineno
    call = "double.bind(a, out, stages=...)"
    assert repr(double) == (f"<KernelFunction 'double' (test_bind.py:{line}): {call} is a program>")
    page = double._repr_html_()
    assert f"kernel double, not bound yet (test_bind.py:{line})" in page
    assert "<pre>out = 2 a</pre>" in page
    assert "<td>a</td><td>an array, a tensor map, a number or None</td>" in page
    assert "<td>stages=</td><td>known while it is traced</td>" in page
    assert "<td>wide=</td><td>known while it is traced; False unless given</td>" in page
    assert f"{call} is a program" in page
