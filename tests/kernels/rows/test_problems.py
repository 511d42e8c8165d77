"""The four kernels of rows, forward and backward, on shapes that fit nothing: against the float64
reference, from their own PTX, compiled for both architectures, in every interleaving.
"""

from __future__ import annotations

import pytest

import tilepipe as tp
from tilepipe import cuda
from tilepipe.registry.catalog import KERNELS, Case

ROWS = ("rms_norm", "layer_norm", "softmax", "cross_entropy")
ALONE: dict[str, int | str] = {"threads": 128, "warpgroups": 1, "parts": 1, "cluster": 1}
SHARED = ALONE | {"threads": 32, "parts": 4}
TEAMS = SHARED | {"parts": 2, "ctas": 2}
CLUSTER = SHARED | {"cluster": 2}
# settings of a problem
PROBLEMS: dict[str, dict[str, int | str]] = {
    "one element": {"m": 1, "n": 1, "dtype": "float32"},
    "one row": {"m": 1, "n": 1000},
    "odd rows of a few threads": {"m": 35, "n": 37, "dtype": "float16"},
    "odd columns": {"m": 7, "n": 1031},
    "a warpgroup's row": {"m": 3, "n": 3000, "dtype": "float32"},
    "parts of a row": {"m": 5, "n": 2000, **SHARED},
    "a part that is outside": {"m": 5, "n": 517, **TEAMS},
    "a cluster's row": {"m": 3, "n": 4090, **CLUSTER},
    "parts of a cluster that are outside": {"m": 3, "n": 1025, **CLUSTER},
    "eight CTAs": {"m": 2, "n": 9000, **SHARED, "cluster": 8},
    "two rows of a thread": {"m": 9, "n": 250, **ALONE, "threads": 32, "blocks": 2},
}


def case(kernel: str, name: str, backward: bool, chip: tp.Chip | None = None) -> Case:
    """A case of a kernel; its CTAs that stay take several rows each."""
    spec = KERNELS[kernel]
    given = PROBLEMS[name] | {"backward": backward}
    settings, _ = spec.configure(given, None)
    return spec.make(settings, 3, chip or tp.Chip(sms=2, clusters=()))


@pytest.mark.sampled(suite=100, classes=lambda name, kernel, backward: [name, (kernel, backward)])
@pytest.mark.slow
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kernel", ROWS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_simulated(name: str, kernel: str, backward: bool) -> None:
    made = case(kernel, name, backward)
    made.output[...] = 7
    assert not made.verify().ok
    assert made.program.run().advice == []
    assert made.verify().ok, made.verify()


@pytest.mark.slow
@pytest.mark.sampled(suite=100, classes=lambda name, kernel, backward, arch: [(kernel, backward)])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kernel", ROWS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_print_compiles_and_is_right(name: str, kernel: str, backward: bool, arch: str) -> None:
    made = case(kernel, name, backward)
    assert cuda.compile(made.program.kernel, arch=arch).spill_bytes == 0
    made.program.ptx(arch).run()
    assert made.verify().ok, made.verify()


PROVED = ["odd rows of a few threads", "parts of a row", "a cluster's row"]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kernel", ROWS)
@pytest.mark.parametrize("name", PROVED)
def test_every_interleaving(name: str, kernel: str, backward: bool) -> None:
    assert case(kernel, name, backward).program.check().verdict == "verified"


CHOSEN = [
    (kernel, backward, columns)
    for kernel in ROWS
    for backward in (False, True)
    for columns in (1024, 4096, 8192, 16384, 32768, 65536, 131072)
    if columns <= 65536 or not backward or "norm" not in kernel
]


@pytest.mark.slow
@pytest.mark.sampled(suite=100, classes=lambda kernel, backward, columns: [kernel, columns > 8192])
@pytest.mark.parametrize(("kernel", "backward", "columns"), CHOSEN)
def test_what_is_chosen_does_not_spill(kernel: str, backward: bool, columns: int) -> None:
    """`make test-all` adds each kernel with each number of columns."""
    spec = KERNELS[kernel]
    settings, _ = spec.configure({"m": 2, "n": columns, "backward": backward}, None)
    program = spec.make(settings, 0, tp.Chip(sms=2, clusters=())).program
    assert cuda.compile(program.kernel).spill_bytes == 0
