"""A pytest plugin: what a test simulates without fault or advice is launched on the GPU as well,
and must write the same there.

    python -m pytest -p tests.gpu.mirror tests/sim tests/scenarios tests/pipelines tests/kernels

The first `EACH` simulations of a test are mirrored, as debug builds, so that a kernel that hangs is
an error and not the end. Kernels whose clusters share out work must only end, since what each of
them gets may be another. `--mirror` of `tests/gpu/run.py` does this to whole folders of tests.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.cases.fragments import Array
from tilepipe import sim
from tilepipe.cuda.debug.wait_sites import every_op
from tilepipe.cuda.runtime.loading import BoundLaunch
from tilepipe.errors import CompileError, LimitError
from tilepipe.ir import ops
from tilepipe.ir.program import Launch, TensorArg

EACH = 2
# of floats, relative, and of the largest: the GPU adds in another order and rounds to 8 bits here
# and there
NEAR = 2e-2
_simulate = sim.run
_mirrored: Counter[str] = Counter()  # by test
_outcomes: Counter[str] = Counter()


def run(launch: Launch, **options: Any) -> sim.Run:
    """Simulates; restores the arrays, launches, compares, and leaves the simulator's results."""
    arrays = {name: x.array for name, x in launch.args.items() if isinstance(x, TensorArg)}
    before = {name: array.copy() for name, array in arrays.items()}
    result = _simulate(launch, **options)
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if (
        result.advice
        or _mirrored[test] >= EACH
        or not all(array.flags.writeable for array in arrays.values())
    ):
        return result
    _mirrored[test] += 1
    simulated = {name: array.copy() for name, array in arrays.items()}
    restore(arrays, before)
    _outcomes[outcome(launch, arrays, simulated)] += 1
    restore(arrays, simulated)
    return result


def restore(arrays: dict[str, Array], values: dict[str, Array]) -> None:
    """Puts values back where they were."""
    for name, array in arrays.items():
        array[...] = values[name]


def outcome(launch: Launch, arrays: dict[str, Array], simulated: dict[str, Array]) -> str:
    """Launches and compares; returns the outcome."""
    for build in ({"debug": True}, {}):
        try:
            bound = BoundLaunch(launch, **build)
        except LimitError:  # no room for a debug build
            continue
        except CompileError:  # hand-made IR that has no CUDA form
            return "has no CUDA form"
        bound()
        break
    if any(isinstance(op, ops.Atomic) for _, op in every_op(launch.kernel)):
        return "ended; not compared"
    for name, array in arrays.items():
        same(name, array, simulated[name])
    return "the same"


def same(name: str, got: Array, want: Array) -> None:
    """Raises AssertionError where the GPU's array is not the simulator's."""
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, err_msg=f"'{name}' on the GPU, and simulated")
        return
    x, y = got.astype(np.float64), want.astype(np.float64)
    largest = float(np.abs(y[np.isfinite(y)]).max(initial=0))
    np.testing.assert_allclose(
        x, y, rtol=NEAR, atol=NEAR * largest, err_msg=f"'{name}' on the GPU, and simulated"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Puts the mirror in front of the simulator."""
    del config
    sim.run = run


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints how many runs were mirrored (in this process; with xdist, each worker has its own)."""
    for what, count in _outcomes.items():
        terminalreporter.write_line(f"mirrored on the GPU: {count} × {what}")
