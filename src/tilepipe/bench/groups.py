"""What the benchmarks of products in groups have in common: their shapes as texts and settings, the
launches of both sides, and whether the results are right.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.beside import OURS, Contest, Sides
from tilepipe.bench.operands import (
    ALIGNMENT,
    DEVICE,
    LARGEST,
    LARGEST_FP8,
    SUM_ERROR,
    float32_products,
    in_turn,
)
from tilepipe.bench.report import Check, config_text
from tilepipe.errors import BindError
from tilepipe.kernels.gemm_blockwise.config import BLOCK
from tilepipe.kernels.gemm_grouped.reference import SPLITS
from tilepipe.registry.spec import KernelSpec
from tilepipe.testing.numerics import OUTPUT_EPS, ROUNDED, fp8_sum_error

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

Shape = tuple[int, int, int, int, str]  # m, n, k, groups, split
EXTENTS = "m", "n", "k", "experts", "split"  # the settings that state one


class Problem(Protocol):
    """The settings that all problems share."""

    @property
    def k(self) -> int:
        """The extent of K."""

    @property
    def out_dtype(self) -> tp.DType:
        """The dtype of C."""


P = TypeVar("P", bound=Problem)


class GroupOperands(ABC, Generic[P]):
    """`sets` sets of operands of a product in groups.

    Attributes:
        a, b: of each set. c: the results of each set, by side. offsets: in GPU memory, the same for
            all sets.
    """

    problem: P
    sets: int
    a: list[Any]
    b: list[Any]
    c: dict[str, list[Any]]
    offsets: Any

    @abstractmethod
    def built(self, config: Any) -> Launcher:
        """Our kernel for the problem with a configuration, compiled and loaded."""

    @abstractmethod
    def peers(self) -> Mapping[str, timing.Launch | str]:
        """The launches of peers, or why one cannot solve it."""

    @abstractmethod
    def pairs(self, side: str, i: int) -> Iterator[tuple[Any, Any]]:
        """What a side has written of set `i`, and the float32 product, group by group."""

    def shared(self) -> dict[str, Any]:
        """The other operands of our kernel, which are the same for all sets."""
        return {"offsets": self.offsets}

    def bounds_of_sums(self) -> tuple[float, float]:
        """What the errors of sums may be: root mean square over that of the sums, and the largest
        over the same.
        """
        return SUM_ERROR, LARGEST * SUM_ERROR

    def launches(self, launcher: Launcher) -> timing.Launch:
        """The product of a set by our kernel, in the current stream."""
        same = {name: [x] * self.sets for name, x in self.shared().items()}
        return in_turn(launcher, same | {"a": self.a, "b": self.b, "c": self.c[OURS]})

    def ours(self, config: Any) -> timing.Launch:
        """The product by our kernel with a configuration.

        Raises:
            TilepipeError: it is impossible, or does not compile.
        """
        return self.launches(self.built(config))

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
        with float32_products("highest"):
            for got, want in self.pairs(side, i):
                error, norm = got.float() - want, float(want.norm())
                errors, norms = errors + float(error.norm()) ** 2, norms + norm**2
                rms = norm / math.sqrt(want.numel()) or 1.0
                worst = float(error.abs().nan_to_num(nan=math.inf).max())
                largest = max(largest, worst / rms)
        rel, rounding = math.sqrt(errors / norms), OUTPUT_EPS[self.problem.out_dtype.name]
        sums, largest_sum = self.bounds_of_sums()
        right = rel <= ROUNDED * rounding + sums and largest <= LARGEST * rounding + largest_sum
        return Check(rel, largest, right)

    def sides(self, launcher: Launcher, config: str) -> Sides:
        """Ours and the peers that can solve it."""
        launches, missing = {OURS: self.launches(launcher)}, {}
        for name, peer in self.peers().items():
            if isinstance(peer, str):
                missing[name] = peer
                continue
            try:
                peer(0)
                torch.cuda.synchronize()
                launches[name] = peer
            except Exception as error:  # ours is measured all the same
                missing[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        return Sides(config, self.sets, launches, self.wipe, self.check, missing)


class Fp8GroupOperands(GroupOperands[P]):
    """Operands of fp8, 100 times standard normal values, with scales of blocks, about 0.01 and the
    same for all sets.
    """

    a_scales: Any
    b_scales: Any

    def shared(self) -> dict[str, Any]:
        """With the scales."""
        return super().shared() | {"a_scales": self.a_scales, "b_scales": self.b_scales}

    def bounds_of_sums(self) -> tuple[float, float]:
        """Of a block; those of blocks are added in float32."""
        sums = fp8_sum_error(min(self.problem.k, BLOCK))
        return sums, LARGEST_FP8 * sums


# (problem, settings, seed) -> operands
Make = Callable[[P, Mapping[str, Any], int], GroupOperands[P]]


def fill_fp8(matrices: Sequence[Any], generator: torch.Generator) -> None:
    """Writes 100 times standard normal values."""
    for x in matrices:
        part = torch.randn(x.shape, generator=generator, device=x.device, dtype=torch.bfloat16)
        x.copy_((part * 100).clamp(-448, 448).to(x.dtype))


def empty_offsets(groups: int) -> torch.Tensor:
    """Offsets to bind a kernel with, which nobody reads, where those of a run may lie, too."""
    return torch.empty(max(groups, ALIGNMENT // 4), dtype=torch.int32, device=DEVICE)[:groups]


def grouped_mm(*operands: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """PyTorch's, under either name."""
    function = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
    found: torch.Tensor = function(*operands, offs=offs)
    return found


