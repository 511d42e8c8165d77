"""The reports of a machine to an exploration of its executions: each step that another agent can
notice.

A run has no journal and pays one test for each such step. The causal order that a journal sees is
that of the interleavings alone: which step can precede which. Whether memory accesses are ordered
is a separate question (`happens_before`): a relaxed arrive, for instance, comes after the earlier
steps of its thread, and publishes none of them.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import Protocol

from tilepipe.machine.actors import Actor


class Touch(IntEnum):
    """The part of a step in a phase of a barrier."""

    ARRIVE = 0  # counted; the phase cannot complete without it
    # announces bytes without arriving; an mbarrier.arrive.expect_tx is reported as ARRIVE
    EXPECT = 1
    CREDIT = 2  # bytes that have been announced, or will be, come in
    ISSUE = 3  # a copy that will credit bytes is on its way
    MEET = 4  # an arrival at a barrier at which those who wait have arrived themselves


class Journal(Protocol):
    """Listens to one execution. `mask`: the threads of the agent that take the step; 0 where an
    asynchronous unit does.
    """

    def initialised(self, barrier: Hashable, mask: int) -> None:
        """A barrier is initialised: phase 0 is in progress."""

    def invalidated(self, barrier: Hashable, mask: int) -> None:
        """A barrier is invalidated."""

    def touch(self, kind: Touch, barrier: Hashable, phase: int, mask: int) -> None:
        """A step that counts in `phase`, which is in progress."""

    def completed(self, barrier: Hashable, phase: int) -> None:
        """The step that was reported last has completed the phase."""

    def passed(self, barrier: Hashable, phase: int, mask: int) -> None:
        """A wait for a phase that is complete."""

    def tried(self, barrier: Hashable, phase: int, outcome: bool, mask: int) -> None:
        """A test whether a phase is complete."""

    def in_turn(self, thing: Hashable, mask: int, changes: bool) -> None:
        """A step whose effect depends on the earlier steps that changed the same thing: a strong
        access, an allocation, a request for work. `changes`: whether it changes the thing itself.
        """

    def woken(self, thing: Hashable, mask: int) -> None:
        """A step that had to wait until another on the same thing let it go on."""

    def group(self, agent: Actor) -> None:
        """A warpgroup has committed a group of MMAs, to which all of its warps have contributed."""

    def retired(self, agent: Actor, groups: int) -> None:
        """It has waited for the oldest of its groups."""
