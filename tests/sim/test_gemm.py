"""A whole warp-specialised GEMM: numbers, schedules, statistics, and the faults that one missing
line makes.
"""

from __future__ import annotations

import itertools
import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tests.support.sim.gemm import gemm
from tilepipe.errors import DeadlockError, RaceError
from tilepipe.ir import dtypes, ops, program
from tilepipe.ir.dtypes import DType
from tilepipe.sim import Run


def matrices(
    m: int, n: int, k: int, dtype: DType = dtypes.bfloat16, out: DType = dtypes.bfloat16
) -> dict[str, Any]:
    random = np.random.default_rng(m + n + k)
    return {
        "a": random.standard_normal((m, k)).astype(dtype.numpy),
        "b": random.standard_normal((n, k)).astype(dtype.numpy),
        "c": np.full((m, n), np.nan, np.float32).astype(out.numpy),
    }


def sizes(m: int, n: int, k: int) -> dict[str, int]:
    down, across = -(-m // 128), -(-n // 128)
    return {"tiles": down * across, "per_row": across, "steps": -(-k // 64)}


def simulate(
    m: int,
    n: int,
    k: int,
    grid: int = 2,
    seed: int = 0,
    arrays: dict[str, Any] | None = None,
    **settings: Any,
) -> Run:
    arrays = arrays if arrays is not None else matrices(m, n, k)
    run = gemm(**settings).run(grid=grid, seed=seed, **arrays, **sizes(m, n, k))
    want = arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64).T
    got = arrays["c"].astype(np.float64)
    eps = 2.0**-8 if arrays["c"].dtype != np.float32 else 2.0**-20
    assert np.abs(got - want).max() <= 4 * eps * np.abs(want).max()
    return run


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("stages", [2, 3, 5])
def test_numbers(groups: int, lag: int, stages: int) -> None:
    run = simulate(256, 384, 320, groups=groups, lag=lag, stages=stages)
    steps, tiles = 5, 6
    total = sum(sum(cta) for cta in run.completions["inputs.full"])
    assert total == sum(sum(cta) for cta in run.completions["inputs.empty"]) == steps * tiles
    load, mma = run.roles
    assert load.bytes_loaded == steps * tiles * (128 + 128) * 64 * 2
    assert mma.mmas == steps * tiles * groups
    assert mma.flops == 2 * 128 * 128 * 64 * steps * tiles
    assert run.simulated_us > 0


@pytest.mark.parametrize("seed", range(1, 7))
def test_any_schedule_gives_the_same_numbers(seed: int) -> None:
    first, second = matrices(256, 256, 448), matrices(256, 256, 448)
    simulate(256, 256, 448, arrays=first, groups=2)
    simulate(256, 256, 448, seed=seed, arrays=second, groups=2)
    assert first["c"].tobytes() == second["c"].tobytes()


@pytest.mark.slow
def test_one_seed_one_run() -> None:
    seen = []

    def once(seed: int) -> list[tuple[str, str, float]]:
        events: list[tuple[str, str, float]] = []
        from tilepipe import sim
        from tilepipe.ir.placement import place
        from tilepipe.ir.program import Launch, TensorArg

        b = gemm(groups=2)
        place(b.kernel)
        arrays = matrices(128, 256, 256)
        args: dict[str, Any] = {n: TensorArg(x, x.shape) for n, x in arrays.items()} | sizes(
            128, 256, 256
        )
        launch = Launch(b.kernel, 1, args)
        sim.run(
            launch,
            seed=seed,
            on_event=lambda agent, site, start, end: events.append((str(agent), site.what, end)),
        )
        return events

    for seed in (0, 7, 8):
        assert once(seed) == once(seed)
        seen.append(once(seed))
    assert seen[1] != seen[2]


@pytest.mark.parametrize("shape", [(200, 136, 104), (1, 8, 8), (129, 257, 65)])
def test_ragged_shapes_read_zeros_and_clip(shape: tuple[int, int, int]) -> None:
    simulate(*shape, groups=2)


@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        (dtypes.float16, dtypes.float16),
        (dtypes.bfloat16, dtypes.float32),
        (dtypes.float16, dtypes.bfloat16),
    ],
)
def test_dtypes(dtype: DType, out: DType) -> None:
    simulate(128, 128, 128, arrays=matrices(128, 128, 128, dtype, out), dtype=dtype, out=out)


