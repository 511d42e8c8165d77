"""Launching on the GPU with NumPy arrays; errors, and launches after them; the cache of cubins in
fresh processes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cuda.runtime.test_launching import VIEWS
from tests.gpu.gemms import product
from tests.gpu.small import asserting, greedy, numbers, step, stepped
from tests.gpu.tensors import child

pytestmark = pytest.mark.gpu
NOT_CONTIGUOUS = {"columns apart", "both backwards"}


@tp.kernel()
def doubled(ctx: tp.Context, a: Any, out: Any) -> None:
    """out = 2 a + 1"""

    @ctx.role("one", warps=1)
    def one() -> None:
        for i in ctx.range(a.shape[0]):
            for j in ctx.range(a.shape[1]):
                with ctx.elect_one():
                    ctx.store(out[i, j], ctx.load(a[i, j]) * 2 + 1)


@pytest.mark.parametrize("name", sorted(VIEWS.keys() - NOT_CONTIGUOUS))
def test_numpy_views(name: str) -> None:
    """Arrays with any strides are read and written in place."""
    base, other = (
        np.arange(120, dtype=np.float32).reshape(8, 15),
        np.arange(120, dtype=np.float32).reshape(8, 15),
    )
    out, a, before = VIEWS[name](base), VIEWS[name](other), base.copy()
    doubled.bind(a, out).launch()
    np.testing.assert_array_equal(out, a * 2 + 1)
    VIEWS[name](before)[...] = out
    np.testing.assert_array_equal(
        base, before, err_msg="what lies between the elements is untouched"
    )


def test_numpy_arguments_are_copied_each_time() -> None:
    x, y = numbers(1000), np.zeros(1000, np.int32)
    program = step.bind(x, y)
    for i in range(5):
        x[:] = numbers(1000, i)
        program.launch()
        np.testing.assert_array_equal(y, stepped(x))


def works() -> None:
    """A good launch."""
    p = product((128, 128, 64))
    p.program.launch()
    p.verify()


def test_a_kernel_that_does_not_fit_is_refused_and_the_next_one_runs() -> None:
    y = np.zeros(32, np.float32)
    greedy.bind(y, tiles=200).launch()
    assert (y == 1).all()
    generous = tp.Chip(smem_per_cta=300 * 1024)
    for _ in range(2):
        with pytest.raises(tp.LaunchError, match="CUDA_ERROR_INVALID_VALUE"):
            greedy.bind(y, tiles=280, chip=generous).launch()
    works()


ASSERTING = """
import numpy as np
import tilepipe as tp
from tests.gpu.small import asserting, step, numbers
x, y = np.zeros(32, np.int32), np.zeros(32, np.int32)
asserting.bind(x, y).launch()
x[7] = 5
for program in (asserting.bind(x, y), step.bind(numbers(100), np.zeros(100, np.int32))):
    try:
        program.launch()
    except tp.LaunchError as error:
        print(str(error).splitlines()[0])
"""


def test_an_assertion_that_does_not_hold() -> None:
    """A failed assertion ends the CUDA context, so the test runs in a process of its own: the error
    of the launch says so, and so does the error of the next launch.
    """
    assert asserting.name == "asserting"
    said = child(ASSERTING)
    errors = [line for line in said.splitlines() if "CUDA_ERROR_" in line]
    assert len(errors) == 2, said
    assert "cuMemFree" not in said
    assert "'asserting' failed on the GPU" in errors[0]


CACHED = """
import numpy as np
from tests.gpu.gemms import product
from tilepipe.cuda.nvrtc import compiler
real, calls = compiler.nvrtc, []
compiler.nvrtc = lambda *args: calls.append(1) or real(*args)
p = product((136, 200, 264), cluster=2)
p.program.launch()
p.verify()
print(len(calls), hash(p.bits()))
"""


def test_a_fresh_process_takes_the_kernel_from_disk(tmp_path: Path) -> None:
    folder = {"TILEPIPE_CACHE_DIR": str(tmp_path / "cache"), "PYTHONHASHSEED": "0"}
    first, second = (child(CACHED, **folder).split() for _ in range(2))
    assert (first[0], second[0]) == ("1", "0")
    assert first[1] == second[1]
    for path in (tmp_path / "cache").iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert child(CACHED, **folder).split() == first
