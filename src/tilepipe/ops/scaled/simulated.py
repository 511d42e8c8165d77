"""scaled_matmul of NumPy arrays: the kernels on the simulated GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm_block_scaled import sm100 as gemm_block_scaled
from tilepipe.kernels.gemm_block_scaled.heuristics import tile_settings
from tilepipe.kernels.gemm_block_scaled.layout import KINDS, to_blocked
from tilepipe.kernels.gemm_block_scaled.reference import pack_fp4
from tilepipe.kernels.gemm_blockwise import sm90 as gemm_blockwise
from tilepipe.ops.matmul.simulated import acceptable, check_array, output_dtype, padded
from tilepipe.ops.scaled.recipes import NAME, UNPACKED, Array, Recipe, recipe


def scaled_matmul(
    a: npt.NDArray[Any], b: npt.NDArray[Any], scale_a: Any, scale_b: Any, *, out: Any, bias: Any, out_dtype: object, seed: int,
    progress: Callable[[int, int], None] | None, settings: Mapping[str, Any],
) -> npt.NDArray[Any]:  # fmt: skip
    """`ops.scaled_matmul` of NumPy arrays, with all its options."""
    (scale_a, whole_a), (scale_b, whole_b) = (
        split(name, x) for name, x in (("scale_a", scale_a), ("scale_b", scale_b))
    )
    for name, x in (("scale_a", scale_a), ("scale_b", scale_b), ("bias", bias)):
        if not isinstance(x, np.ndarray) and not (name == "bias" and x is None):
            raise BindError(
                f"{NAME}: {name} must be a NumPy array as a and b are, got {type(x).__name__}"
            )
    found = recipe(*(Array.of(x) for x in (a, b, scale_a, scale_b)))
    wanted = output_dtype(out, out_dtype, tp.bfloat16, NAME)
    found.check_bias(None if bias is None else Array.of(bias), str(wanted.numpy))
    found.check_settings(settings)
    wholes = _wholes(found, whole_a, whole_b)
    check_array("out", out, (found.m, found.n), exact=True, who=NAME)
    config = _config(found, settings)
    if 0 in (found.m, found.n, found.k):
        c = np.broadcast_to(np.float32(0) if bias is None else bias, (found.m, found.n)).astype(
            wanted.numpy
        )
    else:
        # The kernel refuses arrays that share memory with C; C is new, so none does.
        c = padded((found.m, found.n), wanted)
        left, right = (acceptable(pack_fp4(x) if x.dtype.name == UNPACKED else x) for x in (a, b.T))
        program = _bind(
            found,
            left,
            right,
            scale_a,
            scale_b,
            c,
            config,
            None if bias is None else np.ascontiguousarray(bias),
            wholes,
        )
        program.run(seed=seed, progress=progress)
    if out is None:
        return np.ascontiguousarray(c)
    out[...] = c
    result: npt.NDArray[Any] = out
    return result


def _config(found: Recipe, settings: Mapping[str, Any]) -> Any:
    defaults: dict[str, Any] = {} if found.name == "block" else {"bk": SPAN}
    if found.block_scaled:
        defaults = {"kind": found.name, **tile_settings(found.name)}
    return found.config(**defaults | dict(settings))


def _bind(
    found: Recipe, a: Any, b: Any, scale_a: npt.NDArray[Any], scale_b: npt.NDArray[Any], c: Any, config: Any, bias: Any,
    wholes: dict[str, Any],
) -> tp.Program:  # fmt: skip
    """The kernel for a (m, k) and b (n, k)."""
    if found.name == "block":
        return gemm_blockwise.bind(
            a, b, acceptable(scale_a.T), np.ascontiguousarray(scale_b.T), c, config
        )
    if found.block_scaled:
        sfa = to_blocked(scale_a) if scale_a.ndim == 2 else np.ascontiguousarray(scale_a)
        sfb = to_blocked(scale_b.T) if scale_b.ndim == 2 else np.ascontiguousarray(scale_b)
        return gemm_block_scaled.bind(a, b, sfa, sfb, c, config, bias=bias, **wholes)
    scales: dict[str, Any] = {
        "a_scale": np.ascontiguousarray(scale_a).reshape(-1),
        "b_scale": np.ascontiguousarray(scale_b).reshape(-1),
    }
    return gemm.bind(a, b, c, config, bias=bias, **scales)


def split(name: str, scale: Any) -> tuple[Any, Any]:
    """The scales of blocks and that of the whole tensor, where both are given as a pair; else None
    for the latter.

    Raises:
        BindError: a tuple or list that is no pair.
    """
    if not isinstance(scale, tuple | list):
        return scale, None
    if len(scale) != 2:
        raise BindError(
            f"{NAME}: {name} is the scales, or a pair of them: of the blocks, and of the whole"
            f" tensor; got {len(scale)}"
        )
    return scale[0], scale[1]


def _wholes(found: Recipe, whole_a: Any, whole_b: Any) -> dict[str, Any]:
    """Both scales of whole tensors as the kernel takes them; one that is not given is 1.

    Raises:
        BindError: another recipe than those of blocks, or not one float32.
    """
    if whole_a is whole_b is None:
        return {}
    if not found.block_scaled:
        raise BindError(
            f"{NAME}: scales of blocks and of the whole tensor go together in {', '.join(KINDS)};"
            f" these are of each {found.name}"
        )
    made = {}
    for name, x in (("a_scale", whole_a), ("b_scale", whole_b)):
        value = np.float32(1) if x is None else x
        if np.size(value) != 1 or np.asarray(value).dtype != np.float32:
            raise BindError(
                f"{NAME}: the scale of a whole tensor is one float32, such as np.float32(0.5);"
                f" got {value!r:.40}"
            )
        made[name] = np.asarray(value, np.float32).reshape(1)
    return made
