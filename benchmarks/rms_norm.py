"""ops.rms_norm on CUDA tensors, measured beside the same function compiled by torch.compile.

    PYTHONPATH=src python benchmarks/rms_norm.py [--shapes 16384,4096 ...] [--quick]

Bandwidth: bytes of x and of the result, read and written once, over time. In bursts, and in steady
state unless --quick. Each result is compared with float64 on its first rows. Needs a Hopper GPU and
PyTorch.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

from tilepipe import ops
from tilepipe.bench import timing

SHAPES = ("16384,4096", "32768,8192", "8192,16384", "65536,1024")
EPS = 1e-6
SAMPLE = 512  # rows that are compared


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The function that both compute."""
    wide = x.float()
    mean = (wide * wide).mean(-1, keepdim=True)
    return (wide * torch.rsqrt(mean + EPS) * weight.float()).to(x.dtype)


def right(y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether a result is the float64 one, rounded to bfloat16."""
    wide = x[:SAMPLE].double()
    want = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + EPS) * weight.double()
    apart = (y[:SAMPLE].double() - want).abs()
    return bool((apart <= 2.0**-8 * want.abs() + 1e-9).all())


def measure(rows: int, columns: int, regimes: list[str]) -> list[str]:
    """Lines of the table for one shape."""
    compiled = torch.compile(norm, dynamic=False)
    nbytes = 2 * rows * columns * 2
    sets = timing.sets_for(nbytes)
    weight = torch.randn(columns, device="cuda", dtype=torch.bfloat16)
    xs = [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    launches: dict[str, Callable[[int], torch.Tensor]] = {
        "tilepipe": lambda i: ops.rms_norm(xs[i], weight, eps=EPS),
        "torch.compile": lambda i: compiled(xs[i], weight),
    }
    verdicts = {name: right(launch(0), xs[0], weight) for name, launch in launches.items()}
    blocks = {name: timing.block(launch, sets) for name, launch in launches.items()}
    times = {regime: timing.timed(blocks, regime, 15) for regime in regimes}
    return [
        f"{rows:>6} × {columns:<6} {name:14}"
        + "".join(
            f" {regime} {nbytes / found[name].us / 1e6:.3f} TB/s ± {found[name].spread():.1%}"
            for regime, found in times.items()
        )
        + ("" if verdicts[name] else "  WRONG")
        for name in launches
    ]


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    regimes = ["burst"] if given.quick else ["burst", "steady"]
    torch.manual_seed(0)
    lines = []
    with torch.no_grad():
        for shape in given.shapes:
            rows, columns = map(int, shape.split(","))
            lines += measure(rows, columns, regimes)
    print(torch.cuda.get_device_name())
    print("\n".join(lines))


if __name__ == "__main__":
    main()
