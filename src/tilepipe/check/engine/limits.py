"""The limits of one execution."""

from __future__ import annotations

UNLIMITED = 1 << 60


class ExecutionLimitError(Exception):
    """An execution goes on for longer than the bounds allow. The message says which bound; it is
    empty for the deadline.
    """
