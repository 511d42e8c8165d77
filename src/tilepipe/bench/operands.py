"""The operands of a product in GPU memory, the kernels that multiply them, and whether the results
are right.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import torch

import tilepipe as tp
from tilepipe.bench import deep_gemm, quack, timing
from tilepipe.bench.report import Check, Config
from tilepipe.bench.timing import Step
from tilepipe.cuda.nvrtc import processes
from tilepipe.errors import TilepipeError
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm.validation import FP8
from tilepipe.kernels.gemm_blockwise import sm90 as gemm_blockwise
from tilepipe.kernels.gemm_blockwise.config import BLOCK, BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.reference import ROW_UNIT
from tilepipe.kernels.gemm_blockwise.validation import blocks_of
from tilepipe.ops.torch import workspaces
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.products import BETA
from tilepipe.testing.numerics import OUTPUT_EPS, ROUNDED, fp8_sum_error

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

T = TypeVar("T")
R = TypeVar("R")

MAX_SETS = 2048  # a block launches about a thousand of the smallest products
# bytes between the starts of matrices are a multiple of this, as the allocator has it
ALIGNMENT = 256
SUM_ERROR = 1e-4  # root mean square of the errors of sums in float32, over that of the sums
# The largest error of a sum over the root mean square of all: of millions of sums the largest is
# about six times that, and what fp8 sums lose by cutting grows with the sum itself.
LARGEST, LARGEST_FP8 = 8, 16

DEVICE = "cuda"


class Operands:
    """`sets` sets of operands of a problem: standard normal values (of fp8, 100 times that, with
    scales about 0.01).

    Attributes:
        a, b: of shapes (m, k) and (n, k), in the problem's orders. c, peer_c: (m, n), where we
            write and where the peer does. a_scale, b_scale: float32 of shapes (m,) and (n,), or
            None. scale_names: of the kernel's arguments for these. source: (m, n), added times
            BETA, or None.
    """

    scale_names = "a_scale", "b_scale"

    def __init__(self, problem: Problem, seed: int = 0, sets: int | None = None) -> None:
        self.problem = problem
        m, n, k = problem.m, problem.n, problem.k
        written = m * n * problem.out_dtype.nbytes * (2 if problem.source else 1)
        nbytes = (m + n) * k * problem.dtype.nbytes + written
        self.sets = sets or min(timing.sets_for(nbytes), MAX_SETS)
        generator = torch.Generator(DEVICE).manual_seed(seed)
        self.a = self._inputs((m, k), problem.a_order, generator)
        self.b = self._inputs((n, k), problem.b_order, generator)
        self.c, self.peer_c = (
            allocated((m, n), "row", problem.out_dtype, self.sets, math.nan) for _ in range(2)
        )
        self.source: list[Any] | None = None
        if problem.source:
            self.source = allocated((m, n), "row", problem.out_dtype, self.sets)
            for x in self.source:
                x.normal_(generator=generator)
        self.a_scale = self.b_scale = None
        if problem.scales == "row":
            self.a_scale, self.b_scale = (
                0.0075 + 0.005 * torch.rand(x, generator=generator, device=DEVICE) for x in (m, n)
            )

    def _inputs(self, shape: tuple[int, int], order: str, generator: Any) -> list[Any]:
        dtype = self.problem.dtype
        if dtype not in FP8:
            matrices = allocated(shape, order, dtype, self.sets)
            for x in matrices:
                x.normal_(generator=generator)
                if dtype is tp.float32:  # what tf32 holds exactly: 10 bits of mantissa
                    x.view(torch.int32).bitwise_and_(-(1 << 13))
            return matrices
        matrices = allocated(shape, order, dtype, self.sets)
        largest = torch.finfo(matrices[0].dtype).max
        for x in matrices:
            x.copy_(
                (torch.randn(shape, generator=generator, device=DEVICE) * 100)
                .clamp(-largest, largest)
                .to(x.dtype)
            )
        return matrices

    def peer(self, i: int) -> None:
        """The product of set `i` by cuBLAS."""
        a, b, c = self.a[i], self.b[i].t(), self.peer_c[i]
        if self.a_scale is not None and self.b_scale is not None:
            scales = {"scale_a": self.a_scale[:, None], "scale_b": self.b_scale[None, :]}
            torch._scaled_mm(a, b, **scales, out_dtype=c.dtype, use_fast_accum=True, out=c)
            return
        options = {} if a.dtype == c.dtype else {"out_dtype": c.dtype}
        with float32_products("high"):  # in tf32, as ours are
            if self.source is None:
                torch.mm(a, b, **options, out=c)
            else:
                torch.addmm(self.source[i], a, b, beta=BETA, **options, out=c)

    def other_peers(self) -> tuple[dict[str, tuple[timing.Launch, list[Any]]], dict[str, str]]:
        """Further peers: of those that can solve the problem a launch and the results of all sets,
        and of the others the reason. Here QuACK, tuned for the shape.
        """
        if not quack.takes(self.problem):
            return {}, {}
        shape = self.problem.m, self.problem.n
        results = allocated(shape, "row", self.problem.out_dtype, self.sets, math.nan)
        try:
            launch = quack.product(self.a, self.b, results, self.source, BETA)
            launch(0)
        except Exception as error:  # it is not there, or refuses: ours is measured all the same
            return {}, {quack.NAME: f"{type(error).__name__}: {error}".splitlines()[0]}
        return {quack.NAME: (launch, results)}, {}

    def launches(self, launcher: Launcher) -> timing.Launch:
        """The product of a set by our kernel, in the current stream."""
        scales = zip(self.scale_names, (self.a_scale, self.b_scale), strict=True)
        tensors = {"a": self.a, "b": self.b, "c": self.c} | {
            name: [x] * self.sets for name, x in scales
        }
        if self.source is not None:
            tensors["source"] = self.source
        return in_turn(launcher, tensors)

    def want(self, i: int) -> Any:
        """The float32 product of set `i`."""
        a, b = self.a[i].float(), self.b[i].float()
        if self.a_scale is not None and self.b_scale is not None:
            a, b = a * self.a_scale[:, None], b * self.b_scale[:, None]
        with float32_products("highest"):
            product = a @ b.t()
        return product if self.source is None else product + BETA * self.source[i].float()

    def check(self, got: Sequence[Any], i: int = 0) -> Check:
        """Compares `got[i]` with the product of set `i`."""
        want = self.want(i)
        error = got[i].float() - want
        norm = float(want.norm())
        rms = norm / math.sqrt(want.numel())
        rel, largest = float(error.norm()) / norm, float(error.abs().max()) / rms
        rounding = OUTPUT_EPS[self.problem.out_dtype.name]
        fp8 = self.problem.dtype in FP8
        sums = fp8_sum_error(self._added()) if fp8 else SUM_ERROR
        most = LARGEST * rounding + (LARGEST_FP8 if fp8 else LARGEST) * sums
        return Check(rel, largest, rel <= ROUNDED * rounding + sums and largest <= most)

    def _added(self) -> int:
        """Products that the tensor cores add up in one sum."""
        return self.problem.k


class BlockwiseOperands(Operands):
    """Operands whose scales are of blocks: `a_scale` (k blocks, m), M contiguous, and `b_scale` (n
    blocks, k blocks), the same for all sets. Lines of both are padded to 16 bytes, which is what
    `scaled_mm` asks for, too.
    """

    scale_names = "a_scales", "b_scales"

    def __init__(self, problem: Problem, seed: int = 0, sets: int | None = None) -> None:
        super().__init__(problem, seed, sets)
        self.a_scale, self.b_scale = block_scales(
            problem, torch.Generator(DEVICE).manual_seed(seed + 1)
        )

    def peer(self, i: int) -> None:
        """The product of set `i` by PyTorch, which allocates the result."""
        # here: older versions of PyTorch, which the other benchmarks take, do not have them
        from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

        flat = SwizzleType.NO_SWIZZLE
        assert self.a_scale is not None
        assert self.b_scale is not None
        lines = (
            self.b_scale
            if self.b_scale.is_contiguous()
            else self.b_scale.as_strided(
                (self.b_scale.shape[0], self.b_scale.stride(0)), (self.b_scale.stride(0), 1)
            )
        )
        self.peer_c[i] = scaled_mm(
            self.a[i],
            self.b[i].t(),
            self.a_scale.t(),
            ScalingType.BlockWise1x128,
            lines.t(),
            ScalingType.BlockWise128x128,
            swizzle_a=flat,
            swizzle_b=flat,
            output_dtype=self.c[i].dtype,
        )

    def other_peers(self) -> tuple[dict[str, tuple[timing.Launch, list[Any]]], dict[str, str]]:
        """DeepGEMM."""
        m, n, out = self.problem.m, self.problem.n, self.problem.out_dtype
        if out is not tp.bfloat16:
            return {}, {deep_gemm.NAME: deep_gemm.WRITES}
        results = allocated((m, n), "row", out, self.sets, math.nan)
        try:
            launch = deep_gemm.product(self.a, self.a_scale, self.b, self.b_scale, results)
            launch(0)
        except (ImportError, RuntimeError) as error:  # not there, or not for the problem
            return {}, {deep_gemm.NAME: str(error).splitlines()[0]}
        return {deep_gemm.NAME: (launch, results)}, {}

    def _added(self) -> int:
        """Each block's sum is added in float32."""
        return min(self.problem.k, BLOCK)

    def want(self, i: int) -> Any:
        """The float64 product of set `i`."""
        k = self.problem.k
        assert self.a_scale is not None
        assert self.b_scale is not None
        a_scale = self.a_scale.double().t().repeat_interleave(BLOCK, 1)[:, :k]
        b_scale = (
            self.b_scale.double()
            .repeat_interleave(BLOCK, 0)
            .repeat_interleave(BLOCK, 1)[: self.problem.n, :k]
        )
        return (self.a[i].double() * a_scale) @ (self.b[i].double() * b_scale).t()


