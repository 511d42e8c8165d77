"""The operands of a gated product in GPU memory, beside two products of cuBLAS and an elementwise
kernel, and beside two products of our own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

import tilepipe as tp
from tilepipe import ops
from tilepipe.bench import timing
from tilepipe.bench.beside import OURS, Contest, Sides
from tilepipe.bench.operands import DEVICE, SUM_ERROR, allocated, float32_products, in_turn
from tilepipe.bench.report import Check, config_text
from tilepipe.bench.shapes import wanted_extents
from tilepipe.kernels.gemm.model import Problem
from tilepipe.kernels.gemm_gated import sm90 as gemm_gated
from tilepipe.kernels.gemm_gated.config import GatedGemmConfig
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.gemm_gated import GEMM_GATED as SPEC, problem as product_of
from tilepipe.testing.numerics import OUTPUT_EPS

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

# Two products of cuBLAS, then one kernel that PyTorch's compiler makes of the rest; or PyTorch's
# two kernels. Two products of our own, the first with its activation, and a multiplication.
COMPILED, EAGER, TWO = "2 mm + compiled", "2 mm + 2 kernels", "2 ops.matmul"
# m, n, k
STANDARD = (
    (4096, 14336, 4096),
    (8192, 14336, 4096),
    (4096, 28672, 8192),
    (1024, 14336, 4096),
    (16384, 2048, 7168),
)


def activated(x: torch.Tensor, name: str) -> torch.Tensor:
    """An activation of each element."""
    if name == "none":
        return x
    if name in ("gelu", "gelu_erf"):
        return torch.nn.functional.gelu(x, approximate="tanh" if name == "gelu" else "none")
    return torch.nn.functional.silu(x) if name == "silu" else torch.relu(x)


def gated(left: torch.Tensor, right: torch.Tensor, name: str) -> torch.Tensor:
    """activation(left) * right."""
    return activated(left, name) * right


class GatedOperands:
    """`sets` sets of operands, standard normal values.

    Attributes:
        a: (m, k). gate, up: (n, k). c: (m, n) by side.
    """

    def __init__(self, problem: Problem, activation: str, seed: int = 0) -> None:
        self.problem, self.activation = problem, activation
        m, n, k, size = problem.m, problem.n, problem.k, problem.dtype.nbytes
        self.sets = timing.sets_for((m + 2 * n) * k * size + m * n * problem.out_dtype.nbytes)
        generator = torch.Generator(DEVICE).manual_seed(seed)
        self.a = allocated((m, k), problem.a_order, problem.dtype, self.sets)
        self.gate, self.up = (
            allocated((n, k), problem.b_order, problem.dtype, self.sets) for _ in range(2)
        )
        for x in (*self.a, *self.gate, *self.up):
            x.normal_(generator=generator)
        self.c = {
            side: allocated((m, n), "row", problem.out_dtype, self.sets, math.nan)
            for side in (OURS, COMPILED, EAGER, TWO)
        }
        self._compiled = torch.compile(gated)

    def launches(self, launcher: Launcher) -> timing.Launch:
        """The product of a set by our kernel, in the current stream."""
        named = {"a": self.a, "gate": self.gate, "up": self.up, "c": self.c[OURS]}
        return in_turn(launcher, named)

    def ours(self, config: GatedGemmConfig) -> timing.Launch:
        """The product by our kernel with a configuration.

        Raises:
            TilepipeError: it is impossible, or does not compile.
        """
        return self.launches(build(self.problem, config))

    def compiled(self, i: int) -> None:
        """Two products of cuBLAS and one kernel of PyTorch's compiler."""
        left, right = self._products(i)
        self.c[COMPILED][i] = self._compiled(left, right, self.activation)

    def eager(self, i: int) -> None:
        """Two products of cuBLAS, the activation and the multiplication."""
        left, right = self._products(i)
        self.c[EAGER][i] = gated(left, right, self.activation)

    def two(self, i: int) -> None:
        """Two products of our own, the first with its activation, and the multiplication."""
        left = ops.matmul(self.a[i], self.gate[i].t(), activation=self.activation)
        torch.mul(left, ops.matmul(self.a[i], self.up[i].t()), out=self.c[TWO][i])

    def _products(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.mm(self.a[i], self.gate[i].t()), torch.mm(self.a[i], self.up[i].t())

    def wipe(self) -> None:
        """Makes all results NaN."""
        for results in self.c.values():
            for x in results:
                x.fill_(math.nan)

    def check(self, side: str, i: int = 0) -> Check:
        """How far a side's result of set `i` is from the float32 one. The peers round both products
        before they are multiplied.
        """
        with float32_products("highest"):
            x = self.a[i].float()
            left, right = x @ self.gate[i].float().t(), x @ self.up[i].float().t()
        want = gated(left, right, self.activation)
        error = self.c[side][i].float() - want
        rel = float(error.norm() / want.norm())
        largest = float(error.abs().nan_to_num(nan=math.inf).max())
        largest /= float(want.norm()) / math.sqrt(want.numel())
        rounding = OUTPUT_EPS[self.problem.out_dtype.name]
        roundings = 1.0 if side == OURS else 3.0
        return Check(rel, largest, rel <= roundings * 0.6 * rounding + 2 * SUM_ERROR)

    def sides(self, launcher: Launcher, config: str) -> Sides:
        """Ours and the peers that can solve it."""
        launches, missing = {OURS: self.launches(launcher)}, {}
        if self.problem.dtype is self.problem.out_dtype:
            launches |= {COMPILED: self.compiled, EAGER: self.eager, TWO: self.two}
        else:
            missing[COMPILED] = "torch.mm writes the dtype of its operands"
        for side in (COMPILED, EAGER, TWO):
            try:
                if side in launches:
                    launches[side](0)
                    torch.cuda.synchronize()
            except Exception as error:  # ours is measured all the same
                del launches[side]
                missing[side] = f"{type(error).__name__}: {error}".splitlines()[0]
        return Sides(config, self.sets, launches, self.wipe, self.check, missing)


def build(problem: Problem, config: GatedGemmConfig) -> Launcher:
    """The kernel for a problem and a configuration, compiled and loaded.

    Raises:
        TilepipeError: the configuration is impossible, or does not compile.
    """
    m, n, k = problem.m, problem.n, problem.k
    # Memory that is given back at once: what is bound is where it lies, not what is in it.
    (a,), (gate,), (up,), (c,) = (
        allocated(shape, order, dtype, 1)
        for shape, order, dtype in (
            ((m, k), problem.a_order, problem.dtype),
            ((n, k), problem.b_order, problem.dtype),
            ((n, k), problem.b_order, problem.dtype),
            ((m, n), "row", problem.out_dtype),
        )
    )
    views = TensorView(a), TensorView(gate), TensorView(up), TensorView(c)
    return gemm_gated.bind(*views, config).launcher()


def contests(
    given: Mapping[str, Any], shapes: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench gemm_gated` measures: the shapes, or the one that settings state, or the
    standard ones.
    """
    wanted = wanted_extents(SPEC.name, shapes, given, SPEC.settings, STANDARD)
    return [_contest(given, shape, chip, seed) for shape in wanted]


def _contest(
    given: Mapping[str, Any], shape: tuple[int, int, int], chip: tp.Chip, seed: int
) -> Contest:
    m, n, k = shape
    here = dict(given) | {"m": m, "n": n, "k": k}
    settings, _ = SPEC.configure(here, chip)
    config = SPEC.config(settings)
    made = functools.partial(GatedOperands, product_of(settings), config.activation, seed)

    def opened() -> Sides:
        torch.cuda.empty_cache()
        operands = made()
        return operands.sides(build(operands.problem, config), config_text(config))

    text = f"{m}×{n}×{k}, {config.activation}"
    return Contest(text, here, 4.0 * m * n * k, opened, operands=made)
