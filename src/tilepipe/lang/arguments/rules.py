"""Raising what the rules of `ir.hardware` find broken."""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller


def require_rule(broken: str | None, what: str = "") -> None:
    """Raises TraceError where a rule is broken; `broken`: which, `what`: by what."""
    if broken is not None:
        raise TraceError(f"{what}: {broken}" if what else broken, caller())
