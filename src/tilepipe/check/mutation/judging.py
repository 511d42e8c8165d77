"""Judging a mutant: whether it is refused, ends in a fault, computes other results, or is
equivalent to the kernel.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tilepipe import sim
from tilepipe.check.decide import check
from tilepipe.check.mutation.mutants import Mutant
from tilepipe.check.verdict import Bounds, Verdict
from tilepipe.errors import TilepipeError
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.program import Launch, TensorArg
from tilepipe.machine.rules import Rules

Fate = Literal["refused", "fault", "undecided", "numbers", "redundant"]
Outputs = dict[str, bytes]
STEPS = "steps of one execution"  # the end of the bound that an endless loop hits


@dataclass(frozen=True, slots=True)
class Outcome:
    """The judgement of a mutant.

    Attributes:
        fate: "refused": the simulator cannot start it. "fault": some interleaving ends in a fault.
            "numbers": no fault, but results that differ from the kernel's. "redundant": no
            interleaving has a fault, and the results are the kernel's. "undecided": a bound was
            hit.
        kind, loc, message: the class of the error, its line "gemm.py:31", and its message; for
            "undecided" the message is the bound, for "numbers" the tensor.
        advice: the advice that the checker gives on it.
        states, traces: the size of the exploration.
    """

    fate: Fate
    kind: str = ""
    loc: str = ""
    message: str = ""
    advice: tuple[str, ...] = ()
    states: int = 0
    traces: int = 0

    @property
    def caught(self) -> bool:
        """Whether the mutant is distinguished from the kernel."""
        return self.fate in ("refused", "fault", "numbers")

    @property
    def headline(self) -> str:
        """The first line of the message."""
        return self.message.split("\n", 1)[0]


@contextlib.contextmanager
def arrays_kept(launch: Launch) -> Iterator[None]:
    """Restores the arrays that the kernel writes."""
    before = [(array, np.array(array)) for array in _written(launch).values()]
    try:
        yield
    finally:
        for array, values in before:
            array[...] = values


def outputs(launch: Launch) -> Outputs:
    """The bytes that one run writes, by parameter; the arrays keep their values.

    Raises:
        SimFault: the run ends in a fault.
    """
    arrays = _written(launch)
    with arrays_kept(launch), contextlib.redirect_stdout(io.StringIO()):
        sim.run(launch)
        return {name: np.ascontiguousarray(array).tobytes() for name, array in arrays.items()}


def _written(launch: Launch) -> dict[str, Any]:
    written, _ = tensor_uses(launch.kernel)
    return {
        name: a.array
        for name, a in launch.args.items()
        if name in written and isinstance(a, TensorArg)
    }


def judge(
    mutant: Mutant,
    launch: Launch,
    reference: Outputs,
    *,
    bounds: Bounds = Bounds(),  # noqa: B008
    rules: Rules = "practice",
) -> Outcome:
    """Explores a mutant, and compares its results with the kernel's if that finds no fault.

    Args:
        launch: an instance of the kernel of which it is a mutant.
        reference: `outputs(launch)`.
        bounds: limits of the exploration. An execution of more than `bounds.steps` steps counts as
            an endless loop, which is a fault.
    """
    mutated = replace(launch, kernel=mutant.kernel)
    try:
        sim.source(mutant.kernel)
    except TilepipeError as error:
        return Outcome(
            "refused",
            type(error).__name__,
            error.loc.short if error.loc is not None else "",
            str(error),
        )
    with contextlib.redirect_stdout(io.StringIO()):
        verdict = check(mutated, explore=True, bounds=bounds, rules=rules, shorten=False)
    found = _outcome_of(verdict, bounds)
    if found.fate != "redundant":
        return found
    got = outputs(mutated)
    other = [name for name in reference if got.get(name) != reference[name]]
    return (
        Outcome("numbers", message=f"no fault, but other values in {', '.join(other)}")
        if other
        else found
    )


def _outcome_of(verdict: Verdict, bounds: Bounds) -> Outcome:
    advice, states, traces = tuple(verdict.advice), verdict.states, verdict.traces
    if verdict.faults:
        fault = verdict.faults[0]
        return Outcome("fault", fault.kind, fault.loc, fault.message, advice, states, traces)
    if verdict.ok:
        return Outcome("redundant", advice=advice, states=states, traces=traces)
    if verdict.bound.endswith(STEPS):
        return Outcome(
            "fault",
            "Endless",
            "",
            f"still running after {bounds.steps:,} steps",
            advice,
            states,
            traces,
        )
    return Outcome("undecided", message=verdict.bound, advice=advice, states=states, traces=traces)
