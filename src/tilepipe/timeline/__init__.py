"""Timelines of simulated runs: when copies and MMAs are in flight, which waits block and who ends
them; as a page to look at, and as trace events.
"""

from tilepipe.timeline.events import (
    Event as Event,
    Phase as Phase,
    Release as Release,
    Wait as Wait,
)
from tilepipe.timeline.summary import (
    Occupancy as Occupancy,
    RoleSummary as RoleSummary,
    UnitSummary as UnitSummary,
    Utilisation as Utilisation,
    Waited as Waited,
)
from tilepipe.timeline.timeline import Timeline as Timeline

__all__ = [
    "Event",
    "Occupancy",
    "Phase",
    "Release",
    "RoleSummary",
    "Timeline",
    "UnitSummary",
    "Utilisation",
    "Wait",
    "Waited",
]
