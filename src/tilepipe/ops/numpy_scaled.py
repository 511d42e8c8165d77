"""scaled_matmul of NumPy arrays: the kernels on the simulated GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels import blockwise_fp8_gemm, gemm
from tilepipe.kernels.gemm_choice import SPAN
from tilepipe.ops.numpy_matmul import acceptable, check_array, output_dtype, padded
from tilepipe.ops.scaled_recipes import NAME, Array, Recipe, recipe


def scaled_matmul(
    a: npt.NDArray[Any], b: npt.NDArray[Any], scale_a: Any, scale_b: Any, *, out: Any, bias: Any, out_dtype: object, seed: int,
    progress: Callable[[int, int], None] | None, settings: Mapping[str, Any],
) -> npt.NDArray[Any]:  # fmt: skip
    """`ops.scaled_matmul` of NumPy arrays, with all its options."""
    for name, x in (("scale_a", scale_a), ("scale_b", scale_b), ("bias", bias)):
        if not isinstance(x, np.ndarray) and not (name == "bias" and x is None):
            raise BindError(f"{NAME}: {name} must be a NumPy array as a and b are, got {type(x).__name__}")
    found = recipe(*(Array.of(x) for x in (a, b, scale_a, scale_b)))
    wanted = output_dtype(out, out_dtype, tp.bfloat16, NAME)
    found.check_bias(None if bias is None else Array.of(bias), str(wanted.numpy))
    found.check_settings(settings)
    check_array("out", out, (found.m, found.n), exact=True, who=NAME)
    config = _config(found, settings)
    if 0 in (found.m, found.n, found.k):
        c = np.broadcast_to(np.float32(0) if bias is None else bias, (found.m, found.n)).astype(wanted.numpy)
    else:
        # The kernel refuses arrays that share memory with C; C is new, so none does.
        c = padded((found.m, found.n), wanted)
        _bind(found, acceptable(a), acceptable(b.T), scale_a, scale_b, c, bias, config).run(seed=seed, progress=progress)
    if out is None:
        return np.ascontiguousarray(c)
    out[...] = c
    result: npt.NDArray[Any] = out
    return result


def _config(found: Recipe, settings: Mapping[str, Any]) -> Any:
    defaults = {} if found.name == "block" else {"bk": SPAN}
    return found.config(**defaults | dict(settings))


def _bind(
    found: Recipe, a: Any, b: Any, scale_a: npt.NDArray[Any], scale_b: npt.NDArray[Any], c: Any, bias: Any, config: Any
) -> tp.Program:
    """The kernel for a (m, k) and b (n, k)."""
    if found.name == "block":
        return blockwise_fp8_gemm.bind(a, b, acceptable(scale_a.T), np.ascontiguousarray(scale_b.T), c, config)
    scales: dict[str, Any] = {"a_scale": np.ascontiguousarray(scale_a).reshape(-1), "b_scale": np.ascontiguousarray(scale_b).reshape(-1)}
    return gemm.bind(a, b, c, config, bias=None if bias is None else np.ascontiguousarray(bias), **scales)
