"""The stream-K GEMM beside the one that the heuristics choose, and torch.matmul, in one run.

    PYTHONPATH=src python benchmarks/gemm_stream_k.py [--shapes M,N,K ...] [--configs "bn=256" ...]

The shapes have a few tiles more than an H200 has SMs, or far fewer. All kernels are screened in a
few bursts; the fastest are timed again, in bursts and in steady state. Every result is compared
with a float64 product, and must have the same bits in a second launch. Needs a Hopper GPU and
PyTorch.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

import tilepipe as tp
from screening import measured, settings_of
from tilepipe.bench import timing
from tilepipe.errors import TilepipeError
from tilepipe.kernels.gemm import heuristics, sm90, stream_k
from tilepipe.kernels.gemm.config import StreamKConfig
from tilepipe.kernels.gemm.k_parts import workspace_shapes

SHAPES = (
    "1536,1536,8192",
    "2304,1792,4096",
    "2048,2304,8192",
    "3072,2944,4096",
    "4096,4352,4096",
    "128,4096,14336",
    "512,512,32768",
)
CONFIGS = (
    "bn=128 stages=6",
    "bn=256 stages=4",
    "bn=192 stages=5",
    "bn=256 stages=4 group=4",
    "bm=256 bn=128 stages=4",
    "bm=64 bn=256 consumers=1 stages=5",
)
FINALISTS = 3


class Operands:
    """As many sets of A, B, C and a workspace as keep the L2 cache cold."""

    def __init__(self, m: int, n: int, k: int) -> None:
        self.sets = timing.sets_for(2 * (m * k + n * k + m * n))
        made = torch.Generator("cuda").manual_seed(m + n + k)

        def normal(rows: int, columns: int) -> torch.Tensor:
            out = torch.randn(rows, columns, generator=made, device="cuda")
            return out.to(torch.bfloat16)

        self.a = [normal(m, k) for _ in range(self.sets)]
        self.b = [normal(n, k) for _ in range(self.sets)]
        self.c = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in range(self.sets)]
        self.exact = (self.a[0].double() @ self.b[0].double().T).float()

    def launch(self, programs: list[tp.Program]) -> Callable[[int], None]:
        """Launches the program of each set."""
        return lambda i: programs[i].launch(torch.cuda.current_stream())

    def error(self, launch: Callable[[int], object]) -> float:
        """Of one launch, relative to the largest element; infinite where a second one differs."""
        results = []
        for _ in range(2):
            self.c[0].fill_(torch.nan)
            launch(0)
            torch.cuda.synchronize()
            results.append(self.c[0].clone())
        if not torch.equal(*results):
            return float("inf")
        return float((results[0].float() - self.exact).abs().max() / self.exact.abs().max())


def chosen(operands: Operands, shape: tuple[int, int, int]) -> list[tp.Program]:
    """The kernel that `ops.matmul` would take; a workspace for each set, if it takes one."""
    config, programs = heuristics.choose(*shape, tp.bfloat16, tp.bfloat16), []
    for a, b, c in zip(operands.a, operands.b, operands.c, strict=True):
        workspace = None
        if config.k_parts > 1:
            parts, tickets = workspace_shapes(c.shape, config)
            workspace = torch.empty(parts, device="cuda"), torch.zeros(tickets, device="cuda").int()
        programs.append(sm90.bind(a, b, c, config, workspace=workspace))
    return programs


def shared(operands: Operands, text: str) -> list[tp.Program]:
    """The stream-K kernel with these settings; a workspace for each set."""
    cfg, programs = StreamKConfig(**settings_of(text)), []
    for a, b, c in zip(operands.a, operands.b, operands.c, strict=True):
        parts, flags = stream_k.workspace_shapes(a, c, cfg, tp.H200)
        workspace = torch.zeros(parts, device="cuda"), torch.zeros(flags, device="cuda").int()
        programs.append(stream_k.bind(a, b, c, cfg, workspace=workspace, chip=tp.H200))
    return programs


def measure(shape: tuple[int, int, int], configs: list[str], repeats: int) -> None:
    """Prints the table of one shape."""
    operands, blocks, notes = Operands(*shape), {}, []
    kept = []  # the workspaces that captured launches write to
    for name in ["chosen", *configs]:
        try:
            programs = chosen(operands, shape) if name == "chosen" else shared(operands, name)
            launch = operands.launch(programs)
            for i in range(operands.sets):  # loads the kernel, which no CUDA graph can capture
                launch(i)
            error = operands.error(launch)
        except TilepipeError as refused:
            notes.append(f"  {name}: {str(refused).splitlines()[0]}")
            continue
        if error > 0.01:
            notes.append(f"  {name}: WRONG, error {error:.2e}")
            continue
        kept.append(programs)
        blocks[name] = timing.block(launch, operands.sets)

    def peer(i: int) -> None:
        torch.matmul(operands.a[i], operands.b[i].T, out=operands.c[i])

    blocks["torch"] = timing.block(peer, operands.sets)
    found = measured(blocks, ["torch", "chosen"], FINALISTS, repeats, 0)
    flops = 2e-6 * shape[0] * shape[1] * shape[2]
    print(f"{'×'.join(map(str, shape))}; TFLOP/s")
    for name in ("torch", "chosen", *found.ranked):
        line = f"  {name:36} {flops / found.screened[name]:5.0f}"
        if name in found.burst:
            burst, steady = (flops / x[name].us for x in (found.burst, found.steady))
            line += f"  burst {burst:5.0f}  steady {steady:5.0f}"
        print(line)
    print(*notes, sep="\n", flush=True)


def main() -> None:
    """Measures shape by shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=SHAPES)
    parser.add_argument("--configs", nargs="*", default=CONFIGS)
    parser.add_argument("--repeats", type=int, default=11)
    options = parser.parse_args()
    start = time.perf_counter()
    for text in options.shapes:
        m, n, k = map(int, text.split(","))
        measure((m, n, k), list(options.configs), options.repeats)
        torch.cuda.empty_cache()
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
