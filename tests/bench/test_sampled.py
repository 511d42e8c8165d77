"""How far sampled rows of attention are from float64."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tilepipe.bench.sampled import SampledRows  # noqa: E402
from tilepipe.kernels.attention.reference import HeadRows  # noqa: E402


def want(bound: float) -> HeadRows:
    return HeadRows(np.full((2, 4), 2.0), np.zeros(2), np.full((2, 4), bound), np.zeros(2))


@pytest.mark.parametrize(
    ("error", "bound", "right"), [(0.5, 0.5, True), (0.5, 0.4, False), (float("nan"), 1.0, False)]
)
def test_rows_of_several_heads_are_one_check(error: float, bound: float, right: bool) -> None:
    seen = SampledRows()
    seen.add(torch.full((2, 4), 2.0), want(bound))
    wrong = torch.full((2, 4), 2.0)
    wrong[1, 3] += error
    seen.add(wrong, want(bound))
    check = seen.check()
    assert check.right is right
    if np.isfinite(error):
        assert check.rel_error == pytest.approx(0.5 / np.sqrt(16 * 4.0))
        assert check.max_error == pytest.approx(0.25)
