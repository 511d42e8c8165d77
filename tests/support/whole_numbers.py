"""Random operands that are small whole numbers, of which every sum is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest


class WholeNumbers(np.random.Generator):
    """A generator whose normal numbers are whole, -2 to 2."""

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        found: npt.NDArray[Any] = self.integers(-2, 3, size).astype(dtype)
        return found


@pytest.fixture
def whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes random operands makes whole numbers."""
    monkeypatch.setattr(
        np.random, "default_rng", lambda seed=None: WholeNumbers(np.random.PCG64(seed))
    )