def parse(text: str, kernel: str) -> Shape:
    """A shape from "M,N,K,GROUPS" or "M,N,K,GROUPS,SPLIT". `kernel`: for the message."""
    parts = text.split(",")
    if (
        len(parts) in (4, 5)
        and all(x.isdigit() and int(x) for x in parts[:4])
        and parts[4:] in ([], *([x] for x in SPLITS))
    ):
        m, n, k, groups = map(int, parts[:4])
        return m, n, k, groups, (*parts[4:], "random")[0]
    raise BindError(
        f"--shapes of {kernel} takes M,N,K,GROUPS[,{'|'.join(SPLITS)}], or standard; got {text!r}"
    )


def contests_of(
    spec: KernelSpec,
    standard: Sequence[Shape],
    problem_of: Callable[[Mapping[str, Any]], P],
    made: Make[P],
    given: Mapping[str, Any],
    shapes: Sequence[str],
    chip: tp.Chip,
    seed: int,
) -> list[Contest]:
    """What `tilepipe bench` measures of a kernel: the shapes, or the one that settings state, or
    the standard ones.

    Args:
        problem_of: the problem that settings state. made: operands, allocated then, of a problem,
            its settings and a seed.
    """
    wanted = [
        x
        for text in shapes
        for x in (standard if text == "standard" else (parse(text, spec.name),))
    ]
    base = spec.settings | dict(given)
    if spec.extents & given.keys():
        wanted.append((base["m"], base["n"], base["k"], base["experts"], base["split"]))
    return [
        _contest(spec, problem_of, made, given, shape, chip, seed) for shape in wanted or standard
    ]


def _contest(
    spec: KernelSpec,
    problem_of: Callable[[Mapping[str, Any]], P],
    made: Make[P],
    given: Mapping[str, Any],
    shape: Shape,
    chip: tp.Chip,
    seed: int,
) -> Contest:
    m, n, k, groups, split = shape
    here = dict(given) | dict(zip(EXTENTS, shape, strict=True))
    settings, _ = spec.configure(here, chip)
    form = ", padded" if settings.get("form") == "padded" else ""
    name = f"{m}×{n}×{k}, {groups} groups, {split}{form}"
    problem, config = problem_of(settings), spec.config(settings)  # now: they may be impossible

    def operands() -> GroupOperands[P]:
        torch.cuda.empty_cache()
        return made(problem, settings, seed)

    def opened() -> Sides:
        found = operands()
        return found.sides(found.built(config), config_text(config))

    return Contest(name, here, 2.0 * m * n * k, opened, operands=operands)
