"""Judging a mutant: whether it is refused, ends in a fault, computes other results, or is
equivalent to the kernel.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tilepipe import sim
from tilepipe.check.decide import check
from tilepipe.check.mutation.mutants import Mutant
from tilepipe.check.mutation.outcomes import Outcome, outcome_of
from tilepipe.check.verdict import Bounds
from tilepipe.errors import TilepipeError
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.program import Launch, TensorArg
from tilepipe.machine.rules import Rules

Outputs = dict[str, bytes]


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
    found = outcome_of(verdict, bounds)
    if found.fate != "redundant":
        return found
    got = outputs(mutated)
    other = [name for name in reference if got.get(name) != reference[name]]
    return (
        Outcome("numbers", message=f"no fault, but other values in {', '.join(other)}")
        if other
        else found
    )
