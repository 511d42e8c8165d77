"""What an exploration asks of a front end, which alone can read the state of its bodies.

An exploration follows equal states once. What the machine holds of a state it reads itself; where
each body stands, which of its registers it will still read, and which data can come to decide
something, only the front end knows. The more it leaves out, the fewer states there are; what it
leaves out must change no later step and no fault.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from tilepipe.machine.agents import Agent
from tilepipe.machine.memory.global_memory import GlobalTensor
from tilepipe.machine.memory.tiles import Slot


class OutOfTimeError(Exception):
    """`World.deadline` has passed in code of a body that performs no op."""


class FrontEnd(Protocol):
    """The front end's part of a state's key: plain values, as `marshal` takes them."""

    def registers(self, agent: Agent) -> Hashable:
        """A key that is equal for agents of one role that go on alike: where the agent stands, and
        the registers that it will still read and that can come to decide something.
        """

    def slot(self, slot: Slot) -> bytes:
        """The contents of a tile of shared memory, or of tensor memory, where they can come to
        decide something; else nothing.
        """

    def tensor(self, tensor: GlobalTensor) -> bytes:
        """The same of a tensor in global memory."""

    def interchangeable(self) -> Sequence[str]:
        """The names of the roles whose agents all do the same: nothing in them asks which agent it
        is.
        """
