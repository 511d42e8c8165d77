"""From what a simulated run says of a launch to the time that it takes on a chip.

The pipeline of copies and MMAs that the simulator follows, and arithmetic in registers, which its
clock does not count, take turns; memory works meanwhile. What each costs on a chip is fitted to
measured times (`benchmarks/cost_model`), and kept in a file for each chip that was measured,
`chips/NAME.json`. So far that is the H200 alone: other chips are taken to cost what it costs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from tilepipe.ir.chip import Chip

FOLDER: Traversable = files("tilepipe.machine") / "chips"
DEFAULT = "H200"


@dataclass(frozen=True, slots=True)
class Demand:
    """What a launch asks of a chip.

    Attributes:
        pipeline_us: copies and MMAs of the last CTA to end, by the simulator's clock.
        memory_us: to move each byte that it touches once.
        special, plain: element-wise operations of an SM: those of the special function units (exp2,
            rsqrt, ...), and others, in millions.
    """

    pipeline_us: float
    memory_us: float
    special: float
    plain: float


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a chip.

    Attributes:
        launch_us: of each launch. memory, pipeline: times the simulator's. special_us, plain_us: of
            a million element-wise operations on one SM.
    """

    launch_us: float
    memory: float
    pipeline: float
    special_us: float
    plain_us: float

    def predicted_us(self, x: Demand) -> float:
        """The time of a launch, in microseconds."""
        arithmetic = self.special_us * x.special + self.plain_us * x.plain
        return self.launch_us + max(
            self.memory * x.memory_us, self.pipeline * x.pipeline_us + arithmetic
        )


def costs(chip: Chip) -> Costs:
    """Those of a chip; of one that was not measured, those of the H200."""
    return _measured()[measured_chip(chip)]


def measured_chip(chip: Chip) -> str:
    """The name of the chip whose costs are taken for `chip`: its own if it was measured, else the
    H200. An "NVIDIA H200 NVL" is an H200, a GH200 is none.
    """
    words = re.split(r"\W+", chip.name)
    return next((name for name in _measured() if name in words), DEFAULT)


def _measured() -> dict[str, Costs]:
    """The costs of each chip that was measured, by name."""
    found = {}
    for file in FOLDER.iterdir():
        if file.name.endswith(".json"):
            read = json.loads(file.read_text(encoding="utf-8"))
            found[str(read["chip"])] = Costs(**read["costs"])
    return found
