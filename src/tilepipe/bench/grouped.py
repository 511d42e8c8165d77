"""The operands of a grouped product in GPU memory, beside PyTorch's `grouped_mm` and a loop of
cuBLAS over the groups.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.beside import OURS, Contest, Sides
from tilepipe.bench.operands import (
    ALIGNMENT,
    DEVICE,
    SUM_ERROR,
    allocated,
    float32_products,
    in_turn,
)
from tilepipe.bench.report import Check, config_text
from tilepipe.errors import BindError
from tilepipe.kernels.gemm_grouped import reference, sm90 as gemm_grouped
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.heuristics import GroupedProblem
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.gemm_grouped import GEMM_GROUPED as SPEC, problem as product_of
from tilepipe.testing.numerics import OUTPUT_EPS

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

PEER, LOOP = "grouped_mm", "loop of mm"
# m, n, k, groups, split: eight large experts; 64 experts up and down, with many rows each, some,
# and as few as in decoding.
STANDARD = (
    (32768, 4096, 4096, 8, "even"),
    (32768, 4096, 4096, 8, "random"),
    (65536, 4096, 7168, 64, "random"),
    (65536, 7168, 2048, 64, "random"),
    (16384, 4096, 7168, 64, "skewed"),
    (8192, 4096, 7168, 64, "random"),
    (8192, 28672, 4096, 8, "random"),
    (1024, 4096, 7168, 64, "random"),
)


class GroupedOperands:
    """`sets` sets of operands, standard normal values; the offsets are the same for all.

    Attributes:
        a: (m, k). b: (groups, n, k), in the problem's order. c: (m, n) by side. ends: the offsets
            on the host; `offsets` on the GPU.
    """

    def __init__(self, problem: GroupedProblem, split: str, seed: int = 0) -> None:
        self.problem = problem
        m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
        size = problem.dtype.nbytes
        self.sets = timing.sets_for((m + n * groups) * k * size + m * n * problem.out_dtype.nbytes)
        generator = torch.Generator(DEVICE).manual_seed(seed)
        self.a = allocated((m, k), "row", problem.dtype, self.sets)
        lines, width = (n, k) if problem.b_order == "row" else (k, n)
        flat = [
            x.view(groups, lines, width)
            for x in allocated((groups * lines, width), "row", problem.dtype, self.sets)
        ]
        for x in (*self.a, *flat):
            x.normal_(generator=generator)
        self.b = flat if problem.b_order == "row" else [x.transpose(1, 2) for x in flat]
        self.c = {
            side: allocated((m, n), "row", problem.out_dtype, self.sets, math.nan)
            for side in (OURS, PEER, LOOP)
        }
        self.ends = reference.split_rows(np.random.default_rng(seed), m, groups, split)
        self.bounds = [(g, *x) for g, x in enumerate(reference.bounds(self.ends, m)) if x[0] < x[1]]
        self.offsets = torch.from_numpy(self.ends).to(DEVICE)

    def launches(self, launcher: Launcher) -> timing.Launch:
        """The product of a set by our kernel, in the current stream."""
        offsets = [self.offsets] * self.sets
        return in_turn(launcher, {"a": self.a, "b": self.b, "c": self.c[OURS], "offsets": offsets})

    def peer(self, i: int) -> None:
        """By PyTorch's grouped_mm, which allocates the result."""
        function = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
        self.c[PEER][i] = function(self.a[i], self.b[i].transpose(1, 2), offs=self.offsets)

    def loop(self, i: int) -> None:
        """By cuBLAS, group by group: the host knows the offsets."""
        a, b, c = self.a[i], self.b[i], self.c[LOOP][i]
        for group, start, end in self.bounds:
            torch.mm(a[start:end], b[group].t(), out=c[start:end])

    def wipe(self) -> None:
        """Makes all results NaN."""
        for results in self.c.values():
            for x in results:
                x.fill_(math.nan)

    def check(self, side: str, i: int = 0) -> Check:
        """How far a side's result of set `i` is from the float32 one."""
        errors = norms = largest = 0.0
        for group, start, end in self.bounds:
            with float32_products("highest"):
                want = self.a[i][start:end].float() @ self.b[i][group].float().t()
            error = self.c[side][i][start:end].float() - want
            errors, norms = errors + float(error.norm()) ** 2, norms + float(want.norm()) ** 2
            largest = max(largest, float(error.abs().nan_to_num(nan=math.inf).max()))
        rms = math.sqrt(norms / (self.bounds[-1][2] * self.problem.n))
        rel, largest = math.sqrt(errors / norms), largest / rms
        rounding = OUTPUT_EPS[self.problem.out_dtype.name]
        return Check(
            rel,
            largest,
            rel <= 0.6 * rounding + SUM_ERROR and largest <= 8 * (rounding + SUM_ERROR),
        )

    def sides(self, launcher: Launcher, config: str) -> Sides:
        """Ours and the peers that can solve it."""
        launches, missing = {OURS: self.launches(launcher)}, {}
        if self.problem.dtype is self.problem.out_dtype:
            launches[LOOP] = self.loop
        else:
            missing[LOOP] = "torch.mm writes the dtype of its operands"
        try:
            self.peer(0)
            torch.cuda.synchronize()
            launches[PEER] = self.peer
        except Exception as error:  # ours is measured all the same
            missing[PEER] = f"{type(error).__name__}: {error}".splitlines()[0]
        return Sides(config, self.sets, launches, self.wipe, self.check, missing)


