"""Host time of one call of ops.matmul, and of the operations of attention, on CUDA tensors, beside
PyTorch's own.

python benchmarks/host_time.py [--calls N] [--rounds N]

Tensors are small, so that the GPU keeps up and a call's time is the host's. Each round queues
`--calls` calls and then waits for the GPU, outside of the time; all calls take turns, and the
median and the best round are shown.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

LIMIT = 25.0
"""Microseconds that a plain eager product may take."""

SIZE = 128
Call = Callable[[], Any]
Sides = tuple[Call | None, Call | None]  # None: there is no such call


def microseconds(call: Call, calls: int) -> float:
    """Host time of one of so many calls."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls * 1e6


def products(torch: Any) -> dict[str, Sides]:
    """Name -> a call of tilepipe, and the same of PyTorch."""
    from tilepipe import ops
    from tilepipe.ops.matmul.plan import plans

    def random(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    a, b, bias = random(SIZE, SIZE), random(SIZE, SIZE), random(SIZE)
    out, batch, odd = torch.empty_like(a), random(4, SIZE, SIZE), random(SIZE, SIZE - 1)
    weight = random(SIZE, SIZE).requires_grad_()
    linear = torch.nn.functional.linear
    ops.matmul(a, b)
    plan = next(iter(plans.plans.values()))
    assert plan.launcher is not None
    launcher = plan.launcher
    places = tuple(x.data_ptr() for x in plan.pick((a, b, None, None, out)))
    return {
        "matmul(a, b)": (lambda: ops.matmul(a, b), lambda: torch.matmul(a, b)),
        "matmul(a, b, out=)": (
            lambda: ops.matmul(a, b, out=out),
            lambda: torch.matmul(a, b, out=out),
        ),
        "bias": (lambda: ops.matmul(a, b.T, bias=bias), lambda: linear(a, b, bias)),
        "bias, then gelu": (
            lambda: ops.matmul(a, b.T, bias=bias, activation="gelu"),
            lambda: torch.nn.functional.gelu(linear(a, b, bias), approximate="tanh"),
        ),
        "batch of 4": (lambda: ops.matmul(batch, batch), lambda: torch.matmul(batch, batch)),
        "odd columns, two copies": (lambda: ops.matmul(a, odd), lambda: torch.matmul(a, odd)),
        "with a gradient to come": (lambda: ops.matmul(a, weight), lambda: torch.matmul(a, weight)),
        "bound launch": (lambda: launcher(places, 0), None),
    }


def attentions(torch: Any) -> dict[str, Sides]:
    """As `products`: one causal attention of 128 tokens and two heads, a step of decoding of four
    sequences, and beside autograd's passes those of a function that computes nothing.
    """
    from tilepipe import ops

    # cuDNN's alone; the context manager that says so would cost each call more than the call
    for other in ("flash", "mem_efficient", "math"):
        getattr(torch.backends.cuda, f"enable_{other}_sdp")(False)
    sdpa, grad = torch.nn.functional.scaled_dot_product_attention, torch.autograd.grad

    def random(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    class Nothing(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
            ctx.save_for_backward(q, k, v)
            return torch.empty_like(q)

        @staticmethod
        def backward(ctx: Any, dout: Any) -> Any:
            return tuple(map(torch.empty_like, ctx.saved_tensors))

    q, k, v, dout = (random(1, SIZE, 2, SIZE) for _ in range(4))
    ours = [x.clone().requires_grad_() for x in (q, k, v)]
    theirs = [x.transpose(1, 2).clone().requires_grad_() for x in (q, k, v)]
    out, lse = ops.attention(q, k, v, causal=True, return_lse=True)
    turned = [x.detach() for x in theirs]
    of_theirs = dout.transpose(1, 2).contiguous()
    k_cache, v_cache = random(4, 1024, 2, SIZE), random(4, 1024, 2, SIZE)
    one, new_k, new_v = random(4, 1, 8, SIZE), random(4, 1, 2, SIZE), random(4, 1, 2, SIZE)
    lengths = torch.full((4,), 200, dtype=torch.int32, device="cuda")

    def causal(x: list[Any]) -> Any:
        return sdpa(*x, is_causal=True)

    def copied() -> None:
        k_cache[:, 199:200].copy_(new_k)
        v_cache[:, 199:200].copy_(new_v)

    recorded, kept = ops.attention(*ours, causal=True), causal(theirs)
    return {
        "attention": (lambda: ops.attention(q, k, v, causal=True), lambda: causal(turned)),
        "attention_backward": (
            lambda: ops.attention_backward(dout, q, k, v, out, lse, causal=True),
            None,
        ),
        "backward, by autograd": (
            lambda: grad(recorded, ours, dout, retain_graph=True),
            lambda: grad(kept, theirs, of_theirs, retain_graph=True),
        ),
        "forward and backward, by autograd": (
            lambda: grad(ops.attention(*ours, causal=True), ours, dout),
            lambda: grad(causal(theirs), theirs, of_theirs),
        ),
        "the same of a function of Python that computes nothing": (
            None,
            lambda: grad(Nothing.apply(*ours), ours, dout),
        ),
        "attention_decode": (
            lambda: ops.attention_decode(one, k_cache, v_cache, cache_seqlens=lengths),
            None,
        ),
        "append_kv, two copies to slices": (
            lambda: ops.append_kv(k_cache, v_cache, new_k, new_v, lengths),
            copied,
        ),
    }


def main() -> int:
    """Measures and prints the table; 1 if the plain call takes longer than the limit, 2 where there
    is no GPU.
    """
    parser = argparse.ArgumentParser(description="host time of operations")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    if min(options.calls, options.rounds) < 1:
        parser.error("--calls and --rounds must be at least 1")
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        print("needs PyTorch and a Hopper GPU", file=sys.stderr)
        return 2
    python = f"Python {platform.python_version()}"
    versions = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {python}"
    found = products(torch) | attentions(torch)
    times: dict[tuple[str, int], list[float]] = {}
    for turn in range(options.rounds + 1):  # of which the first is not counted
        for name, sides in found.items():
            for side, call in enumerate(sides):
                if call is not None:
                    torch.cuda.synchronize()
                    here = microseconds(call, options.calls)
                    times.setdefault((name, side), []).extend([here] if turn else [])
    torch.cuda.synchronize()
    table = Table(
        title=(
            f"host time of a call, µs: median (best) of {options.rounds} rounds of {options.calls};"
            f" {versions}"
        )
    )
    for column in ("call", "tilepipe", "PyTorch"):
        table.add_column(column, justify="left" if column == "call" else "right")
    for name in found:
        shown = [
            f"{statistics.median(x):.1f} ({min(x):.1f})" if (x := times.get((name, side))) else ""
            for side in range(2)
        ]
        table.add_row(name, *shown)
    plain = statistics.median(times[next(iter(found)), 0])
    Console(width=120).print(table)
    if plain > LIMIT:
        print(f"matmul(a, b) takes {plain:.1f} µs; at most {LIMIT:.0f} are wanted")
    return 1 if plain > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
