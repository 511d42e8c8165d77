"""What an agent has waited for on one mbarrier by waits that give a parity; for messages.

A parity cannot tell phase p from phase p - 2. So a wait passes at once where it gives the parity of
a phase that is over, as it does when a loop does not flip the bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilepipe.machine.sites import Site


@dataclass(eq=False, repr=False, slots=True)
class PastWaits:
    """The waits of one agent on one mbarrier that have passed.

    Attributes:
        site, phase: of the last one. lanes: the threads that have waited for that phase.
        rounds: how many waits there have been; threads that wait one after the other for the same
            phase make one.
        repeated: (site, round) of the first wait for `phase` by threads that had waited for it
            before; None where there is none.
    """

    site: Site
    phase: int
    lanes: int
    rounds: int = field(default=1, init=False)
    repeated: tuple[Site, int] | None = field(default=None, init=False)

    def passed(self, site: Site, phase: int, lanes: int) -> None:
        """Notes a wait that has passed."""
        if phase != self.phase:
            self.phase, self.lanes = phase, lanes
            self.rounds += 1
            self.repeated = None
        elif self.lanes & lanes:
            self.rounds += 1
            if self.repeated is None:
                self.repeated = site, self.rounds
        else:
            self.lanes |= lanes
        self.site = site