def test_strided_arguments() -> None:
    arrays = matrices(128, 128, 192)
    wide = np.zeros((128, 256), dtypes.bfloat16.numpy)
    arrays["a"] = np.asfortranarray(arrays["a"])
    arrays["c"] = wide[:, ::2]
    simulate(128, 128, 192, arrays=arrays)
    assert not wide[:, 1::2].any()


@pytest.mark.parametrize("seed", range(8))
def test_releasing_a_slot_before_its_mma_has_read_it(seed: int) -> None:
    """The numbers are right on the default schedule; the race is found on all."""
    with pytest.raises(
        RaceError, match=r"race on [ab]_tiles\[\d\](.|\n)*wgmma acc(.|\n)*role 'load'"
    ) as caught:
        simulate(128, 128, 512, seed=seed, release_early=True, groups=2)
    assert "wgmma_wait" in str(caught.value)


def test_a_missing_proxy_fence() -> None:
    with pytest.raises(
        RaceError, match=r"race between proxies on c_tile(.|\n)*fragment_store(.|\n)*tma_store"
    ):
        simulate(128, 128, 128, fence=False)


def test_two_ctas_that_write_one_tile() -> None:
    arrays = matrices(128, 128, 64)
    b = gemm()
    for op in program.walk(b.kernel.roles[1].body):
        if isinstance(op, ops.For):
            from tilepipe.ir.expressions import const

            op.start = const(0)
            break
    for op in program.walk(b.kernel.roles[0].body):
        if isinstance(op, ops.For):
            op.start = const(0)
            break
    with pytest.raises(
        RaceError,
        match=r"race on tensor 'c'(.|\n)*of CTA 0(.|\n)*of CTA 1(.|\n)*different clusters",
    ):
        b.run(grid=2, **arrays, **sizes(128, 128, 64))


def test_a_missing_expect_is_named() -> None:
    b = gemm()
    for op in program.walk(b.kernel.roles[0].body):
        if isinstance(op, ops.Elect):
            op.body.ops = [o for o in op.body.ops if not isinstance(o, ops.MbarExpect)]
    with pytest.raises(DeadlockError) as caught:
        b.run(grid=1, **matrices(128, 128, 256), **sizes(128, 128, 256))
    assert "no op calls expect_bytes on it" in str(caught.value)


def test_a_missing_release_is_named() -> None:
    b = gemm(lag=0)
    for op in program.walk(b.kernel.roles[1].body):
        if isinstance(op, ops.For):
            op.body.ops = [
                o
                for o in op.body.ops
                if not (isinstance(o, ops.Elect) and isinstance(o.body.ops[0], ops.MbarArrive))
            ]
    with pytest.raises(DeadlockError) as caught:
        b.run(grid=1, **matrices(128, 128, 512), **sizes(128, 128, 512))
    text = str(caught.value)
    assert "inputs.empty[0]: nothing in the kernel arrives on it" in text
    assert "no op of the kernel arrives on inputs.empty" in text
    assert "role 'load'" in text
    assert "role 'mma'" in text


@pytest.mark.slow
def test_knowledge_does_not_grow_with_the_steps() -> None:
    from tilepipe.machine import machine

    largest = []
    start = machine.Machine.start

    def watched(self: machine.Machine, cluster_id: int) -> None:
        if hasattr(self, "order"):
            largest.append(self.order.size)
        start(self, cluster_id)

    machine.Machine.start = watched  # type: ignore[method-assign]
    try:
        for k in (2048, 8192):
            simulate(256, 128, k, grid=2)
    finally:
        machine.Machine.start = start  # type: ignore[method-assign]
    assert largest[-1] <= 1.2 * largest[0] < 300


def calls_of(k: int) -> int:
    """Calls that Python makes to simulate a 512×512 product, once its code has been generated."""
    b, arrays, extents = gemm(groups=2), matrices(512, 512, k), sizes(512, 512, k)
    b.run(grid=16, **arrays, **extents)
    count = itertools.count()

    def called(_frame: FrameType, event: str, _arg: Any) -> None:
        if event in ("call", "c_call"):
            next(count)

    sys.setprofile(called)
    try:
        b.run(grid=16, **arrays, **extents)
    finally:
        sys.setprofile(None)
    return next(count)


@pytest.mark.slow
def test_calls_grow_with_the_work() -> None:
    """Counted, not timed: how long it takes depends on the machine (`benchmarks/simulator.py`
    measures that).
    """
    short, long = calls_of(512), calls_of(2048)
    assert long < 4 * short
    assert short < 100_000  # 66,673 when this was written
