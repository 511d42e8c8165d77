"""Times of one shape: configurations of the GEMM beside cuBLAS, verified, in bursts and in steady
state. `gemm_measure.py` has many such workers, which take turns at the GPU.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Lock
from typing import Any, TypeAlias

import torch

import tilepipe as tp
from gemm_configs import text
from gemm_shapes import Shape
from tilepipe.bench import timing
from tilepipe.bench.operands import ALIGNMENT, in_turn
from tilepipe.errors import TilepipeError
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem, ranked as ranked_by_model
from tilepipe.ops.torch import workspaces
from tilepipe.ops.torch.tensors import TensorView

INPUTS, RESULTS = 2 * 10**9, 10**9  # bytes of memory that operands and results are cut from
MOST_SETS, MOST_LAUNCHES = 256, 400
BLOCK_US, IDLE_S, REPEATS = 1000.0, 3e-3, 3
# Where the tensor cores do this much, the power limit lowers the clock, which takes a while.
HOT_TFLOPS, HOT, COOL = 300.0, (0.015, 0.03), (0.003, 0.012)  # seconds to settle, and timed
ROUNDS = 2  # of the steady state, in opposite orders
FINALISTS = 2
WRONG = 3.5e-3  # relative error that no bfloat16 product with float32 sums has
SEED = 1

Seconds: TypeAlias = dict[str, float]  # by what was done


class Memory:
    """Memory of a GPU that holds normal values, and as much for results."""

    def __init__(self) -> None:
        self.inputs = torch.empty(INPUTS // 2, device="cuda", dtype=torch.bfloat16)
        for part in self.inputs.split(1 << 27):
            part.normal_()
        self.results = torch.empty(RESULTS // 2, device="cuda", dtype=torch.bfloat16)

    def operands(self, shape: Shape) -> tuple[list[Any], list[Any], list[Any]]:
        """Matrices A, B and C, in sets through which a block of launches rotates."""
        m, n, k = shape
        sizes = [-(-x * 2 // ALIGNMENT) * ALIGNMENT // 2 for x in (m * k, n * k, m * n)]
        sets = min(
            timing.sets_for(2 * sum(sizes)),
            self.inputs.numel() // (sizes[0] + sizes[1]),
            self.results.numel() // sizes[2],
            MOST_SETS,
        )
        step = sizes[0] + sizes[1]
        a = [self.inputs[i * step :][: m * k].view(m, k) for i in range(sets)]
        b = [self.inputs[i * step + sizes[0] :][: n * k].view(n, k) for i in range(sets)]
        c = [self.results[i * sizes[2] :][: m * n].view(m, n) for i in range(sets)]
        return a, b, c


def bound(views: Sequence[Any], cfg: GemmConfig, chip: tp.Chip) -> tp.Program:
    """The GEMM for tensors."""
    a, b, c = map(TensorView, views)
    workspace = workspaces.to_bind(c.shape, cfg, c.device)
    return gemm.bind(a, b, c, cfg, workspace=workspace, chip=chip)


class Prepared:
    """Configurations of the GEMM for one shape, of which only the GPU's part is left to do."""

    def __init__(self, shape: Shape, configs: Sequence[GemmConfig], memory: Memory, chip: tp.Chip):
        self.shape, self.chip = shape, chip
        self.a, self.b, self.c = memory.operands(shape)
        self.programs: dict[str, tp.Program] = {}
        guesses = dict(ranked_by_model(Problem(*shape), chip))
        least = min(guesses.values())
        self.us = {"cublas": least} | {text(x): guesses.get(x, least) for x in configs}
        for cfg in configs:
            try:
                program = bound((self.a[0], self.b[0], self.c[0]), cfg, chip)
                program.compile()
            except TilepipeError as error:
                print(f"{shape}, {text(cfg)}: {str(error).splitlines()[0]}", flush=True)
                continue
            self.programs[text(cfg)] = program

    def launches(self) -> dict[str, timing.Launch]:
        """What is measured: cuBLAS, and the configurations, whose results have been verified.

        Raises:
            ArithmeticError: a result is wrong.
        """
        a, b, c = self.a, self.b, self.c
        bts = [x.t() for x in b]
        found: dict[str, timing.Launch] = {"cublas": lambda i: torch.mm(a[i], bts[i], out=c[i])}
        for name, program in self.programs.items():
            found[name] = in_turn(program.launcher(), {"a": a, "b": b, "c": c})
        found["cublas"](0)
        want = c[0].clone()
        errors = []
        for name in self.programs:
            c[0].fill_(torch.nan)
            found[name](0)
            errors.append(torch.linalg.vector_norm((c[0] - want).float()))
        off = (torch.stack(errors) / torch.linalg.vector_norm(want.float())).tolist()
        for name, x in zip(self.programs, off, strict=True):
            if not x < WRONG:
                raise ArithmeticError(f"{name}: relative error {x:.2g} beside cuBLAS")
        return found


