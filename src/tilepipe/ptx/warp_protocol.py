"""The interface of a warp to the definitions of instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tilepipe.ir.location import Loc
from tilepipe.machine.machine import World
from tilepipe.machine.memory.device_memory import DeviceMemory
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.memory.poison import Origin
from tilepipe.machine.rules import Rules
from tilepipe.machine.sites import Site
from tilepipe.ptx.lanes import Array
from tilepipe.ptx.syntax.nodes import Instruction, Register


class _InFlight:
    """The contents of a register while an asynchronous instruction may read or write it."""


IN_FLIGHT = _InFlight()


class Code(Protocol):
    """The function that a warp executes.

    Attributes:
        content: number of a register that varies between lanes -> dtype of its array.
    """

    @property
    def content(self) -> Mapping[int, np.dtype[Any]]: ...


class Poison(Protocol):
    """Which bits of the registers of a warp are poison."""

    def of(self, numbers: Sequence[int]) -> tuple[Array, Origin] | None:
        """The poison in registers, (registers, lanes), as bits of 64; None where there is none."""
        ...

    def put(self, numbers: Sequence[int], marks: Array | None, origin: Origin | None) -> None:
        """Registers hold poison where `marks`, (registers, lanes), has bits; None: nowhere."""
        ...

    def take(self, numbers: Sequence[int], placed: Callable[[Array], Array]) -> None:
        """Registers hold an answer of the machine. `placed`: the answer's words in the registers,
        (registers, lanes).
        """
        ...


class Launch(Protocol):
    """The launch that a warp belongs to.

    Attributes:
        memory: global memory. parameters: the bytes of the kernel's parameters. rules: those that
            the run keeps. fenced_maps: (CTA, address of a tensor map) -> the writes to it that the
            CTA's last proxy fence has seen.
    """

    @property
    def memory(self) -> DeviceMemory: ...
    @property
    def parameters(self) -> bytes: ...
    @property
    def rules(self) -> Rules: ...
    @property
    def fenced_maps(self) -> dict[tuple[int, int], int]: ...

    def map_bytes(self, address: int) -> tuple[bytes, str]:
        """The 128 bytes at an offset among the parameters, and what messages call them."""
        ...

    def location(self, instruction: Instruction) -> Loc:
        """The line of source that an instruction comes from."""
        ...


class WgmmaRegisters(Protocol):
    """The registers of a warp that its wgmma use.

    Attributes:
        unfenced: registers of wgmma that instructions have accessed since the last wgmma.fence,
            each with the number of the instruction; of those alone that may matter.
    """

    unfenced: dict[int, int]

    def keep(self, registers: Sequence[Register], fragment: Frag, site: Site) -> None:
        """An asynchronous instruction reads these registers until nothing reads the fragment."""
        ...

    def operands_must_be_unchanged(self) -> None:
        """Raises RaceError where such a register has been written."""
        ...

    def must_be_fenced(self, site: Site) -> None:
        """Raises RaceError where no wgmma.fence stands between an access to a register and the
        wgmma of a site, which names it.
        """
        ...


class Warp(Protocol):
    """A warp in a function.

    Attributes:
        rank: of its CTA in the cluster. groups: lanes that a branch has separated from those that
            run. registers: an array of 32 for each register that varies between lanes, else a
            number. local: the local memory of its lanes, as bytes; written: which of them its lane
            has written.
        fragments: accumulators in flight, by the numbers of their registers. loads: of tensor
            memory, which no wait has covered yet: the registers and what they will hold; under
            the strict rules.
        carried: (lane, byte) of local memory to which poison was stored -> where it was read.
        poison: which registers hold poison.
        wgmma: the registers that its wgmma use.
    """

    rank: int
    registers: list[Any]
    local: Array
    written: Array
    fragments: dict[tuple[int, ...], Any]
    loads: list[tuple[tuple[int, ...], Array]]
    carried: dict[tuple[int, int], Origin]

    @property
    def poison(self) -> Poison: ...
    @property
    def wgmma(self) -> WgmmaRegisters: ...

    @property
    def code(self) -> Code: ...
    @property
    def launch(self) -> Launch: ...
    @property
    def world(self) -> World: ...
    @property
    def groups(self) -> list[Any]: ...

    @property
    def cta_threads(self) -> int:
        """The number of threads of its CTA."""
        ...
