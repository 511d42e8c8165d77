"""The atomic scheduler on the GPU: every tile once under random delays, the counter back at 0,
tiles to the CTA that is free.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.gpu.test_scenarios_gpu import BUILDS
from tests.machine.units.test_grid import tickets
from tests.support.scheduler_orders import Dealt

pytestmark = pytest.mark.gpu

PROBLEMS: list[dict[str, Any]] = [
    {"batches": 1, "m": 40, "n": 30, "clusters": 132},
    {"batches": 2, "m": 9, "n": 7, "clusters": 3, "raster": "rows", "stages": 1},
    {"batches": 1, "m": 5, "n": 3, "clusters": 40, "stages": 4},
    {"batches": 1, "m": 1, "n": 1, "clusters": 1},
    {"batches": 3, "m": 16, "n": 11, "clusters": 66, "size": 2, "warpgroups": 2},
    {"batches": 1, "m": 21, "n": 13, "clusters": 7, "size": 2, "shape": (1, 2)},
    {
        "batches": 1,
        "m": 17,
        "n": 18,
        "clusters": 20,
        "size": 4,
        "shape": (2, 2),
        "raster": "columns",
    },
    {"batches": 1, "m": 12, "n": 6, "clusters": 5, "size": 8, "shape": (4, 2), "stages": 3},
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("kind", ["atomic", "static"])
def test_every_tile_exactly_once(kind: str, problem: dict[str, Any]) -> None:
    """The arrays are cleared between launches; the counter keeps the value that the last launch
    left.
    """
    dealt = Dealt(kind, **problem)
    program = dealt.bind()
    for options in BUILDS:
        program.launch(**options)
        dealt.check()


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_launch_after_launch_with_a_counter_that_stays_on_the_gpu(problem: dict[str, Any]) -> None:
    """Launches overlap at their ends, and the host does not clear the counter between them."""
    torch = pytest.importorskip("torch")
    dealt = Dealt("atomic", **problem)
    host = dealt.visits, dealt.taken, dealt.counter
    device = dealt.visits, dealt.taken, dealt.counter = tuple(
        torch.from_numpy(x).cuda() for x in host
    )
    program = dealt.bind()
    for _ in range(20):
        program.launch()
    visits, taken, counter = (x.cpu().numpy() for x in device)
    np.testing.assert_array_equal(visits, 20 * dealt.want)
    assert taken.sum() == 20 * dealt.steps
    assert counter[0] == 0


def test_a_slow_cta_gets_fewer_tiles() -> None:
    counter, who, spare = np.zeros(1, np.int32), np.full(3000, -1, np.int32), np.zeros(1, np.int32)
    tickets.bind(counter, who, spare, clusters=10, slow=200, room=200, chip=tp.H200).launch()
    assert counter[0] == 3010
    shares = np.bincount(who, minlength=10)
    assert 0 < shares[0] < shares[1:].min() / 2, shares


def test_a_counter_that_is_not_zero_is_refused() -> None:
    dealt = Dealt("atomic", 1, 4, 4, 2)
    program = dealt.bind()
    dealt.counter[0] = 1
    with pytest.raises(tp.BindError, match="holds 1; it must be 0 when the kernel starts"):
        program.launch()
