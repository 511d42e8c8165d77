"""A problem for each recorded kernel."""

from __future__ import annotations

from tests.ptx.foreign import problems_cute, problems_gluon, problems_triton
from tests.ptx.foreign.launching import Make, Problem, records

_BY_FILE: dict[str, dict[str, Make]] = {
    "tools/foreign/gluon_kernels.py": problems_gluon.BY_FUNCTION,
    "tools/foreign/triton_kernels.py": problems_triton.BY_FUNCTION,
}


def problem(name: str) -> Problem:
    """A problem for a recorded kernel."""
    record = records()[name]
    file, function = record["source"].split(": ")
    by_function = _BY_FILE.get(file, problems_cute.BY_FUNCTION)
    return by_function[function](record)
