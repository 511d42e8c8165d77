"""The GEMM whose CTAs share the K steps of all tiles, beside the GEMM that gives a CTA whole tiles,
and cuBLAS.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.beside import OURS, Contest, Sides
from tilepipe.bench.operands import DEVICE, Operands, allocated, build, in_turn, matrices
from tilepipe.bench.report import Check, config_text
from tilepipe.bench.shapes import wanted_extents
from tilepipe.errors import BindError
from tilepipe.kernels.gemm import heuristics, stream_k
from tilepipe.kernels.gemm.config import StreamKConfig
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.gemm import problem as product_of
from tilepipe.registry.gemm_stream_k import GEMM_STREAM_K as SPEC

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

WHOLE, CUBLAS = "gemm", "cuBLAS"
# m, n, k: of tiles of 128×128 a few more than an H200 has SMs, or than twice as many; fewer tiles
# than SMs, of long sums
STANDARD = (
    (1536, 1536, 8192),
    (2304, 1792, 4096),
    (2048, 2304, 8192),
    (3072, 2944, 4096),
    (128, 4096, 14336),
    (512, 512, 32768),
)


class StreamKOperands(Operands):
    """Operands, a workspace for each set, and results of our other GEMM.

    Attributes:
        parts, flags: the workspaces; flags are 0 between launches. whole_c: (m, n).
    """

    def __init__(
        self, problem: Problem, config: StreamKConfig, chip: tp.Chip, seed: int = 0
    ) -> None:
        super().__init__(problem, seed)
        parts, flags = stream_k.workspace_shapes(self.a[0], self.c[0], config, chip)
        self.parts = [torch.empty(parts, device=DEVICE) for _ in range(self.sets)]
        self.flags = [
            torch.zeros(flags, device=DEVICE, dtype=torch.int32) for _ in range(self.sets)
        ]
        shape = problem.m, problem.n
        self.whole_c = allocated(shape, "row", problem.out_dtype, self.sets, math.nan)
        self._results = {OURS: self.c, WHOLE: self.whole_c, CUBLAS: self.peer_c}

    def shared(self, launcher: Launcher) -> timing.Launch:
        """The product of a set by the stream-K GEMM, in the current stream."""
        named = {"a": self.a, "b": self.b, "c": self.c}
        return in_turn(launcher, named | {"parts": self.parts, "flags": self.flags})

    def whole(self, launcher: Launcher) -> timing.Launch:
        """The product of a set by the GEMM whose CTAs take whole tiles."""
        return in_turn(launcher, {"a": self.a, "b": self.b, "c": self.whole_c})

    def wipe(self) -> None:
        """Makes all results NaN."""
        for results in self._results.values():
            for x in results:
                x.fill_(math.nan)

    def check_side(self, side: str, i: int) -> Check:
        """How far a side's result of set `i` is from the float32 one."""
        return self.check(self._results[side], i)


def build_shared(problem: Problem, config: StreamKConfig, chip: tp.Chip) -> Launcher:
    """The stream-K GEMM for a problem and a configuration, compiled and loaded.

    Raises:
        TilepipeError: the configuration is impossible, or does not compile.
    """
    a, b, c = map(TensorView, matrices(problem))
    sizes = stream_k.workspace_shapes(a, c, config, chip)
    parts = TensorView(torch.empty(sizes[0], device=DEVICE))
    flags = TensorView(torch.zeros(sizes[1], device=DEVICE, dtype=torch.int32))
    return stream_k.bind(a, b, c, config, workspace=(parts, flags)).launcher()


def contests(
    given: Mapping[str, Any], shapes: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench gemm_stream_k` measures: the shapes, or the one that settings state, or
    the standard ones.
    """
    wanted = wanted_extents(SPEC.name, shapes, given, SPEC.settings, STANDARD)
    return [_contest(given, shape, chip, seed) for shape in wanted]


def _contest(
    given: Mapping[str, Any], shape: tuple[int, int, int], chip: tp.Chip, seed: int
) -> Contest:
    m, n, k = shape
    here = dict(given) | {"m": m, "n": n, "k": k}
    settings, _ = SPEC.configure(here, chip)
    config, problem = SPEC.config(settings), product_of(settings)
    if config.activation != "none":
        raise BindError("bench gemm_stream_k measures products without an activation")
    opened = functools.partial(_open, problem, config, chip, seed)
    return Contest(f"{m}×{n}×{k}", here, 2.0 * m * n * k, opened)


def _open(problem: Problem, config: StreamKConfig, chip: tp.Chip, seed: int) -> Sides:
    torch.cuda.empty_cache()
    chosen = heuristics.best(problem, chip)
    operands = StreamKOperands(problem, config, chip, seed)
    launches = {
        OURS: operands.shared(build_shared(problem, config, chip)),
        WHOLE: operands.whole(build(problem, chosen)),
        CUBLAS: operands.peer,
    }
    text = f"{config_text(config)} (gemm: {config_text(chosen)})"
    return Sides(text, operands.sets, launches, operands.wipe, operands.check_side, {})
