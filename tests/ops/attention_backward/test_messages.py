"""What `ops.attention_backward` says of arguments that it cannot take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import ops


def operands() -> tuple[Any, Any, Any, Any]:
    """q, k, v, dout."""
    shapes = (1, 40, 1, 64), (1, 60, 1, 64), (1, 60, 1, 64), (1, 40, 1, 64)
    q, k, v, dout = (np.ones(shape, np.float16) for shape in shapes)
    return q, k, v, dout


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("softmax_scale", "attention_backward has no argument softmax_scale: write scale="),
        ("softmax_lse", "attention_backward has no argument softmax_lse: write lse="),
        ("window_size", "there are no gradients under a window; causal= is the one mask"),
        ("cu_seqlens_q", "there are no gradients of packed sequences; call it once for each"),
        ("dq", "gradients are returned, as new arrays"),
        (
            "casual",
            "attention_backward has no argument casual. Did you mean causal=? It takes dout,",
        ),
    ],
)
def test_arguments_of_other_libraries_are_explained(name: str, words: str) -> None:
    q, k, v, dout = operands()
    lse = np.zeros((1, 1, 40), np.float32)
    with pytest.raises(tp.BindError) as caught:
        ops.attention_backward(dout, q, k, v, q, lse, **{name: None})  # type: ignore[arg-type]
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["q", "k", "v", "dout"])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_strides_are_told_as_the_caller_has_them(name: str, layout: str) -> None:
    q, k, v, dout = operands()
    lse = np.zeros((1, 1, 40), np.float32)
    given: dict[str, Any] = {"dout": dout, "q": q, "k": k, "v": v, "out": q}
    if layout == "bhsd":
        given = {key: np.ascontiguousarray(x.swapaxes(1, 2)) for key, x in given.items()}
    given[name] = np.repeat(given[name], 2, axis=-1)[..., ::2]
    words = (
        f"attention_backward: {name}: an array of shape {given[name].shape}: elements are 4 bytes"
    )
    with pytest.raises(tp.BindError) as caught:
        ops.attention_backward(**given, lse=lse, layout=layout)
    assert words in str(caught.value)
