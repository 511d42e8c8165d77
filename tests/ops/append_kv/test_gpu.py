"""ops.append_kv of PyTorch tensors: plans, the operator, with launches emulated on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.ops.append_kv.test_simulated import B, operands, wanted
from tilepipe.kernels.append_kv import sm90

torch = pytest.importorskip("torch")

from tests.support.ops.emulated_programs import Emulator  # noqa: E402
from tilepipe.ops.append_kv import gpu as torch_append  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns of its own parts
APPEND: Any = tp.ops.append_kv


NAMES = {"cache_seqlens": "lengths", "block_table": "table"}
NAMES |= {"k_descale": "k_scale", "v_descale": "v_scale"}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """CPU tensors are taken for a GPU's."""
    emulator = Emulator()
    emulator.replace(monkeypatch, sm90, "bind", names=NAMES)
    torch_append.plans.forget()
    return emulator


def tensors(page: int = 0, tokens: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of a call as tensors, and as arrays."""
    given = operands(B, page, tokens)
    return {
        n: torch.from_numpy(x.view(np.uint16).copy()).view(torch.bfloat16)
        if x.dtype == B
        else torch.from_numpy(x.copy())
        for n, x in given.items()
    }, given


def same(given: dict[str, Any], arrays: dict[str, Any]) -> None:
    want = wanted(arrays)
    for name, x in (("k_cache", want.k), ("v_cache", want.v)):
        assert np.array_equal(given[name].view(torch.uint16).numpy(), x.view(np.uint16))


@pytest.mark.parametrize("page", [0, 8])
def test_values(gpu: Emulator, page: int) -> None:
    given, arrays = tensors(page, tokens=2)
    before = given["k_cache"]._version, given["v_cache"]._version
    APPEND(**given)
    same(given, arrays)
    assert given["k_cache"]._version > before[0]
    assert given["v_cache"]._version > before[1]


def test_lengths_are_those_of_the_launch(gpu: Emulator) -> None:
    """One plan, whatever they are; the host has not read them."""
    given, arrays = tensors()
    for lengths in ([5, 0, 16, 9], [1, 1, 1, 1]):
        for name in ("k_cache", "v_cache"):
            given[name].zero_()
        given["cache_seqlens"].copy_(torch.tensor(lengths))
        APPEND(**given)
        same(given, arrays | {"cache_seqlens": np.array(lengths, np.int32)})
    assert len(gpu.bound) == 1


def test_descales_that_are_tensors_are_read_at_the_launch(gpu: Emulator) -> None:
    given, arrays = tensors()
    for name in ("k_cache", "v_cache"):
        given[name] = torch.zeros(given[name].shape, dtype=torch.float8_e4m3fn)
    scale = torch.ones(4, 2)
    for size in (1.0, 0.5):
        scale.fill_(size)
        APPEND(**given, k_descale=scale, v_descale=2.0)
        row = given["k_cache"][0, 4].float()
        k = torch.from_numpy(arrays["k"].astype(np.float32))[0, 0] / size
        assert torch.equal(row, k.to(torch.float8_e4m3fn).float())
    v = torch.from_numpy(arrays["v"].astype(np.float32))[0, 0] / 2
    assert torch.equal(given["v_cache"][0, 4].float(), v.to(torch.float8_e4m3fn).float())
    assert len(gpu.bound) == 1


@pytest.mark.slow
def test_the_operator_and_the_compiler(gpu: Emulator) -> None:
    """In a compiled function what is written is seen by what comes after it."""
    given, arrays = tensors(8)

    def f(**x: Any) -> Any:
        tp.ops.append_kv(**x)
        return x["k_cache"] + 0

    for backend in ("eager", "aot_eager"):
        for name in ("k_cache", "v_cache"):
            given[name].zero_()
        torch.compiler.reset()
        after = torch.compile(f, backend=backend, fullgraph=True)(**given)
        same(given, arrays)
        assert torch.equal(after, given["k_cache"])
    names = "k_cache", "v_cache", "k", "v", "cache_seqlens", "block_table"
    torch.library.opcheck(
        torch.ops.tilepipe.append_kv.default,
        tuple(given[name] for name in names),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_nothing_to_write_is_no_launch(gpu: Emulator) -> None:
    given, _ = tensors()
    APPEND(**{name: x[:0] for name, x in given.items()})
    APPEND(**given | {name: given[name][:, :0] for name in ("k_cache", "v_cache")})
    assert gpu.launched == []


def test_what_is_refused(gpu: Emulator) -> None:
    given, _ = tensors()
    with pytest.raises(tp.BindError, match="append_kv has no gradient"):
        APPEND(**given | {"k": given["k"].clone().requires_grad_()})
    with pytest.raises(tp.BindError, match="v_cache shares memory with k, which"):
        APPEND(**given | {"k": given["v_cache"][:, :1]})
    inside = given["v_cache"].reshape(-1).view(torch.int32)[:4]
    with pytest.raises(tp.BindError, match="v_cache shares memory with cache_seqlens, which"):
        APPEND(**given | {"cache_seqlens": inside})
    with pytest.raises(tp.BindError, match="cache_seqlens must be a tensor of PyTorch"):
        APPEND(**given | {"cache_seqlens": np.ones(4, np.int32)})
    with pytest.raises(tp.BindError, match=r"torch.full\(\(4,\), 7, dtype=torch.int32"):
        APPEND(**given | {"cache_seqlens": 7})


@pytest.mark.parametrize("name", ["k_cache", "v_cache"])
def test_caches_whose_elements_share_memory_or_lie_apart(gpu: Emulator, name: str) -> None:
    """Nothing is prepared for them, and nothing launched."""
    given, _ = tensors()
    wide = given[name].repeat_interleave(2, -1)[..., ::2]
    with pytest.raises(tp.BindError, match="dimension 3 must be contiguous"):
        APPEND(**given | {name: wide})
    expanded = given[name][:1].expand(4, -1, -1, -1)
    with pytest.raises(tp.BindError, match=f"'{name}', which kernel 'append_kv' writes, has elem"):
        APPEND(**given | {name: expanded})
