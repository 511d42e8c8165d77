"""Compiles a program to generators that drive the simulated GPU (`machine`), and runs a launch on
it.

`run(launch)` writes results into the launch's NumPy arrays or raises a `SimFault` that says what
went wrong and where.
"""

from tilepipe.sim.codegen.module import source as source
from tilepipe.sim.run import RoleStats as RoleStats, Run as Run, run as run

__all__ = ["RoleStats", "Run", "run", "source"]
