"""The operands of a blockwise fp8 product with groups along K in GPU memory, beside a loop of
PyTorch's `scaled_mm` over the groups.
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
from tilepipe.bench.grouped import parse
from tilepipe.bench.grouped_blockwise import LOOP
from tilepipe.bench.operands import (
    ALIGNMENT,
    DEVICE,
    LARGEST,
    LARGEST_FP8,
    allocated,
    float32_products,
    in_turn,
)
from tilepipe.bench.report import Check, config_text
from tilepipe.kernels.gemm_blockwise.config import BLOCK
from tilepipe.kernels.gemm_blockwise.reference import ROW_UNIT
from tilepipe.kernels.gemm_blockwise.validation import blocks_of
from tilepipe.kernels.gemm_grouped.reference import bounds, split_rows
from tilepipe.kernels.gemm_k_grouped_blockwise import sm90 as gemm_k_grouped_blockwise
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise.heuristics import KGroupedBlockwiseProblem
from tilepipe.kernels.gemm_k_grouped_blockwise.reference import ends_of
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.gemm_k_grouped_blockwise import (
    GEMM_K_GROUPED_BLOCKWISE as SPEC,
    problem as product_of,
)
from tilepipe.testing.numerics import OUTPUT_EPS, ROUNDED, fp8_sum_error

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

# m, n, k, groups, split: weight gradients of the experts that `bench.grouped_blockwise` measures.
STANDARD = (
    (7168, 4096, 32768, 4, "random"),
    (2048, 7168, 32768, 4, "random"),
    (7168, 4096, 32768, 8, "random"),
    (2048, 7168, 65536, 64, "random"),
)


class KGroupedBlockwiseOperands:
    """`sets` sets of operands: normal values of fp8, 100 times standard, and scales about 0.01,
    which are, as the offsets, the same for all.

    Attributes:
        a, b: (m, k) and (n, k). a_scales, b_scales: (k blocks, m) and (k blocks, n). c: (groups, m,
            n) by side. bounds: of the groups that have elements of k.
    """

    def __init__(self, problem: KGroupedBlockwiseProblem, split: str, seed: int = 0) -> None:
        self.problem = problem
        m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
        written = groups * m * n * problem.out_dtype.nbytes
        self.sets = timing.sets_for((m + n) * k + written)
        generator = torch.Generator(DEVICE).manual_seed(seed)
        self.a, self.b = (allocated((rows, k), "row", tp.float8_e4m3, self.sets) for rows in (m, n))
        for x in (*self.a, *self.b):
            part = torch.randn(x.shape, generator=generator, device=DEVICE, dtype=torch.bfloat16)
            x.copy_((part * 100).clamp(-448, 448).to(x.dtype))
        self.a_scales, self.b_scales = (
            0.0075 + 0.005 * _scales(rows, k, generator) for rows in (m, n)
        )
        self.c = {
            side: [x.view(groups, m, n) for x in _results(problem, self.sets)]
            for side in (OURS, LOOP)
        }
        offsets = split_rows(np.random.default_rng(seed), k, groups, split)
        spans = enumerate(bounds(ends_of(offsets, k), k))
        self.bounds = [(group, *span) for group, span in spans if span[0] < span[1]]
        self.offsets = torch.from_numpy(offsets).to(DEVICE)

    def launches(self, launcher: Launcher) -> timing.Launch:
        """The product of a set by our kernel, in the current stream."""
        same = {"a_scales": self.a_scales, "b_scales": self.b_scales, "offsets": self.offsets}
        tensors = {name: [x] * self.sets for name, x in same.items()}
        return in_turn(launcher, tensors | {"a": self.a, "b": self.b, "c": self.c[OURS]})

    def loop(self, i: int) -> None:
        """By PyTorch, group by group: the host knows the offsets. It allocates each result."""
        from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

        flat, rows = SwizzleType.NO_SWIZZLE, ScalingType.BlockWise1x128
        for group, start, end in self.bounds:
            blocks = slice(start // BLOCK, blocks_of(end))
            self.c[LOOP][i][group] = scaled_mm(
                self.a[i][:, start:end],
                self.b[i][:, start:end].t(),
                self.a_scales[blocks].t(),
                rows,
                self.b_scales[blocks].t(),
                rows,
                swizzle_a=flat,
                swizzle_b=flat,
                output_dtype=self.c[LOOP][i].dtype,
            )

    def wipe(self) -> None:
        """Makes all results NaN."""
        for results in self.c.values():
            for x in results:
                x.fill_(math.nan)

    def check(self, side: str, i: int = 0) -> Check:
        """How far a side's result of set `i` is from the float32 one; each group beside the root
        mean square of its own.
        """
        errors = norms = largest = 0.0
        for group, start, end in self.bounds:
            blocks = slice(start // BLOCK, blocks_of(end))
            a, b = (
                x[i][:, start:end].float()
                * scales[blocks].t().repeat_interleave(BLOCK, 1)[:, : end - start]
                for x, scales in ((self.a, self.a_scales), (self.b, self.b_scales))
            )
            with float32_products("highest"):
                want = a @ b.t()
            error, norm = self.c[side][i][group].float() - want, float(want.norm())
            errors, norms = errors + float(error.norm()) ** 2, norms + norm**2
            rms = norm / math.sqrt(want.numel())
            largest = max(largest, float(error.abs().nan_to_num(nan=math.inf).max()) / rms)
        rel, rounding = math.sqrt(errors / norms), OUTPUT_EPS[self.problem.out_dtype.name]
        sums = fp8_sum_error(BLOCK)
        most = LARGEST * rounding + LARGEST_FP8 * sums
        return Check(rel, largest, rel <= ROUNDED * rounding + sums and largest <= most)

    def sides(self, launcher: Launcher, config: str) -> Sides:
        """Ours and the peer, if it can solve it."""
        launches, missing = {OURS: self.launches(launcher)}, {}
        try:
            self.loop(0)
            torch.cuda.synchronize()
            launches[LOOP] = self.loop
        except Exception as error:  # ours is measured all the same
            missing[LOOP] = f"{type(error).__name__}: {error}".splitlines()[0]
        return Sides(config, self.sets, launches, self.wipe, self.check, missing)


def _scales(rows: int, k: int, generator: Any = None) -> Any:
    """Uniform numbers (k blocks, rows), whose lines are multiples of 16 bytes apart."""
    width = -(-rows // ROW_UNIT) * ROW_UNIT
    return torch.rand(blocks_of(k), width, generator=generator, device=DEVICE)[:, :rows]


def _results(problem: KGroupedBlockwiseProblem, sets: int) -> list[Any]:
    shape = problem.groups * problem.m, problem.n
    return allocated(shape, "row", problem.out_dtype, sets, math.nan)


def build(problem: KGroupedBlockwiseProblem, config: KGroupedBlockwiseGemmConfig) -> Launcher:
    """The kernel for a problem and a configuration, compiled and loaded.

    Raises:
        TilepipeError: the configuration is impossible, or does not compile.
    """
    m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
    # Memory that is given back at once: what is bound is where it lies, not what is in it.
    (a,), (b,) = (allocated((rows, k), "row", tp.float8_e4m3, 1) for rows in (m, n))
    (c,) = _results(problem, 1)
    offsets = torch.empty(max(groups, ALIGNMENT // 4), dtype=torch.int32, device=DEVICE)[:groups]
    return gemm_k_grouped_blockwise.bind(
        TensorView(a),
        TensorView(b),
        TensorView(_scales(m, k)),
        TensorView(_scales(n, k)),
        TensorView(c.view(groups, m, n)),
        TensorView(offsets),
        config,
    ).launcher()


def contests(
    given: Mapping[str, Any], shapes: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench gemm_k_grouped_blockwise` measures: the shapes, or the one that settings
    state, or the standard ones.
    """
    wanted = [
        x
        for text in shapes
        for x in (STANDARD if text == "standard" else (parse(text, SPEC.name),))
    ]
    base = SPEC.settings | dict(given)
    if SPEC.extents & given.keys():
        wanted.append((base["m"], base["n"], base["k"], base["experts"], base["split"]))
    return [_contest(given, shape, chip, seed) for shape in wanted or STANDARD]


def _contest(
    given: Mapping[str, Any], shape: tuple[int, int, int, int, str], chip: tp.Chip, seed: int
) -> Contest:
    m, n, k, groups, split = shape
    here = dict(given) | {"m": m, "n": n, "k": k, "experts": groups, "split": split}
    settings, _ = SPEC.configure(here, chip)
    opened = functools.partial(_open, settings, split, seed)
    return Contest(f"{m}×{n}×{k}, {groups} groups, {split}", here, 2.0 * m * n * k, opened)


def _open(settings: Mapping[str, Any], split: str, seed: int) -> Sides:
    torch.cuda.empty_cache()
    problem, config = product_of(settings), SPEC.config(settings)
    launcher = build(problem, config)
    return KGroupedBlockwiseOperands(problem, split, seed).sides(launcher, config_text(config))
