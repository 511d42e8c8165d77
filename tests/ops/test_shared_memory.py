"""Whether two NumPy arrays share bytes is asked with bounded work: where that is not enough, they
are taken for shared. Here it may take no work, so arrays side by side in the same rows are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text
from tilepipe.ir import arrays

B = tp.bfloat16.numpy


def appended() -> None:
    cache, new = np.zeros((1, 8, 2, 1, 64), B), np.zeros((1, 1, 2, 1, 64), B)
    parts = cache[:, :, 0], cache[:, :, 1], new[:, :, 0], new[:, :, 1]
    tp.ops.append_kv(*parts, np.ones(1, np.int32))


def attended() -> None:
    both = np.zeros((1, 64, 2, 1, 64), B)
    tp.ops.attention(both[:, :, 0], *np.zeros((2, 1, 64, 1, 64), B), out=both[:, :, 1])


def bound() -> None:
    kernel = from_text(
        "@ctx.role('r', warps=1)\ndef r():\n    ctx.store(b[0, 0], ctx.load(a[0, 0]))",
        "def k(ctx, a, b):",
    )
    both = np.zeros((8, 2, 8), np.float32)
    kernel.bind(both[:, 0], both[:, 1])


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (appended, "append_kv: k_cache shares memory with v_cache"),
        (attended, "attention: out shares memory with q"),
        (bound, "'b', which kernel '.*' writes, and 'a' share memory"),
    ],
)
def test_too_little_work_is_no_answer(
    made: Callable[[], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made()  # they share none
    monkeypatch.setattr(arrays, "MAX_WORK", 0)
    with pytest.raises(tp.BindError, match=words):
        made()
