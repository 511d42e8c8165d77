"""Tensors of PyTorch on the GPU: in place, streams, threads, CUDA graphs, devices, wrong
arguments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.gpu.small import numbers, step, stepped, transposed
from tests.gpu.tensors import N, pair
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks that start up
]


def test_tensors_are_used_in_place() -> None:
    x, a, b = pair()
    address = b.data_ptr()
    step.bind(a, b).launch()
    np.testing.assert_array_equal(b.cpu().numpy(), stepped(x))
    np.testing.assert_array_equal(a.cpu().numpy(), x)
    assert b.data_ptr() == address


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_a_gemm_of_tensors(orders: str) -> None:
    a, b = (torch.randn(512, 768, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    if orders[0] == "F":
        a = a.t().contiguous().t()
    if orders[1] == "F":
        b = b.t().contiguous().t()
    wide = torch.zeros(512, 1024, device="cuda", dtype=torch.bfloat16)
    c = wide[:, 256:768]  # a view: rows are apart
    gemm.bind(a, b, c, GemmConfig(cluster=2)).launch()
    torch.testing.assert_close(c.float(), a.float() @ b.float().t(), rtol=2e-2, atol=0.3)
    assert wide[:, :256].abs().max() == wide[:, 768:].abs().max() == 0


def test_a_chain_of_launches_and_torch_ops_runs_in_order() -> None:
    """Launches that overlap with the one before them still see all that it wrote."""
    x, a, b = pair()
    forward, back = step.bind(a, b, early=True), step.bind(b, a, early=True)
    want = x.astype(np.int64)
    for i in range(300):
        forward.launch()
        back.launch()
        want = stepped(want, 2)
        if i % 7 == 0:
            a.add_(3)
            want = want + 3
    np.testing.assert_array_equal(a.cpu().numpy(), want)


@pytest.mark.parametrize(
    "settings",
    [{}, {"split_k": 2}, {"schedule": "pingpong", "consumers": 2}],
    ids=str,
)
def test_a_chain_of_products_runs_in_order(settings: dict[str, Any]) -> None:
    """Most SMs are idle, so that the next product's CTAs are there before one ends; its A and its
    bias are what this one writes.
    """
    n = 512
    w = torch.linalg.qr(torch.randn(n, n, device="cuda"))[0].bfloat16()
    x, y = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    cfg = GemmConfig(**{"bm": 64, "bn": 64, "consumers": 1, **settings})
    programs = gemm.bind(x, w, y, cfg, bias=x[0]), gemm.bind(y, w, x, cfg, bias=y[0])
    start, results = x.clone(), []
    for wait in (True, False):
        x.copy_(start)
        for i in range(40):
            programs[i % 2].launch()
            if wait:
                torch.cuda.synchronize()
        results.append(x.clone())
    assert torch.equal(*results)
    assert results[0].isfinite().all()


def test_the_current_stream_is_used() -> None:
    x, a, b = pair()
    program = step.bind(a, b)
    stream = torch.cuda.Stream()
    for i in range(20):
        with torch.cuda.stream(stream):
            b.zero_()
            torch.cuda._sleep(2_000_000)
            a.copy_(torch.from_numpy((x + i) % 1000), non_blocking=False)
            program.launch()
            out = b.clone()
        stream.synchronize()
        np.testing.assert_array_equal(out.cpu().numpy(), stepped((x + i) % 1000))


def streams() -> dict[str, Callable[[Any], Any]]:
    return {
        "torch": lambda s: s,
        "integer": lambda s: s.cuda_stream,
        "cupy": cupy_stream,
        "cuda.core": core_stream,
    }


def cupy_stream(stream: Any) -> Any:
    return pytest.importorskip("cupy").cuda.ExternalStream(stream.cuda_stream)


def core_stream(stream: Any) -> Any:
    core = pytest.importorskip("cuda.core")
    return core.Stream.from_handle(stream.cuda_stream)


@pytest.mark.parametrize("kind", streams())
def test_a_stream_that_is_named(kind: str) -> None:
    x, a, b = pair()
    stream = torch.cuda.Stream()
    program = step.bind(a, b)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        a.add_(1)
    program.launch(streams()[kind](stream))  # the current stream is another one
    stream.synchronize()
    np.testing.assert_array_equal(b.cpu().numpy(), stepped(x + 1))


def test_numpy_arguments_have_arrived_when_a_stream_of_its_own_starts() -> None:
    x, stream = numbers(8_000_000), torch.cuda.Stream()
    y = np.zeros_like(x)
    program = step.bind(x, y)
    for i in range(10):
        x[...] = numbers(8_000_000, i)
        program.launch(stream)
        np.testing.assert_array_equal(y, stepped(x.astype(np.int64)))


def test_threads_with_streams_of_their_own() -> None:
    """Eight threads launch the same kernels, which none has launched before; each sees its own
    results.
    """
    start, failures = threading.Barrier(8), []

    def work(number: int) -> None:
        try:
            x, a, b = pair(number, 5000)
            stream = torch.cuda.Stream()
            torch.cuda.synchronize()
            start.wait(30)
            with torch.cuda.stream(stream):
                for i in range(50):
                    step.bind(a, b, variant=100 + i % 5).launch()
                    step.bind(b, a, variant=100 + i % 5).launch()
                out = a.clone()
            stream.synchronize()
            want = x.astype(np.int64)
            for i in range(50):
                want = stepped(want, 2, 100 + i % 5)
            np.testing.assert_array_equal(out.cpu().numpy(), want)
        except BaseException as error:
            failures.append((number, error))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)


def test_threads_share_a_launcher() -> None:
    x, a, b = pair(0, 5000)
    launcher, failures = step.bind(a, b).launcher(), []
    torch.cuda.synchronize()

    def work(number: int) -> None:
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                source = a + number
                for _ in range(100):
                    out = torch.empty_like(b)
                    launcher((source.data_ptr(), out.data_ptr()), stream.cuda_stream)
            stream.synchronize()
            np.testing.assert_array_equal(out.cpu().numpy(), stepped(x + number))
        except BaseException as error:
            failures.append((number, error))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []


def test_a_launcher_takes_more_addresses_than_it_remembers() -> None:
    many = [torch.randn(64, 32, device="cuda") for _ in range(600)]
    out = torch.zeros(32, 64, device="cuda")
    launcher = transposed.bind(tp.tensor_map(many[0], box=(64, 32)), out).launcher()
    assert launcher.tensors == ("a", "out")
    for x in (*many, *many[:10]):
        launcher((x.data_ptr(), out.data_ptr()), torch.cuda.current_stream().cuda_stream)
        assert torch.equal(out, x.t())


def test_freed_and_allocated_again() -> None:
    """Tensors of other shapes at the addresses of freed ones."""
    rng, seen = np.random.default_rng(0), set()
    for _ in range(60):
        m, n = (int(8 * rng.integers(1, 40)) for _ in range(2))
        a = torch.randn(m, n, device="cuda")
        out = torch.full((n, m), float("nan"), device="cuda")
        transposed.bind(tp.tensor_map(a, box=(64, 32)), out).launch()
        assert torch.equal(out, a.t())
        seen.add(a.data_ptr())
        del a, out
    assert len(seen) < 60, "the allocator gave an address twice, or this tests nothing"


@pytest.mark.parametrize(
    "options", [{"debug": True}, {"perturb": 4}, {"debug": True, "perturb": 5}], ids=str
)
def test_builds_on_a_stream(options: dict[str, Any]) -> None:
    x, a, b = pair()
    stream = torch.cuda.Stream()
    program = step.bind(a, b)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        a.add_(1)
        program.launch(**options)
        out = b.clone()
    stream.synchronize()
    np.testing.assert_array_equal(out.cpu().numpy(), stepped(x + 1))


# -- CUDA graphs -----------------------------------------------------------------------


def test_a_graph_is_replayed_with_other_inputs() -> None:
    _, a, b = pair()
    forward, back = step.bind(a, b), step.bind(b, a, early=True)
    forward.launch()
    back.launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            forward.launch()
            back.launch()
        a.add_(1)
    for seed in range(5):
        x = numbers(N, seed)
        a.copy_(torch.from_numpy(x))
        graph.replay()
        graph.replay()
        want = x.astype(np.int64)
        for _ in range(2):
            want = stepped(want, 6) + 1
        np.testing.assert_array_equal(a.cpu().numpy(), want)


def test_a_gemm_in_a_graph() -> None:
    a, b = (torch.randn(512, 512, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.zeros(512, 512, device="cuda", dtype=torch.bfloat16)
    program = gemm.bind(a, b, c, GemmConfig(cluster=2, bn=256))
    program.launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program.launch()
    for _ in range(4):
        a.normal_()
        b.normal_()
        graph.replay()
        torch.testing.assert_close(c.float(), a.float() @ b.float().t(), rtol=2e-2, atol=0.3)


# -- devices ---------------------------------------------------------------------------


def test_two_devices() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs 2 GPUs, this machine has {torch.cuda.device_count()}")
    x = numbers(N)
    for device in (1, 0, 1):
        a, b = (
            torch.from_numpy(x).to(f"cuda:{device}"),
            torch.zeros(N, dtype=torch.int32, device=f"cuda:{device}"),
        )
        step.bind(a, b).launch()
        np.testing.assert_array_equal(b.cpu().numpy(), stepped(x))
        assert torch.cuda.current_device() == 0
    with pytest.raises(tp.BindError, match="the arrays are on devices 0, 1; a launch is on one"):
        step.bind(a, torch.zeros(N, dtype=torch.int32, device="cuda:0")).launch()


# -- wrong arguments -------------------------------------------------------------------


def test_arrays_here_and_there() -> None:
    x, a, _ = pair()
    for other in (np.zeros(N, np.int32), torch.zeros(N, dtype=torch.int32)):
        with pytest.raises(tp.BindError, match=r"is in the memory of a GPU and .* in the host's"):
            step.bind(a, other)
    out = torch.zeros(N, dtype=torch.int32)
    step.bind(torch.from_numpy(x), out).launch()  # copied there and back
    np.testing.assert_array_equal(out.numpy(), stepped(x))
    step.bind(*pair()[1:]).launch()


def test_addresses_that_tma_cannot_take() -> None:
    base = torch.zeros(64 * 32 + 1, device="cuda")
    out = torch.zeros(32, 64, device="cuda")
    with pytest.raises(tp.BindError, match="multiple of 16 bytes"):
        transposed.bind(tp.tensor_map(base[1:].view(64, 32), box=(64, 32)), out)
    launcher = transposed.bind(tp.tensor_map(base[:-1].view(64, 32), box=(64, 32)), out).launcher()
    with pytest.raises(
        tp.BindError, match=r"tensor 'a' starts at 0x[0-9a-f]+; TMA needs a multiple of 16 bytes"
    ):
        launcher((base.data_ptr() + 4, out.data_ptr()))
    step.bind(*pair()[1:]).launch()
