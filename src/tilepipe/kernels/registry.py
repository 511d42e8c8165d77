"""The shipped kernels as the command line sees them: names, settings, and how to make a case from settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.ir import dtypes
from tilepipe.kernels import gemm
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
    """A shipped kernel: its settings with their defaults, and `make(settings, seed)`."""

    name: str
    summary: str
    archs: tuple[str, ...]
    settings: dict[str, Setting]
    make: Callable[[Mapping[str, Any], int], Case]

    def case(self, given: Mapping[str, Setting], seed: int) -> tuple[dict[str, Setting], Case]:
        """The whole configuration and the case for it.

        Raises:
            BindError: an unknown setting or a value the kernel cannot have.
        """
        config = self.settings | dict(given)
        return config, self.make(config, seed)

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


_GEMM_DEFAULTS = gemm.GemmConfig()
MAX_ELEMENTS = 2**31  # of one operand: what a simulated run could still hold in memory


def _gemm(settings: Mapping[str, Any], seed: int) -> Case:
    m, n, k = (settings[name] for name in "mnk")
    for name in "mnk":
        if settings[name] < 1:
            raise BindError(f"setting {name} must be at least 1, got {settings[name]}")
    if max(m * k, n * k, m * n) > MAX_ELEMENTS:
        raise BindError(f"a matrix of {max(m * k, n * k, m * n):,} elements is more than a simulated run takes ({MAX_ELEMENTS:,})")
    for name in ("a_order", "b_order"):
        if settings[name] not in ("row", "col"):
            raise BindError(f"setting {name} must be row or col, got {settings[name]!r}")
    dtype, out = dtypes.dtype(settings["dtype"]), dtypes.dtype(settings["out_dtype"])
    rng = np.random.default_rng(seed)
    config = gemm.GemmConfig(**{name: settings[name] for name in vars(_GEMM_DEFAULTS)})
    a = _random(rng, (m, k), dtype, settings["a_order"])
    b = _random(rng, (n, k), dtype, settings["b_order"])
    c = np.zeros((m, n), out.numpy)
    program = gemm.bind(a, b, c, config)
    tiles = -(-m // config.bm) * -(-n // config.bn)
    return Case(program, c, lambda: compare_matmul(c, a, b.T), tiles)


def _random(rng: np.random.Generator, shape: tuple[int, int], dtype: tp.DType, order: str) -> npt.NDArray[Any]:
    values = rng.standard_normal(shape, dtype=np.float32).astype(dtype.numpy)
    return np.asfortranarray(values) if order == "col" else values


KERNELS: dict[str, KernelSpec] = {
    "gemm": KernelSpec(
        "gemm",
        "C = A · Bᵀ: persistent, warp-specialised, TMA in and out, wgmma, cluster multicast",
        ("sm_90a",),
        {"m": 1024, "n": 1024, "k": 1024}
        | vars(_GEMM_DEFAULTS)
        | {"dtype": "bfloat16", "out_dtype": "bfloat16", "a_order": "row", "b_order": "row"},
        _gemm,
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
