"""Host time of one launch of an exported kernel, from C++ and from Python, beside the launcher that
the library keeps for a program.

    python -m benchmarks.export_host_cost

Needs a Hopper GPU, a C and a C++ compiler and NVIDIA's cuda.h. What C++ wrote is compared with what
the program wrote, bit by bit. The kernels are small, so that the GPU keeps up and a launch's time
is the host's.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import tilepipe as tp
from tests.support.export.program import serve
from tilepipe.kernels.attention import sm90_bind as attention
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.ops.torch.tensors import TensorView

CALLS, ROUNDS = 200, 9


@dataclass(frozen=True)
class Case:
    """A kernel whose launches are timed.

    Attributes:
        program: on NumPy arrays.
        tensors: of the GPU, of the same values, in the order of `bind`.
        bind: of such tensors, the program.
        seen: the tensors as the exported kernel takes them, by name.
    """

    program: tp.Program
    tensors: list[torch.Tensor]
    bind: Callable[..., tp.Program]
    seen: dict[str, torch.Tensor]


def operands(*shapes: tuple[int, ...]) -> tuple[list[np.ndarray[Any, Any]], list[torch.Tensor]]:
    """Random arrays, and tensors of the GPU with the same values."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    return arrays, [torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16) for x in arrays]


def a_gemm() -> Case:
    """c (256, 256) = a (256, 128) times b (256, 128) transposed."""
    arrays, tensors = operands((256, 128), (256, 128), (256, 256))
    bind = partial(gemm.bind, cfg=GemmConfig(cluster=2))
    return Case(bind(*arrays), tensors, bind, dict(zip("abc", tensors, strict=True)))


def an_attention() -> Case:
    """Two heads of 64, 256 queries and keys, causal."""
    arrays, tensors = operands(*[(1, 256, 2, 64)] * 4)
    bind = partial(attention.bind, cfg=AttentionConfig(), causal=True)
    q, k, v, out = (x.transpose(1, 2) for x in tensors)
    seen = {"q": q, "k": k, "v": v.transpose(2, 3), "out": out}
    return Case(bind(*arrays), tensors, bind, seen)


def microseconds(launch: Callable[[], object]) -> float:
    """The median over rounds of the host time of one call, not counting the first round."""
    rounds = []
    for _ in range(ROUNDS + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            launch()
        rounds.append((time.perf_counter() - start) / CALLS * 1e6)
    torch.cuda.synchronize()
    return statistics.median(rounds[1:])


def measured(name: str, case: Case) -> tuple[str, ...]:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = case.program.export(Path(folder))
        exported = tp.load_exported(path)
        tensors = exported.manifest.tensors
        args = case.program.launch_args.args
        arrays = {n: x.array for n, x in args.items() if not isinstance(x, int | float)}
        written, in_cpp = serve(path, arrays)
        case.program.launch()
        same = all(
            arrays[x.param.name].transpose(x.memory).tobytes() == written[x.param.name]
            for x in tensors
            if x.written
        )
    by_export = microseconds(partial(exported.launch, **case.seen))
    launcher = case.bind(*map(TensorView, case.tensors)).launcher()
    places = tuple(case.seen[n].data_ptr() for n in launcher.tensors)
    by_launcher = microseconds(partial(launcher, places, torch.cuda.current_stream().cuda_stream))
    times = (f"{us:.2f}" for us in (in_cpp, by_export, by_launcher))
    return name, *times, "same" if same else "DIFFER"


def main() -> None:
    """Prints the table."""
    table = Table(title="host time of one launch, µs")
    for column in ("kernel", "C++", "load_exported", "launcher of a program", "bits"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for name, make in (("gemm", a_gemm), ("attention", an_attention)):
        table.add_row(*measured(name, make()))
    Console().print(table)


if __name__ == "__main__":
    main()
