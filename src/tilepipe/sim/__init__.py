"""The simulated GPU: runs a launch with exact barriers, asynchronous copies and MMAs, and
happens-before on every access.

`run(launch)` writes results into the launch's NumPy arrays or raises a `SimFault` that says what
went wrong and where.
"""

from tilepipe.sim.codegen.module import source as source
from tilepipe.sim.run import RoleStats as RoleStats, Run as Run, run as run

__all__ = ["RoleStats", "Run", "run", "source"]
