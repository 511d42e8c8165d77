"""ops.attention under block masks: NumPy arrays and tensors on the CPU, simulated; tensors with
launches emulated on the CPU, the operator, its mistakes.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tilepipe.kernels.attention.reference import compare_attention

Array = npt.NDArray[Any]
attention: Any = tp.ops.attention
S_Q, S_KV, BLOCK = 200, 300, (64, 32)


def arrays() -> tuple[list[Array], Array]:
    """q, k, v and a block mask."""
    rng = np.random.default_rng(0)
    shapes = (2, S_Q, 4, 64), (2, S_KV, 2, 64), (2, S_KV, 2, 64)
    drawn = [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    return drawn, rng.random((1, 4, 4, 10)) < 0.4


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_numpy_arrays(causal: bool) -> None:
    given, mask = arrays()
    blocks: dict[str, Any] = {"block_mask": mask, "block_size": BLOCK}
    out, lse = attention(*given, causal=causal, return_lse=True, **blocks)
    assert compare_attention(out, *given, lse=lse, causal=causal, **blocks).ok
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in given]
    again = attention(*turned, causal=causal, layout="bhsd", **blocks)
    assert np.array_equal(again.swapaxes(1, 2).view(np.uint16), out.view(np.uint16))


@pytest.mark.slow
def test_blocks_have_128_queries_and_keys_unless_said() -> None:
    given, _ = arrays()
    mask = np.array([[False, True, True], [True, False, False]])[None, None]
    out = attention(*given, block_mask=mask)
    assert compare_attention(out, *given, block_mask=mask).ok


@pytest.mark.slow
def test_a_mask_that_is_a_view_is_read_where_it_lies() -> None:
    given, mask = arrays()
    wide = np.zeros((1, 4, 8, 10), np.bool_)
    wide[:, :, ::2] = mask
    blocks: dict[str, Any] = {"block_mask": wide[:, :, ::2], "block_size": BLOCK}
    assert compare_attention(attention(*given, **blocks), *given, **blocks).ok


def test_no_keys_or_no_queries() -> None:
    (q, k, v), _ = arrays()
    none = np.ones((1, 1, 4, 0), np.bool_)
    out, lse = attention(q, k[:, :0], v[:, :0], block_mask=none, block_size=BLOCK, return_lse=True)
    assert not out.any()
    assert (lse == -np.inf).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"block_size": (64, 24)}, "block_size is a pair (queries, keys) of multiples of 64 and"),
        ({"block_size": (64, 64)}, "here (1 or 2, 1 or 4, 4, 5) for block_size=(64, 64); it is"),
        ({"block_size": BLOCK, "bn": 64}, "a tile has 64 keys, bn, and does not divide blocks"),
        ({"block_size": BLOCK, "consumers": 2}, "a tile has 128 queries, 64 · consumers=2, and"),
    ],
)
def test_refused(options: dict[str, Any], said: str) -> None:
    given, mask = arrays()
    with pytest.raises(tp.BindError, match=re.escape(said)):
        attention(*given, block_mask=mask, **options)


def test_a_block_size_goes_with_a_mask() -> None:
    given, _ = arrays()
    with pytest.raises(tp.BindError, match=re.escape("block_size=(64, 64) is of a block mask")):
        attention(*given, block_size=(64, 64))


def test_a_dense_mask_is_told_what_there_is() -> None:
    given, _ = arrays()
    with pytest.raises(tp.BindError, match=re.escape("masks are causal=, window=, block_mask= (")):
        attention(*given, attn_mask=np.ones((S_Q, S_KV), np.bool_))
