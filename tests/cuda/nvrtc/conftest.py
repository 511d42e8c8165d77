"""Tests of the compiler compile: what another test compiled is not theirs, nor theirs another's."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache of compiled kernels, unless a test sets its own."""
    monkeypatch.setenv("TILEPIPE_CACHE_DIR", "off")
