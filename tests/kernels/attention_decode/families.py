"""The families of attention over a cache, small enough to be verified at once."""

from __future__ import annotations

from tools.snapshot.families import DECODE

FAMILIES = DECODE
