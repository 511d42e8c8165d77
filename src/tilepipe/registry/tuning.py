"""How the commands choose a configuration that depends on the problem, and which problem settings
state.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import tilepipe as tp
from tilepipe.kernels.common import tuned
from tilepipe.kernels.common.settings import Settings
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.registry.settings import Setting

P = TypeVar("P")
C = TypeVar("C", bound=Settings)


@dataclass(frozen=True, eq=False)
class Tuning(Generic[P, C]):
    """What `tilepipe tune` searches for a kernel on Hopper.

    Attributes:
        problem: the problem that all settings state; raises BindError where there is none.
        needs: the settings that a search must be given: the extents of the problem. instead: one
            that states them all, too.
    """

    tunable: Tunable[P, C]
    problem: Callable[[Mapping[str, Any]], P]
    needs: tuple[str, ...]
    instead: str = ""


def chosen(
    tunable: Tunable[P, C], problem: P, chip: tp.Chip | None, work: Container[str] = ()
) -> tuple[dict[str, Setting], str]:
    """What a `KernelSpec` chooses: the settings of a configuration, but for those that say what is
    computed, `work`; and a few words on where it comes from. For the simulator (None) it is what
    the heuristic picks for an H200.
    """
    remembered = None if chip is None else tuned.lookup(tunable, problem, chip)
    config = remembered or tunable.best(problem, chip or tp.H200)
    settings = {name: value for name, value in config.as_dict().items() if name not in work}
    return settings, "chosen for the shape" if remembered is None else "tuned for the shape"
