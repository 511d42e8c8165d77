"""The families of attention over a cache, small enough to be verified at once."""

from __future__ import annotations

from tools.snapshot.families import DECODE

# Several waves are more CTAs of a kernel that is the same to the letter: nothing for the snapshot.
FAMILIES = DECODE | {"three waves": {"ctas": 1, "waves": 3, "queries": "columns"}}
