"""`tilepipe tune --simulate`: configurations ranked by the time that the simulator predicts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tilepipe.cli.common import out, print_json, stepping
from tilepipe.errors import BindError, TilepipeError
from tilepipe.ir.chip import H200
from tilepipe.machine.calibration import measured_chip
from tilepipe.registry.settings import Setting, pairs

if TYPE_CHECKING:
    from tilepipe.registry.spec import KernelSpec

USUAL = "bn", "stages"  # settings of most kernels, which make the best examples

ALIKE = 1.01  # predicted times, slowest over fastest, that tell nothing: errors are larger


def rank_simulated(spec: KernelSpec, settings: Sequence[str], limit: int, as_json: bool) -> None:
    """Simulates each choice of tiles that the settings name, with commas between values, and prints
    them, the fastest first.

    Raises:
        BindError: they name one choice alone, or more than `limit`; they are no settings of the
            kernel; or none can be made.
    """
    if not spec.tiles:
        raise BindError(f"{spec.name} has no tiles to choose, so there is nothing to rank")
    every = choices(spec, settings)
    if len(every) < 2:
        raise BindError(
            "tune --simulate ranks choices of tiles: give some of them several values"
            f"{_example(spec, every[0])}; {spec.name} has {', '.join(_tiles(spec, every[0]))}"
        )
    if len(every) > limit:
        raise BindError(f"these are {len(every)} choices, and --limit is {limit}: give fewer")
    found: list[tuple[float, str, dict[str, Any]]] = []
    refused: list[tuple[str, str]] = []
    chip = H200
    with stepping("simulating", len(every), as_json) as step:
        for words in every:
            name = " ".join(words)
            step(name)
            try:
                config, _ = spec.configure(spec.parse(list(words)), None)
                program = spec.case(config, 0).program
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
    out.print(
        f"{spec.name}, simulated for {chip.name} at costs measured on {measured_chip(chip)};"
        " nothing is remembered",
        soft_wrap=True,
    )
    table = Table("predicted, µs", "settings")
    for us, name, _ in found:
        table.add_row(f"{us:.2f}", name)
    out.print(table, soft_wrap=False)
    if len(found) > 1 and found[-1][0] <= ALIKE * found[0][0]:
        out.print(
            f"These are within {ALIKE - 1:.0%} of each other, which is less than the prediction's"
            f" error: time them on a GPU, with tilepipe bench {spec.name}",
            soft_wrap=True,
        )
    for name, why in refused:
        out.print(f"{name}: {why}")


def choices(spec: KernelSpec, settings: Sequence[str]) -> list[tuple[str, ...]]:
    """The settings, each with one of its values; only tiles have several. A value that is named
    twice counts once.

    Raises:
        BindError: a text is not `name=value`, or of a setting that the kernel does not have; a
            value is missing beside a comma, or of another type than the setting.
    """
    several: list[list[str]] = []
    for name, values in pairs(settings).items():
        texts = values.split(",") if name in spec.tiles else [values]
        if "" in texts:
            raise BindError(f"setting {name}: a value is missing beside a comma in {values!r}")
        distinct: dict[Setting, str] = {}
        for text in texts:
            distinct.setdefault(spec.parse([f"{name}={text}"])[name], f"{name}={text}")
        several.append(list(distinct.values()))
    return list(itertools.product(*several))


def _example(spec: KernelSpec, settings: Sequence[str]) -> str:
    """Two values of a tile setting, the default and its double or half, that the kernel takes
    together with the settings that are given.
    """
    for name in sorted(spec.tiles - pairs(settings).keys(), key=lambda x: (x not in USUAL, x)):
        default = spec.settings[name]
        if type(default) is not int:
            continue
        for values in sorted((default, 2 * default)), sorted((default, default // 2)):
            if all(_can_be_made(spec, [*settings, f"{name}={value}"]) for value in values):
                return f", as -s {name}={values[0]},{values[1]}"
    return ""


def _tiles(spec: KernelSpec, settings: Sequence[str]) -> list[str]:
    """The tile settings of the architecture that the settings name."""
    parsed = spec.parse(list(settings))
    config, _ = spec.configure({"arch": parsed["arch"]} if "arch" in parsed else {}, None)
    return sorted(spec.tiles & config.keys())


def _can_be_made(spec: KernelSpec, settings: list[str]) -> bool:
    try:
        config, _ = spec.configure(spec.parse(settings), None)
        spec.case(config, 0)
    except TilepipeError:
        return False
    return True
