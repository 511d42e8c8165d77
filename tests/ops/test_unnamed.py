"""An argument of an operation of attention that has lost its name is told which names there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused

X = np.zeros((1, 16, 1, 64), tp.bfloat16.numpy)
OPERATIONS: dict[str, tuple[Callable[..., Any], int, str, str]] = {
    "attention": (tp.ops.attention, 3, "q, k, v", "causal=, window=, "),
    "decode": (tp.ops.attention_decode, 3, "q, k_cache, v_cache", "cache_seqlens=, block_table="),
    "append": (tp.ops.append_kv, 5, "k_cache, v_cache, k, v, cache_seqlens", "block_table="),
    "backward": (tp.ops.attention_backward, 6, "dout, q, k, v, out, lse", "dlse=, causal="),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_argument_too_many(name: str) -> None:
    operation, count, places, names = OPERATIONS[name]
    said = (
        f"{operation.__name__} takes {places} by their places, and got {count + 1} arguments"
        f" without a name. The others have names: {names}"
    )
    with refused(tp.BindError, said):
        operation(*[X] * (count + 1))
