"""What one stage more of each ring would change, by simulating the kernel with it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tilepipe as tp
from tilepipe.cli.common import counting
from tilepipe.errors import BindError, TilepipeError

if TYPE_CHECKING:
    from tilepipe.cli.programs import Made

_SAME = 0.005  # of the time: less is no difference


@dataclass(frozen=True)
class MoreStages:
    """The kernel with another value of a setting that says how many stages there are.

    Attributes:
        us: its modelled time. before: without the change. why: it cannot be made, as where the
            stages do not fit; `us` is then None.
    """

    setting: str
    value: int
    before: float
    us: float | None
    why: str = ""

    def __str__(self) -> str:
        if self.us is None:
            return f"one stage more, {self.setting}={self.value}, is refused: {self.why}"
        saved = self.before - self.us
        if abs(saved) < _SAME * self.before:
            return f"one stage more, {self.setting}={self.value}, would save nothing"
        does = "save" if saved > 0 else "cost"
        part = abs(saved) / self.before
        return (
            f"one stage more, {self.setting}={self.value}, would {does} {abs(saved):.2f} µs of"
            f" {self.before:.1f} ({part:.0%}), modelled"
        )

    def report(self) -> dict[str, Any]:
        """The finding as `--json` prints it."""
        return {"setting": self.setting, "value": self.value, "simulated_us": self.us}


def more_stages(
    make: Callable[..., Made], stages: Mapping[str, int], before: float, quiet: bool
) -> list[MoreStages]:
    """The kernel with one stage more of each ring that has a setting for them. `make`: makes it
    with settings changed. `stages`: these settings. `before`: its modelled time. `quiet`: without
    a progress bar.
    """
    found = []
    for name, n in stages.items():
        try:
            with contextlib.redirect_stdout(sys.stderr):  # what a file prints
                program = make(**{name: n + 1})
            assert isinstance(program, tp.Program)
            with counting(f"simulating {name}={n + 1}", quiet) as progress:
                us = program.run(progress=progress).simulated_us
            found.append(MoreStages(name, n + 1, before, us))
        except TilepipeError as error:
            # without the configuration that it is about
            rule = error.rule if isinstance(error, BindError) else ""
            why = (rule or str(error)).splitlines()[0]
            found.append(MoreStages(name, n + 1, before, None, why))
    return found
