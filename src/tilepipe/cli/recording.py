"""How `tilepipe timeline` gets the timeline of a kernel: simulated, from its PTX, or measured."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tilepipe as tp
from tilepipe.cli import programs
from tilepipe.cli.common import Device, Source, counting, gpu
from tilepipe.errors import BindError

if TYPE_CHECKING:
    from tilepipe.timeline import Timeline


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
        return spec.make({**config, **changed}, 0).program

    return make, dict(config), spec.target(given)
