"""The families of the gated GEMM, small enough to be verified at once."""

from __future__ import annotations

from tools.snapshot.families import GATED

FAMILIES = GATED