def build(problem: GroupedProblem, config: GroupedGemmConfig) -> Launcher:
    """The kernel for a problem and a configuration, compiled and loaded.

    Raises:
        TilepipeError: the configuration is impossible, or does not compile.
    """
    m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
    # Memory that is given back at once: what is bound is where it lies, not what is in it.
    lines, width = (n, k) if problem.b_order == "row" else (k, n)
    (a,), (b,), (c,) = (
        allocated(shape, "row", dtype, 1)
        for shape, dtype in (
            ((m, k), problem.dtype),
            ((groups * lines, width), problem.dtype),
            ((m, n), problem.out_dtype),
        )
    )
    b = b.view(groups, lines, width)
    offsets = torch.empty(max(groups, ALIGNMENT // 4), dtype=torch.int32, device=DEVICE)[:groups]
    return gemm_grouped.bind(
        TensorView(a),
        TensorView(b if problem.b_order == "row" else b.transpose(1, 2)),
        TensorView(c),
        TensorView(offsets),
        config,
    ).launcher()


def parse(text: str, kernel: str = SPEC.name) -> tuple[int, int, int, int, str]:
    """A shape from "M,N,K,GROUPS" or "M,N,K,GROUPS,SPLIT". `kernel`: for the message."""
    parts = text.split(",")
    if (
        len(parts) in (4, 5)
        and all(x.isdigit() and int(x) for x in parts[:4])
        and parts[4:] in ([], *([x] for x in reference.SPLITS))
    ):
        m, n, k, groups = map(int, parts[:4])
        return m, n, k, groups, (*parts[4:], "random")[0]
    raise BindError(
        f"--shapes of {kernel} takes M,N,K,GROUPS[,{'|'.join(reference.SPLITS)}], or standard;"
        f" got {text!r}"
    )


def contests(
    given: Mapping[str, Any], shapes: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench gemm_grouped` measures: the shapes, or the one that settings state, or
    the standard ones.
    """
    if given.get("form", "rows") != "rows":
        raise BindError(
            f"tilepipe bench {SPEC.name} measures form=rows, got form={given['form']}; groups with"
            " a matrix each are measured by tilepipe bench gemm_grouped_blockwise"
        )
    stated = {"m", "n", "k", "experts", "split"} & given.keys()
    wanted = [x for text in shapes for x in (STANDARD if text == "standard" else (parse(text),))]
    base = SPEC.settings | dict(given)
    if stated:
        wanted.append((base["m"], base["n"], base["k"], base["experts"], base["split"]))
    return [_contest(given, shape, chip, seed) for shape in wanted or STANDARD]


def _contest(
    given: Mapping[str, Any], shape: tuple[int, int, int, int, str], chip: tp.Chip, seed: int
) -> Contest:
    m, n, k, groups, split = shape
    here = dict(given) | {"m": m, "n": n, "k": k, "experts": groups, "split": split}
    settings, _ = SPEC.configure(here, chip)
    opened = functools.partial(_open, product_of(settings), split, SPEC.config(settings), seed)
    return Contest(f"{m}×{n}×{k}, {groups} groups, {split}", here, 2.0 * m * n * k, opened)


def _open(problem: GroupedProblem, split: str, config: GroupedGemmConfig, seed: int) -> Sides:
    torch.cuda.empty_cache()
    return GroupedOperands(problem, split, seed).sides(build(problem, config), config_text(config))
