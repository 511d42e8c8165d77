"""What `Program.record` does: it launches a timed build, and makes a timeline of its notes."""

from __future__ import annotations

import sys
from typing import Any

from tilepipe.cuda.debug.stamps import check_room
from tilepipe.cuda.runtime import driver
from tilepipe.cuda.runtime.loading import BoundLaunch
from tilepipe.host_arguments import require_int
from tilepipe.ir.program import Launch
from tilepipe.program.arguments import check_zeros
from tilepipe.timeline import Timeline
from tilepipe.timeline.measured import measured


def record(launch: Launch, stream: Any, *, ctas: int, room: int, launches: int) -> Timeline:
    """The timeline of a launch on a GPU; `Program.record` says of what, and what is raised."""
    kernel = launch.kernel
    ctas = require_int(ctas, "ctas=", 1)
    room = require_int(room, "room=", 1, sys.maxsize)  # `check_room` has the limit
    launches = require_int(launches, "launches=", 1)
    if kernel.requirements:
        check_zeros(launch)
    size = kernel.cluster_size
    ctas = min(-(-ctas // size) * size, launch.grid)
    check_room(kernel, ctas, room)
    bound = BoundLaunch(launch, timed=True)
    stamps = bound.stamps(stream, ctas=ctas, room=room, launches=launches)
    return measured(kernel, launch.grid, driver.chip(bound.ordinal), stamps)
