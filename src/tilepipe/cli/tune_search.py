"""The search of `tilepipe tune`: of which problem, on which operands, and what is said of it."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tilepipe as tp
from tilepipe.cli.common import out, print_json, stepping
from tilepipe.cli.measure import measuring, product
from tilepipe.cli.measuring import announce, show
from tilepipe.errors import BindError, UnavailableError
from tilepipe.ir.chip import Chip
from tilepipe.kernels.common import tuned
from tilepipe.registry.catalog import KERNELS, GemmSpec, KernelSpec, Setting
from tilepipe.registry.tuning import Tuning

if TYPE_CHECKING:
    from tilepipe.bench.beside import OurOperands


def require_tuning(spec: KernelSpec) -> Tuning[Any, Any]:
    """What is searched for a kernel.

    Raises:
        BindError: nothing is chosen for its problems.
    """
    if spec.tuning is None and not spec.tiles:
        raise BindError(f"{spec.name} has no tiles to choose, so there is nothing to search")
    if spec.tuning is None:
        have = [name for name, x in KERNELS.items() if x.tuning is not None]
        raise BindError(
            f"there is no search of configurations for '{spec.name}'; there is one for:"
            f" {', '.join(have)}. --simulate ranks tiles of any kernel that has some"
        )
    return spec.tuning


def problem_of(spec: KernelSpec, given: Mapping[str, Setting], what: str) -> Any:
    """The problem that settings state.

    Args:
        what: does what to it, for the message.

    Raises:
        BindError: they have settings that are searched, or do not state all extents; or there is
            no such problem.
    """
    tuning = require_tuning(spec)
    mine = [name for name in given if name in spec.tiles]
    if mine:
        raise BindError(f"tune searches {', '.join(mine)}; set the problem only")
    if not given.keys() >= set(tuning.needs) and tuning.instead not in given:
        shape = " ".join(f"-s {name}={name.upper()}" for name in tuning.needs)
        others = f", or -s {tuning.instead}=..." if tuning.instead else ""
        raise BindError(f"{what}: {shape}{others}")
    if isinstance(spec, GemmSpec):
        return product(spec, given)
    return tuning.problem(spec.settings | dict(given))


def search(
    spec: KernelSpec,
    given: Mapping[str, Setting],
    limit: int,
    regimes: Sequence[str],
    seed: int,
    as_json: bool,
) -> bool:
    """Searches, prints, and remembers the fastest; True if all results were right."""
    tuning = require_tuning(spec)
    problem = problem_of(spec, given, "tune needs the shape")
    try:
        chip = measuring(spec, given)
    except UnavailableError as error:
        raise UnavailableError(
            f"{str(error).rstrip('.')}. tune --simulate ranks tiles without a GPU"
        ) from None
    from tilepipe.bench import gemm, report, tune as tuning_

    limit = min(limit, len(tuning.tunable.candidates(problem, chip)))
    made = _operands(spec, given, problem, chip, seed)
    if not as_json:
        out.print(gemm.environment(chip))
    announce(tuning_.seconds(limit, regimes))
    with stepping("compiling", tuning_.steps(limit, regimes), as_json) as step:
        found = tuning_.search(tuning.tunable, problem, made, chip, limit, regimes, step)
    best = found.trials[0]
    us = {name: round(value, 2) for name, value in best.us.items()}
    facts: dict[str, Any] = {
        "us": us,
        "date": datetime.date.today().isoformat(),
        "tilepipe": tp.__version__,
    }
    gain = found.gain(best)
    facts |= {"gain": round(gain, 4)} if gain == gain else {}
    path = tuned.remember(tuning.tunable, problem, chip, best.config, facts)
    if as_json:
        trials = [
            {
                "config": t.config.as_dict(),
                "rank": t.rank,
                "us": dict(t.us),
                "gain": found.gain(t),
            }
            for t in found.trials
        ]
        print_json(
            {
                "kernel": spec.name,
                "problem": tuning.tunable.fields(problem),
                "chip": chip.name,
                "screened": found.screened,
                "trials": trials,
                "refused": [{"config": x.as_dict(), "why": why} for x, why in found.refused],
                "wrong": [x.as_dict() for x in found.wrong],
                "file": str(path),
            }
        )
    else:
        show([tuning_.result_table(found)], False, [], report.legend([best.config]))
        out.print(f"remembered {report.settings_text(best.config)} in {path}")
    return not found.wrong


def _operands(
    spec: KernelSpec, given: Mapping[str, Setting], problem: Any, chip: Chip, seed: int
) -> Callable[[], OurOperands]:
    """What allocates the operands that the candidates work on: those of the kernel's benchmark."""
    if isinstance(spec, GemmSpec):
        from tilepipe.bench.gemm import GemmOperands

        return functools.partial(GemmOperands, problem, seed)
    from tilepipe.bench.beside import contests

    with tuned.unused():
        (contest, *_) = contests(spec, given, [], chip, seed)
    assert contest.operands is not None
    return contest.operands
