"""The purpose of each synchronising line of a kernel: what goes wrong without it, or that nothing
does; and the smallest number of stages that verifies.

    report = sensitivity.report(program)
    rich.print(report.table())

A row is one op of one line, with all its copies: a method of a pipeline may emit several, and a
Python loop repeats them; of PTX, it is one instruction of one line of the source, inlined in one
place.
"""

from tilepipe.check.sensitivity.removing import report as report
from tilepipe.check.sensitivity.results import (
    Line as Line,
    Sensitivity as Sensitivity,
    Stages as Stages,
)
