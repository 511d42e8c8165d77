"""`run` and `perturb`: a program several times over, in other orders, its outputs set back each
time and compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError, SimFault, TilepipeError, UnavailableError
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.program import TensorArg
from tilepipe.program import Program
from tilepipe.testing.arguments import Array, numbers, require_program, several, tolerance
from tilepipe.testing.numerics import Comparison, compare

if TYPE_CHECKING:
    from tilepipe.machine.rules import Rules
    from tilepipe.sim import Run

Expected = npt.ArrayLike | Mapping[str, npt.ArrayLike] | Callable[..., Any]


class WrongResult(TilepipeError, AssertionError):
    """A run ended without a fault, in numbers that are not those of the reference, or not those of
    the run before.

    Attributes:
        output: the parameter. seed: of the run.
    """

    def __init__(self, message: str, output: str, seed: int) -> None:
        super().__init__(message)
        self.output = output
        self.seed = seed


class NoDevice(UnavailableError, SkipTest):
    """There is no GPU that the program can be launched on: pytest and unittest count the test as
    skipped.
    """


def run(
    program: Program,
    *,
    expect: Expected | None = None,
    seeds: Iterable[int] = range(4),
    rtol: npt.ArrayLike | None = None,
    atol: npt.ArrayLike = 0.0,
    rules: Rules = "practice",
) -> list[Run]:
    """Runs a program in the simulator, an interleaving for each seed, and compares what it writes
    with a reference.

    What the kernel writes is set back before each run to what it was when `run` was called.

    Args:
        expect: an array, where the kernel writes one tensor; a mapping from its outputs' names to
            arrays; or a function that gives one of these. A function gets the arguments that it
            asks for by the names of the kernel's parameters, as they are before the first run:
            `expect=lambda a, b: a @ b.T`. None: nothing is compared.
        seeds: of the runs; 0 is one fixed order.
        rtol, atol: an element may be off by atol + rtol · |expected|; numbers, or arrays that
            broadcast to the output. By default by the rounding of the result to the output's dtype,
            and integers not at all.

    Returns:
        What each run reports, in the order of the seeds.

    Raises:
        WrongResult: an element is off by more.
        SimFault: a run found a fault; a note names its seed.
        BindError: `expect` does not fit the kernel, the kernel's arguments are not NumPy arrays, or
            an argument has the wrong type.
    """
    outputs = _Outputs(program, "run")
    want = {} if expect is None else outputs.expected(expect)
    for name, allowed in (("rtol", rtol), ("atol", atol)):
        if allowed is not None:
            tolerance(name, allowed)
    runs: list[Run] = []
    done: list[int] = []
    for seed in several(seeds):
        outputs.reset()
        runs.append(_simulate(program, seed, rules))
        for name, array in want.items():
            found = compare(outputs.arrays[name], array, rtol=rtol, atol=atol)
            if not found.ok:
                raise WrongResult(
                    _wrong(program, name, seed, done, outputs.arrays[name], array, found),
                    name,
                    seed,
                )
        done.append(seed)
    return runs


def perturb(
    program: Program,
    *,
    seeds: Iterable[int] = range(1, 9),
    device: str = "cuda",
    timeout_ms: float = 2000,
) -> None:
    """Asserts that a program writes the same bits however its threads are delayed.

    On "cuda": launches a build with bounded waits; for each seed one with random delays, too, at
    every place where threads meet; last the kernel as it is. On "sim": runs the fixed order, then a
    random interleaving for each seed. What the kernel writes is set back before each.

    Args:
        seeds: of the delays.
        timeout_ms: how long a wait may take.

    Raises:
        WrongResult: some bits differ.
        HangError: a wait did not end.
        NoDevice: no GPU to launch it on (skips the test).
        BindError: the kernel's arguments are not NumPy arrays, or an argument has the wrong type.
    """
    if device not in ("cuda", "sim"):
        raise BindError(f"perturb: device is 'cuda' or 'sim', got {device!r}")
    outputs = _Outputs(program, "perturb")

    def go(seed: int | None, debug: bool = True) -> None:
        outputs.reset()
        if device == "sim":
            _simulate(program, seed or 0, "practice")
            return
        try:
            program.launch(debug=debug, perturb=seed, timeout_ms=timeout_ms)
        except UnavailableError as error:
            raise NoDevice(str(error)) from None

    def compare_bits(how: str, seed: int) -> None:
        for name, before in first.items():
            differ = _bits(before) != _bits(outputs.arrays[name])
            if differ.any():
                raise WrongResult(
                    _differs(program, name, how, differ, before, outputs.arrays[name]), name, seed
                )

    delays = several(seeds)
    go(None)
    first = outputs.copies()
    for seed in delays:
        go(seed)
        compare_bits(f"launch(perturb={seed})" if device == "cuda" else f"run(seed={seed})", seed)
    if device == "cuda":
        go(None, debug=False)
        compare_bits("launch()", 0)


class _Outputs:
    """The arrays that a program's kernel writes, and what was in them.

    Attributes:
        arrays: by parameter.
    """

    def __init__(self, program: Program, caller: str) -> None:
        require_program(caller, program)
        self._args = program.launch_args.args
        self._kernel = program.kernel
        written = tensor_uses(program.kernel)[0]
        self.arrays: dict[str, Array] = {}
        for name, arg in self._args.items():
            if not isinstance(arg, TensorArg):
                continue
            if not isinstance(arg.array, np.ndarray):
                raise BindError(
                    f"{caller} takes a program on NumPy arrays; argument '{name}' is a"
                    f" {type(arg.array).__name__}"
                )
            if name in written:
                self.arrays[name] = arg.array
        self._before = self.copies()

    def copies(self) -> dict[str, Array]:
        """Copies of the arrays as they are now."""
        return {name: array.copy() for name, array in self.arrays.items()}

    def reset(self) -> None:
        """Puts back what was in them at first."""
        for name, array in self.arrays.items():
            array[...] = self._before[name]

    def expected(self, expect: Expected) -> dict[str, Array]:
        """The reference of each output that it names.

        Raises:
            BindError: names or shapes that the kernel does not have.
        """
        if callable(expect):
            known = {
                name: arg.array.copy() if isinstance(arg, TensorArg) else arg
                for name, arg in self._args.items()
            }
            asked = list(inspect.signature(expect).parameters)
            unknown = [name for name in asked if name not in known]
            if unknown:
                raise BindError(
                    f"expect= asks for {', '.join(unknown)}; kernel '{self._kernel.name}' has"
                    f" {', '.join(known)}"
                )
            expect = expect(**{name: known[name] for name in asked})
        named: Mapping[str, Any]
        if isinstance(expect, Mapping):
            named = expect
        else:
            if len(self.arrays) != 1:
                raise BindError(
                    f"expect= is one array, and kernel '{self._kernel.name}' writes"
                    f" {', '.join(self.arrays) or 'nothing'}: give a dict from names to arrays"
                )
            named = {next(iter(self.arrays)): expect}
        want = {}
        for name, given in named.items():
            if name not in self.arrays:
                raise BindError(
                    f"expect= has '{name}'; kernel '{self._kernel.name}' writes"
                    f" {', '.join(self.arrays) or 'nothing'}"
                )
            want[name] = numbers(f"expect= for '{name}'", given)
            if want[name].shape != self.arrays[name].shape:
                raise BindError(
                    f"expect= gives shape {want[name].shape} for '{name}', which is"
                    f" {self.arrays[name].shape}"
                )
        return want


def _simulate(program: Program, seed: int, rules: Rules) -> Run:
    try:
        return program.run(seed=seed, rules=rules)
    except SimFault as fault:
        fault.add_note(
            f"in the interleaving of seed {seed}: program.run(seed={seed}) does it again"
        )
        raise


def _bits(array: Array) -> Array:
    """Whatever the dtype is, an array of its bytes, (elements, bytes of one)."""
    return np.frombuffer(array.tobytes(), np.uint8).reshape(array.size, array.itemsize)


def _wrong(
    program: Program,
    name: str,
    seed: int,
    done: list[int],
    got: Array,
    want: Array,
    found: Comparison,
) -> str:
    at = found.worst_at
    right = f" Right with {_seeds(done)}: it depends on the order." if done else ""
    return (
        f"{program.kernel.name}, seed {seed}: '{name}' is wrong in {found.wrong:,} of {got.size:,}"
        f" elements; the worst is {list(at)}: {got[at]}, expected {want[at]}, {found.worst:.3g}"
        f" times what is allowed.{right}"
    )


def _differs(
    program: Program, name: str, how: str, differ: Array, before: Array, now: Array
) -> str:
    elements = differ.any(axis=1)
    at = tuple(int(i) for i in np.unravel_index(int(elements.argmax()), before.shape))
    return (
        f"{program.kernel.name}, {how}: '{name}' has other bits in {int(elements.sum()):,} of"
        f" {before.size:,} elements than without delays; the first is {list(at)}: {now[at]}, before"
        f" {before[at]}.\n"
        "  Either something is not ordered (tilepipe.testing.check(program) looks for it), or the"
        " kernel adds in an order that may vary, as atomic adds do."
    )


def _seeds(done: list[int]) -> str:
    return f"seed {done[0]}" if len(done) == 1 else f"seeds {', '.join(map(str, done))}"
