"""How `tilepipe timeline` gets the timeline of a kernel: simulated, from its PTX, or measured."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tilepipe as tp
from tilepipe.check import Fault
from tilepipe.check.choose_front_end import AnyLaunch
from tilepipe.cli import programs
from tilepipe.cli.common import Device, Source, counting, err, gpu
from tilepipe.errors import BindError, SimFault, TilepipeError

if TYPE_CHECKING:
    from tilepipe.timeline import Timeline
    from tilepipe.timeline.recording import Recording


@dataclass(frozen=True, eq=False)
class Recorded:
    """A timeline, and what it is of.

    Attributes:
        config: the settings that it has run with. make: makes the same problem with settings
            changed. stages: those settings that say how many stages there are.
    """

    timeline: Timeline
    config: dict[str, Any]
    make: Callable[..., programs.Made]
    stages: dict[str, int]


@dataclass(frozen=True)
class Recipe:
    """What is recorded of each kernel: of so many CTAs, with `room` notes for each warp on a GPU.
    `quiet`: without a progress bar.
    """

    ctas: int
    room: int
    seed: int
    quiet: bool

    def recorded(
        self,
        what: str,
        settings: Sequence[str],
        device: Device,
        source: Source,
        as_chosen: Mapping[str, Any] | None = None,
    ) -> Recorded:
        """The timeline of a kernel's first CTAs.

        `as_chosen`: all settings of the shipped kernel; chosen by it unless given.
        """
        with contextlib.redirect_stdout(sys.stderr):  # what a file prints
            chosen = [] if as_chosen is None else [f"{n}={x}" for n, x in as_chosen.items()]
            make, config, arch = _making(what, chosen or settings, device)
            made = make()
        found = replace(
            self._timeline(made, device, source, arch), name=" ".join([what, *settings])
        )
        stages = programs.stages_of(config) if isinstance(made, tp.Program) else {}
        return Recorded(found, config, make, stages)

    def _timeline(
        self, made: programs.Made, device: Device, source: Source, arch: str | None
    ) -> Timeline:
        if not isinstance(made, tp.Program):
            if device is Device.cuda:
                raise BindError("a launch of PTX is simulated here: leave --device cuda out")
        elif device is Device.cuda:
            return made.record(ctas=self.ctas, room=self.room)
        elif source is Source.program:
            with counting("simulating CTAs", self.quiet) as progress:
                found = made.run(seed=self.seed, progress=progress, timeline=self.ctas).timeline
            assert found is not None
            return found
        else:
            made = made.ptx(arch)
        made.run(seed=self.seed, timeout=None, timeline=self.ctas)
        assert made.timeline is not None
        return made.timeline


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of a kernel: its timeline, up to the fault where it ends in one, or the error
    for which it could not be run.

    Attributes:
        timeline: None where nothing was recorded. recorded: of a run that ended well.
    """

    what: str
    timeline: Timeline | None = None
    recorded: Recorded | None = None
    error: TilepipeError | None = None

    @classmethod
    def of(cls, what: str, run: Callable[[], Recorded]) -> Outcome:
        try:
            recorded = run()
        except TilepipeError as error:
            found = until(error) if isinstance(error, SimFault) else None
            return cls(what, found, None, error)
        return cls(what, recorded.timeline, recorded)

    @property
    def said(self) -> str:
        """What stands on the page, with how many events."""
        if self.timeline is None:
            return ""
        before = "" if self.error is None else "what happened before the fault of "
        return f"{before}{self.what}, {len(self.timeline.events):,} events"


def save_outcomes(output: Path, *outcomes: Outcome) -> None:
    """Writes what there is of one kernel, or of two beside each other; says what there is, and what
    became of those of which there is nothing.
    """
    there = [x for x in outcomes if x.timeline is not None]
    if there:
        first, *second = (x.timeline for x in there)
        assert first is not None
        first.save(output, beside=second[0] if second else None)
        text = f"{output}: {', beside it '.join(x.said for x in there)}"
        err.print(text, soft_wrap=True)
    for x in outcomes:
        if x.error is not None and len(outcomes) > 1:  # else the error itself says so
            end = "ends in a fault" if isinstance(x.error, SimFault) else "cannot be run"
            err.print(f"{x.what} {end}", soft_wrap=True)


def until(fault: SimFault) -> Timeline | None:
    """The timeline up to a fault; None where none was recorded."""
    from tilepipe.timeline import Timeline

    return fault.timeline if isinstance(fault.timeline, Timeline) else None


def check_name(output: Path) -> None:
    """Raises BindError where a timeline cannot be written to a file, before anything is run."""
    if output.suffix.lower() not in (".html", ".json"):
        raise BindError(
            f"-o {output}: a timeline is a page, -o {output.stem or 't'}.html, or trace events for"
            f" ui.perfetto.dev, -o {output.stem or 't'}.json"
        )
    if not output.parent.is_dir():
        raise BindError(f"cannot write {output}: No such file or directory")


def recording_of(launch: AnyLaunch) -> Recording:
    """A recording of all CTAs of a launch."""
    from tilepipe import ptx
    from tilepipe.timeline.recording import Recording

    grid = math.prod(launch.grid) if isinstance(launch, ptx.Launch) else launch.grid
    return Recording(grid, grid, launch.chip.clock_ghz * 1e3)


def save_replayed(records: Recording, fault: Fault | None, name: str, output: Path) -> None:
    """Writes the timeline of a schedule, which ended in a fault or in none."""
    if fault is None:
        found = records.timeline(name, 0.0)
    else:
        steps = tuple((step.agent, step.op, step.loc, step.effect) for step in fault.steps)
        found = records.until(fault.message, name, steps)
    found.save(output)
    err.print(f"{output}: {len(found.events):,} events")


def _making(
    what: str, settings: Sequence[str], device: Device
) -> tuple[Callable[..., programs.Made], dict[str, Any], str | None]:
    """What makes that which is run, its settings, and the target of a shipped kernel."""
    if programs.names_file(what):
        target = programs.target(what, settings)
        return programs.the_instance(target).make, target.config, None
    spec = programs.shipped_kernel(what)
    given = spec.parse(list(settings))
    config, _ = spec.configure(given, gpu(spec) if device is Device.cuda else None)

    def make(**changed: Any) -> tp.Program:
        return spec.case({**config, **changed}, 0).program

    return make, dict(config), spec.target(given)
