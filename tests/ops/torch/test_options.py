"""Options of a call reach the kernel alike, with and without the dispatcher of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import ops

torch = pytest.importorskip("torch")

from torch.overrides import BaseTorchFunctionMode  # noqa: E402

attention: Any = ops.attention
attention_decode: Any = ops.attention_decode
WINDOWS = [(2, 0), (None, 0), (-1, 0), (2, None), (np.int64(2), np.int64(0)), [2, -1]]
OF_ATTENTION: list[dict[str, Any]] = [
    {"window": (2, 1)},
    {"window": (-1, 1), "causal": False, "softcap": np.float32(2)},
    {"window": (np.int64(3), None), "align": "first"},
    {"causal": True, "align": "first", "scale": np.float32(0.3)},
    {"stages": np.int64(2)},
]


def operands() -> tuple[Any, Any, Any]:
    """q of 4 tokens, and keys and values of 24."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, n, 1, 64).half() for n in (4, 24, 24))
    return q, k, v


def both(op: Any, *given: Any, **options: Any) -> tuple[Any, Any]:
    """The results of a call, and of the same under a mode, for which it is an operator."""
    alone = op(*given, **options)
    with BaseTorchFunctionMode():
        return alone, op(*given, **options)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("causal", [False, True])
def test_windows_of_attention_decode(window: Any, causal: bool) -> None:
    q, k, v = operands()
    alone, observed = both(attention_decode, q, k, v, window=window, causal=causal)
    assert torch.equal(alone, observed)
    if tuple(window)[1] == 0 or causal:
        seen = attention_decode(q, k, v, window=(window[0], None), causal=True)
        assert torch.equal(observed, seen)


@pytest.mark.slow
def test_attention_decode_takes_settings_of_numpy() -> None:
    alone, observed = both(attention_decode, *operands(), stages=np.int64(2))
    assert torch.equal(alone, observed)


@pytest.mark.parametrize("options", OF_ATTENTION)
def test_attention(options: dict[str, Any]) -> None:
    alone, observed = both(attention, *operands(), **options)
    assert torch.equal(alone, observed)


@pytest.mark.parametrize("options", [{"align": "first"}, {"align": "last", "deterministic": True}])
def test_attention_backward(options: dict[str, Any]) -> None:
    q, k, v = operands()
    masked = {"causal": True, "scale": np.float32(0.3)}
    out, lse = attention(q, k, v, return_lse=True, align=options["align"], **masked)
    alone, observed = both(ops.attention_backward, out, q, k, v, out, lse, **masked, **options)
    assert all(torch.equal(x, y) for x, y in zip(alone, observed, strict=True))


def negative(x: Any) -> Any:
    """The same numbers, of which memory has the other sign: the dispatcher writes them down."""
    return torch._neg_view(-x)


@pytest.mark.parametrize("name", ["slopes", "sinks"])
def test_negative_views_beside_the_operands_of_attention(name: str) -> None:
    x = torch.tensor([0.25])
    want = attention(*operands(), **{name: x})
    assert torch.equal(attention(*operands(), **{name: negative(x)}), want)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["k_descale", "v_descale"])
def test_descales_of_attention_decode(name: str) -> None:
    """They are seen as the other operands are: as negative views, and where they require a
    gradient.
    """
    q, k, v = operands()
    narrow = k.to(torch.float8_e4m3fn), v.to(torch.float8_e4m3fn)
    scale = torch.tensor([[0.5]])
    want = attention_decode(q, *narrow, **{name: scale})
    assert torch.equal(attention_decode(q, *narrow, **{name: negative(scale)}), want)
    scale.requires_grad_()
    with pytest.raises(tp.BindError, match="attention_decode has no gradient, and an operand"):
        attention_decode(q, *narrow, **{name: scale})
    with torch.no_grad():
        assert torch.equal(attention_decode(q, *narrow, **{name: scale}), want)
