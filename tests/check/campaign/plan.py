"""What a campaign does with each kernel; a module of its own, so that other processes can import
it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.check.campaign.drawing import drawn
from tests.check.campaign.judge import Judged, judge


@dataclass(frozen=True)
class Campaign:
    """The plan of a campaign. `compare`: every `compare`-th kernel is also checked with other
    reductions; 0: none.
    """

    seed: int = 0
    seeds: int = 300
    compare: int = 25
    required: frozenset[str] | None = None
    mistake: str | None = None

    def one(self, number: int) -> Judged:
        """Draws, checks and runs one kernel."""
        kernel, made = drawn(self.seed, number, self.required, self.mistake)
        compare = self.compare > 0 and number % self.compare == 0
        return judge(kernel, range(self.seeds), made=made, compare=compare)
