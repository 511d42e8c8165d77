"""Special registers that are equal in all lanes of a warp, the clocks among them."""

from __future__ import annotations

from tilepipe.machine.agents import Agent
from tilepipe.ptx.special_registers import CLOCKS

READ_CYCLES = 64  # that each read of a clock takes, so that a loop that waits for one ends
_WORD = 0xFFFFFFFF


class SpecialValues(dict[str, int]):
    """Name -> value; a clock is computed from the warp's virtual time when it is read."""

    def __init__(self, agent: Agent, ghz: float) -> None:
        super().__init__()
        self._agent = agent
        self._ghz = ghz

    def __missing__(self, name: str) -> int:
        if name not in CLOCKS:
            raise KeyError(name)
        self._agent.time += READ_CYCLES
        cycles = int(self._agent.time)
        value = int(cycles / self._ghz) if name.startswith("%globaltimer") else cycles
        if name.endswith("_hi"):
            return value >> 32
        return value & _WORD if name in ("%clock", "%globaltimer_lo") else value