def block_scales(problem: Problem, generator: Any) -> tuple[Any, Any]:
    """Scales about 0.01: of A (k blocks, m), of B (n blocks, k blocks)."""

    def lines(count: int, width: int) -> Any:
        padded = torch.rand(
            count, -(-width // ROW_UNIT) * ROW_UNIT, generator=generator, device=DEVICE
        )
        return (0.0075 + 0.005 * padded)[:, :width]

    k_blocks = blocks_of(problem.k)
    return lines(k_blocks, problem.m), lines(blocks_of(problem.n), k_blocks)


@contextlib.contextmanager
def float32_products(precision: str) -> Iterator[None]:
    """Sets the precision of PyTorch's float32 products while it lasts: "highest", float32, or
    "high", tf32.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def in_turn(launcher: Launcher, tensors: Mapping[str, Sequence[Any]]) -> timing.Launch:
    """A launch of our kernel with a set of operands, in the current stream. `tensors`: for each
    argument of the kernel, the tensor of each set, which live as long as the launch. The GEMM's
    workspace, where it takes one, is made here.
    """
    named = dict(tensors)
    if not named.keys() >= set(launcher.tensors):
        first = next(iter(tensors.values()))
        named |= workspaces.of_launcher(launcher, first[0].device, len(first))
    sets = zip(*(named[name] for name in launcher.tensors), strict=True)
    # beside their addresses the tensors themselves: memory that nothing holds is given to others
    places = [(found, tuple(x.data_ptr() for x in found)) for found in sets]
    return lambda i: launcher(places[i][1], torch.cuda.current_stream().cuda_stream)


def allocated(
    shape: tuple[int, int], order: str, dtype: tp.DType, sets: int, fill: float | None = None
) -> list[Any]:
    """`sets` matrices in one allocation."""
    numel = shape[0] * shape[1]
    step = -(-numel * dtype.nbytes // ALIGNMENT) * ALIGNMENT // dtype.nbytes
    name = {"float8_e4m3": "float8_e4m3fn"}.get(dtype.name, dtype.name)
    flat = torch.empty(sets * step, dtype=getattr(torch, name), device=DEVICE)
    if fill is not None:
        flat.fill_(fill)
    parts = [flat[i * step : i * step + numel] for i in range(sets)]
    return [x.view(shape) if order == "row" else x.view(shape[::-1]).t() for x in parts]


def operands(problem: Problem, seed: int = 0) -> Operands:
    """The operands of a problem, by what its scales are of."""
    return (BlockwiseOperands if problem.scales == "block" else Operands)(problem, seed)


def build(problem: Problem, config: Config) -> Launcher:
    """The kernel for a problem and a configuration, compiled and loaded.

    Raises:
        TilepipeError: the configuration is impossible, or does not compile.
    """
    a, b, c = map(TensorView, matrices(problem))
    if isinstance(config, BlockwiseGemmConfig):
        a_scale, b_scale = map(TensorView, block_scales(problem, None))
        return gemm_blockwise.bind(a, b, a_scale, b_scale, c, config).launcher()
    left = right = None
    if problem.scales == "row":
        left, right = (TensorView(torch.empty(x, device=DEVICE)) for x in (problem.m, problem.n))
    source, beta = None, 0.0
    if problem.source:
        shape = problem.m, problem.n
        source, beta = TensorView(allocated(shape, "row", problem.out_dtype, 1)[0]), BETA
    bound = gemm.bind(
        a,
        b,
        c,
        config,
        a_scale=left,
        b_scale=right,
        source=source,
        beta=beta,
        workspace=workspaces.to_bind(c.shape, config, c.device),
    )
    return bound.launcher()


def matrices(problem: Problem) -> list[Any]:
    """A, B and C to bind a kernel to. Their memory is given back as soon as that is done: what is
    bound is where they lie, not what is in them.
    """
    m, n, k = problem.m, problem.n, problem.k
    return [
        allocated(shape, order, dtype, 1)[0]
        for shape, order, dtype in (
            ((m, k), problem.a_order, problem.dtype),
            ((n, k), problem.b_order, problem.dtype),
            ((m, n), "row", problem.out_dtype),
        )
    ]


def build_all(
    wanted: Sequence[tuple[Problem, Config]], step: Step
) -> list[Launcher | TilepipeError]:
    """`build` of each."""

    def one(item: tuple[Problem, Config]) -> Launcher | TilepipeError:
        try:
            return build(*item)
        except TilepipeError as error:
            return error
        finally:
            step("compiling")

    return in_threads(one, wanted)


def in_threads(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """What a function that compiles and loads a kernel gives for each item: in a thread for each
    processor, for which NVRTC runs in as many processes.
    """
    with processes.side_by_side(len(items)) as count, ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, items))
