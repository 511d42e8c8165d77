"""Host time of one call of ops.matmul on CUDA tensors, beside PyTorch's own.

python benchmarks/matmul_overhead.py [--calls N] [--rounds N]

The matrices are small, so that the GPU keeps up and a call's time is the host's. Each round queues
`--calls` calls and then waits for the GPU, outside of the time; the median and the best round are
shown.
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
"""Microseconds that a plain eager call may take."""

SIZE = 128


def seconds(
    call: Callable[[], Any], calls: int, rounds: int, wait: Callable[[], None]
) -> list[float]:
    """Host seconds of one call, for each round; a first round is not counted."""
    found = []
    for _ in range(rounds + 1):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - start) / calls)
    wait()
    return found[1:]


def cases(torch: Any) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
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
        "bound launch": (lambda: launcher(places, 0), lambda: None),
    }


def main() -> int:
    """Measures and prints the table; 1 if the plain call takes longer than the limit, 2 where there
    is no GPU.
    """
    parser = argparse.ArgumentParser(description="host time of ops.matmul")
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
    table = Table(
        title=(
            f"host time of a call, µs: median (best) of {options.rounds} rounds of {options.calls};"
            f" {versions}"
        )
    )
    for column in ("call", "tilepipe", "PyTorch"):
        table.add_column(column, justify="left" if column == "call" else "right")
    plain = 0.0
    for name, sides in cases(torch).items():
        times = [
            [s * 1e6 for s in seconds(side, options.calls, options.rounds, torch.cuda.synchronize)]
            for side in sides
        ]
        shown = [f"{statistics.median(found):.1f} ({min(found):.1f})" for found in times]
        table.add_row(name, shown[0], "" if name == "bound launch" else shown[1])
        plain = plain or statistics.median(times[0])
    Console(width=120).print(table)
    if plain > LIMIT:
        print(f"matmul(a, b) takes {plain:.1f} µs; at most {LIMIT:.0f} are wanted")
    return 1 if plain > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
