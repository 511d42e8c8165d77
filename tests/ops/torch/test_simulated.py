"""Operations on tensors on the CPU: simulated in their memory, differentiated, compiled, announced,
forbidden.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import ops
from tilepipe.kernels.gemm_block_scaled.reference import quantize_nvfp4

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tilepipe.ops.torch import simulated  # noqa: E402

SMALL: Any = {"bm": 64, "bn": 32, "bk": 64, "consumers": 1}


def tensor(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


A, B = tensor(72, 64), tensor(24, 64).T


def bits(x: Any) -> Any:
    return x.contiguous().view(torch.uint8).numpy().tobytes()


def as_array(x: Any) -> Any:
    return x.view(torch.int16).numpy().view(tp.bfloat16.numpy)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEPIPE_CPU_TENSORS", raising=False)
    monkeypatch.setattr(simulated, "_announced", set())


def test_a_product_has_the_bits_of_that_of_arrays() -> None:
    c = ops.matmul(A, B, **SMALL)
    assert (c.dtype, c.shape) == (torch.bfloat16, (72, 24))
    array = ops.matmul(as_array(A), as_array(B), **SMALL)
    assert bits(c) == array.tobytes()
    torch.testing.assert_close(c.float(), A.float() @ B.float(), rtol=1e-2, atol=1e-2)


def test_activation_none_is_no_activation() -> None:
    wanted = bits(ops.matmul(A, B, **SMALL))
    assert bits(ops.matmul(A, B, activation="none", **SMALL)) == wanted
    a = A.clone().requires_grad_()
    assert bits(ops.matmul(a, B, activation="none", **SMALL).detach()) == wanted
    same = ops.matmul(as_array(A), as_array(B), activation="none", **SMALL)
    assert same.tobytes() == wanted
    with pytest.raises(tp.BindError, match="activation is None, 'none' or one of relu, gelu"):
        ops.matmul(A, B, activation="tanh", **SMALL)


def _grouped(a: Any, b: Any) -> Any:
    return ops.grouped_matmul(a, torch.stack([b, b]), torch.tensor([30, 72], dtype=torch.int32))


def _attention(a: Any, b: Any) -> Any:
    q, k = (x.reshape(1, -1, 1, 64) for x in (a, b.T))
    return ops.attention(q, k, k)


UNDER_AUTOCAST: dict[str, Any] = {
    "matmul": ops.matmul,
    "gated": lambda a, b: ops.gated_matmul(a, b, b),
    "grouped": _grouped,
    "attention": _attention,
}


@pytest.mark.slow
@pytest.mark.parametrize("operation", UNDER_AUTOCAST.values(), ids=UNDER_AUTOCAST)
def test_autocast_of_the_cpu_casts_tensors_there(operation: Any) -> None:
    wanted = operation(A, B)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = operation(A.float(), B.float())
        with pytest.raises(tp.BindError, match="float64"):  # as torch.matmul, no float64
            operation(A.double(), B.double())
    assert found.dtype is torch.bfloat16
    assert bits(found) == bits(wanted)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_autocast_beside_a_cache_takes_the_dtype_of_the_cache(stored: Any) -> None:
    """Which is read where it lies, also if autocast has another one of 16 bits."""
    q = torch.randn(1, 1, 2, 64, generator=torch.Generator().manual_seed(0))
    cache = torch.ones(1, 16, 1, 64).to(stored)
    taken = q.bfloat16() if stored is torch.float8_e4m3fn else q.to(stored)
    wanted = ops.attention_decode(taken, cache, cache.clone())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ops.attention_decode(q, cache, cache.clone())
        with pytest.raises(tp.BindError, match="float32"):  # it would be copied in each step
            ops.attention_decode(q, cache.float(), cache.float())
    assert found.dtype is taken.dtype
    assert bits(found) == bits(wanted)


def test_autocast_beside_quantised_weights() -> None:
    weights = ops.prepare_weights(torch.ones(64, 128, dtype=torch.int8))
    a, scales = torch.ones(4, 128), torch.ones(1, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ops.quantised_matmul(a, weights, scales)
    assert found.dtype is torch.bfloat16
    assert bits(found) == bits(ops.quantised_matmul(a.bfloat16(), weights, scales))


@pytest.mark.slow
def test_autocast_of_the_cpu_under_the_compiler_and_autograd() -> None:
    a = A.float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        c = torch.compile(lambda x: ops.matmul(x, B.float()), backend="eager", fullgraph=True)(a)
    assert bits(c.detach()) == bits(ops.matmul(A, B))
    (gradient,) = torch.autograd.grad(c.float().sum(), a)
    assert gradient.dtype is torch.float32
    ones = torch.ones(72, 24, dtype=torch.bfloat16)
    assert bits(gradient.bfloat16()) == bits(ops.matmul(ones, B.T))


def test_autocast_of_another_device_casts_nothing() -> None:
    torch.set_autocast_enabled("cuda", True)
    try:
        with pytest.raises(tp.BindError, match="float32"):
            ops.matmul(A.float(), B.float(), **SMALL)
    finally:
        torch.set_autocast_enabled("cuda", False)


def test_out_is_written_in_the_tensors_memory() -> None:
    whole = torch.full((80, 40), 7.0)
    out = whole[4:76, 8:32]
    version = out._version
    assert ops.matmul(A, B, out=out, bias=torch.ones(24), **SMALL) is out
    torch.testing.assert_close(out, A.float() @ B.float() + 1, rtol=1e-3, atol=1e-3)
    assert out._version > version
    out.fill_(7)
    assert bool((whole == 7).all())


def test_seed_and_progress_reach_the_simulator() -> None:
    seen: list[tuple[int, int]] = []
    c = ops.matmul(A, B, seed=3, progress=lambda done, total: seen.append((done, total)), **SMALL)
    assert seen[-1] == (2, 2)
    assert bits(c) == bits(ops.matmul(A, B, **SMALL))
    with pytest.raises(tp.BindError, match="seed= is an integer of at least 0, got -1"):
        ops.matmul(A, B, seed=-1, **SMALL)


def test_gradients() -> None:
    a, b = A.clone().requires_grad_(), B.T.clone().requires_grad_()
    ops.matmul(a, b.T, activation="relu", **SMALL).sum().backward()
    x, y = A.float().requires_grad_(), B.T.float().requires_grad_()
    torch.relu(x @ y.T).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    torch.testing.assert_close(a.grad.float(), x.grad, rtol=2e-2, atol=0.1)
    torch.testing.assert_close(b.grad.float(), y.grad, rtol=2e-2, atol=0.1)


@pytest.mark.thorough
def test_under_the_compiler() -> None:
    twice = torch.compile(
        lambda a, b: 2 * ops.matmul(a, b, **SMALL), backend="eager", fullgraph=True
    )
    assert torch.equal(twice(A, B), 2 * ops.matmul(A, B, **SMALL))


@pytest.mark.slow
def test_attention() -> None:
    q, k = tensor(1, 70, 2, 64), tensor(1, 90, 1, 64)
    out = torch.empty_like(q)
    got, lse = ops.attention(q, k, k, return_lse=True, out=out, causal=True)
    want, want_lse = ops.attention(*map(as_array, (q, k, k)), return_lse=True, causal=True)
    assert got is out
    assert bits(out) == want.tobytes()
    assert bits(lse) == want_lse.tobytes()
    with pytest.raises(tp.BindError, match="there is no gradient with out="):
        ops.attention(q.requires_grad_(), k, k, out=out)


@pytest.mark.slow
def test_groups() -> None:
    a, b = tensor(70, 64), tensor(2, 64, 24)
    ends = torch.tensor([40, 65], dtype=torch.int32)
    c = ops.grouped_matmul(a, b, ends)
    assert bits(c) == ops.grouped_matmul(as_array(a), as_array(b), ends.numpy()).tobytes()


@pytest.mark.slow
def test_scaled_products() -> None:
    fp8 = torch.float8_e4m3fn
    a, b = tensor(40, 64).to(fp8), tensor(24, 64).to(fp8).T
    one = torch.tensor(0.5)
    c = ops.scaled_matmul(a, b, one, one, out_dtype=torch.float32)
    torch.testing.assert_close(c, a.float() @ b.float() / 4, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_scales_of_blackwell_with_a_factor_for_the_tensor() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((40, 64), (24, 64)))
    (a, scale_a, of_a), (b, scale_b, of_b) = quantize_nvfp4(x), quantize_nvfp4(w)
    want = ops.scaled_matmul(a, b.T, (scale_a, of_a), (scale_b.T, of_b))
    fp8 = [torch.from_numpy(s.view(np.uint8)).view(torch.float8_e4m3fn) for s in (scale_a, scale_b)]
    left, right = (torch.from_numpy(y.view(np.uint8)) for y in (a, b))
    got = ops.scaled_matmul(
        left, right.T, (fp8[0], torch.tensor(float(of_a))), (fp8[1].T, torch.tensor(float(of_b)))
    )
    assert bits(got) == want.tobytes()


def test_tensors_on_different_devices_are_one_error() -> None:
    with pytest.raises(tp.BindError, match="matmul: a is on cpu and b on meta; move one with"):
        ops.matmul(A, B.to("meta"))
    with pytest.raises(tp.BindError, match="a must be a tensor of PyTorch as the others, got ndar"):
        ops.matmul(as_array(A), B)
    with pytest.raises(tp.BindError, match="b must be a dense tensor, its layout is sparse_coo"):
        ops.matmul(A, B.to_sparse())


def test_the_environment_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEPIPE_CPU_TENSORS", "off")
    words = r"matmul: a is on the CPU.* TILEPIPE_CPU_TENSORS=off forbids that\. Move it with \.cuda"
    with pytest.raises(tp.BindError, match=words):
        ops.matmul(A, B)
    with pytest.raises(tp.BindError, match="TILEPIPE_CPU_TENSORS=off forbids that"):
        tp.tensor_map(A, box=(8, 8))
    ops.matmul(as_array(A), as_array(B), **SMALL)


def test_a_long_run_is_announced_once() -> None:
    seen: list[int] = []
    clock = itertools.count(100.0, 0.5)  # half a second for each CTA
    report = simulated.announcing("matmul", lambda done, _: seen.append(done), clock.__next__)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for done in range(1, 1001):
            report(done, 1000)
    ((text, category, file),) = [(str(w.message), w.category, w.filename) for w in warned]
    assert category is simulated.SlowSimulationWarning
    assert file == __file__  # the caller's, not tilepipe's
    assert "matmul of tensors on the CPU is simulated: this call takes about 8 minutes" in text
    assert "(2 of 1000 CTAs in 1 s)" in text
    assert seen == list(range(1, 1001))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = simulated.announcing("matmul", None, itertools.count(0.0, 50.0).__next__)
        again(1, 1000)


def test_the_first_cta_has_the_preparation() -> None:
    """Which the others do not have: the run takes 6 s, of which the first CTA takes 5."""
    times = itertools.chain([0.0, 5.0], itertools.count(5.1, 0.1))
    report = simulated.announcing("matmul", None, times.__next__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for done in range(1, 12):
            report(done, 11)


def test_a_warning_is_of_the_line_that_called_pytorch() -> None:
    """An operator of PyTorch's dispatcher calls back from a file of PyTorch's."""
    report = simulated.announcing("matmul", None, itertools.count(0.0, 50.0).__next__)
    called = compile("def called(report): report(1, 1000)", f"{simulated._TORCH}_ops.py", "exec")
    space: dict[str, Any] = {}
    exec(called, space)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        space["called"](report)
    assert [w.filename for w in warned] == [__file__]


def test_a_short_run_is_not_announced() -> None:
    report = simulated.announcing("matmul", None, itertools.count(0.0, 0.5).__next__)
    for done in range(1, 19):
        report(done, 18)
