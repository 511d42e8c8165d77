"""What a launch costs the host, and how long the first one of a process takes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from tilepipe import ops
from tilepipe.bench.report import Table, limit_text
from tilepipe.errors import LaunchError
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.heuristics import Problem, best

BOUND_LIMIT_US, MATMUL_LIMIT_US, COLD_LIMIT_S = 10.0, 25.0, 0.7
CALLS, BATCHES = 100, 30  # fewer calls than a stream queues
COLD_STEPS = ("import", "trace", "print", "compile")

# Runs in a fresh interpreter; nothing is taken from the disk cache.
_COLD = """
import os, sys, time
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
marks = [time.perf_counter()]
import tilepipe
from tilepipe import cuda
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.heuristics import Problem, best
marks.append(time.perf_counter())
import ml_dtypes, numpy
a, b, c = (numpy.empty((4096, 4096), ml_dtypes.bfloat16) for _ in range(3))
program = gemm.bind(a, b, c, best(Problem(4096, 4096, 4096)))
marks.append(time.perf_counter())
program.source()
marks.append(time.perf_counter())
program.compile()
marks.append(time.perf_counter())
print([y - x for x, y in zip(marks, marks[1:])])
"""


def host_us(call: Callable[[], object], wait: Callable[[], object]) -> float:
    """Microseconds of the host for a call that queues work: the median over batches; `wait` waits
    for the work.
    """
    for _ in range(20):
        call()
    times = []
    for _ in range(BATCHES):
        wait()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - start) / CALLS * 1e6)
    wait()
    return statistics.median(times)


def overhead() -> dict[str, float]:
    """Microseconds of the host: name -> median. The product is so small that the GPU never holds
    the host up.
    """
    import torch

    size = 128
    a, b = (torch.randn(size, size, device="cuda").bfloat16() for _ in range(2))
    c = torch.empty_like(a)
    program = gemm.bind(a, b.t(), c, best(Problem(size, size, size, b_order="col")))
    launcher = program.launcher()
    addresses = tuple({"a": a, "b": b, "c": c}[name].data_ptr() for name in launcher.tensors)
    stream = torch.cuda.current_stream().cuda_stream
    calls: dict[str, Callable[[], object]] = {
        "program.launch()": program.launch,
        "launcher(addresses, stream)": lambda: launcher(addresses, stream),
        "ops.matmul(a, b)": lambda: ops.matmul(a, b),
        "ops.matmul(a, b, out=c)": lambda: ops.matmul(a, b, out=c),
        "torch.matmul(a, b)": lambda: torch.matmul(a, b),
        "torch.matmul(a, b, out=c)": lambda: torch.matmul(a, b, out=c),
    }
    return {name: host_us(call, torch.cuda.synchronize) for name, call in calls.items()}


def overhead_table(us: Mapping[str, float]) -> Table:
    """Beside what is aimed at."""
    limits = {"program.launch()": BOUND_LIMIT_US, "ops.matmul(a, b)": MATMUL_LIMIT_US}
    rows = tuple(
        (name, f"{value:.1f}", limit_text(value, limits.get(name))) for name, value in us.items()
    )
    note = f"128×128×128 bfloat16; median of {BATCHES} batches of {CALLS} calls"
    return Table("host time of a launch", ("call", "µs", "aim"), rows, (note,))


def cold_start(runs: int = 5) -> dict[str, float]:
    """Seconds from a fresh interpreter to a cubin, on two processors: step -> median; needs no GPU.

    Raises:
        LaunchError: the process failed.
    """
    times = []
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, "-c", _COLD],
            env=os.environ | {"TILEPIPE_CACHE_DIR": "off"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise LaunchError(
                f"the cold start failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}"
            )
        times.append(json.loads(done.stdout))
    return {
        name: statistics.median(column)
        for name, column in zip(COLD_STEPS, zip(*times, strict=True), strict=True)
    }


def cold_table(seconds: Mapping[str, float]) -> Table:
    """The steps, and those after the import together, beside what is aimed at."""
    built = sum(value for name, value in seconds.items() if name != "import")
    rows = [(name, f"{value * 1e3:.0f}", "") for name, value in seconds.items()]
    rows.append(
        (
            "trace + print + compile",
            f"{built * 1e3:.0f}",
            limit_text(built * 1e3, COLD_LIMIT_S * 1e3),
        )
    )
    note = (
        "the configuration chosen for 4096×4096×4096, a fresh process on two processors, no disk"
        " cache; medians"
    )
    return Table("cold start", ("step", "ms", "aim"), tuple(rows), (note,))
