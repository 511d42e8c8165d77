"""How many examples Hypothesis tries."""

from __future__ import annotations

from hypothesis import settings


def share(number: int) -> int:
    """So many in `make test-all`; in `make test`, whose profile says so, a part of them."""
    return max(number * settings().max_examples // 100, 1)
