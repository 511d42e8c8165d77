"""The simulated GPU: agents, memories, barriers, asynchronous units, happens-before and faults."""

import tilepipe.sim  # noqa: F401 - breaks the circle of imports between the two, while there is one
