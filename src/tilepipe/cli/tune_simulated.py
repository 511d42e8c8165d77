"""`tilepipe tune --simulate`: configurations ranked by the time that the simulator predicts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tilepipe.cli.common import out, print_json, stepping
from tilepipe.errors import BindError, TilepipeError
from tilepipe.ir.chip import H200
from tilepipe.machine.calibration import measured_chip

if TYPE_CHECKING:
    from tilepipe.registry.spec import KernelSpec


def rank_simulated(spec: KernelSpec, settings: Sequence[str], limit: int, as_json: bool) -> None:
    """Simulates each choice of tiles that the settings name, with commas between values, and prints
    them, the fastest first.

    Raises:
        BindError: they name one choice alone, or more than `limit`; or none can be made.
    """
    choices = list(_choices(spec, settings))
    if len(choices) < 2:
        raise BindError(
            "tune --simulate ranks choices of tiles: give some of them several values, as -s"
            f" {next(iter(spec.tiles))}=64,128; {spec.name} has {', '.join(spec.tiles)}"
        )
    if len(choices) > limit:
        raise BindError(f"these are {len(choices)} choices, and --limit is {limit}: give fewer")
    found: list[tuple[float, str, dict[str, Any]]] = []
    refused: list[tuple[str, str]] = []
    chip = H200
    with stepping("simulating", len(choices), as_json) as step:
        for words in choices:
            name = " ".join(words)
            step(name)
            try:
                config, _ = spec.configure(spec.parse(list(words)), None)
                program = spec.make(config, 0).program
                us, chip = program.run().predicted_us, program.launch_args.chip
                found.append((us, name, dict(config)))
            except TilepipeError as error:
                refused.append((name, str(error).splitlines()[0]))
    if not found:
        raise BindError(f"none of these can be made: {refused[0][0]}: {refused[0][1]}")
    found.sort(key=lambda x: x[0])
    if as_json:
        trials = [{"config": config, "predicted_us": us} for us, _, config in found]
        print_json(
            {
                "kernel": spec.name,
                "chip": chip.name,
                "costs_of": measured_chip(chip),
                "trials": trials,
                "refused": [x for x, _ in refused],
            }
        )
        return
    title = (
        f"{spec.name}, simulated for {chip.name} at costs measured on {measured_chip(chip)};"
        " nothing is remembered"
    )
    table = Table("predicted, µs", "settings", title=title)
    for us, name, _ in found:
        table.add_row(f"{us:.2f}", name)
    out.print(table, soft_wrap=False)
    for name, why in refused:
        out.print(f"{name}: {why}")


def _choices(spec: KernelSpec, settings: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The settings, each with one of its values; only tiles have several."""
    several: list[list[str]] = []
    for text in settings:
        name, equals, values = text.partition("=")
        split = values.split(",") if name in spec.tiles else [values]
        several.append([f"{name}{equals}{value}" for value in split])
    return itertools.product(*several)
