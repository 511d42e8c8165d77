"""ops.attention of packed sequences: NumPy arrays and tensors on the CPU, simulated; tensors with
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
from tilepipe.kernels.attention.packed_reference import bounds_of, compare_packed

Array = npt.NDArray[Any]
attention = tp.ops.attention
QUERIES, KEYS = [40, 0, 7, 30], [50, 20, 0, 64]


def arrays(heads: int = 4, kv_heads: int = 2, d: int = 64, d_v: int = 64) -> list[Array]:
    """q, k, v, cu_seqlens_q and cu_seqlens_k."""
    rng = np.random.default_rng(0)
    shapes = (sum(QUERIES), heads, d), (sum(KEYS), kv_heads, d), (sum(KEYS), kv_heads, d_v)
    drawn = [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    return [*drawn, bounds_of(QUERIES), bounds_of(KEYS)]


def call(q: Any, k: Any, v: Any, q_bounds: Any, k_bounds: Any, **options: Any) -> Any:
    return attention(
        q,
        k,
        v,
        cu_seqlens_q=q_bounds,
        cu_seqlens_k=k_bounds,
        max_seqlen_q=40,
        max_seqlen_k=64,
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d_v", [64, 40])
def test_numpy_arrays(d_v: int, causal: bool) -> None:
    given = arrays(d_v=d_v)
    out, lse = call(*given, causal=causal, return_lse=True)
    assert (out.shape, lse.shape) == ((77, 4, d_v), (4, 77))
    assert compare_packed(out, *given, lse=lse, causal=causal).ok
    room = np.full_like(out, 3)
    assert call(*given, causal=causal, out=room) is room
    assert (room == out).all()


def test_nothing_to_attend_to() -> None:
    q, k, v, q_bounds, _ = arrays()
    none = np.zeros_like(q_bounds)
    sinks = np.arange(4, dtype=np.float32)
    out, lse = call(q, k[:0], v[:0], q_bounds, none, return_lse=True, sinks=sinks)
    assert not out.any()
    assert (lse == sinks[:, None]).all()
    out, lse = call(q[:0], k, v, none, bounds_of(KEYS), return_lse=True)
    assert (out.shape, lse.shape) == ((0, 4, 64), (4, 0))


def test_without_keys_rows_in_no_sequence_are_not_written_either() -> None:
    q = np.ones((6, 1, 64), np.float16)
    out, bounds = np.full_like(q, 7), np.array([2, 5], np.int32)
    call(q, q[:0], q[:0], bounds, np.zeros(2, np.int32), out=out)
    assert (out[:, 0, 0] == [7, 7, 0, 0, 0, 7]).all()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cu_seqlens_k": None}, "cu_seqlens_q is given without cu_seqlens_k"),
        ({"max_seqlen_k": -1}, "max_seqlen_k is the length of the longest sequence, a number"),
        ({"layout": "bhsd"}, 'packed sequences are (total, heads, d); layout="bhsd" is of batches'),
        ({"cu_seqlens_q": None, "cu_seqlens_k": None}, "max_seqlen_q is of packed sequences"),
        ({"cu_seq_q": 1}, "has no argument cu_seq_q: write cu_seqlens_q="),
        (
            {"cu_seqlens_q": np.repeat(arrays()[3], 2)[::2]},
            "attention: cu_seqlens_q: an array of shape",
        ),
        ({"page_table": 1}, "has no argument page_table: ops.attention_decode has pages"),
    ],
)
def test_mistakes(changed: dict[str, Any], said: str) -> None:
    q, k, v, q_bounds, k_bounds = arrays()
    given: dict[str, Any] = {"cu_seqlens_q": q_bounds, "cu_seqlens_k": k_bounds, "max_seqlen_q": 40}
    with pytest.raises(tp.BindError, match=re.escape(said)):
        attention(q, k, v, **given | changed)
