"""The shipped kernels as the command line sees them: names, settings, and how to make a case from settings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.ir import dtypes
from tilepipe.kernels import blockwise_fp8_choice, blockwise_fp8_gemm, gemm, gemm_choice, tuned
from tilepipe.kernels import blockwise_fp8_reference as reference
from tilepipe.kernels.blockwise_fp8_config import BlockwiseFP8Config
from tilepipe.kernels.gemm_choice import SPAN, Problem
from tilepipe.kernels.gemm_epilogue import activated
from tilepipe.testing.numerics import Comparison, compare_matmul

Setting = int | str


@dataclass(frozen=True, eq=False)
class Case:
    """One kernel with random operands. `verify()` compares the output with float64; `tiles` counts output tiles."""

    program: tp.Program
    output: npt.NDArray[Any]
    verify: Callable[[], Comparison]
    tiles: int


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """A shipped kernel.

    Attributes:
        settings: all of them, with their defaults. tiles: those that decide how the work is done and not what is done.
        make: a case from all settings and a seed; raises BindError for a value that the kernel cannot have.
        choose: settings -> tile settings for a chip or the simulator (None), and where they come from.
        problem: the product that settings state. config: the configuration that they make.
    """

    name: str
    summary: str
    archs: tuple[str, ...]
    settings: dict[str, Setting]
    tiles: frozenset[str]
    make: Callable[[Mapping[str, Any], int], Case]
    choose: Callable[[Mapping[str, Any], tp.Chip | None], tuple[dict[str, Setting], str]]
    problem: Callable[[Mapping[str, Any]], Problem]
    config: Callable[[Mapping[str, Any]], Any]

    def configure(self, given: Mapping[str, Setting], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
        """All settings, and a few words on where the tile settings come from.

        Where none of those is given they are chosen for `chip`; for the simulator (None) they are the defaults for the dtype, as are
        the others where some are given.

        Raises:
            BindError: a value that the kernel cannot have.
        """
        config = self.settings | dict(given)
        mine = [name for name in given if name in self.tiles]
        if mine:
            defaults, _ = self.choose(config, None)
            return self.settings | defaults | dict(given), f"{', '.join(mine)} as given, the others at their defaults"
        chosen, origin = self.choose(config, chip)
        return config | chosen, origin

    def parse(self, texts: list[str]) -> dict[str, Setting]:
        """Settings from `name=value` texts, each of its default's type.

        Raises:
            BindError: no '=', an unknown name, a value of the wrong type.
        """
        given: dict[str, Setting] = {}
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals or not value:
                raise BindError(f"a setting is name=value, got {text!r}")
            if name not in self.settings:
                raise BindError(f"kernel '{self.name}' has no setting '{name}'; it has {', '.join(self.settings)}")
            if isinstance(self.settings[name], int):
                try:
                    given[name] = int(value)
                except ValueError:
                    raise BindError(f"setting {name}: {value!r} is not an integer") from None
            else:
                given[name] = value
        return given


_GEMM_DEFAULTS = asdict(gemm.GemmConfig())
_BLOCKWISE_DEFAULTS = asdict(BlockwiseFP8Config())
_NO_TILES = ("activation",)  # fields of the configuration that say what is computed
MAX_ELEMENTS = 2**31  # of one operand: what a run and its reference can still hold in memory
FP8_REL_ERROR = 6e-3  # Frobenius, of fp8 products into 16 bits: tensor cores keep about 14 bits of a sum


def _check_extents(settings: Mapping[str, Any]) -> None:
    m, n, k = (settings[name] for name in "mnk")
    for name in "mnk":
        if settings[name] < 1:
            raise BindError(f"setting {name} must be at least 1, got {settings[name]}")
    if max(m * k, n * k, m * n) > MAX_ELEMENTS:
        raise BindError(f"a matrix of {max(m * k, n * k, m * n):,} elements is more than a run takes ({MAX_ELEMENTS:,})")


def gemm_problem(settings: Mapping[str, Any]) -> Problem:
    """The product that settings state.

    Raises:
        BindError: an extent, order or dtype that no matrix has.
    """
    _check_extents(settings)
    for name in ("a_order", "b_order"):
        if settings[name] not in ("row", "col"):
            raise BindError(f"setting {name} must be row or col, got {settings[name]!r}")
    dtype, out = dtypes.dtype(settings["dtype"]), dtypes.dtype(settings["out_dtype"])
    orders = {name: settings[name] for name in ("a_order", "b_order")}
    return Problem(
        settings["m"], settings["n"], settings["k"], dtype=dtype, out_dtype=out, **orders, extras=settings["activation"] != "none"
    )


def gemm_config(settings: Mapping[str, Any]) -> gemm.GemmConfig:
    """The configuration that settings make."""
    return gemm.GemmConfig(**{name: settings[name] for name in _GEMM_DEFAULTS})


def _choose_gemm(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    problem = gemm_problem(settings)
    if problem.dtype not in gemm.INPUTS:
        return {}, ""  # making the case says what is wrong
    if chip is None:
        return {"bk": SPAN // problem.dtype.nbytes}, "the defaults; --device cuda chooses them for the shape"
    remembered = tuned.lookup(problem, chip)
    config = gemm_choice.best(problem, chip) if remembered is None else remembered
    tiles = {name: value for name, value in asdict(config).items() if name not in _NO_TILES}
    return tiles, "chosen for the shape" if remembered is None else "tuned for the shape"


def _gemm(settings: Mapping[str, Any], seed: int) -> Case:
    problem = gemm_problem(settings)
    rng = np.random.default_rng(seed)
    config = gemm_config(settings)
    a = _random(rng, (problem.m, problem.k), problem.dtype, problem.a_order)
    b = _random(rng, (problem.n, problem.k), problem.dtype, problem.b_order)
    c = np.zeros((problem.m, problem.n), problem.out_dtype.numpy)
    program = gemm.bind(a, b, c, config)
    rows, cols = (problem.m, problem.n) if config.swap == "none" else (problem.n, problem.m)
    tiles = -(-rows // config.bm) * -(-cols // config.bn)
    return Case(program, c, functools.partial(_verify, c, a, b, config), tiles)


def _verify(c: npt.NDArray[Any], a: npt.NDArray[Any], b: npt.NDArray[Any], config: gemm.GemmConfig) -> Comparison:
    comparison = compare_matmul(c, a, b.T, then=functools.partial(activated, name=config.activation))
    if a.dtype.itemsize == 1 and config.accumulate == "fast":
        return _fp8(comparison)
    return comparison


def blockwise_problem(settings: Mapping[str, Any]) -> Problem:
    """The product of fp8 operands with a scale for each block that settings state.

    Raises:
        BindError: an extent or dtype that no matrix has.
    """
    _check_extents(settings)
    out = dtypes.dtype(settings["out_dtype"])
    return Problem(settings["m"], settings["n"], settings["k"], dtype=tp.float8_e4m3, out_dtype=out, scales="block")


def blockwise_config(settings: Mapping[str, Any]) -> BlockwiseFP8Config:
    """The configuration that settings make."""
    return BlockwiseFP8Config(**{name: settings[name] for name in _BLOCKWISE_DEFAULTS})


def _choose_blockwise(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    problem = blockwise_problem(settings)
    if chip is None or problem.out_dtype not in gemm.OUTPUTS:
        return {}, "the defaults; --device cuda chooses them for the shape"
    return asdict(blockwise_fp8_choice.best(problem, chip)), "chosen for the shape"


def _blockwise(settings: Mapping[str, Any], seed: int) -> Case:
    problem, rng = blockwise_problem(settings), np.random.default_rng(seed)
    config = blockwise_config(settings)
    a, a_scales = reference.quantized_rows(rng.standard_normal((problem.m, problem.k), dtype=np.float32))
    b, b_scales = reference.quantized_blocks(rng.standard_normal((problem.n, problem.k), dtype=np.float32))
    c = np.zeros((problem.m, problem.n), problem.out_dtype.numpy)
    program = blockwise_fp8_gemm.bind(a, b, a_scales, b_scales, c, config)

    def verify() -> Comparison:
        return _fp8(reference.compare(c, a, a_scales, b, b_scales))

    return Case(program, c, verify, -(-problem.m // config.bm) * -(-problem.n // config.bn))


def _fp8(comparison: Comparison) -> Comparison:
    """Judged by the whole: single sums of the tensor cores are off by more than the bound of float32 sums allows."""
    return replace(comparison, ok=comparison.rel_error <= FP8_REL_ERROR)


def _random(rng: np.random.Generator, shape: tuple[int, int], dtype: tp.DType, order: str) -> npt.NDArray[Any]:
    values = rng.standard_normal(shape, dtype=np.float32).astype(dtype.numpy)
    if dtype is tp.float32:  # what tf32 holds exactly: 10 bits of mantissa
        values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.asfortranarray(values) if order == "col" else values


KERNELS: dict[str, KernelSpec] = {
    "gemm": KernelSpec(
        "gemm",
        "C = A · Bᵀ: persistent, warp-specialised, TMA in and out, wgmma, cluster multicast",
        ("sm_90a",),
        {"m": 1024, "n": 1024, "k": 1024}
        | _GEMM_DEFAULTS
        | {"dtype": "bfloat16", "out_dtype": "bfloat16", "a_order": "row", "b_order": "row"},
        frozenset(_GEMM_DEFAULTS) - set(_NO_TILES),
        _gemm,
        _choose_gemm,
        gemm_problem,
        gemm_config,
    ),
    "blockwise_fp8_gemm": KernelSpec(
        "blockwise_fp8_gemm",
        "C = A · Bᵀ of fp8 e4m3, a scale for each 1×128 of A and 128×128 of B: TMA, wgmma, float32 sums across blocks",
        ("sm_90a",),
        {"m": 1024, "n": 1024, "k": 1024} | _BLOCKWISE_DEFAULTS | {"out_dtype": "bfloat16"},
        frozenset(_BLOCKWISE_DEFAULTS),
        _blockwise,
        _choose_blockwise,
        blockwise_problem,
        blockwise_config,
    ),
}


def find(name: str) -> KernelSpec:
    """The kernel of that name.

    Raises:
        BindError: there is none; the message lists those there are.
    """
    if name not in KERNELS:
        raise BindError(f"there is no kernel '{name}'; there are: {', '.join(KERNELS)}")
    return KERNELS[name]
