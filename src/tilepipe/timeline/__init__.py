"""Timelines of simulated runs: when copies and MMAs are in flight, which waits block and who ends
them; as a page to look at, and as trace events.
"""

from tilepipe.timeline.bubbles import Bubbles as Bubbles
from tilepipe.timeline.critical_path import Segment as Segment
from tilepipe.timeline.events import (
    Event as Event,
    Phase as Phase,
    Release as Release,
    Wait as Wait,
)
from tilepipe.timeline.record import Measured as Measured, Stopped as Stopped
from tilepipe.timeline.summary import (
    Occupancy as Occupancy,
    RoleSummary as RoleSummary,
    UnitSummary as UnitSummary,
    Utilisation as Utilisation,
    Waited as Waited,
)
from tilepipe.timeline.timeline import Timeline as Timeline

__all__ = [
    "Bubbles",
    "Event",
    "Measured",
    "Occupancy",
    "Phase",
    "Release",
    "RoleSummary",
    "Segment",
    "Stopped",
    "Timeline",
    "UnitSummary",
    "Utilisation",
    "Wait",
    "Waited",
]
