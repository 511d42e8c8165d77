from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """The numerics leave NumPy's warnings of overflow and invalid operations to their caller."""
    with np.errstate(all="ignore"):
        yield