def measure(prepared: Prepared, long: bool, spent: Seconds) -> dict[str, Any]:
    """The line of a shape. `long`: it is measured in the way of `tilepipe bench`, too."""
    began = time.perf_counter()

    def done(what: str) -> None:
        nonlocal began
        now = time.perf_counter()
        spent[what] = spent.get(what, 0.0) + now - began
        began = now

    (m, n, k), sets = prepared.shape, len(prepared.a)
    launches = prepared.launches()
    done("loading and verifying")
    blocks = {
        name: timing.Block(
            launch, min(max(2, round(BLOCK_US / prepared.us[name])), MOST_LAUNCHES), sets
        )
        for name, launch in launches.items()
    }
    for block in blocks.values():
        block.run()
    done("capturing")
    burst = {x: s.us for x, s in timing.burst(blocks, REPEATS, SEED, IDLE_S).items()}
    done("bursts")
    ranked = sorted((x for x in burst if x != "cublas"), key=burst.__getitem__)
    last = list(dict.fromkeys([*ranked[:FINALISTS], list(launches)[1], "cublas"]))
    hot = 2 * m * n * k / burst[ranked[0]] * 1e-6 > HOT_TFLOPS
    settle, timed = HOT if hot else COOL
    random.Random(SEED).shuffle(last)
    if hot:
        timing.steady({"": blocks[last[-1]]}, 1, settle, settle)
    rounds = [
        timing.steady({x: blocks[x] for x in order}, 1, settle / ROUNDS, timed / ROUNDS)
        for order in (last, last[::-1])[:ROUNDS]
    ]
    steady = {x: statistics.mean(each[x].us for each in rounds) for x in last}
    done("steady")
    line: dict[str, Any] = {
        "cublas": [_digits(burst["cublas"]), _digits(steady["cublas"])],
        "times": [
            [x, _digits(burst[x]), _digits(steady[x]) if x in steady else None] for x in ranked
        ],
    }
    if long:
        full = {x: timing.block(launches[x], sets) for x in (ranked[0], "cublas")}
        later = timing.burst(full, 5), timing.steady(full, 1)
        for what, short, long_ones in zip(("burst", "steady"), (burst, steady), later, strict=True):
            pairs = ", ".join(
                f"{x} {short[x]:.2f} µs by {blocks[x].count}, {y.us:.2f} by {full[x].count}"
                for x, y in long_ones.items()
            )
            print(f"{prepared.shape} {what}, short and long blocks: {pairs}", flush=True)
        done("long blocks")
    return line


class Worker:
    """A process that prepares shapes, and measures each when the GPU is free."""

    turn: Lock
    memory: Memory
    chip: tp.Chip

    @classmethod
    def begin(cls, turn: Lock, chip: tp.Chip) -> None:
        """What each process does once."""
        cls.turn, cls.memory, cls.chip = turn, Memory(), chip
        gc.collect()
        gc.freeze()

    @classmethod
    def line(
        cls, shape: Shape, configs: Sequence[GemmConfig], long: bool
    ) -> tuple[dict[str, Any], Seconds]:
        """The line of a shape, and what took how long."""
        spent: Seconds = {}
        began = time.perf_counter()
        prepared = Prepared(shape, configs, cls.memory, cls.chip)
        spent["preparing"] = time.perf_counter() - began
        with cls.turn:
            found = measure(prepared, long, spent)
            torch.cuda.synchronize()
        return found, spent


def _digits(us: float) -> float:
    """Four digits: more are noise."""
    return float(f"{us:.4g}")
