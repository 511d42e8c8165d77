"""What torch.compile traces of an operation makes no dataclass that PyTorch 2.11 cannot trace.

There Dynamo wraps all defaults of a dataclass that traced code makes, also of fields that are
given, and wraps constants only; 2.13 wraps other objects, too. So that any PyTorch finds it, this
looks at the dataclasses. Tensors without data take the way of a traced call: all checks, then the
operator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from types import FrameType
from typing import Any

import pytest

from tilepipe import ops

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from tilepipe.ops import registered  # noqa: E402

assert registered.__all__  # what modules make when they are imported is not made by a call

CONSTANTS = bool, int, float, str, type(None)


def half(*shape: int) -> Any:
    return torch.empty(shape, dtype=torch.float16)


def eight(*shape: int) -> Any:
    return torch.empty(shape, dtype=torch.float8_e4m3fn)


def single(*shape: int) -> Any:
    return torch.empty(shape)


def ints(*shape: int) -> Any:
    return torch.empty(shape, dtype=torch.int32)


def attention(like: Callable[..., Any] = half, **options: Any) -> Any:
    q, k = like(1, 40, 4, 64), like(1, 60, 2, 64)
    return ops.attention(q, k, k, return_lse=True, **options)


def packed() -> Any:
    q, k = half(40, 4, 64), half(60, 2, 64)
    return ops.attention(q, k, k, cu_seqlens_q=ints(3), cu_seqlens_k=ints(3), causal=True)


def differentiated() -> None:
    q, k = (x.requires_grad_() for x in (half(1, 40, 4, 64), half(1, 60, 2, 64)))
    out: Any = ops.attention(q, k, k, causal=True)
    out.sum().backward()


def backward() -> Any:
    q, k = half(1, 40, 4, 64), half(1, 60, 2, 64)
    return ops.attention_backward(q, q, k, k, q, single(1, 4, 40), dlse=single(1, 4, 40))


def decode(like: Callable[..., Any] = half, **options: Any) -> Any:
    cache = like(6, 16, 2, 64)
    lengths, table = ints(3), ints(3, 2)
    return ops.attention_decode(
        half(3, 1, 4, 64), cache, cache, cache_seqlens=lengths, block_table=table, **options
    )


def append(like: Callable[..., Any] = half, **options: Any) -> None:
    k_cache, v_cache = (like(6, 16, 2, 64) for _ in range(2))
    k, v = (half(3, 1, 2, 64) for _ in range(2))
    ops.append_kv(k_cache, v_cache, k, v, ints(3), block_table=ints(3, 2), **options)


CALLS: dict[str, Callable[[], Any]] = {
    "matmul": lambda: ops.matmul(half(64, 64), half(64, 64), bias=half(64), activation="gelu"),
    "gated_matmul": lambda: ops.gated_matmul(half(64, 64), half(64, 64), half(64, 64)),
    "grouped_matmul": lambda: ops.grouped_matmul(half(64, 64), half(2, 64, 64), ints(2)),
    "scaled_matmul": lambda: ops.scaled_matmul(
        eight(64, 64), eight(64, 64).t(), single(64, 1), single(1, 64)
    ),
    "quantised_matmul": lambda: ops.quantised_matmul(half(64, 128), ints(1, 64, 16), single(1, 64)),
    "attention": lambda: attention(window=(9, 0), softcap=6.0, slopes=single(4), sinks=single(4)),
    "attention, float8": lambda: attention(eight, q_descale=0.5, k_descale=single(1, 2)),
    "attention, blocks": lambda: attention(
        block_mask=torch.empty(1, 1, 1, 1, dtype=torch.bool), causal=True
    ),
    "attention, packed": packed,
    "attention, differentiated": differentiated,
    "attention_backward": backward,
    "append_kv": append,
    "append_kv, float8": lambda: append(eight, k_descale=0.5, v_descale=single(3, 2)),
    "attention_decode": decode,
    "attention_decode, float8": lambda: decode(eight, k_descale=0.5, window=(9, 0)),
    "rms_norm": lambda: ops.rms_norm(half(8, 64), half(64)),
    "layer_norm": lambda: ops.layer_norm(half(8, 64), half(64), half(64)),
    "softmax": lambda: ops.softmax(half(8, 64)),
    "cross_entropy": lambda: ops.cross_entropy(half(8, 64), ints(8)),
}


def made_by(call: Callable[[], Any]) -> set[type]:
    """The dataclasses of tilepipe that a call makes."""
    found: set[type] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name == "__init__":
            made = type(frame.f_locals.get("self"))
            if is_dataclass(made) and made.__module__.startswith("tilepipe."):
                found.add(made)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        with FakeTensorMode():
            call()
    finally:
        sys.setprofile(before)
    return found


def is_constant(value: object) -> bool:
    """True if Dynamo wraps a value that it knows nothing else of."""
    if isinstance(value, tuple):
        return all(map(is_constant, value))
    return value is MISSING or isinstance(value, CONSTANTS)


@pytest.mark.parametrize("name", CALLS)
def test_defaults_are_constants(name: str) -> None:
    found = made_by(CALLS[name])
    others = {
        f"{made.__name__}.{f.name}"
        for made in found
        for f in fields(made)
        if not is_constant(f.default)
    }
    assert others == set()
    assert found or name.split(",")[0] in {"rms_norm", "layer_norm", "softmax", "cross_entropy"}


def test_every_operation_is_called() -> None:
    assert {name.split(",")[0] for name in CALLS} == set(ops.__all__) - {"prepare_weights"}
