"""The families of the GEMM of quantised weights, small enough to be verified at once."""

from __future__ import annotations

from tools.snapshot.families import QUANTISED

FAMILIES = QUANTISED
