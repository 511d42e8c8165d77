"""On the GPU: what `tilepipe tune` finds is right and is used by the operations, of each kernel."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilepipe as tp
from tests.gpu.test_cli_gpu import as_json, tilepipe
from tilepipe.kernels.common import tuned
from tilepipe.registry.catalog import KERNELS

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

Given = dict[str, Any]
M, N, K = 512, 384, 256
MNK = {"m": M, "n": N, "k": K}
HEADS = {"batch": 2, "heads": 8, "kv_heads": 8, "d": 128}


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tuned.json"
    monkeypatch.setenv("TILEPIPE_TUNED", str(path))
    return path


@pytest.mark.parametrize(
    ("kernel", "given"),
    [
        ("rms_norm", {"m": 600, "n": 1000}),
        ("attention", HEADS | {"s_q": 700, "s_kv": 700, "causal": True}),
        ("gemm_grouped", MNK | {"experts": 4}),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_tune_remembers_what_it_measured(kernel: str, given: Given, file: Path) -> None:
    settings = [word for name, x in given.items() for word in ("-s", f"{name}={x}")]
    report = as_json("tune", kernel, *settings, "--limit", "6")
    assert report["kernel"] == kernel
    assert (report["wrong"], report["refused"]) == ([], [])
    assert report["screened"] > 1
    best = report["trials"][0]
    assert best["us"]["burst"] == min(x["us"]["burst"] for x in report["trials"])
    (picked,) = (x for x in report["trials"] if x["rank"] == 1)
    assert best["gain"] == pytest.approx(picked["us"]["burst"] / best["us"]["burst"])
    ((name, entry),) = json.loads(file.read_text()).items()
    assert f": {kernel} " in name
    assert entry["config"] == best["config"]
    assert kernel in tilepipe("tune", "--list")
    ran = as_json("run", kernel, "--device", "cuda", *settings)
    assert {k: ran["config"][k] for k in best["config"]} == best["config"]
    assert ran["ok"]
    assert "tuned for the shape" in tilepipe("run", kernel, "--device", "cuda", *settings)
    if kernel == "attention":
        few = ["--config", "tuned", "--repeats", "2", "--regime", "burst"]
        (line,) = as_json("bench", kernel, *settings, *few)["results"]
        assert {k: line["problem"][k] for k in best["config"]} == best["config"]
    assert "forgot 1 entry" in tilepipe("tune", kernel, "--forget")


def half(*shape: int) -> Any:
    made = torch.randn(shape, generator=torch.Generator("cuda").manual_seed(7), device="cuda")
    return made.to(torch.bfloat16)


def eight(*shape: int) -> Any:
    return half(*shape).to(torch.float8_e4m3fn)


def offsets(total: int) -> Any:
    ends = [total // 4, total // 2, total // 2, total]
    return torch.tensor(ends, dtype=torch.int32, device="cuda")


def gated() -> Any:
    return tp.ops.gated_matmul(half(M, K), half(N, K).t(), half(N, K).t())


def blockwise() -> Any:
    scale_a, scale_b = torch.rand(M, 2, device="cuda"), torch.rand(2, 3, device="cuda")
    return tp.ops.scaled_matmul(eight(M, K), eight(N, K).t(), scale_a, scale_b)


def by_rows() -> Any:
    scale_a, scale_b = torch.rand(M, 1, device="cuda"), torch.rand(1, N, device="cuda")
    return tp.ops.scaled_matmul(eight(M, K), eight(N, K).t(), scale_a, scale_b)


def grouped() -> Any:
    return tp.ops.grouped_matmul(half(M, K), half(4, N, K).transpose(1, 2), offsets(M))


def k_grouped() -> Any:
    return tp.ops.grouped_matmul(half(K, M).t(), half(K, N), offsets(K))


def quantised() -> Any:
    weights = torch.randint(-8, 8, (N, K), dtype=torch.int8)
    words = tp.ops.prepare_weights(weights).cuda()
    scales = torch.rand(K // 128, N, device="cuda")
    return tp.ops.quantised_matmul(half(M, K), words, scales)


def attention() -> Any:
    q, k, v = (half(2, 700, 8, 128) for _ in range(3))
    return tp.ops.attention(q, k, v, causal=True)


def backward() -> Any:
    q, k, v = (half(2, 700, 8, 128).requires_grad_() for _ in range(3))
    tp.ops.attention(q, k, v, causal=True).sum().backward()
    return q.grad


def decode() -> Any:
    return tp.ops.attention_decode(half(2, 1, 8, 128), half(2, 512, 8, 128), half(2, 512, 8, 128))


def of_rows(function: Callable[..., Any], gradient: bool, *names: str) -> Callable[[], Any]:
    def call() -> Any:
        x = half(600, 1024).requires_grad_(gradient)
        rest: dict[str, Any] = {name: half(1024).requires_grad_(gradient) for name in names}
        y = function(x, **rest)
        if not gradient:
            return y
        (y.float() * torch.arange(600, device="cuda")[:, None]).sum().backward()
        return x.grad

    return call


def entropy(x: Any) -> Any:
    loss, _ = tp.ops.cross_entropy(x, torch.arange(600, device="cuda"))
    return loss[:, None]


ROWS = {"m": 600, "n": 1024}
SAME = HEADS | {"s_q": 700, "s_kv": 700, "causal": True}
CALLS: dict[str, tuple[str, str, Given, Callable[[], Any]]] = {
    # the operation: kernel, module whose bind is given the configuration, problem, call
    "gated": ("gemm_gated", "gemm_gated.sm90", MNK, gated),
    "rows of fp8": ("gemm", "gemm.sm90", MNK | {"dtype": "float8_e4m3"}, by_rows),
    "blockwise": ("gemm_blockwise", "gemm_blockwise.sm90", MNK, blockwise),
    "grouped": (
        "gemm_grouped", "gemm_grouped.sm90", MNK | {"experts": 4, "b_order": "row"}, grouped,
    ),
    "k grouped": ("gemm_k_grouped", "gemm_k_grouped.sm90", MNK | {"experts": 4}, k_grouped),
    "quantised": ("gemm_quantised", "gemm_quantised.sm90", MNK, quantised),
    "attention": ("attention", "attention.sm90_bind", SAME, attention),
    "gradients": ("attention_backward", "attention_backward.sm90_bind", SAME, backward),
    "decode": (
        "attention_decode", "attention_decode.sm90", HEADS | {"s": 512}, decode,
    ),
    "rms_norm": ("rms_norm", "rms_norm.sm90", ROWS, of_rows(tp.ops.rms_norm, False, "weight")),
    "layer_norm": ("layer_norm", "layer_norm.sm90", ROWS, of_rows(tp.ops.layer_norm, False)),
    "softmax": ("softmax", "softmax.sm90", ROWS, of_rows(tp.ops.softmax, False)),
    "entropy": ("cross_entropy", "cross_entropy.sm90", ROWS, of_rows(entropy, False)),
    "rms_norm'": (
        "rms_norm", "rms_norm.sm90", ROWS | {"backward": True},
        of_rows(tp.ops.rms_norm, True, "weight"),
    ),
    "softmax'": (
        "softmax", "softmax.sm90", ROWS | {"backward": True}, of_rows(tp.ops.softmax, True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("operation", CALLS)
def test_an_operation_uses_what_is_remembered(
    operation: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilepipe.cli.measure import product
    from tilepipe.cuda.runtime import driver
    from tilepipe.registry.catalog import GemmSpec

    kernel, module, given, call = CALLS[operation]
    spec, chip = KERNELS[kernel], driver.chip(0)
    tuning = spec.tuning
    assert tuning is not None
    settings = spec.settings | given
    problem = product(spec, given) if isinstance(spec, GemmSpec) else tuning.problem(settings)
    other = tuning.tunable.candidates(problem, chip)[1]
    tuned.remember(tuning.tunable, problem, chip, other, {})
    seen: list[Any] = []
    of_kernel = importlib.import_module(f"tilepipe.kernels.{module}")
    for name in ("bind", "bind_backward"):
        if bind := getattr(of_kernel, name, None):

            def spied(*args: Any, _bind: Any = bind, **named: Any) -> Any:
                found = (x for x in (*args, *named.values()) if isinstance(x, type(other)))
                seen.extend(found)
                return _bind(*args, **named)

            monkeypatch.setattr(of_kernel, name, spied)
    torch.manual_seed(3)
    got = call()
    torch.cuda.synchronize()
    assert other in [x.changed(**_computed(tuning.tunable, other)) for x in seen]
    file.unlink()
    forget_plans()
    torch.manual_seed(3)
    want = call()
    error = (got.float() - want.float()).norm() / want.float().norm()
    assert float(error) < 1e-2


def _computed(tunable: Any, other: Any) -> dict[str, Any]:
    """The settings that the call decides."""
    return {name: getattr(other, name) for name in tunable.computes if name in other.names()}


def forget_plans() -> None:
    """Has the next call of each operation choose anew."""
    from tilepipe.ops.rows import launches as rows
    from tilepipe.ops.torch import launches

    launches._launchers.clear()
    rows.partial_sums.cache_clear()
    named = "gated", "scaled", "grouped", "quantised", "attention", "attention_decode", "rms_norm"
    for name in named:
        importlib.import_module(f"tilepipe.ops.{name}.gpu").plans.forget()
