"""ops.matmul of CUDA tensors on the GPU: values, streams, graphs, threads, autograd,
torch.compile.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import tilepipe as tp
from tests.cases.ops.matmul_layouts import LAYOUTS, SHAPES, ZERO
from tests.support.ops.torch_reference import TF32, activated, check
from tests.support.ops.torch_views import Operands, check_views, problem
from tilepipe.cuda.runtime.interop import view
from tools.docs.readme import ROOT, blocks, run

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # PyTorch's compiler warns of its own parts
]
BF16 = torch.bfloat16
matmul = tp.ops.matmul


def tensor(*shape: int, dtype: Any = BF16, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).cuda()


def leaf(*shape: int, dtype: Any = BF16, seed: int = 0) -> Any:
    return tensor(*shape, dtype=dtype, seed=seed).requires_grad_()


@pytest.mark.parametrize("dtype", [BF16, torch.float16], ids=str)
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_shapes(left: tuple[int, ...], right: tuple[int, ...], dtype: Any) -> None:
    a, b = tensor(*left, dtype=dtype), tensor(*right, dtype=dtype, seed=1)
    c = matmul(a, b)
    assert c.is_contiguous()
    assert c.dtype == dtype
    check(c, a, b)


@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1),
        (129, 65, 63),
        (300, 130, 250),
        (1000, 3000, 1024),
        (128, 4096, 4096),
        (8, 8192, 512),
        (4096, 4096, 4096),
        (2048, 17, 5000),
    ],
    ids=str,
)
@pytest.mark.parametrize("orders", ["NN", "NT", "TN", "TT"])
def test_sizes_in_every_order(shape: tuple[int, int, int], orders: str) -> None:
    m, n, k = shape
    a = tensor(m, k) if orders[0] == "N" else tensor(k, m).T
    b = tensor(k, n, seed=1) if orders[1] == "N" else tensor(n, k, seed=1).T
    check(matmul(a, b), a, b)
    check(matmul(a, b, out_dtype="float32"), a, b)


@pytest.mark.parametrize("orders", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("shape", [(70, 40, 90), (1000, 512, 768), (33, 21, 17)], ids=str)
def test_tf32(shape: tuple[int, int, int], orders: str) -> None:
    m, n, k = shape
    a = (
        tensor(m, k, dtype=torch.float32)
        if orders[0] == "N"
        else tensor(k, m, dtype=torch.float32).T
    )
    b = (
        tensor(k, n, dtype=torch.float32, seed=1)
        if orders[1] == "N"
        else tensor(n, k, dtype=torch.float32, seed=1).T
    )
    check(matmul(a, b, precision="tf32"), a, b, inputs=TF32)


@pytest.mark.parametrize(("left", "right"), ZERO, ids=str)
def test_zero_sizes(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = tensor(*left), tensor(*right)
    assert torch.equal(matmul(a, b), torch.matmul(a, b))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("batch", [1, 3])
def test_layouts(layout: str, side: int, batch: int) -> None:
    operands = [tensor(batch, 72, 136), tensor(batch, 136, 200, seed=1)]
    operands[side] = LAYOUTS[layout](operands[side])
    kept = [x.clone() for x in operands]
    check(matmul(*operands), *operands)
    assert all(torch.equal(x, y) for x, y in zip(operands, kept, strict=True))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu", "gelu_erf"])
@pytest.mark.parametrize("shape", [(200, 300, 136), (3, 72, 40, 50)], ids=str)
def test_epilogue(shape: tuple[int, ...], activation: str | None) -> None:
    *batch, m, n, k = shape
    a, b = tensor(*batch, m, k), tensor(*batch, k, n, seed=1)
    for options in (
        {"bias": tensor(n, seed=2)},
        {"bias": tensor(n, dtype=torch.float32, seed=2), "alpha": 0.5},
        {"bias": tensor(n + 1, seed=2)[1:], "source": tensor(*batch, m, n, seed=3), "beta": -2.0},
        {"source": tensor(m, 1, seed=3)},
        {"bias": tensor(m, 1, seed=2)},
    ):
        check(
            matmul(a, b, activation=activation, **options), a, b, activation=activation, **options
        )


@pytest.mark.slow
@given(problem("cuda"))
@settings(max_examples=40, deadline=None)
def test_views(operands: Operands) -> None:
    check_views(operands)


OUTS: dict[str, Callable[[int, int], Any]] = {
    "contiguous": lambda m, n: torch.empty(m, n, dtype=BF16, device="cuda"),
    "float32": lambda m, n: torch.empty(m, n, device="cuda"),
    "part of wider rows": lambda m, n: torch.zeros(m, n + 64, dtype=BF16, device="cuda")[:, :n],
    "transposed": lambda m, n: torch.empty(n, m, dtype=BF16, device="cuda").T,
    "every second": lambda m, n: torch.zeros(m, 2 * n, dtype=BF16, device="cuda")[:, ::2],
    "off by one element": lambda m, n: torch.zeros(m * n + 1, dtype=BF16, device="cuda")[1:].view(
        m, n
    ),
}


@pytest.mark.parametrize("kind", OUTS)
def test_out(kind: str) -> None:
    a, b = tensor(100, 200), tensor(200, 120, seed=1)
    out = OUTS[kind](100, 120)
    whole = out._base.clone() if out._base is not None else None
    assert matmul(a, b, out=out) is out
    check(out, a, b)
    if kind == "part of wider rows" and whole is not None:
        assert torch.equal(out._base[:, 120:], whole[:, 120:])


def test_out_may_be_an_operand_and_the_source() -> None:
    a, b, c = tensor(256, 256), tensor(256, 256, seed=1), tensor(256, 256, seed=2)
    kept_a, kept_c = a.clone(), c.clone()
    matmul(a, b, out=a)
    check(a, kept_a, b)
    for _ in range(3):
        c.copy_(kept_c)
        matmul(kept_a, b, out=c, source=c, alpha=0.5)
        check(c, kept_a, b, source=kept_c, alpha=0.5)


@pytest.mark.parametrize(
    "config",
    [
        {"bn": 256, "cluster": 2},
        {"schedule": "pingpong", "bn": 192},
        {"split_k": 2},
        {"k_parts": 3, "cluster": 2},
        {"raster": "rows"},
    ],
    ids=str,
)
def test_settings(config: dict[str, Any]) -> None:
    a, b = tensor(500, 768), tensor(768, 520, seed=1)
    check(matmul(a, b, **config), a, b)


def test_a_call_allocates_its_result_and_nothing_else() -> None:
    a, b = tensor(2048, 512), tensor(512, 2048, seed=1)  # whose K is not divided
    first = matmul(a, b)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        again = matmul(a, b)
        matmul(a, b, out=first)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before + 1
    assert torch.equal(first, again)


def test_plans_keep_no_memory() -> None:
    def use() -> None:
        a, b = tensor(1024, 8 * 1024), tensor(8 * 1024, 1024, seed=1)
        matmul(a, b, bias=tensor(1024), source=tensor(1024, 1024))

    matmul(tensor(8, 8), tensor(8, 8))
    gc.collect()
    before = torch.cuda.memory_allocated()
    use()
    gc.collect()
    assert torch.cuda.memory_allocated() <= before


def test_the_current_stream_is_used() -> None:
    a, b, late = (
        torch.zeros(256, 256, dtype=BF16, device="cuda"),
        tensor(256, 256, seed=1),
        tensor(256, 256),
    )
    matmul(a, b)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # cycles; other processes share the GPU, so a launch may take a while
        torch.cuda._sleep(500_000_000)
        a.copy_(late)
        c = matmul(a, b)
    elsewhere = matmul(a, b)  # on the default stream, which does not wait
    torch.cuda.synchronize()
    check(c, late, b)
    assert torch.equal(elsewhere, torch.zeros_like(elsewhere))


def test_graph_capture() -> None:
    a, b, bias = tensor(300, 200), tensor(200, 136, seed=1), tensor(136, seed=2)
    out = torch.empty(300, 136, dtype=BF16, device="cuda")
    odd = tensor(200, 33, seed=3)  # copied to padded rows, in the graph as well

    def step() -> tuple[Any, Any]:
        matmul(a, b, out=out, bias=bias, activation="relu")
        return matmul(out.T, out), matmul(a, odd)

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        square, thin = step()
    for seed in range(10, 13):
        a.copy_(tensor(300, 200, seed=seed))
        graph.replay()
        torch.cuda.synchronize()
        check(out, a, b, bias=bias, activation="relu")
        check(square, out.T, out)
        check(thin, a, odd)


def test_parts_of_k_on_several_streams_and_in_a_graph_beside_them() -> None:
    a, b = tensor(100, 4096), tensor(4096, 1024, seed=1)
    tiles: dict[str, Any] = {"bm": 64, "bn": 104, "consumers": 1, "swap": "ab", "k_parts": 3}
    first = matmul(a, b, **tiles)
    check(first, a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = [matmul(a, b, **tiles) for _ in range(10)]
    streams = [torch.cuda.Stream() for _ in range(3)]
    for x in captured:
        x.fill_(torch.nan)
    torch.cuda.synchronize()
    eager = []
    for _ in range(10):
        for stream in streams[:2]:
            with torch.cuda.stream(stream):
                eager.append(matmul(a, b, **tiles))
        with torch.cuda.stream(streams[2]):
            graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(x, first) for x in (*eager, *captured))


@pytest.mark.parametrize("shape", [(4100, 1031, 2051), (4096, 1026, 2050)], ids=str)
@pytest.mark.parametrize("transposed", [False, True], ids=["b", "transposed b"])
def test_large_operands_and_results_that_tma_cannot_take(
    shape: tuple[int, int, int], transposed: bool
) -> None:
    m, n, k = shape
    a, b = tensor(m, k), tensor(n, k, seed=1).T if transposed else tensor(k, n, seed=1)
    out = torch.empty(m, n, dtype=torch.float32, device="cuda")
    check(matmul(a, b), a, b)
    check(matmul(a, b, out=out), a, b)  # whose copy is large, too
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        matmul(a, b, out=out)
    a.copy_(tensor(m, k, seed=7))
    graph.replay()
    torch.cuda.synchronize()
    check(out, a, b)


def test_a_shape_that_is_first_seen_while_capturing() -> None:
    a, b = tensor(264, 200), tensor(200, 136, seed=1)
    matmul(tensor(8, 8), tensor(8, 8))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = matmul(a, b)
    graph.replay()
    torch.cuda.synchronize()
    check(c, a, b)


def test_threads_on_streams_of_their_own() -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                a, b = (
                    tensor(128 + 8 * (number % 3), 256, seed=number),
                    tensor(256, 192, seed=number + 50),
                )
                results = [matmul(a, b) for _ in range(50)]
                torch.cuda.current_stream().synchronize()
                check(results[0], a, b)
                assert all(torch.equal(results[0], x) for x in results)
        except BaseException as error:  # reported by the test's thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one device")
def test_tensors_of_another_device_than_the_current() -> None:
    a, b = tensor(200, 100).to("cuda:1"), tensor(100, 120).to("cuda:1")
    c = matmul(a, b)
    assert c.device == a.device
    assert torch.cuda.current_device() == 0
    from tilepipe.ops.torch.tensors import TensorView

    # a kernel of device 0 would do as well, over NVLink, and be slow
    assert view(TensorView(a)).ordinal == 1
    check(c, a, b)
    with pytest.raises(tp.BindError, match="a is on cuda:0 and b on cuda:1"):
        matmul(tensor(200, 100), b)


def test_tensors_on_the_cpu_are_simulated() -> None:
    a, b = tensor(64, 72), tensor(72, 40)
    there, here = matmul(a, b), matmul(a.cpu(), b.cpu())
    assert here.device.type == "cpu"
    torch.testing.assert_close(here, there.cpu(), rtol=1e-2, atol=1e-2)


def test_devices_that_do_not_fit() -> None:
    with pytest.raises(tp.BindError, match="a is on cuda:0 and b on cpu; move one with"):
        matmul(tensor(8, 8), tensor(8, 8).cpu())
    with pytest.raises(tp.BindError, match="float32 would run on tensor cores in tf32"):
        matmul(tensor(8, 8).float(), tensor(8, 8).float())


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu", "gelu_erf"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((60, 160), (160, 88)),
        ((2, 30, 160), (160, 88)),
        ((2, 30, 160), (2, 160, 88)),
        ((30, 160), (2, 160, 88)),
    ],
    ids=str,
)
def test_gradients(left: tuple[int, ...], right: tuple[int, ...], activation: str | None) -> None:
    a, b, bias = leaf(*left), leaf(*right, seed=1), leaf(88, seed=2)
    c = matmul(a, b, bias=bias, activation=activation, out_dtype="float32")
    weights = torch.randn_like(c)
    got = torch.autograd.grad((c * weights).sum(), (a, b, bias))
    exact = [x.detach().double().requires_grad_() for x in (a, b, bias)]
    want = torch.autograd.grad(
        (activated(exact[0] @ exact[1] + exact[2], activation) * weights).sum(), exact
    )
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == BF16
        assert float((mine.double() - theirs).norm() / theirs.norm()) < 1e-2


def test_training() -> None:
    """A layer and its transposed weight, trained side by side with PyTorch's matmul."""
    x, y = tensor(256, 64), tensor(256, 16, seed=1).float()
    losses = []
    for multiply in (matmul, torch.matmul):
        w1, w2 = leaf(128, 64, seed=2), leaf(16, 128, seed=3)
        optimizer = torch.optim.SGD([w1, w2], lr=2e-4)
        history = []
        for _ in range(20):
            loss = ((multiply(torch.relu(multiply(x, w1.T)), w2.T).float() - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        losses.append(history)
    assert losses[0][-1] < 0.9 * losses[0][0]
    assert losses[0] == pytest.approx(losses[1], rel=2e-2)


@pytest.mark.parametrize(
    "shapes",
    [((64, 160), (160, 88)), ((2, 64, 160), (160, 88)), ((2, 64, 160), (2, 160, 88))],
    ids=str,
)
def test_opcheck(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (leaf(*shape, seed=i) for i, shape in enumerate(shapes))
    from tilepipe.ops.matmul import gpu as torch_op

    torch.library.opcheck(torch_op.operator, (a, b))
    epilogue = {
        "bias": tensor(88),
        "source": torch.ones((a @ b).shape, device="cuda"),
        "out_dtype": torch.float32,
        "alpha": 0.5,
    }
    torch.library.opcheck(torch_op.operator, (a, b), epilogue)
    torch.library.opcheck(
        torch_op.operator, (a.detach(), b.detach()), epilogue | {"activation": "gelu", "beta": 2.0}
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(mode: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    bias = tensor(88, seed=2)
    compiled = torch.compile(
        lambda a, b: matmul(a, b, bias=bias, activation="silu") * 2,
        fullgraph=True,
        mode=mode,
        dynamic=dynamic,
    )
    for rows in (64, 72):
        a, b = tensor(2, rows, 160), tensor(160, 88, seed=1)
        for _ in range(3):
            check(compiled(a, b) / 2, a, b, bias=bias, activation="silu")


@pytest.mark.slow
def test_compiled_training() -> None:
    torch._dynamo.reset()
    a, b = leaf(96, 160), leaf(88, 160, seed=1)
    step = torch.compile(
        lambda a, b: (matmul(a, b.T, activation="gelu").float() ** 2).mean(), fullgraph=True
    )
    got = torch.autograd.grad(step(a, b), (a, b))
    exact = [x.detach().double().requires_grad_() for x in (a, b)]
    want = torch.autograd.grad((activated(exact[0] @ exact[1].T, "gelu") ** 2).mean(), exact)
    for mine, theirs in zip(got, want, strict=True):
        assert float((mine.double() - theirs).norm() / theirs.norm()) < 2e-2


def test_autocast() -> None:
    a, b = leaf(64, 160, dtype=torch.float32), leaf(160, 88, dtype=torch.float32, seed=1)
    with torch.autocast("cuda", dtype=BF16):
        c = matmul(a, b)
    assert c.dtype == BF16
    check(c.detach(), a.detach().to(BF16), b.detach().to(BF16))
    c.float().sum().backward()
    assert a.grad.dtype == torch.float32


def test_what_the_page_shows_runs_on_the_gpu(tmp_path: Path) -> None:
    page = run(
        "\n".join(blocks(ROOT / "docs" / "reference" / "ops.md", "python")),
        tmp_path / "ops_page.py",
    )
    x, w1, b1, w2 = (
        tensor(64, 96),
        tensor(256, 96, seed=1),
        tensor(256, seed=2),
        tensor(96, 256, seed=3),
    )
    got = page["mlp"](x, w1, b1, w2)
    hidden = activated(x.double() @ w1.T.double() + b1.double(), "gelu").to(BF16).double()
    want = hidden @ w2.T.double()
    assert float((got.double() - want).norm() / want.norm()) < 1e-2
