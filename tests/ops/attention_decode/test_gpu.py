"""ops.attention_decode of PyTorch tensors: plans, workspaces, the operator, with launches emulated
on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.ops.attention_decode.test_simulated import LENGTHS, operands
from tilepipe.kernels.attention_decode import sm90
from tilepipe.kernels.attention_decode.reference import CacheArrays, compare_decode

torch = pytest.importorskip("torch")

from tests.support.ops.emulated_programs import Emulator  # noqa: E402
from tilepipe.ops.attention_decode import gpu as torch_decode  # noqa: E402
from tilepipe.ops.torch import counters, device  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns of its own parts
E4M3 = torch.float8_e4m3fn
DECODE = tp.ops.attention_decode


NAMES: dict[str, str | tuple[str, ...]] = {
    "k_cache": "k",
    "v_cache": "v",
    "cache_seqlens": "lengths",
    "block_table": "table",
    "k_descale": "k_scale",
    "v_descale": "v_scale",
    "workspace": ("parts", "part_stats", "tickets"),
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """CPU tensors are taken for a GPU's."""
    emulator = Emulator()
    emulator.replace(monkeypatch, sm90, "bind", names=NAMES)
    torch_decode.plans.forget()
    return emulator


def tickets(gpu: Emulator) -> list[int]:
    """Where those of each launch are."""
    return [x.addresses["tickets"] for x in gpu.launched]


def tensors(page: int = 0, tokens: int = 1) -> tuple[dict[str, Any], Any, CacheArrays]:
    """The arguments of a call, and what they were made of."""
    q, cache = operands(page, tokens, tp.float16)
    given = {"q": q, "k_cache": cache.k, "v_cache": cache.v, "cache_seqlens": LENGTHS}
    given |= {} if cache.table is None else {"block_table": cache.table}
    return {name: torch.from_numpy(x.copy()) for name, x in given.items()}, q, cache


def right(out: Any, q: Any, cache: CacheArrays, lengths: Any = LENGTHS, lse: Any = None) -> None:
    found = compare_decode(out.numpy(), q, cache, lengths, lse=None if lse is None else lse.numpy())
    assert found.ok, found


@pytest.mark.slow
@pytest.mark.parametrize("page", [0, 16])
def test_values(gpu: Emulator, page: int) -> None:
    given, q, cache = tensors(page, tokens=2)
    out, lse = tp.ops.attention_decode(**given, return_lse=True)
    right(out, q, cache, lse=lse)
    written = torch.full_like(out, 7)
    assert tp.ops.attention_decode(**given, out=written) is written
    right(written, q, cache)


@pytest.mark.slow
def test_a_cache_of_8_bits_and_a_window(gpu: Emulator) -> None:
    """Descales are read at the launch where they are tensors, and prepared for where not."""
    q, cache = operands(16, 2, tp.float16, tp.float8_e4m3)
    named = {"k_cache": cache.k, "v_cache": cache.v}
    given = {n: torch.from_numpy(x.view(np.uint8)).view(E4M3) for n, x in named.items()}
    scales = {"k_descale": cache.k_scales, "v_descale": cache.v_scales}
    others = {"q": q, "cache_seqlens": LENGTHS, "block_table": cache.table, **scales}
    given |= {name: torch.from_numpy(np.array(x)) for name, x in others.items()}
    window = (40, None)

    def check(cache: CacheArrays, **changes: Any) -> None:
        for run in (tp.ops.attention_decode, torch.compile(DECODE, backend="eager")):
            out = run(**given | changes, window=window)
            found = compare_decode(out.numpy(), q, cache, LENGTHS, window=window)
            assert found.ok, found

    check(cache)
    given["k_descale"] *= 0
    at_once = CacheArrays(cache.k, cache.v, cache.table, given["k_descale"].numpy(), cache.v_scales)
    check(at_once)
    assert len(gpu.bound) == 1
    numbers = [np.full((3, 2), x, np.float32) for x in (0.01, 0.5)]
    check(CacheArrays(cache.k, cache.v, cache.table, *numbers), k_descale=0.01, v_descale=0.5)
    assert len(gpu.bound) == 2


@pytest.mark.slow
def test_lengths_are_those_of_the_launch(gpu: Emulator) -> None:
    """One plan, whatever they are; the host has not read them."""
    given, q, cache = tensors()
    for lengths in LENGTHS, np.array([1, 0, 64], np.int32):
        given["cache_seqlens"].copy_(torch.from_numpy(lengths))
        right(tp.ops.attention_decode(**given), q, cache, lengths)
    assert len(gpu.bound) == 1


@pytest.mark.slow
def test_tickets_are_of_a_stream_and_of_each_graph(
    gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "_counters", {})
    given, _, _ = tensors()
    for _ in range(2):
        tp.ops.attention_decode(**given)
    (kept,) = counters._counters.values()
    assert (kept.numel(), tickets(gpu)) == (8, [kept.data_ptr()] * 2)
    monkeypatch.setattr(device, "capturing", lambda: True)
    tp.ops.attention_decode(**given)
    assert tickets(gpu)[-1] != kept.data_ptr()
    assert list(counters._counters.values()) == [kept]


@pytest.mark.slow
def test_the_operator_and_the_compiler(gpu: Emulator) -> None:
    given, q, cache = tensors(16)

    def f(**x: Any) -> Any:
        return tp.ops.attention_decode(**x, return_lse=True)

    out, lse = torch.compile(f, backend="eager", fullgraph=True)(**given)
    right(out, q, cache, lse=lse)
    torch.library.opcheck(
        torch.ops.tilepipe.attention_decode.default,
        (given["q"], given["k_cache"], given["v_cache"], given["cache_seqlens"]),
        {"block_table": given["block_table"], "return_lse": True},
        test_utils=("test_schema", "test_faketensor"),
    )


def test_nothing_to_multiply_is_no_launch(gpu: Emulator) -> None:
    given, _, _ = tensors()
    empty = {name: x[:0] for name, x in given.items()}
    out, lse = tp.ops.attention_decode(**empty, return_lse=True)
    assert (tuple(out.shape), tuple(lse.shape)) == ((0, 1, 4, 64), (0, 4, 1))
    full = torch.full_like(given["q"], 7)
    none = given | {name: given[name][:, :0] for name in ("k_cache", "v_cache")}
    assert tp.ops.attention_decode(**none, out=full) is full
    assert not full.any()
    assert gpu.launched == []


def test_what_is_refused(gpu: Emulator) -> None:
    given, _, _ = tensors()
    with pytest.raises(tp.BindError, match="attention_decode has no gradient"):
        tp.ops.attention_decode(**given | {"q": given["q"].clone().requires_grad_()})
    with pytest.raises(tp.BindError, match="out shares memory with q"):
        tp.ops.attention_decode(**given, out=given["q"])
    with pytest.raises(tp.BindError, match="cache_seqlens must be a tensor of PyTorch"):
        tp.ops.attention_decode(**given | {"cache_seqlens": LENGTHS})
    with pytest.raises(tp.BindError, match=r"torch.full\(\(3,\), 70, dtype=torch.int32"):
        tp.ops.attention_decode(**given | {"cache_seqlens": 70})
    apart = given["cache_seqlens"].repeat_interleave(2)[::2]
    with pytest.raises(tp.BindError, match=r"attention_decode: cache_seqlens: .*strides"):
        tp.ops.attention_decode(**given | {"cache_seqlens": apart})
