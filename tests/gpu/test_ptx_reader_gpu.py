"""The reader of PTX against the GPU, bit for bit: random small kernels, the cases, and the shipped
kernels for sm_90a.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.cases.scalars import check
from tests.ptx.test_print_families import FAMILY_LIST, Family, exact
from tests.support import random_ptx
from tests.support.printed_ptx import printed
from tests.support.whole_numbers import whole_numbers as whole_numbers
from tilepipe.cuda.runtime import driver
from tilepipe.ptx import load
from tools.snapshot import doors

pytestmark = pytest.mark.gpu
THREADS = 64
EACH = 25  # random kernels of a test
Bytes = npt.NDArray[np.uint8]
# Functions that the ISA defines by a bound on their error, and sums in the tensor cores' own order.
INEXACT = ("fragment", "mma", "scalar/fractions")
CASES = [
    (key, case)
    for key, case in doors.cases()
    if key.split("/")[0] not in ("tmem", "block_scale", "grid")
]
HOPPER = [family for family in FAMILY_LIST if family.arch == "sm_90a"]


def words(random: np.random.Generator) -> npt.NDArray[np.uint32]:
    """Random bits, small numbers, floats of all magnitudes and special ones."""
    shape = THREADS * random_ptx.INPUTS
    special = np.array(
        [0, 1, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3F800000, 0x7F800000, 0x7FC00000,
         0x00000001, 0x807FFFFF, 0x00800000, 0x4F000000, 0x3C003C00],
        np.uint32,
    )  # fmt: skip
    kinds = [
        random.integers(0, 2**32, shape, dtype=np.uint64).astype(np.uint32),
        random.integers(-40, 40, shape).astype(np.int32).view(np.uint32),
        random.standard_normal(shape).astype(np.float32).view(np.uint32),
        random.choice(special, shape),
    ]
    return np.choose(random.integers(0, len(kinds), shape), kinds)


def on_the_gpu(text: str, given: npt.NDArray[np.uint32]) -> Bytes:
    """What a random kernel writes on the GPU, from the same PTX."""
    out = np.zeros(random_ptx.result_bytes(THREADS), np.uint8)
    arrays: list[npt.NDArray[Any]] = [given, out]
    with driver.current(0):
        module = driver.call("cuModuleLoadData", text.encode() + b"\0")
        function = driver.call("cuModuleGetFunction", module, b"k")
        places = [driver.call("cuMemAlloc", array.nbytes) for array in arrays]
        for place, array in zip(places, arrays, strict=True):
            driver.call("cuMemcpyHtoD", place, array.ctypes.data, array.nbytes)
        values = tuple(int(place) for place in places)
        driver.call(
            "cuLaunchKernel", function, 1, 1, 1, THREADS, 1, 1, 0, 0,
            (values, (ctypes.c_uint64, ctypes.c_uint64)), 0,
        )  # fmt: skip
        driver.call("cuMemcpyDtoH", out.ctypes.data, places[1], out.nbytes)
        for place in places:
            driver.call("cuMemFree", place)
        driver.call("cuModuleUnload", module)
    return out


@pytest.mark.parametrize("part", range(16))
def test_random_kernels_write_the_same_bits(part: int) -> None:
    different = []
    for seed in range(EACH * part, EACH * (part + 1)):
        text = random_ptx.kernel(seed, THREADS)
        given = words(np.random.default_rng(seed))
        out = np.zeros(random_ptx.result_bytes(THREADS), np.uint8)
        load(text)["k"].bind([given, out], grid=1, block=THREADS).run(seed % 2, timeout=60)
        want = on_the_gpu(text, given)
        if not np.array_equal(out, want):
            lanes = out.reshape(THREADS, -1) != want.reshape(THREADS, -1)
            different.append((seed, int(lanes.any(1).sum()), np.flatnonzero(lanes.any(0)).tolist()))
    assert different == [], "(seed, threads, bytes of the result)"


@pytest.mark.parametrize(("key", "case"), CASES, ids=[key for key, _ in CASES])
def test_cases_write_the_same(key: str, case: Any) -> None:
    program, read, _, limit = case.make(np.random.default_rng(0))
    printed(program, "sm_90a").run(1)
    program, out, _, _ = case.make(np.random.default_rng(0))
    program.launch()
    if key.startswith(INEXACT):
        check(out, read, 2 * limit)
    else:
        np.testing.assert_array_equal(out.astype(np.float64), read.astype(np.float64))


@pytest.mark.parametrize("family", HOPPER, ids=lambda f: f"{f.key} {f.name}")
def test_shipped_kernels_write_the_same(family: Family, whole_numbers: None) -> None:
    """Sums of whole numbers are exact in any order; others are within the bounds of each other."""
    read, launched = family.case(), family.case()
    printed(read.program, family.arch).run(1)
    launched.program.launch()
    if exact(family):
        np.testing.assert_array_equal(launched.output, read.output)
    else:
        got, want = launched.output.astype(np.float64), read.output.astype(np.float64)
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2 * float(np.abs(want).max()))
