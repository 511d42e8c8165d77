"""Weights of the online softmax that are some octaves larger."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.common.online_softmax import OnlineSoftmax

ROWS, COLUMNS = 64, 64


@tp.kernel(grid=1)
def weights_of(
    ctx: tp.Context,
    x: tp.GlobalTensor,
    out: tp.GlobalTensor,
    sums: tp.GlobalTensor,
    *,
    octaves: int,
) -> None:
    """out = the weights of two tiles of scores, each half of x; sums: 1 / sum, log(sum)."""

    @ctx.role("all", warpgroups=1)
    def role() -> None:
        scores = ctx.accumulator((ROWS, COLUMNS))
        softmax = OnlineSoftmax(ctx, scores, ctx.let(1.0, "scale"), octaves)
        softmax.reset()
        for tile in range(2):
            scores.set(ctx.load_global(x, (0, tile * COLUMNS), (ROWS, COLUMNS)))
            softmax.update()
            ctx.store_global(out, (0, tile * COLUMNS), scores)
        inverse, logarithm = softmax.result()
        ctx.store_global(sums, (0, 0), inverse)
        ctx.store_global(sums, (1, 0), logarithm)


@pytest.mark.parametrize("octaves", [0, 8])
def test_octaves_are_of_the_weights_alone(octaves: int) -> None:
    """A row without keys has an inverse of 0 and a logarithm of -inf, as ever."""
    x = np.random.default_rng(0).standard_normal((ROWS, 2 * COLUMNS)).astype(np.float32)
    x[:, 0] = 5  # the largest, so that both tiles have the same base
    x[7, 1:9] = x[9] = -math.inf
    out, sums = np.zeros_like(x), np.zeros((2, ROWS), np.float32)
    weights_of.bind(x, out, sums, octaves=octaves).run()
    want = np.where(np.isinf(x), 0, 2.0 ** (x - 5.0))
    np.testing.assert_allclose(out, want * 2**octaves, 1e-6)
    seen = np.arange(ROWS) != 9
    np.testing.assert_allclose(sums[0, seen], 1 / want[seen].sum(axis=1), 1e-6)
    np.testing.assert_allclose(sums[1, seen], np.log((2.0 ** x[seen]).sum(axis=1)), 1e-6)
    assert (sums[0, 9], sums[1, 9]) == (0, -math.inf)
