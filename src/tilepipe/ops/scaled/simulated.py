"""scaled_matmul of NumPy arrays: the kernels on the simulated GPU."""

from __future__ import annotations

import numpy as np

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm_block_scaled import sm100 as gemm_block_scaled
from tilepipe.kernels.gemm_block_scaled.config import BlockScaledGemmConfig
from tilepipe.kernels.gemm_block_scaled.layout import KINDS, to_blocked
from tilepipe.kernels.gemm_block_scaled.reference import pack_fp4
from tilepipe.kernels.gemm_blockwise import sm90 as gemm_blockwise
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.ops.arrays import acceptable, padded, require_arrays, stored
from tilepipe.ops.calls import (
    Array,
    Progress,
    Setting,
    Settings,
    check_shape,
    configured,
    result_dtype,
)
from tilepipe.ops.scaled.call import UNPACKED, ArrayKind, Config, Recipe, recipe
from tilepipe.ops.scaled.public import NAME, ScaledCall

WholeScales = tuple[Array | None, Array | None]  # of A and of B, float32 (1,); both or neither


def scaled_matmul(call: ScaledCall[Array], seed: int, progress: Progress | None) -> Array:
    """`ops.scaled_matmul` of NumPy arrays, with all its options."""
    a, b, bias = call.a, call.b, call.bias
    scale_a, whole_a = _split("scale_a", call.scale_a)
    scale_b, whole_b = _split("scale_b", call.scale_b)
    scales = ("scale_a", scale_a), ("scale_b", scale_b)
    require_arrays(NAME, "a and b", *scales, bias=bias, out=call.out)
    found = recipe(*(ArrayKind.of(x) for x in (a, b, scale_a, scale_b)))
    wanted = result_dtype(NAME, call.out, call.out_dtype, tp.bfloat16)
    found.check_bias(None if bias is None else ArrayKind.of(bias), str(wanted.numpy))
    found.check_settings(call.settings)
    wholes = _wholes(found, whole_a, whole_b)
    shape = found.m, found.n
    check_shape(NAME, "out", call.out, shape)
    cfg = _config(found, call.settings)
    if 0 in (*shape, found.k):
        nothing = np.zeros((), np.float32) if bias is None else bias
        return stored(call.out, np.broadcast_to(nothing, shape).astype(wanted.numpy))
    # The kernel refuses arrays that share memory with C; C is new, so none does.
    c = padded(shape, wanted)
    left, right = (acceptable(pack_fp4(x) if x.dtype.name == UNPACKED else x) for x in (a, b.T))
    added = None if bias is None else np.ascontiguousarray(bias)
    program = _bind(cfg, left, right, scale_a, scale_b, c, added, wholes)
    program.run(seed=seed, progress=progress)
    return stored(call.out, c)


def _config(found: Recipe, settings: Settings) -> Config:
    if found.name == "block":
        return configured(BlockwiseGemmConfig, {}, settings)
    if found.block_scaled:  # rows of K tiles fill a swizzle span
        bits = tp.dtype(KINDS[found.name].elements[0]).bits
        defaults: dict[str, Setting] = {"kind": found.name, "bk": SPAN * 8 // bits}
        return configured(BlockScaledGemmConfig, defaults, settings)
    return configured(GemmConfig, {"bk": SPAN}, settings)


def _bind(
    cfg: Config,
    a: Array,
    b: Array,
    scale_a: Array,
    scale_b: Array,
    c: Array,
    bias: Array | None,
    wholes: WholeScales,
) -> tp.Program:
    """The kernel of a configuration, for a (m, k) and b (n, k)."""
    if isinstance(cfg, BlockwiseGemmConfig):
        a_scales, b_scales = acceptable(scale_a.T), np.ascontiguousarray(scale_b.T)
        return gemm_blockwise.bind(a, b, a_scales, b_scales, c, cfg)
    if isinstance(cfg, BlockScaledGemmConfig):
        sfa = to_blocked(scale_a) if scale_a.ndim == 2 else np.ascontiguousarray(scale_a)
        sfb = to_blocked(scale_b.T) if scale_b.ndim == 2 else np.ascontiguousarray(scale_b)
        a_scale, b_scale = wholes
        return gemm_block_scaled.bind(
            a, b, sfa, sfb, c, cfg, bias=bias, a_scale=a_scale, b_scale=b_scale
        )
    left, right = (np.ascontiguousarray(x).reshape(-1) for x in (scale_a, scale_b))
    return gemm.bind(a, b, c, cfg, bias=bias, a_scale=left, b_scale=right)


def _split(name: str, scale: Array | tuple[Array, object]) -> tuple[Array, object]:
    """The scales of blocks and that of the whole operand, where both are given as a pair; else None
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


def _wholes(found: Recipe, whole_a: object, whole_b: object) -> WholeScales:
    """Both scales of whole operands as the kernel takes them; one that is not given is 1.

    Raises:
        BindError: another recipe than those of blocks, or not one float32.
    """
    if whole_a is None and whole_b is None:
        return None, None
    if not found.block_scaled:
        raise BindError(
            f"{NAME}: scales of blocks and of the whole tensor go together in {', '.join(KINDS)};"
            f" these are of each {found.name}"
        )
    return _whole(whole_a), _whole(whole_b)


def _whole(x: object) -> Array:
    value = np.asarray(np.float32(1) if x is None else x)
    if value.size != 1 or value.dtype != np.float32:
        raise BindError(
            f"{NAME}: the scale of a whole tensor is one float32, such as np.float32(0.5); got"
            f" {x!r:.40}"
        )
    return value.astype(np.float32).reshape(1)
