"""What a timed build, from which a timeline is made, takes longer than the usual build.

    python -m benchmarks.timeline_cost
    python -m benchmarks.timeline_cost --only attention --rounds 30

Needs a Hopper GPU and PyTorch. The builds of a kernel take turns: graphs of ten launches, after a
pause each. What a timed build has written is compared with what the usual one has, bit by bit.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import tilepipe as tp
from tilepipe.cuda.debug.stamps import ROOM, stamp_bytes
from tilepipe.cuda.runtime import driver
from tilepipe.cuda.runtime.launching import Launcher
from tilepipe.cuda.runtime.loading import launcher
from tilepipe.cuda.runtime.staging import staged
from tilepipe.ir.program import TensorArg
from tilepipe.registry.catalog import find

LAUNCHES, PAUSE_S = 10, 0.01
PROBLEMS = {
    "GEMM 4096³": "gemm m=4096 n=4096 k=4096",
    "GEMM 1024³": "gemm m=1024 n=1024 k=1024",
    "grouped GEMM, 4096 rows, N = K = 2048, 8 experts":
        "gemm_grouped m=4096 n=2048 k=2048 experts=8",
    "attention, 8 heads, 4096 queries and keys":
        "attention heads=8 kv_heads=8 s_q=4096 s_kv=4096",
}  # fmt: skip


@dataclass
class Build:
    """A build that is timed: `graph` launches it ten times."""

    launcher: Launcher
    graph: torch.cuda.CUDAGraph
    us: list[float]

    def time(self) -> None:
        """Adds the mean time of its launches."""
        torch.cuda.synchronize()
        time.sleep(PAUSE_S)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        self.us.append(start.elapsed_time(end) * 1e3 / LAUNCHES)


def build(program: tp.Program, places: Mapping[str, int], ctas: int | None) -> Build:
    """The usual build, or a timed one whose first `ctas` CTAs write notes."""
    launch = program.launch_args
    made = launcher(launch, 0, timed=ctas is not None)
    extra: tuple[Any, ...] = ()
    if ctas is not None:
        memory = int(driver.call("cuMemAlloc", stamp_bytes(launch.kernel, ctas, ROOM)))
        extra = ctypes.c_uint64(memory), ctypes.c_uint32(ctas), ctypes.c_uint32(ROOM)
    packed = made.pack(tuple(places[name] for name in made.tensors), extra)
    stream = torch.cuda.Stream()
    made.launch_packed(packed, stream.cuda_stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(LAUNCHES):
            made.launch_packed(packed, stream.cuda_stream)
    torch.cuda.synchronize()
    return Build(made, graph, [])


def contents(program: tp.Program, places: Mapping[str, int]) -> dict[str, bytes]:
    """The bytes of the tensors on the GPU."""
    found = {}
    for name, arg in program.launch_args.args.items():
        if isinstance(arg, TensorArg):
            size = arg.array.nbytes
            host = ctypes.create_string_buffer(size)
            driver.call("cuMemcpyDtoH", ctypes.addressof(host), places[name], size)
            found[name] = host.raw
    return found


def measure(words: str, rounds: int) -> tuple[list[Build], bool]:
    """The usual build, those whose notes of 4 and of all CTAs are written, and whether all write
    the same.
    """
    kernel, *settings = words.split()
    spec = find(kernel)
    config, _ = spec.configure(spec.parse(settings), driver.chip(0))
    print(" ", {n: config[n] for n in config if n in spec.tiles}, flush=True)
    program = spec.make(config, 0).program
    with staged(program.launch_args, 0) as places:
        builds, written = [], []
        for ctas in (None, 4, program.launch_args.grid):
            builds.append(build(program, places, ctas))
            written.append(contents(program, places))
        for turn in range(rounds + 1):
            for one in builds[turn % 3 :] + builds[: turn % 3]:
                one.time()
    for one in builds:
        del one.us[0]
    return builds, all(found == written[0] for found in written)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="problems whose names match this")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.zeros(1, device="cuda")
    table = Table(title=f"{torch.cuda.get_device_name()}: graphs of {LAUNCHES} launches, medians")
    for head in ("kernel", "usual, µs", "notes of 4 CTAs", "of all", "registers", "spills", "bits"):
        table.add_column(head)
    for name, words in PROBLEMS.items():
        if not re.search(given.only, name):
            continue
        print(name, flush=True)
        builds, same = measure(words, given.rounds)
        usual, *timed = (statistics.median(one.us) for one in builds)
        compiled = builds[1].launcher.compiled
        table.add_row(
            name,
            f"{usual:.1f}",
            *(f"{100 * (us / usual - 1):+.1f} %" for us in timed),
            str(compiled.registers),
            str(compiled.spill_bytes),
            "same" if same else "DIFFERENT",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
