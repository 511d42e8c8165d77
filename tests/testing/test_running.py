"""`tilepipe.testing.run` and `perturb`: outputs set back, compared by name, and told apart by
seed.
"""

from __future__ import annotations

import re
import unittest
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.conftest import missing_gpu
from tests.testing import kernels
from tests.testing.kernels import bind_doubled, bind_drawn, bind_split
from tilepipe.ir.program import TensorArg
from tilepipe.testing import NoDevice, WrongResult, compare, perturb, run


def twice(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 2 * a


@pytest.mark.parametrize("given", ["array", "dict", "function"])
def test_a_reference_in_each_form(given: str) -> None:
    program, a, out = bind_doubled()
    expect: Any = {"array": 2 * a, "dict": {"out": 2 * a}, "function": twice}[given]
    runs = run(program, expect=expect, seeds=range(3))
    assert [r.seed for r in runs] == [0, 1, 2]
    assert np.array_equal(out, 2 * a)


def test_what_a_kernel_writes_is_set_back() -> None:
    """It reads and clears a: a second run on what the first has left would be wrong."""
    program = bind_split()
    wanted = np.arange(32)
    runs = run(program, expect=lambda a: {"low": a - 3, "high": a + 3, "a": 0 * a})
    assert len(runs) == 4
    a, low = (program.launch_args.args[name].array for name in ("a", "low"))  # type: ignore[union-attr]
    assert (low == wanted - 3).all()
    assert not a.any()


def test_a_wrong_number_says_where_and_by_how_much() -> None:
    program, a, _ = bind_doubled(scale=2.5)
    with pytest.raises(AssertionError) as caught:
        run(program, expect=twice)
    text = str(caught.value)
    assert re.search(
        r"doubled, seed 0: 'out' is wrong in 160 of 160 elements; the worst is \[\d, "
        r"\d+\]: \S+, expected \S+, ",
        text,
    ), text
    assert "depends on the order" not in text
    assert np.abs(a).min() > 0


def test_a_result_that_depends_on_the_order_says_so() -> None:
    program, _ = bind_drawn()
    with pytest.raises(WrongResult) as caught:
        run(program, expect={"out": np.arange(4)}, seeds=range(20))
    assert caught.value.seed > 0
    assert caught.value.output == "out"
    assert "Right with seed" in str(caught.value)
    assert "it depends on the order" in str(caught.value)


def test_a_fault_names_its_seed() -> None:
    with pytest.raises(tp.DeadlockError) as caught:
        run(kernels.stuck.bind(np.zeros(32, np.int32)), seeds=[5])
    assert caught.value.__notes__ == [
        "in the interleaving of seed 5: program.run(seed=5) does it again"
    ]


@pytest.mark.parametrize(
    ("expect", "words"),
    [
        (lambda b: b, "expect= asks for b; kernel 'split' has a, low, high"),
        (np.zeros(32), "expect= is one array, and kernel 'split' writes a, low, high: give a dict"),
        ({"c": np.zeros(32)}, "expect= has 'c'; kernel 'split' writes a, low, high"),
        ({"low": np.zeros((2, 16))}, r"expect= gives shape \(2, 16\) for 'low', which is \(32,\)"),
    ],
)
def test_a_reference_that_does_not_fit(expect: Any, words: str) -> None:
    with pytest.raises(tp.BindError, match=words):
        run(bind_split(), expect=expect)


@pytest.mark.parametrize("call", [run, lambda p, seeds: perturb(p, seeds=seeds, device="sim")])
def test_no_seeds_are_no_test(call: Callable[..., object]) -> None:
    with pytest.raises(tp.BindError, match="seeds= is empty"):
        call(bind_split(), seeds=[])


def test_tolerances() -> None:
    got, want = (
        np.array([1.0, 2.0, np.inf, np.nan], np.float32),
        np.array([1.0, 2.001, np.inf, np.nan]),
    )
    assert compare(got, want, rtol=1e-3).ok
    assert compare(got, want, atol=[0, 2e-3, 0, 0]).ok
    exact = compare(got, want)
    assert (exact.ok, exact.worst_at, exact.wrong) == (False, (1,), 1)
    assert compare(np.array([1 / 3], np.float16), [1 / 3]).ok, (
        "the rounding of the output is allowed"
    )
    assert not compare(np.array([1, 2]), [1, 3]).ok
    assert not compare(got, np.array([1.0, 2.0, -np.inf, np.nan])).ok
    assert not compare(got, np.array([1.0, 2.0, np.inf, 0.0])).ok
    with pytest.raises(tp.BindError, match="shape"):
        compare(got, want[:3])


def test_delays_change_no_bit_of_a_right_kernel() -> None:
    program, a, out = bind_doubled()
    perturb(program, device="sim", seeds=range(1, 5))
    assert np.array_equal(out, 2 * a)


def test_delays_change_bits_of_one_that_depends_on_them() -> None:
    program, _ = bind_drawn()
    with pytest.raises(WrongResult) as caught:
        perturb(program, device="sim", seeds=range(1, 20))
    text = str(caught.value)
    assert re.search(
        r"drawn, run\(seed=\d+\): 'out' has other bits in \d of 4 elements than without "
        r"delays; the first is \[\d\]",
        text,
    ), text
    assert "atomic adds" in text


def test_a_device_that_there_is_not() -> None:
    with pytest.raises(tp.BindError, match="device is 'cuda' or 'sim', got 'gpu'"):
        perturb(bind_split(), device="gpu")


@pytest.mark.skipif(not missing_gpu(), reason="there is a GPU: tests/gpu/test_perturb_gpu.py")
def test_without_a_gpu_a_test_is_skipped() -> None:
    with pytest.raises(unittest.SkipTest) as caught:
        perturb(bind_split())
    assert isinstance(caught.value, NoDevice)
    assert "launching needs" in str(caught.value)


def test_arrays_that_numpy_does_not_have() -> None:
    program = bind_split()
    args = {**program.launch_args.args, "low": TensorArg(memoryview(b""), (32,))}
    elsewhere = tp.Program(program.kernel, replace(program.launch_args, args=args))
    with pytest.raises(
        tp.BindError, match="run takes a program on NumPy arrays; argument 'low' is a memoryview"
    ):
        run(elsewhere)


def test_the_launches_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded waits first, then delays, last the kernel as it is; each of them compared."""
    program, a, out = bind_doubled()
    launched: list[tuple[bool, int | None, float]] = []

    def launch(
        self: tp.Program,
        stream: object = None,
        *,
        debug: bool,
        perturb: int | None,
        timeout_ms: float,
    ) -> None:
        assert not out.any(), "what the kernel writes is set back"
        launched.append((debug, perturb, timeout_ms))
        out[...] = a if debug else 3 * a

    monkeypatch.setattr(tp.Program, "launch", launch)
    with pytest.raises(
        WrongResult, match=r"doubled, launch\(\): 'out' has other bits in 160 of 160 elements"
    ):
        perturb(program, seeds=[4, 7], timeout_ms=50)
    assert launched == [(True, None, 50), (True, 4, 50), (True, 7, 50), (False, None, 50)]
