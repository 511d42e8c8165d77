"""Large scores, as a GPU computes them: ptxas joins the scaling of a score and the subtraction of
the largest one, so that the product is not rounded as the largest has been.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tests.support.cuda.contraction import contracted
from tilepipe.kernels.attention import sm90_bind
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention_decode import sm90 as decode
from tilepipe.kernels.attention_decode.config import DecodeConfig
from tilepipe.program.printed import launch_of
from tilepipe.registry.instances import small_chip

pytestmark = pytest.mark.slow
ROWS, D, BN = 64, 64, 16
LOG2_E = 1.4426950408889634


def attention_of(largest: float, keys: int, dtype: npt.DTypeLike) -> npt.NDArray[np.float64]:
    """The result of queries whose largest score, times scale · log2(e), is about `largest`, at the
    first and at the last key, with values of 1 and 3: 2 in every place.
    """
    q, k, v = operands((1, ROWS, 1, D), largest, keys, dtype)
    out = np.zeros(q.shape, dtype)
    cfg = AttentionConfig(bn=BN, consumers=1, schedule="single")
    run_contracted(sm90_bind.bind(q, k, v, out, None, cfg), BN // 2)
    return out.astype(np.float64)


def decode_of(largest: float, keys: int, heads: int) -> npt.NDArray[np.float64]:
    """As `attention_of`, of one token of `heads` heads that share a head of a cache."""
    q, k, v = operands((1, 1, heads, D), largest, keys, ml_dtypes.bfloat16)
    out = np.zeros(q.shape, q.dtype)
    chip = small_chip(tp.H200, 1)
    run_contracted(decode.bind(q, k, v, out, None, DecodeConfig(ctas=1), chip=chip), 4)
    return out.astype(np.float64)


def operands(
    shape: tuple[int, ...], largest: float, keys: int, dtype: npt.DTypeLike
) -> tuple[npt.NDArray[Any], ...]:
    """q of this shape, and k and v (1, keys, 1, D)."""
    rng = np.random.default_rng(0)
    q, k, v = (np.zeros(x) for x in (shape, (1, keys, 1, D), (1, keys, 1, D)))
    side = np.sqrt(largest / 1.5 * np.sqrt(D) / LOG2_E)
    q[..., 0] = (1 + rng.integers(0, 128, shape[:-1]) / 128) * side
    k[..., 0], k[:, [0, -1], :, 0] = -side, side
    v[:, 0], v[:, -1] = 1, 3
    return tuple(x.astype(dtype) for x in (q, k, v))


def run_contracted(program: tp.Program, least: int) -> None:
    """Runs the PTX of a program, with at least so many products joined to their sums."""
    compiled = program.compile("sm_90a", emit="ptx")
    text, count = contracted(compiled.data.decode())
    assert count >= least, "scores of a thread"
    launch_of(program.launch_args, text, compiled.smem_bytes).run()


@pytest.mark.sampled(suite=3)
@pytest.mark.parametrize("exponent", [20, 16, 12])
def test_each_tile_of_keys_leaves_the_sums_as_they_are(exponent: int) -> None:
    """The factor of a largest score that stays is 1: of another, as when the products are joined
    there, too, each tile would multiply the first value's weight by it again.
    """
    out = attention_of(2.0**exponent, 512, ml_dtypes.bfloat16)
    np.testing.assert_allclose(out, 2, rtol=2**-8)


@pytest.mark.parametrize("heads", [8, 20], ids=["columns", "rows"])
def test_each_tile_of_a_cache_leaves_the_sums_as_they_are(heads: int) -> None:
    np.testing.assert_allclose(decode_of(2.0**20, 512, heads), 2, rtol=2**-7)


@pytest.mark.parametrize(
    ("exponent", "dtype"), [(30.4, ml_dtypes.bfloat16), (27.4, np.float16)], ids=str
)
def test_weights_are_finite_below_the_bound(exponent: float, dtype: npt.DTypeLike) -> None:
    """docs/reference/ops.md names 2^31, and 2^28 of float16."""
    np.testing.assert_allclose(attention_of(2.0**exponent, 64, dtype), 2, rtol=2**-8)
