"""`ops.attention_backward` of NumPy arrays, and what autograd makes of `ops.attention`, beside
float64.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tilepipe import ops
from tilepipe.kernels.attention_backward import reference
from tilepipe.ops.attention_backward.call import steps

torch = pytest.importorskip("torch")
Array = npt.NDArray[Any]


def operands(shape: tuple[int, ...], dtype: tp.DType = tp.float16) -> tuple[Array, ...]:
    """q, k, v, dout for (batch, s_q, s_kv, heads, kv_heads, d, d_v)."""
    batch, s_q, s_kv, heads, kv_heads, d, d_v = shape
    rng = np.random.default_rng(0)
    extents = (s_q, heads, d), (s_kv, kv_heads, d), (s_kv, kv_heads, d_v), (s_q, heads, d_v)
    return tuple(rng.standard_normal((batch, *x)).astype(dtype.numpy) for x in extents)


def tensors(*arrays: Array) -> list[Any]:
    """Tensors of the same values, which require a gradient."""
    kinds = {"bfloat16": torch.bfloat16, "float16": torch.float16}
    return [
        torch.tensor(x.astype(np.float32)).to(kinds[x.dtype.name]).requires_grad_() for x in arrays
    ]


def arrays(*given: Any) -> tuple[Array, ...]:
    return tuple(x.detach().float().numpy() for x in given)


@pytest.mark.slow
@pytest.mark.parametrize("with_dlse", [False, True])
@pytest.mark.parametrize("dtype", [tp.bfloat16, tp.float16], ids=str)
def test_numpy(dtype: tp.DType, with_dlse: bool) -> None:
    q, k, v, dout = operands((2, 70, 150, 4, 2, 64, 48), dtype)
    options: dict[str, Any] = {"causal": True, "scale": 0.2}
    out, lse = ops.attention(q, k, v, return_lse=True, **options)
    if with_dlse:
        options["dlse"] = np.random.default_rng(1).standard_normal(lse.shape).astype(np.float32)
    got = ops.attention_backward(dout, q, k, v, out, lse, **options)
    assert [x.dtype for x in got] == [q.dtype] * 3
    found = reference.compare(got, dout, q, k, v, **options)
    assert all(x.ok for x in found), found


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("align", ["last", "first"])
def test_autograd(layout: str, align: str) -> None:
    q, k, v, dout = operands((1, 100, 140, 2, 1, 64, 64))

    def turn(x: Array) -> Array:
        return x if layout == "bshd" else x.swapaxes(1, 2).copy()

    given = tensors(*map(turn, (q, k, v)))
    options: dict[str, Any] = {"causal": True, "align": align}
    out, lse = ops.attention(*given, return_lse=True, layout=layout, **options)
    dlse = torch.randn(lse.shape)
    grads = torch.autograd.grad([out, lse], given, [torch.tensor(turn(dout)), dlse])
    dq, dk, dv = (turn(x) for x in arrays(*grads))
    found = reference.compare((dq, dk, dv), dout, q, k, v, dlse=dlse.numpy(), **options)
    assert all(x.ok for x in found), found


@pytest.mark.slow
def test_the_gradient_of_a_sum_is_one_number_expanded() -> None:
    q, k, v, dout = operands((1, 40, 60, 1, 1, 64, 64))
    given = tensors(q, k, v)
    out: Any = ops.attention(*given)
    out.sum().backward()
    found = reference.compare(tuple(x.grad.numpy() for x in given), np.ones_like(dout), q, k, v)
    assert all(x.ok for x in found), found


@pytest.mark.slow
def test_a_compiled_step_has_the_same_gradients() -> None:
    given = tensors(*operands((1, 40, 60, 2, 1, 64, 64))[:3])

    def loss(q: Any, k: Any, v: Any) -> Any:
        return ops.attention(q, k, v, causal=True).float().square().sum()

    loss(*given).backward()
    plain = [x.grad.clone() for x in given]
    for x in given:
        x.grad = None
    torch.compile(loss, backend="aot_eager", fullgraph=True)(*given).backward()
    assert all(torch.equal(x.grad, want) for x, want in zip(given, plain, strict=True))


def fused(dtype: Any, s: int = 70) -> Any:
    """A fused projection of q, k and v, (1, s, 3, 2 heads, 64)."""
    values = np.random.default_rng(0).standard_normal((1, s, 3, 2, 64)).astype(np.float32)
    return torch.tensor(values).to(dtype).requires_grad_()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_views_of_a_fused_projection_and_a_scale(dtype: Any) -> None:
    qkv = fused(dtype)
    out: Any = ops.attention(*qkv.unbind(2), causal=True, scale=0.3)
    dout = torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    (got,) = torch.autograd.grad(out, qkv, dout)
    exact = qkv.detach().double().requires_grad_()
    q, k, v = (x.transpose(1, 2) for x in exact.unbind(2))
    want_out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=0.3
    ).transpose(1, 2)
    (want,) = torch.autograd.grad(want_out, exact, dout.double())
    error = (got.double() - want).norm() / want.norm()
    assert error < (4e-3 if dtype is torch.bfloat16 else 5e-4)


@pytest.mark.slow
def test_autocast_casts_before_anything_is_checked() -> None:
    q, k, v = (x.float().detach().requires_grad_() for x in fused(torch.float16).unbind(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out: Any = ops.attention(q, k, v)
        out.float().sum().backward()
    assert out.dtype is torch.bfloat16
    assert q.grad.dtype is torch.float32
    halves = [x.detach().to(torch.bfloat16).requires_grad_() for x in (q, k, v)]
    plain: Any = ops.attention(*halves)
    plain.float().sum().backward()
    assert torch.equal(halves[0].grad.float(), q.grad)


def test_gradients_may_be_negative_views() -> None:
    given = tensors(*operands((1, 40, 60, 1, 1, 64, 64))[:3])
    out, lse = ops.attention(*given, return_lse=True)
    dout, dlse = torch.randn(out.shape).to(out.dtype), torch.randn(lse.shape)
    want = torch.autograd.grad([out, lse], given, [-dout, -dlse], retain_graph=True)
    for views in ([torch._neg_view(dout), -dlse], [-dout, torch._neg_view(dlse)]):
        got = torch.autograd.grad([out, lse], given, views, retain_graph=True)
        assert all(map(torch.equal, got, want))
    detached = (x.detach() for x in (*given, out, lse))
    got = ops.attention_backward(-dout, *detached, dlse=torch._neg_view(dlse))
    assert all(map(torch.equal, got, want))


def test_rows_without_keys_pass_no_gradient_on() -> None:
    """Whose logarithm is -inf, so that what is computed of it has a NaN for its gradient."""
    q, k, v, dout = operands((1, 40, 8, 1, 1, 64, 64))
    out, lse = ops.attention(q, k, v, causal=True, return_lse=True)
    dlse = np.where(np.isinf(lse), np.nan, 1.0).astype(np.float32)
    assert np.isnan(dlse).sum() == 32
    got = ops.attention_backward(dout, q, k, v, out, lse, dlse=dlse, causal=True)
    found = reference.compare(got, dout, q, k, v, causal=True, dlse=np.nan_to_num(dlse, nan=0.0))
    assert all(x.ok for x in found), found


@pytest.mark.slow
def test_a_fixed_order_is_that_of_pytorchs_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def noted(call: Any, found: Any) -> Any:
        asked.append(call.deterministic)
        return steps(call, found)

    # by its name: that of its package is the function
    module = importlib.import_module("tilepipe.ops.attention_backward.simulated")
    monkeypatch.setattr(module, "steps", noted)
    for wanted in (False, True):
        given = tensors(*operands((1, 40, 140, 1, 1, 64, 64))[:3])
        torch.use_deterministic_algorithms(wanted)
        try:
            out: Any = ops.attention(*given)
            out.sum().backward()
        finally:
            torch.use_deterministic_algorithms(False)
    assert asked == [False, True]


def test_a_result_that_is_changed_in_place_raises() -> None:
    given = tensors(*operands((1, 40, 60, 1, 1, 64, 64))[:3])
    out: Any = ops.attention(*given)
    loss = (out * 2).sum()
    with torch.no_grad():
        out.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_there_is_no_second_derivative() -> None:
    q, k, v = tensors(*operands((1, 40, 60, 1, 1, 64, 64))[:3])
    out: Any = ops.attention(q, k, v)
    (dq,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    assert torch.isfinite(dq).all()  # which is what create_graph alone may ask for
    with pytest.raises(tp.BindError, match=r"no gradients themselves.*detach them"):
        (q.sum() + dq.float().square().sum()).backward()


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_the_operator_is_what_it_says(layout: str) -> None:
    q, k, v, dout = (x.detach() for x in tensors(*operands((1, 40, 60, 2, 1, 64, 48))))
    if layout == "bhsd":
        q, k, v, dout = (x.transpose(1, 2) for x in (q, k, v, dout))
    out, lse = ops.attention(q, k, v, return_lse=True, layout=layout)
    torch.library.opcheck(
        torch.ops.tilepipe.attention_backward.default,
        (dout, q, k, v, out, lse),
        {"layout": layout},
        test_utils=("test_schema", "test_faketensor"),
    )


@pytest.mark.slow
def test_eager_autograd_costs_no_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    def dispatched(*args: Any) -> None:
        raise AssertionError("through the dispatcher")

    gpu = importlib.import_module("tilepipe.ops.attention.gpu")
    given = tensors(*operands((1, 40, 60, 1, 1, 64, 64))[:3])
    with monkeypatch.context() as patched:
        patched.setattr(gpu, "operator", dispatched)
        patched.setattr(gpu, "backward_operator", dispatched)
        got = torch.autograd.grad(ops.attention(*given).sum(), given)
    result, _ = gpu.operator(*given, return_lse=True)
    assert all(map(torch.equal, got, torch.autograd.grad(result.sum(), given)))


def test_only_what_requires_a_gradient_gets_one() -> None:
    q, k, v = tensors(*operands((1, 40, 60, 1, 1, 64, 64))[:3])
    ops.attention(q, k.detach(), v).sum().backward()
    assert q.grad is not None
    assert v.grad is not None
    with torch.no_grad():
        assert not ops.attention(q, k, v, window=(3, 3)).requires_grad


@pytest.mark.parametrize("shape", [(1, 40, 0), (1, 0, 40), (0, 40, 40)], ids=str)
def test_nothing_to_multiply(shape: tuple[int, int, int]) -> None:
    q, k, v = tensors(*operands((*shape, 1, 1, 64, 64))[:3])
    ops.attention(q, k, v).sum().backward()
    assert (q.grad.shape, k.grad.shape, v.grad.shape) == (q.shape, k.shape, v.shape)
    assert not any(x.grad.any() for x in (q, k, v))


@pytest.mark.slow
def test_the_gradients_by_hand_in_a_whole_graph() -> None:
    q, k, v, dout = (x.detach() for x in tensors(*operands((1, 40, 60, 1, 1, 64, 64))))
    out, lse = ops.attention(q, k, v, return_lse=True)
    torch._dynamo.reset()
    compiled = torch.compile(ops.attention_backward, fullgraph=True, backend="eager")
    for found, eager in zip(
        compiled(dout, q, k, v, out, lse),
        ops.attention_backward(dout, q, k, v, out, lse),
        strict=True,
    ):
        assert torch.equal(found, eager)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"window": (3, 3)}, "window="),
        ({"softcap": 3.0}, "softcap="),
        ({"slopes": torch.ones(2)}, "slopes="),
        ({"sinks": torch.ones(2)}, "sinks="),
        ({"block_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool)}, "block_mask="),
        ({"score": lambda ctx, x, *rest: x}, "a score function"),
        ({"out": torch.empty(1, 40, 2, 64, dtype=torch.float16)}, "out="),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_options_without_a_gradient_are_refused_by_name(options: dict[str, Any], what: str) -> None:
    given = tensors(*operands((1, 40, 60, 2, 1, 64, 64))[:3])
    with pytest.raises(tp.BindError) as caught:
        ops.attention(*given, **options)
    assert f"there is no gradient with {what}, and an operand requires one" in str(caught.value)


@pytest.mark.parametrize("window", [(None, None), (-1, None), [-1, -1]], ids=str)
def test_a_window_without_bounds_has_a_gradient(window: Any) -> None:
    given = tensors(*operands((1, 40, 60, 1, 1, 64, 64))[:3])
    assert ops.attention(*given, window=window).requires_grad
    with pytest.raises(tp.BindError, match="window is a pair"):
        ops.attention(*given, window=5)  # type: ignore[call-overload]


def test_heads_that_are_too_large_and_packed_sequences_are_refused() -> None:
    given = tensors(*operands((1, 40, 60, 1, 1, 192, 64))[:3])
    with pytest.raises(tp.BindError, match="no gradient with heads of 192 elements, above 128"):
        ops.attention(*given)
    bounds = torch.tensor([0, 40], dtype=torch.int32)
    q, k, v = (x[0] for x in tensors(*operands((1, 40, 40, 1, 1, 64, 64))[:3]))
    with pytest.raises(tp.BindError, match=r"packed sequences \(cu_seqlens_q="):
        ops.attention(q, k, v, cu_seqlens_q=bounds, cu_seqlens_k=bounds)


def test_mistakes() -> None:
    q, k, v, dout = operands((1, 40, 60, 1, 1, 64, 64))
    out, lse = ops.attention(q, k, v, return_lse=True)
    with pytest.raises(tp.BindError, match="deterministic"):
        ops.attention_backward(dout, q, k, v, out, lse, deterministic=2)  # type: ignore[arg-type]
    with pytest.raises(tp.BindError, match=r"dlse must have shape \(1, 1, 40\)"):
        ops.attention_backward(dout, q, k, v, out, lse, dlse=lse[..., :3])
    with pytest.raises(tp.BindError, match='layout is "bshd" or "bhsd"'):
        ops.attention_backward(dout, q, k, v, out, lse, layout="sbhd")
