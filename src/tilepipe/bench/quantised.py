"""The operands of a product of quantised weights in GPU memory, beside our GEMM and cuBLAS with the
same weights in the dtype of the activations.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

import tilepipe as tp
from tilepipe.bench import operands as products, timing
from tilepipe.bench.beside import OURS, Contest, Sides
from tilepipe.bench.operands import (
    DEVICE,
    LARGEST,
    SUM_ERROR,
    allocated,
    float32_products,
    in_turn,
)
from tilepipe.bench.report import Check, config_text
from tilepipe.bench.shapes import wanted_extents
from tilepipe.errors import BindError
from tilepipe.kernels.gemm import heuristics as gemm_choice
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_quantised import sm90 as gemm_quantised
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig
from tilepipe.kernels.gemm_quantised.layout import BITS, BLOCK, bits_of, words_of
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.gemm_quantised import GEMM_QUANTISED as SPEC, check_settings
from tilepipe.testing.numerics import OUTPUT_EPS, ROUNDED

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

# Both multiply by weights that were dequantised before: our GEMM, and that of cuBLAS.
GEMM, CUBLAS = "16-bit gemm", "torch.mm"
# m, n, k: a square, both products of a feed-forward layer, and more rows, where reading the
# weights no longer takes all the time
STANDARD = (
    (16, 8192, 8192),
    (64, 8192, 8192),
    (16, 4096, 14336),
    (64, 4096, 14336),
    (16, 14336, 4096),
    (64, 14336, 4096),
    (256, 14336, 4096),
    (1024, 14336, 4096),
)


def weights_of(words: torch.Tensor, k: int) -> torch.Tensor:
    """The weights (n, k), int8, of words as `layout` lays them out: `layout.unpack` of tensors."""
    blocks, n, width = words.shape
    bits = bits_of(width)
    assert bits is not None
    # block, row, j, t, i -> row, block, j, i, t
    ordered = words.view(blocks, n, width // 8, 4, 2).permute(1, 0, 2, 4, 3)
    found = torch.empty(
        (n, blocks, 16 // bits, width // 8, 2, 4, 2), dtype=torch.int8, device=words.device
    )
    for part in range(16 // bits):
        for half in range(2):
            codes = ordered >> (bits * part + 16 * half) & ((1 << bits) - 1)
            found[:, :, part, ..., half] = codes - (1 << (bits - 1))
    return found.view(n, blocks * BLOCK)[:, :k]


class QuantisedOperands:
    """`sets` sets of operands: standard normal activations, weights of all values that so many bits
    have, scales between 0.5 and 1.5.

    Attributes:
        a: (m, k). words: (⌈k / 128⌉, n, 4 · bits). scales: (⌈k / group⌉, n). dense: (n, k), the
            weights times their scales, rounded to the dtype of A. c: (m, n) by side.
    """

    def __init__(self, problem: Problem, bits: int, group: int, seed: int = 0) -> None:
        self.problem, self.bits, self.group = problem, bits, group
        m, n, k, size = problem.m, problem.n, problem.k, problem.dtype.nbytes
        blocks, groups = -(-k // BLOCK), -(-k // group)
        read = blocks * n * words_of(bits) * 4 + groups * n * 4 + m * k * size
        self.sets = timing.sets_for(read + m * n * problem.out_dtype.nbytes)
        generator = torch.Generator(DEVICE).manual_seed(seed)
        self.a = allocated((m, k), "row", problem.dtype, self.sets)
        for x in self.a:
            x.normal_(generator=generator)
        shape = blocks, n, words_of(bits)
        self.words = [
            torch.randint(
                -(1 << 31), 1 << 31, shape, generator=generator, device=DEVICE, dtype=torch.int32
            )
            for _ in range(self.sets)
        ]
        self.scales = [
            0.5 + torch.rand((groups, n), generator=generator, device=DEVICE)
            for _ in range(self.sets)
        ]
        self.dense = allocated((n, k), "row", problem.dtype, self.sets)
        for i, x in enumerate(self.dense):
            x.copy_(self.dequantised(i))
        self.c = {
            side: allocated((m, n), "row", problem.out_dtype, self.sets, math.nan)
            for side in (OURS, GEMM, CUBLAS)
        }

    def dequantised(self, i: int) -> torch.Tensor:
        """The weights of set `i` times their scales, (n, k), float32."""
        factors = self.scales[i].t().repeat_interleave(self.group, 1)[:, : self.problem.k]
        return weights_of(self.words[i], self.problem.k).float() * factors

    def launches(self, launcher: Launcher) -> timing.Launch:
        """The product of a set by our kernel of quantised weights, in the current stream."""
        named = {"a": self.a, "words": self.words, "scales": self.scales}
        return in_turn(launcher, named | {"c": self.c[OURS]})

    def ours(self, config: QuantisedGemmConfig) -> timing.Launch:
        """The product by our kernel of quantised weights with a configuration.

        Raises:
            TilepipeError: it is impossible, or does not compile.
        """
        return self.launches(build(self.problem, self.bits, self.group, config))

    def gemm(self, launcher: Launcher) -> timing.Launch:
        """The product of a set by our GEMM, of the dense weights."""
        tensors = {"a": self.a, "b": self.dense, "c": self.c[GEMM]}
        return in_turn(launcher, tensors)

    def cublas(self, i: int) -> None:
        """The product of set `i` by cuBLAS, of the dense weights."""
        torch.mm(self.a[i], self.dense[i].t(), out=self.c[CUBLAS][i])

    def wipe(self) -> None:
        """Makes all results NaN."""
        for results in self.c.values():
            for x in results:
                x.fill_(math.nan)

    def check(self, side: str, i: int = 0) -> Check:
        """How far a side's result of set `i` is from the float32 one of the weights that it has:
        those of the peers are rounded.
        """
        weights = self.dequantised(i) if side == OURS else self.dense[i].float()
        with float32_products("highest"):
            want = self.a[i].float() @ weights.t()
        error = self.c[side][i].float() - want
        norm = float(want.norm())
        rel = float(error.norm()) / norm
        largest = float(error.abs().nan_to_num(nan=math.inf).max())
        largest /= norm / math.sqrt(want.numel())
        rounding = OUTPUT_EPS[self.problem.out_dtype.name]
        right = rel <= ROUNDED * rounding + SUM_ERROR
        return Check(rel, largest, right and largest <= LARGEST * (rounding + SUM_ERROR))

    def sides(self, launcher: Launcher, config: str, dense: Launcher) -> Sides:
        """Ours and the peers that can solve it. `dense`: our GEMM."""
        launches = {OURS: self.launches(launcher), GEMM: self.gemm(dense)}
        missing = {}
        if self.problem.dtype is self.problem.out_dtype:
            launches[CUBLAS] = self.cublas
        else:
            missing[CUBLAS] = "torch.mm writes the dtype of its operands"
        return Sides(config, self.sets, launches, self.wipe, self.check, missing)


def build(problem: Problem, bits: int, group: int, config: QuantisedGemmConfig) -> Launcher:
    """The kernel for a problem and a configuration, compiled and loaded.

    Raises:
        TilepipeError: the configuration is impossible, or does not compile.
    """
    m, n, k = problem.m, problem.n, problem.k
    # Memory that is given back at once: what is bound is where it lies, not what is in it.
    (a,) = allocated((m, k), "row", problem.dtype, 1)
    (c,) = allocated((m, n), "row", problem.out_dtype, 1)
    words = torch.empty(-(-k // BLOCK), n, words_of(bits), dtype=torch.int32, device=DEVICE)
    scales = torch.empty(-(-k // group), n, device=DEVICE)
    views = TensorView(a), TensorView(words), TensorView(scales), TensorView(c)
    return gemm_quantised.bind(*views, config, group=group).launcher()


def contests(
    given: Mapping[str, Any], shapes: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench gemm_quantised` measures: the shapes, or the one that settings state, or
    the standard ones; with weights of 4 and of 8 bits, unless a setting says which.
    """
    wanted = wanted_extents(SPEC.name, shapes, given, SPEC.settings, STANDARD)
    return [
        _contest(given, shape, bits, chip, seed)
        for bits in ([given["bits"]] if "bits" in given else BITS)
        for shape in wanted
    ]


def _contest(
    given: Mapping[str, Any], shape: tuple[int, int, int], bits: int, chip: tp.Chip, seed: int
) -> Contest:
    m, n, k = shape
    here = dict(given) | {"m": m, "n": n, "k": k, "bits": bits}
    settings, _ = SPEC.configure(here, chip)
    check_settings(settings)
    if settings["activation"] != "none":
        raise BindError("bench gemm_quantised measures products without an activation")
    config, group = SPEC.config(settings), int(settings["group"])
    dtype, out = tp.dtype(settings["dtype"]), tp.dtype(settings["out_dtype"])
    problem = Problem(m, n, k, dtype=dtype, out_dtype=out)
    made = functools.partial(QuantisedOperands, problem, bits, group, seed)

    def opened() -> Sides:
        torch.cuda.empty_cache()
        dense = products.build(problem, gemm_choice.best(problem, chip))
        ours = build(problem, bits, group, config)
        return made().sides(ours, config_text(config), dense)

    return Contest(f"{m}×{n}×{k}, {bits} bits", here, 2.0 * m * n * k, opened, operands=made)
