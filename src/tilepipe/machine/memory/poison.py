"""Poison on its way: bytes that nothing has written, after an agent has read them.

In a program by address, what an agent loads may be poison: it travels with the values that are made
of it, and is a fault where it decides something or leaves the CTA (`faults.poison.used`).
Shared memory to which poison is stored counts as unwritten again, and keeps where it was first read
(`ByteSpace.carried`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilepipe.machine.sites import Site

Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class Origin:
    """The read that first found poison: what a fault says of it, and its op."""

    message: str
    site: Site


@dataclass(frozen=True, eq=False, slots=True)
class Loaded:
    """Poison in the answer to a request.

    Attributes:
        marks: of the form of the answer, with all bits of a byte set where it is poison. None:
            the answer has none, and registers that the machine has written have.
    """

    origin: Origin
    marks: npt.NDArray[np.uint8] | npt.NDArray[np.uint32] | None


@dataclass(frozen=True, eq=False, slots=True)
class PoisonedMatrix:
    """Which elements of a matrix in registers are poison, (rows, columns)."""

    origin: Origin
    marks: Marks
