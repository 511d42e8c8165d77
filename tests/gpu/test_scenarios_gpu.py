"""The pipelines under load (C1, C2, C3, C5) on the GPU, the same kernels as in the simulator;
schedules against their model; all of them also under delays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.pipelines.schedulers import test_static as schedules
from tests.scenarios import test_pipelines_under_load as load
from tests.scenarios.support import Array, matrix, zeros
from tests.support.ordered_turns import KINDS, bind_alternating, bind_turns, expected_turns

pytestmark = pytest.mark.gpu
BUILDS: list[dict[str, Any]] = [
    {},
    {},
    *({"perturb": seed} for seed in range(8)),
    {"debug": True},
    {"debug": True, "perturb": 8},
]


def launches(program: tp.Program, *outputs: Array, fill: float = 0) -> Iterator[None]:
    """Launches each build; before each launch, restores all arrays and fills the outputs."""
    arrays = [x.array for x in program.launch_args.args.values() if hasattr(x, "array")]
    before = [x.copy() for x in arrays]
    for options in BUILDS:
        for array, values in zip(arrays, before, strict=True):
            array[...] = values
        for out in outputs:
            out[...] = fill
        program.launch(**options)
        yield


@pytest.mark.parametrize(
    ("stages", "n", "cluster"),
    [
        (2, 1000, (1, 1)),
        (11, 377, (1, 1)),
        (5, 3, (1, 1)),
        (3, 64, (2, 1)),
        (4, 33, (1, 2)),
        (7, 50, (2, 2)),
        (2, 41, (4, 1)),
    ]
    + [(6, 17, (4, 4))]
    + [(stages, 7 * stages + 3, (1, 1)) for stages in range(2, 12)],
)
def test_c1_two_producer_warps(stages: int, n: int, cluster: tuple[int, int]) -> None:
    ctas = cluster[0] * cluster[1]
    out = np.zeros((ctas, n), np.int32)
    program = load.two_producer_warps.bind(
        out, n, chip=load.SIXTEEN, stages=stages, cluster=cluster
    )
    for _ in launches(program, out):
        np.testing.assert_array_equal(out, np.broadcast_to(4 * np.arange(n) + 1, (ctas, n)))


@pytest.mark.parametrize(
    ("shape", "stages", "n"),
    [((1, 1), 2, 9), ((2, 1), 2, 12), ((1, 2), 3, 2), ((2, 2), 3, 10), ((4, 4), 2, 4)],
)
def test_c2_rows_and_columns_of_a_cluster(shape: tuple[int, int], stages: int, n: int) -> None:
    program, out, want = load.bind_rows_and_columns(shape, stages, n)
    for _ in launches(program, out):
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 25, 1000])
@pytest.mark.parametrize("stages", [2, 3, 8])
def test_c3_beside_an_idle_warpgroup(stages: int, n: int) -> None:
    a, b, out = matrix(64, 16 * n, 5), matrix(8, 16 * n, 6), zeros(64, 8)
    program = load.three_warpgroups.bind(
        tp.tensor_map(a, box=(64, 16)), tp.tensor_map(b, box=(8, 16)), out, n, stages=stages
    )
    want = a.astype(np.float32) @ b.astype(np.float32).T
    for _ in launches(program, out):
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [2, 3, 4, 5])
def test_c5_turns(groups: int, kind: str) -> None:
    program, log, sums = bind_turns(groups, 2, 100, kind)
    want_log, want_sums = expected_turns(groups, 2, 100, kind)
    for _ in launches(program):
        np.testing.assert_array_equal(log, want_log)
        np.testing.assert_array_equal(sums, want_sums)


@pytest.mark.parametrize(
    ("tiles", "length", "stages", "consumers"),
    [(7, 9, 3, 2), (50, 5, 4, 3), (3, 1, 1, 2), (20, 16, 2, 2)],
)
def test_consumers_take_tiles_in_turn(tiles: int, length: int, stages: int, consumers: int) -> None:
    program, out, want = bind_alternating(tiles, length, stages, consumers)
    for _ in launches(program, out, fill=-1):
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(
    ("batches", "m", "n", "ctas", "size", "shape", "raster", "group", "of"),
    [
        (0, 7, 9, 4, 1, None, "grouped", 3, 1),
        (3, 5, 7, 8, 2, (1, 2), "rows", 1, 2),
        (2, 9, 4, 8, 4, (2, 2), "columns", 2, 3),
        (0, 5, 5, 8, 4, (2, 1), "grouped", 2, 2),
    ],
)
def test_schedules(
    batches: int,
    m: int,
    n: int,
    ctas: int,
    size: int,
    shape: tuple[int, int],
    raster: str,
    group: int,
    of: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = m, n, ctas, size, shape, raster, group, of
    launch: Callable[..., None] = lambda program, **_: program.launch()  # noqa: E731
    monkeypatch.setattr(tp.Program, "run", launch)
    assert schedules.walked(batches, *settings) == schedules.model(max(batches, 1), *settings)
