"""Gradients of ops.attention on the GPU: values beside float64, a fixed order of sums under random
delays, a training run beside PyTorch's own attention, CUDA graphs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.attention_backward import reference, sm90_bind as kernel
from tilepipe.kernels.attention_backward.config import WALKS, BackwardConfig
from tilepipe.kernels.attention_backward.validation import check_backward
from tilepipe.ops.torch.tensors import TensorView

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # PyTorch's compiler warns of its own parts
]
BF16, FP16 = torch.bfloat16, torch.float16
Module: Any = torch.nn.Module
# (batch, s_q, s_kv, heads, kv_heads, d, d_v)
SHAPES = [
    (1, 512, 512, 2, 2, 128, 128),
    (2, 500, 700, 4, 2, 128, 128),
    (1, 700, 500, 4, 1, 64, 64),
    (1, 333, 1, 2, 2, 64, 64),
    (1, 1, 300, 2, 1, 128, 64),
    (1, 300, 200, 2, 1, 40, 96),
]


def operands(shape: tuple[int, ...], dtype: Any = BF16) -> list[Any]:
    """q, k, v and dout."""
    batch, s_q, s_kv, heads, kv_heads, d, d_v = shape
    extents = (s_q, heads, d), (s_kv, kv_heads, d), (s_kv, kv_heads, d_v), (s_q, heads, d_v)
    generator = torch.Generator().manual_seed(0)
    return [torch.randn((batch, *x), generator=generator).to(dtype).cuda() for x in extents]


def array(x: Any) -> Any:
    host = x.detach().contiguous().cpu()
    if host.dtype == BF16:
        return host.view(torch.uint16).numpy().view(tp.bfloat16.numpy)
    return host.numpy()


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_are_those_of_float64(shape: Any, dtype: Any, causal: bool) -> None:
    q, k, v, dout = operands(shape, dtype)
    given = [x.requires_grad_() for x in (q, k, v)]
    out, lse = tp.ops.attention(*given, causal=causal, return_lse=True)
    dlse = torch.randn(lse.shape, device="cuda")
    dlse[torch.isinf(lse)] = 0
    got = torch.autograd.grad([out, lse], given, [dout, dlse])
    dq, dk, dv = map(array, got)
    arrays = [array(x) for x in (dout, q, k, v)]
    found = reference.compare((dq, dk, dv), *arrays, causal=causal, dlse=array(dlse))
    assert all(x.ok for x in found), found


@pytest.mark.parametrize("walk", [None, *WALKS])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", [64, 128])
def test_turns_give_the_same_bits_under_random_delays(
    d: int, causal: bool, walk: str | None
) -> None:
    """100 launches, each with random delays wherever it waits: no bit of a gradient changes. With
    the walk that is chosen, and with each in two bands of heads.
    """
    cfg = None if walk is None else BackwardConfig(1, walk)
    q, k, v, dout = operands((1, 1000, 1900, 4, 2, d, d))
    out, lse = tp.ops.attention(q, k, v, causal=causal, return_lse=True)
    views = [TensorView(x) for x in (q, k, v, out, dout, lse)]
    found = check_backward(views[0], views[1], views[2], views[3], views[4], views[5])
    keep: list[Any] = []

    def empty(shape: tuple[int, ...], dtype: str) -> Any:
        keep.append(torch.empty(shape, dtype=getattr(torch, dtype), device="cuda"))
        return keep[-1]

    made = kernel.Workspace.of(found, True, empty)
    space = kernel.Workspace(
        TensorView(made.lse_2),
        TensorView(made.delta),
        TensorView(made.sums),
        TensorView(made.turns),
    )
    results = [torch.empty_like(x) for x in (q, k, v)]
    dq, dk, dv = map(TensorView, results)
    prepare = kernel.bind_prepare(views[3], views[4], views[5], space)
    given = views[0], views[1], views[2], views[4], dk, dv
    program = kernel.bind(*given, space, cfg, causal=causal)
    finish = kernel.bind_finish(space.sums, space.delta, dq, found.scale)
    first: list[bytes] = []
    for seed in range(100):
        for x in results:
            x.fill_(torch.nan)
        prepare.launch()
        program.launch(perturb=seed)
        finish.launch()
        bits = [x.view(torch.int16).cpu().numpy().tobytes() for x in results]
        first = first or bits
        assert bits == first, f"seed {seed}"


class Block(Module):  # type: ignore[misc]
    """A layer of a small transformer."""

    def __init__(self, attend: Any, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.attend, self.heads = attend, heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x: Any) -> Any:
        batch, s, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, s, 3, self.heads, -1).unbind(2)
        x = x + self.out(self.attend(q, k, v).reshape(batch, s, width))
        return x + self.mlp(self.norms[1](x))


def _losses(attend: Any, steps: int) -> Any:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(64, 256), Block(attend), Block(attend), torch.nn.Linear(256, 64)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # each token is the sum of the two before it
    tokens = torch.randint(64, (8, 300), generator=torch.Generator().manual_seed(1))
    for i in range(2, 300):
        tokens[:, i] = (tokens[:, i - 1] + tokens[:, i - 2]) % 64
    given = tokens.cuda()

    def loss() -> Any:
        with torch.autocast("cuda", BF16):
            logits = model(given[:, :-1])
        return torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), given[:, 1:].flatten()
        )

    step = torch.compile(loss)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        now = step()
        now.backward()
        optimizer.step()
        found.append(now.detach())
    return torch.stack(found).cpu().numpy()


def test_a_transformer_learns_as_with_pytorchs_attention() -> None:
    def ours(q: Any, k: Any, v: Any) -> Any:
        return tp.ops.attention(q, k, v, causal=True)

    def theirs(q: Any, k: Any, v: Any) -> Any:
        turned = (x.transpose(1, 2) for x in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(*turned, is_causal=True)
        return out.transpose(1, 2)

    got, want = _losses(ours, 60), _losses(theirs, 60)
    assert want[-1] < 0.6 * want[0], want  # it learns
    assert np.abs(got - want).max() < 0.02 * want[0], (got, want)


def test_a_graph_has_the_same_gradients() -> None:
    q, k, v, dout = operands((2, 500, 500, 4, 2, 64, 64))
    given = [x.requires_grad_() for x in (q, k, v)]

    def step() -> Any:
        out = tp.ops.attention(*given, causal=True)
        return torch.autograd.grad(out, given, dout)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        want = step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(got[1], want[1])
    assert torch.equal(got[2], want[2])
    assert (got[0] - want[0]).abs().max() <= 2.0**-7 * want[0].abs().max()
