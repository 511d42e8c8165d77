"""Reductions over the lanes of a warp: floats as the hardware has them."""

from __future__ import annotations

import numpy as np
import pytest

from tilepipe.sim.codegen.lanes import reduced_lanes


@pytest.mark.parametrize(
    ("op", "negative", "sign"),
    [("min", 1, True), ("min", 0, False), ("max", 31, False), ("max", 32, True)],
)
def test_zeros_of_both_signs(op: str, negative: int, sign: bool) -> None:
    """PTX ISA, redux.sync: -0 is less than +0."""
    values = np.zeros(64, np.float32)
    values[:negative] = -0.0
    values[5] = np.nan
    found = np.asarray(reduced_lanes(values, op, 0))[:32]
    assert (found == 0).all()
    assert (np.signbit(found) == sign).all()


def test_nan_alone_stays() -> None:
    values = np.full(64, np.nan, np.float32)
    values[40] = -np.inf
    found = np.asarray(reduced_lanes(values, "max", 0))
    assert np.isnan(found[:32]).all()
    assert (found[32:] == -np.inf).all()
