"""Atomic operations, strong accesses and fences in global memory: what tracing refuses, which races
and deadlocks are found without them, and what is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import faults, refuses
from tilepipe import cuda
from tilepipe.check import check

X = np.zeros(32, np.int32)


def traced(body: Callable[[Any, Any], object], dtype: Any = np.int32) -> tp.Program:
    @tp.kernel()
    def kernel(ctx: tp.Context, x: Any) -> None:
        tile = ctx.smem((1, 32), tp.int32, swizzle=0, name="tile")[0]

        @ctx.role("one", warps=1)
        def one() -> None:
            body(ctx, (x, tile))

    return kernel.bind(X.astype(dtype))


def one_lane(statement: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    def body(ctx: Any, x: Any) -> None:
        with ctx.elect_one():
            statement(ctx, x)

    return body


@pytest.mark.parametrize(
    ("body", "dtype", "words"),
    [
        (
            lambda ctx, x: ctx.atomic_add(x[0][0], 1),
            np.int32,
            "atomic_add of one value to one element must be executed by one lane",
        ),
        (
            lambda ctx, x: ctx.atomic_add(x[1][0, ctx.lane], 1),
            np.int32,
            "atomic_add takes one element of a tensor in global memory, `tensor[i]`, not",
        ),
        (
            lambda ctx, x: ctx.atomic_min(x[0][ctx.lane], 1),
            np.float32,
            "atomic_min takes int32, uint32, int64, uint64; 'x' is float32",
        ),
        (
            lambda ctx, x: ctx.load(x[0][ctx.lane], order="acquire"),
            np.float16,
            "load with an order takes int32, uint32, int64, uint64, float32, float64; 'x' is",
        ),
        (
            lambda ctx, x: ctx.store(x[1][0, ctx.lane], 1, order="release"),
            np.int32,
            "synchronise through shared memory by barriers",
        ),
        (
            lambda ctx, x: ctx.load(x[0][ctx.lane], order="release"),
            np.int32,
            "one of 'relaxed', 'acquire'",
        ),
        (
            lambda ctx, x: ctx.store(x[0][ctx.lane], 1, order="acq_rel"),
            np.int32,
            "one of 'relaxed', 'release'",
        ),
        (lambda ctx, x: ctx.fence("release"), np.int32, "one of 'acq_rel', 'sc'"),
        (lambda ctx, x: ctx.fence(scope="grid"), np.int32, "'cta', 'cluster', 'gpu', 'sys'"),
        (
            lambda ctx, x: ctx.wait_until(x[0][0], lambda value: value > 0),
            np.int32,
            "wait_until must be executed by one lane",
        ),
        (
            one_lane(lambda ctx, x: ctx.wait_until(x[0][0], lambda value: True)),
            np.int32,
            "gives a traced condition, `lambda value: value >= n`; it gave True",
        ),
        (
            lambda ctx, x: ctx.atomic_cas(x[0][ctx.lane], 2**40, 1),
            np.int32,
            "does not fit in int32",
        ),
    ],
)
def test_what_tracing_refuses(body: Callable[[Any, Any], object], dtype: Any, words: str) -> None:
    refuses(lambda: traced(body, dtype), tp.TraceError, words)


# -- what is found without them --------------------------------------------------------


@tp.kernel(grid=2, cooperative=True)
def handed_over(
    ctx: tp.Context, box: Any, flag: Any, out: Any, *, load: str, store: str, scope: str, fence: str
) -> None:
    """CTA 0 writes a box and raises a flag; CTA 1 waits for it and reads the box."""

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            with ctx.when(ctx.block_id == 0):
                ctx.store(box[0], 42)
                if "write" in fence:
                    ctx.fence(scope=scope)
                ctx.store(flag[0], 1, order=store, scope=scope)
            with ctx.otherwise():
                ctx.wait_until(flag[0], lambda value: value == 1, order=load, scope=scope)
                if "read" in fence:
                    ctx.fence(scope=scope)
                ctx.store(out[0], ctx.load(box[0]))


def hands_over(
    load: str = "acquire", store: str = "release", scope: str = "gpu", fence: str = ""
) -> tp.Program:
    box, flag, out = (np.zeros(1, np.int32) for _ in range(3))
    return handed_over.bind(box, flag, out, load=load, store=store, scope=scope, fence=fence)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scope": "sys"},
        {"load": "relaxed", "fence": "read"},
        {"store": "relaxed", "fence": "write"},
        {"load": "relaxed", "store": "relaxed", "fence": "write and read"},
    ],
    ids=str,
)
def test_a_release_that_is_acquired_orders_clusters(settings: dict[str, str]) -> None:
    for seed in range(4):
        program = hands_over(**settings)
        program.run(seed=seed)
        out: Any = program.launch_args.args["out"]
        assert out.array[0] == 42
    for rules in ("practice", "strict"):
        verdict = check(hands_over(**settings).launch_args, rules=rules)
        assert verdict.ok
        assert verdict.traces == 1, "the wait follows the store in every order"
        verdict = check(hands_over(**settings).launch_args, rules=rules, explore=True)
        assert verdict.ok
        assert verdict.traces > 1, "both orders of the flag's accesses"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"store": "relaxed"},
            "the flag 'flag[0]' is written relaxed (store_relaxed flag[0] by role 'one' of CTA 0",
        ),
        ({"store": "relaxed"}, 'write order="release" and scope="gpu", or ctx.fence(scope="gpu")'),
        ({"load": "relaxed"}, "the flag 'flag[0]' is read relaxed (load_relaxed flag[0], at"),
        (
            {"load": "relaxed", "store": "relaxed", "fence": "write"},
            'write order="acquire" and scope="gpu", or ctx.fence(scope="gpu") after it',
        ),
    ],
)
def test_what_is_missing_is_named(settings: dict[str, str], words: str) -> None:
    faults(hands_over(**settings), tp.RaceError, "race on tensor 'box'", words)
    (fault,) = check(hands_over(**settings).launch_args).faults
    assert (fault.kind, words in fault.message) == ("RaceError", True)


@pytest.mark.parametrize("scope", ["cta", "cluster"])
def test_a_scope_has_to_include_the_other_thread(scope: str) -> None:
    (fault,) = check(hands_over(scope=scope).launch_args).faults
    for words in (
        "race on tensor 'flag'",
        f"that of the first (.{scope}) and of the second (.{scope}) leaves out the other CTA",
        "Both need scope gpu.",
    ):
        assert words in fault.message


@tp.kernel(grid=2)
def mixed(ctx: tp.Context, x: Any, *, first: str, second: str) -> None:
    """Two CTAs reach one element, each in its way."""

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            for number, way in enumerate((first, second)):
                with ctx.when(ctx.block_id == number):
                    match way:
                        case "load":
                            ctx.load(x[0])
                        case "store":
                            ctx.store(x[0], 1)
                        case "relaxed load":
                            ctx.load(x[0], order="relaxed")
                        case "relaxed store":
                            ctx.store(x[0], 1, order="relaxed")
                        case "atomic":
                            ctx.atomic_max(x[0], 1)


WAYS = ("load", "store", "relaxed load", "relaxed store", "atomic")


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in WAYS for b in WAYS])
def test_strong_accesses_to_one_element_do_not_race(first: str, second: str) -> None:
    """With each other; with an ordinary access they do, where one of the two writes."""
    ordinary = {first, second} & {"load", "store"}
    reads = {"load", "relaxed load"}
    races = bool(ordinary) and not {first, second} <= reads
    verdict = check(mixed.bind(np.zeros(1, np.int32), first=first, second=second).launch_args)
    assert verdict.ok is not races
    if races:
        assert "race on tensor 'x'" in verdict.faults[0].message


def test_every_active_lane_performs_an_atomic_operation() -> None:
    """One after another: each finds what the one before has left."""

    @tp.kernel()
    def drawn(ctx: tp.Context, count: Any, out: Any) -> None:
        @ctx.role("one", warps=2)
        def one() -> None:
            with ctx.when(ctx.lane % 2 == 1):
                ctx.store(out[ctx.warp, ctx.lane], ctx.atomic_add(count[ctx.warp], ctx.lane))

    count, out = np.zeros(2, np.int32), np.zeros((2, 32), np.int32)
    drawn.bind(count, out).run()
    odd = np.arange(1, 32, 2)
    want = np.zeros((2, 32), np.int32)
    want[:, odd] = np.cumsum(odd) - odd
    assert (out == want).all()
    assert count.tolist() == [256, 256]


def test_sums_of_floats_in_no_fixed_order_are_advice() -> None:
    @tp.kernel(grid=2)
    def summed(ctx: tp.Context, x: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.elect_one():
                ctx.atomic_add(x[0], 0.1)

    assert summed.bind(np.zeros(1, np.int32)).check().advice == []
    (advice,) = summed.bind(np.zeros(1, np.float32)).check().advice
    assert "atomic_add x[0]" in advice
    assert "the last bits of the sums may differ from one launch to the next" in advice


# -- cooperative launches --------------------------------------------------------------


def test_a_cooperative_grid_that_does_not_fit_is_refused() -> None:
    @tp.kernel(grid=lambda n: n, cooperative=True)
    def wide(ctx: tp.Context, x: Any, *, n: int) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.elect_one():
                ctx.atomic_add(x[0], 1)

    wide.bind(X, n=132)
    refuses(
        lambda: wide.bind(X, n=100_000),
        tp.BindError,
        "kernel 'wide' is cooperative, so all of its CTAs run at once; H200 holds",
    )
    refuses(
        lambda: tp.kernel(cooperative=1),  # type: ignore[arg-type]
        tp.BindError,
        "cooperative= is True or False, got 1",
    )


# -- print -----------------------------------------------------------------------------


def test_an_operation_whose_result_is_unused_is_a_reduction() -> None:
    def body(ctx: Any, x: Any) -> None:
        ctx.atomic_add(x[0][ctx.lane], 1)
        ctx.atomic_max(x[0][ctx.lane], 1, order="release", scope="sys")
        ctx.atomic_min(x[0][ctx.lane], 1, order="acquire")
        ctx.atomic_exchange(x[0][ctx.lane], 1)
        ctx.store(x[1][0, ctx.lane], ctx.atomic_or(x[0][ctx.lane], 1))

    text = cuda.source(traced(body).kernel)
    for instruction in (
        "red.relaxed.gpu.global.add.s32",
        "red.release.sys.global.max.s32",
        "atom.acquire.gpu.global.min.s32",
        "atom.relaxed.gpu.global.exch.b32",
        "atom.relaxed.gpu.global.or.b32",
    ):
        assert f'"{instruction} ' in text


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("operation", ["or", "max", "exchange"])
def test_a_release_that_changes_nothing_may_come_later_than_the_acquire(
    operation: str, first: int
) -> None:
    """The reader cannot know whether the release has come: one of the two orders is a race."""

    @tp.kernel(grid=2)
    def kernel(ctx: tp.Context, d: Any, f: Any, o: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.elect_one():
                with ctx.when(ctx.block_id == first):
                    ctx.store(d[0], 7)
                    getattr(ctx, f"atomic_{operation}")(f[0], 0, order="release")
                with ctx.otherwise():
                    ctx.load(f[0], order="acquire")
                    ctx.store(o[0], ctx.load(d[0]))

    arrays = (np.zeros(1, np.int32) for _ in range(3))
    (fault,) = kernel.bind(*arrays).check().faults
    assert "race on tensor 'd'" in fault.message
