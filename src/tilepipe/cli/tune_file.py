"""`tilepipe tune --list`, `--forget` and `--merge`: what is in the file of tuned configurations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from tilepipe.cli.common import out, print_json
from tilepipe.cli.measuring import show
from tilepipe.cli.tune_search import problem_of, require_tuning
from tilepipe.errors import BindError, UnavailableError
from tilepipe.host_arguments import question
from tilepipe.ir.chip import Chip
from tilepipe.kernels.common import tuned
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.registry.catalog import KERNELS, KernelSpec, Setting


def require_location() -> None:
    """Raises BindError where there is no place for a file."""
    if tuned.location() is None:
        raise BindError(
            "there is no file of tuned configurations: TILEPIPE_TUNED is off, or there is no home"
            " directory"
        )


def tunables() -> list[Tunable[Any, Any]]:
    """The `Tunable` of every kernel that is tuned."""
    return [spec.tuning.tunable for spec in KERNELS.values() if spec.tuning is not None]


def show_entries(spec: KernelSpec | None, as_json: bool) -> None:
    """Prints the entries of a kernel, or of all (None), and what is wrong with others."""
    from tilepipe.bench import report

    of = None if spec is None else require_tuning(spec).tunable.kernel
    entries, problems = tuned.entries(tunables(), of)
    if as_json:
        found = {
            name: facts | {"config": config.as_dict()} for name, (config, facts) in entries.items()
        }
        print_json({"file": str(tuned.location()), "entries": found, "problems": problems})
        return
    for problem in problems:
        out.print(problem, style="red", soft_wrap=True)
    if not entries:
        whose = "" if spec is None else f" of {spec.name}"
        out.print(f"nothing is remembered{whose} in {tuned.location()}")
        return
    rows = tuple(
        (
            name,
            report.settings_text(config),
            str(facts.get("us", "")).strip("{}").replace("'", ""),
            str(facts.get("date", "")),
        )
        for name, (config, facts) in entries.items()
    )
    out.print(f"in {tuned.location()}:")
    table = report.Table("", ("problem", "config", "µs", "date"), rows, texts=4)
    show([table], False, [], report.legend([config for config, _ in entries.values()]))


def take_over(other: Path, as_json: bool) -> None:
    """Takes the entries of another file, and says how many. Exit 2 where there is none that can be
    used.
    """
    taken, known, problems = tuned.merge(other, tunables())
    if as_json:
        where = str(tuned.location())
        print_json({"file": where, "taken": taken, "known": known, "problems": problems})
    else:
        for problem in problems:
            out.print(problem, style="red", soft_wrap=True)
        what = "entry" if taken == 1 else "entries"
        stay = f"; {known} stood there already, and stay" if known else ""
        out.print(f"took {taken} {what} of {other} into {tuned.location()}{stay}")
    if problems and not taken + known:
        raise typer.Exit(2)


def forget(
    spec: KernelSpec,
    named: KernelSpec | None,
    given: Mapping[str, Setting],
    chip_name: str | None,
    as_json: bool,
) -> None:
    """Removes the entry of the problem that settings state; without any, all of the kernel, or,
    where none is named, of the chip.
    """
    tuning, kernel, name = require_tuning(spec), None, None
    if given:
        one_or_all = "tune --forget forgets one shape, or, without any -s, all of this chip"
        problem = problem_of(spec, given, one_or_all)
        chip = _whose(chip_name)
        name = tuning.tunable.entry(problem, chip)
    else:
        chip = _whose(chip_name)
        kernel = None if named is None else named.name
    count = tuned.forget(chip, kernel, name)
    if as_json:
        print_json({"file": str(tuned.location()), "chip": chip.name, "forgotten": count})
        return
    what = "entry" if count == 1 else "entries"
    out.print(f"forgot {count} {what} of {chip.name} in {tuned.location()}")


def _whose(name: str | None) -> Chip:
    """The chip whose entries are to go: the one that is named, or the GPU of this machine. No other
    is meant by saying nothing.
    """
    from tilepipe.cuda.runtime import driver

    if name is None:
        try:
            return driver.chip(0)
        except UnavailableError as error:
            raise UnavailableError(
                f"tune --forget is about the chip of this machine, and {error}. Name one with"
                f" --chip NAME: {_known()}"
            ) from None
    if name not in tuned.chips():
        meant = question(name, tuned.chips())
        raise BindError(f"nothing is remembered of a chip {name!r}; {_known()}{meant}")
    return Chip(name=name)


def _known() -> str:
    return f"{tuned.location()} has entries of: {', '.join(tuned.chips()) or 'none'}"
